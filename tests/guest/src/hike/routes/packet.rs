// SPDX-License-Identifier: GPL-2.0

//! Packets that rules and next hops can tell apart: as frames, each with a number at its end.

use std::net::IpAddr;

pub(crate) const ROUTER_MAC: [u8; 6] = [2, 0, 0, 8, 0xff, 1];
pub(crate) const FROM_MAC: [u8; 6] = [2, 0, 0, 8, 0xff, 2];
/// Stands in front of the number.
const MARK: [u8; 8] = *b"numbered";
const IPV4: [u8; 2] = [8, 0];
const IPV6: [u8; 2] = [0x86, 0xdd];
const HOP_LIMIT: u8 = 64;
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const GRE: u8 = 47;
pub(crate) const ESP: u8 = 50;
pub(crate) const ICMP6: u8 = 58;
pub(crate) const SCTP: u8 = 132;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// The kinds of headers between the IP header and the transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    Nothing,
    /// It is the first of two fragments.
    FirstFragment,
    /// It is the second.
    LaterFragment,
    /// Destination options of padding; IPv6 alone.
    Options,
    /// A segment routing header with one SID; IPv6 alone.
    Segments,
}

/// A packet, to be sent to the router.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// VLAN tags, as they stand in the frame.
    pub(crate) tags: Vec<[u8; 4]>,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// DSCP and ECN.
    pub(crate) class: u8,
    pub(crate) label: u32,
    pub(crate) protocol: u8,
    pub(crate) ports: (u16, u16),
    pub(crate) between: Between,
    /// The payload behind the transport header, at least.
    pub(crate) payload_bytes: usize,
}

impl Packet {
    /// Returns a small datagram without anything special.
    pub(crate) fn plain(source: IpAddr, destination: IpAddr) -> Self {
        Self {
            tags: Vec::new(),
            source,
            destination,
            class: 0,
            label: 0,
            protocol: UDP,
            ports: (5_000, 6_000),
            between: Between::Nothing,
            payload_bytes: 0,
        }
    }

    /// Returns the frame with this number.
    pub(crate) fn frame(&self, number: u32) -> Vec<u8> {
        let mut payload = self.transport();
        payload.resize(payload.len() + self.payload_bytes, 0);
        payload.extend(MARK);
        payload.extend(number.to_be_bytes());
        let (kind, ip) = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => (
                IPV4,
                self.ipv4(source.octets(), destination.octets(), payload.len()),
            ),
            (IpAddr::V6(source), IpAddr::V6(destination)) => (
                IPV6,
                self.ipv6(source.octets(), destination.octets(), payload.len()),
            ),
            other => panic!("{other:?} are of two families"),
        };
        let tags = self.tags.concat();
        [
            &ROUTER_MAC[..],
            &FROM_MAC,
            &tags[..],
            &kind,
            &ip[..],
            &payload[..],
        ]
        .concat()
    }

    fn ipv4(&self, source: [u8; 4], destination: [u8; 4], payload_bytes: usize) -> Vec<u8> {
        let fragment: u16 = match self.between {
            Between::FirstFragment => 0x2000,
            Between::LaterFragment => 185,
            // Otherwise what is too big would come in pieces.
            _ => 0x4000,
        };
        let mut ip = vec![0x45, self.class];
        // CAST: shorter than a frame.
        ip.extend((20 + payload_bytes as u16).to_be_bytes());
        ip.extend([0x12, 0x34]);
        ip.extend(fragment.to_be_bytes());
        ip.extend([HOP_LIMIT, self.protocol, 0, 0]);
        ip.extend(source);
        ip.extend(destination);
        let words = ip.chunks(2);
        let sum: u32 = words
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        // CAST: the carry is added, so 16 bits are left.
        let check = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        ip
    }

    fn ipv6(&self, source: [u8; 16], destination: [u8; 16], payload_bytes: usize) -> Vec<u8> {
        let (first, header) = match self.between {
            Between::Nothing => (self.protocol, Vec::new()),
            Between::FirstFragment => (FRAGMENT, vec![self.protocol, 0, 0, 1, 0, 0, 0, 7]),
            // 185 times eight bytes are in front of it.
            Between::LaterFragment => (FRAGMENT, vec![self.protocol, 0, 0x05, 0xc8, 0, 0, 0, 7]),
            Between::Options => (
                DESTINATION_OPTIONS,
                vec![self.protocol, 0, 1, 4, 0, 0, 0, 0],
            ),
            Between::Segments => {
                let mut srh = vec![self.protocol, 2, 4, 0, 0, 0, 0, 0];
                srh.extend(destination);
                (ROUTING, srh)
            }
        };
        let word = 6 << 28 | u32::from(self.class) << 20 | self.label;
        let mut ip = word.to_be_bytes().to_vec();
        // CAST: shorter than a frame.
        ip.extend(((header.len() + payload_bytes) as u16).to_be_bytes());
        ip.extend([first, HOP_LIMIT]);
        ip.extend(source);
        ip.extend(destination);
        ip.extend(header);
        ip
    }

    /// Returns the transport header, whose checksum nobody looks at on the way.
    fn transport(&self) -> Vec<u8> {
        let ports = [self.ports.0, self.ports.1].map(u16::to_be_bytes).concat();
        let bytes = match self.protocol {
            TCP => 20,
            SCTP => 12,
            ICMP | ICMP6 => return self.icmp(),
            _ => 8,
        };
        let mut header = ports;
        header.resize(bytes, 0);
        if self.protocol == TCP {
            header[12] = 5 << 4;
        }
        header
    }

    /// Returns an echo; or, from an odd port, an error with a packet to another destination inside.
    fn icmp(&self) -> Vec<u8> {
        let echo = if self.protocol == ICMP { 8 } else { 128 };
        let unreachable = if self.protocol == ICMP { 3 } else { 1 };
        if self.ports.0.is_multiple_of(2) {
            return vec![echo, 0, 0, 0, 0, 1, 0, 1];
        }
        let inner = Self {
            source: self.destination,
            destination: self.source,
            protocol: UDP,
            between: Between::Nothing,
            ..self.clone()
        };
        let (ip, udp) = match (inner.source, inner.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => (
                inner.ipv4(source.octets(), destination.octets(), 8),
                inner.transport(),
            ),
            (IpAddr::V6(source), IpAddr::V6(destination)) => (
                inner.ipv6(source.octets(), destination.octets(), 8),
                inner.transport(),
            ),
            other => panic!("{other:?} are of two families"),
        };
        [vec![unreachable, 0, 0, 0, 0, 0, 0, 0], ip, udp].concat()
    }
}

/// Returns the number of a frame, if it is one of these.
pub(crate) fn number(frame: &[u8]) -> Option<u32> {
    let (rest, number) = frame.split_last_chunk()?;
    rest.ends_with(&MARK).then(|| u32::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use etherparse::SlicedPacket;

    use super::*;

    #[test]
    fn frames_are_what_they_shall_be() {
        let addresses: [(IpAddr, IpAddr); 2] =
            [("10.8.0.2", "10.9.0.1"), ("fd08::2", "2001:db8::1")]
                .map(|(one, other)| (one.parse().expect(one), other.parse().expect(other)));
        for (source, destination) in addresses {
            for protocol in [TCP, UDP] {
                let packet = Packet {
                    protocol,
                    tags: vec![[0x81, 0, 0, 7]],
                    ..Packet::plain(source, destination)
                };
                let frame = packet.frame(77);
                assert_eq!(number(&frame), Some(77));
                let parsed = SlicedPacket::from_ethernet(&frame).expect("a frame");
                assert!(parsed.vlan().is_some());
                let transport = parsed.transport.expect("a transport header");
                let ports = match &transport {
                    etherparse::TransportSlice::Udp(udp) => {
                        (udp.source_port(), udp.destination_port())
                    }
                    etherparse::TransportSlice::Tcp(tcp) => {
                        (tcp.source_port(), tcp.destination_port())
                    }
                    other => panic!("{other:?}"),
                };
                assert_eq!(ports, (5_000, 6_000));
            }
        }
    }
}
