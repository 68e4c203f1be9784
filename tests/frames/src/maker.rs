// SPDX-License-Identifier: GPL-2.0

//! Frames as a client on another machine would send them: numbered datagrams, in the overlay or without it.

use anyhow::{ensure, Context as _, Result};
use etherparse::{EtherType, Ethernet2Header, IpFragOffset, IpNumber, Ipv4Header, UdpHeader};
use mflow_protocol::bench::{Frames, PORT};
use mflow_protocol::datagram::{self, Head, Pattern, MAX_BYTES, MIN_BYTES};
use mflow_protocol::network;

/// The first source port of the flows' datagrams.
const SOURCE_PORT: u16 = 40_001;
/// The first source port of the overlay's packets; a VXLAN sender makes it from the inner flow.
const OUTER_SOURCE_PORT: u16 = 50_001;
/// The machine that sends to the server's.
const SENDER_MAC: &str = "02:00:00:00:02:01";
const TIME_TO_LIVE: u8 = 64;
/// Bytes of an IPv4 header without options.
const IP_HEAD: usize = 20;
const UDP_HEAD: usize = 8;
/// VXLAN flag: the network identifier is valid.
const VNI_VALID: u8 = 0x08;

/// Makes the frames of numbered datagrams.
pub struct Maker {
    order: Frames,
    pattern: Pattern,
    datagram: Vec<u8>,
    outer_link: Ethernet2Header,
    inner_link: Ethernet2Header,
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
        let link = |destination: &str, source: &str| -> Result<Ethernet2Header> {
            Ok(Ethernet2Header {
                destination: mac(destination)?,
                source: mac(source)?,
                ether_type: EtherType::IPV4,
            })
        };
        Ok(Self {
            outer_link: link(&order.nic_mac, SENDER_MAC)?,
            inner_link: link(network::CONTAINER_MAC, network::CLIENT_MAC)?,
            pattern: Pattern::default(),
            datagram: vec![0; order.bytes],
            fragment_id: 0,
            order,
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
        let (from, to, mtu) = if self.order.overlay {
            (network::CLIENT, network::CONTAINER, network::OVERLAY_MTU)
        } else {
            (
                network::CLIENT_HOST,
                network::SERVER_HOST,
                network::WIRE_MTU,
            )
        };
        let (from, to) = (from.octets(), to.octets());
        let mut udp = UdpHeader {
            source_port: SOURCE_PORT + flow,
            destination_port: PORT,
            // CAST: at most 65,515.
            length: (UDP_HEAD + self.datagram.len()) as u16,
            checksum: 0,
        };
        udp.checksum = udp.calc_checksum_ipv4_raw(from, to, &self.datagram)?;
        let mut payload = udp.to_bytes().to_vec();
        payload.extend_from_slice(&self.datagram);
        let whole = payload.len() + IP_HEAD <= mtu;
        // Every fragment but the last carries a multiple of 8 bytes.
        let most = if whole {
            payload.len()
        } else {
            (mtu - IP_HEAD) / 8 * 8
        };
        if !whole {
            self.fragment_id = self.fragment_id.wrapping_add(1);
        }
        let count = payload.len().div_ceil(most);
        let mut frame = Vec::with_capacity(network::WIRE_MTU + Ethernet2Header::LEN);
        for (index, part) in payload.chunks(most).enumerate() {
            let mut ip = ip(part.len(), IpNumber::UDP, from, to)?;
            ip.dont_fragment = whole;
            ip.identification = if whole { 0 } else { self.fragment_id };
            ip.more_fragments = index + 1 < count;
            // CAST: at most 65,535 / 8.
            ip.fragment_offset = IpFragOffset::try_new((index * most / 8) as u16)?;
            ip.header_checksum = ip.calc_header_checksum();
            frame.clear();
            if self.order.overlay {
                self.outer_link.write(&mut frame)?;
                let inner = Ethernet2Header::LEN + IP_HEAD + part.len();
                self.outer(flow, inner, &mut frame)?;
                self.inner_link.write(&mut frame)?;
            } else {
                self.outer_link.write(&mut frame)?;
            }
            ip.write(&mut frame)?;
            frame.extend_from_slice(part);
            take(&frame);
        }
        Ok(())
    }

    /// Writes IP, UDP and VXLAN headers in front of an inner frame of `inner` bytes.
    fn outer(&self, flow: u16, inner: usize, frame: &mut Vec<u8>) -> Result<()> {
        let vxlan_bytes = 8 + inner;
        let (from, to) = (network::CLIENT_HOST.octets(), network::SERVER_HOST.octets());
        let mut ip = ip(UDP_HEAD + vxlan_bytes, IpNumber::UDP, from, to)?;
        ip.dont_fragment = true;
        ip.header_checksum = ip.calc_header_checksum();
        ip.write(frame)?;
        // Over IPv4 the overlay's own checksum is left out, as Linux does.
        let udp = UdpHeader::without_ipv4_checksum(
            OUTER_SOURCE_PORT + flow,
            network::VXLAN_PORT,
            vxlan_bytes,
        )?;
        udp.write(frame)?;
        let [_, high, middle, low] = network::VNI.to_be_bytes();
        frame.extend_from_slice(&[VNI_VALID, 0, 0, 0, high, middle, low, 0]);
        Ok(())
    }
}

fn ip(payload: usize, protocol: IpNumber, from: [u8; 4], to: [u8; 4]) -> Result<Ipv4Header> {
    let length = u16::try_from(payload).context("a packet is longer than 65,535 bytes")?;
    Ok(Ipv4Header::new(length, TIME_TO_LIVE, protocol, from, to)?)
}

fn mac(text: &str) -> Result<[u8; 6]> {
    let bytes: Option<Vec<u8>> = text
        .trim()
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .with_context(|| format!("no hardware address: {text:?}"))
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
        let outer = SlicedPacket::from_ethernet(&frames[0]).expect("good frame");
        let Some(TransportSlice::Udp(udp)) = outer.transport else {
            panic!("no UDP in {outer:?}");
        };
        assert_eq!(udp.destination_port(), network::VXLAN_PORT);
        assert_eq!(udp.source_port(), OUTER_SOURCE_PORT + 1);
        assert_eq!(udp.payload()[..8], [8, 0, 0, 0, 0, 0, 42, 0]);
        let inner = SlicedPacket::from_ethernet(&udp.payload()[8..]).expect("good inner frame");
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
                whole.extend_from_slice(&frame[head + 14 + IP_HEAD..]);
            }
            assert!(datagram::decode(&whole[UDP_HEAD..]).is_some());
        }
    }
}
