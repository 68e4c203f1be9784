// SPDX-License-Identifier: GPL-2.0

//! Frames as a client on another machine would send them: numbered datagrams, in the overlay or without it.

use anyhow::{ensure, Result};
use etherparse::{Ethernet2Header, IpFragOffset, IpNumber, Ipv4Header, UdpHeader};
use mflow_protocol::bench::{Frames, PORT};
use mflow_protocol::datagram::{self, Head, Pattern, MAX_BYTES, MIN_BYTES};
use mflow_protocol::network;

use super::envelope::{ipv4, Envelope, OuterChecksum};

/// The first source port of the flows' datagrams.
const SOURCE_PORT: u16 = 40_001;

/// Makes the frames of numbered datagrams.
pub struct Maker {
    pattern: Pattern,
    datagram: Vec<u8>,
    envelope: Envelope,
    /// Of the next datagram that has to be cut.
    fragment_id: u16,
}

impl Maker {
    /// Returns a maker of what the guest asks for.
    pub fn new(order: Frames) -> Result<Self> {
        ensure!(order.flows > 0, "frames of no flow cannot be made");
        ensure!(
            (MIN_BYTES..=MAX_BYTES).contains(&order.bytes),
            "a datagram has {MIN_BYTES} to {MAX_BYTES} bytes, not {}",
            order.bytes
        );
        Ok(Self {
            envelope: Envelope::new(&order.nic_mac, order.overlay)?,
            pattern: Pattern::default(),
            datagram: vec![0; order.bytes],
            fragment_id: 0,
        })
    }

    /// Hands each frame of one datagram to `take`.
    pub fn make(&mut self, flow: u16, sequence: u64, mut take: impl FnMut(&[u8])) -> Result<()> {
        let head = Head {
            flow,
            sequence,
            sent_ns: None,
        };
        datagram::encode(&self.pattern, head, &mut self.datagram);
        let path = self.envelope.path();
        let (from, to) = (path.client.octets(), path.server.octets());
        let mut udp = UdpHeader {
            source_port: SOURCE_PORT + flow,
            destination_port: PORT,
            // CAST: at most 65,515.
            length: (UdpHeader::LEN + self.datagram.len()) as u16,
            checksum: 0,
        };
        udp.checksum = udp.calc_checksum_ipv4_raw(from, to, &self.datagram)?;
        let mut payload = udp.to_bytes().to_vec();
        payload.extend_from_slice(&self.datagram);
        let whole = payload.len() + Ipv4Header::MIN_LEN <= path.mtu;
        // Every fragment but the last carries a multiple of 8 bytes.
        let most = if whole {
            payload.len()
        } else {
            (path.mtu - Ipv4Header::MIN_LEN) / 8 * 8
        };
        if !whole {
            self.fragment_id = self.fragment_id.wrapping_add(1);
        }
        let count = payload.len().div_ceil(most);
        let mut frame = Vec::with_capacity(network::WIRE_MTU + Ethernet2Header::LEN);
        for (index, part) in payload.chunks(most).enumerate() {
            let mut ip = ipv4(part.len(), IpNumber::UDP, from, to)?;
            ip.dont_fragment = whole;
            ip.identification = if whole { 0 } else { self.fragment_id };
            ip.more_fragments = index + 1 < count;
            // CAST: at most 65,535 / 8.
            ip.fragment_offset = IpFragOffset::try_new((index * most / 8) as u16)?;
            ip.header_checksum = ip.calc_header_checksum();
            frame.clear();
            frame.resize(self.envelope.head_bytes(), 0);
            ip.write(&mut frame)?;
            frame.extend_from_slice(part);
            self.envelope
                .seal(flow, OuterChecksum::LeftOut, &mut frame)?;
            take(&frame);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    use super::*;

    fn frames(bytes: usize, overlay: bool) -> Vec<Vec<u8>> {
        let mut maker = Maker::new(Frames {
            nic_mac: "52:54:00:00:00:03\n".to_owned(),
            overlay,
            flows: 2,
            bytes,
            credit: 1,
        })
        .expect("good order");
        let mut frames = Vec::new();
        maker
            .make(1, 77, |frame| frames.push(frame.to_vec()))
            .expect("frames");
        frames
    }

    #[test]
    fn a_small_datagram_is_one_frame_with_good_checksums() {
        let frames = frames(16, true);
        assert_eq!(frames.len(), 1);
        // What is around the inner frame has a test of its own.
        let inner = SlicedPacket::from_ethernet(&frames[0][50..]).expect("good inner frame");
        let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) =
            (&inner.net, &inner.transport)
        else {
            panic!("no UDP over IPv4 in {inner:?}");
        };
        let head = ip.header().to_header();
        assert_eq!(head.header_checksum, head.calc_header_checksum());
        assert_eq!(head.destination, network::CONTAINER.octets());
        let sum =
            udp.to_header()
                .calc_checksum_ipv4_raw(head.source, head.destination, udp.payload());
        assert_eq!(sum.expect("short enough"), udp.checksum());
        let numbered = datagram::decode(udp.payload()).expect("good datagram");
        assert_eq!((numbered.flow, numbered.sequence), (1, 77));
    }

    #[test]
    fn a_large_datagram_is_cut_as_the_kernel_does() {
        for (overlay, mtu) in [(true, network::OVERLAY_MTU), (false, network::WIRE_MTU)] {
            let head = if overlay { 50 } else { 0 };
            let frames = frames(65_507, overlay);
            assert_eq!(frames.len(), if overlay { 47 } else { 45 });
            let mut whole = Vec::new();
            for (index, frame) in frames.iter().enumerate() {
                assert!(frame.len() <= 14 + network::WIRE_MTU);
                let ip = Ipv4Header::from_slice(&frame[head + 14..])
                    .expect("good header")
                    .0;
                assert_eq!(ip.fragment_offset.byte_offset() as usize, whole.len());
                assert_eq!(ip.more_fragments, index + 1 < frames.len());
                assert!(usize::from(ip.total_len) <= mtu);
                whole.extend_from_slice(&frame[head + 14 + Ipv4Header::MIN_LEN..]);
            }
            assert!(datagram::decode(&whole[UdpHeader::LEN..]).is_some());
        }
    }
}
