// SPDX-License-Identifier: GPL-2.0

//! Checksums of packets that an independent library has written.

use std::cell::Cell;

use etherparse::{
    EtherType, Ethernet2Header, IpFragOffset, IpNumber, Ipv4Header, Ipv6Header, TcpHeader,
    UdpHeader,
};
use mflow_algo::algo::headers::checksums::{
    good_checksums, suit_checksum, Covered, Good, CHECKSUM_HEADER_BYTES,
};
use mflow_algo::algo::headers::flow_key::{ETH_P_IP, ETH_P_IPV6};
use proptest::prelude::*;

use crate::common::cases;

const CLIENT: [u8; 16] = [0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xab, 1];
const SERVER: [u8; 16] = [0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xcd, 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Udp,
    /// IPv4 alone allows that; the tunnels allow it with either.
    UdpWithoutChecksum,
    Tcp,
}

#[derive(Clone, Copy, Debug)]
enum Tunnel {
    Vxlan,
    /// With so many words of options.
    Geneve(u8),
}

#[derive(Clone, Debug)]
struct Packet {
    eth_proto: u16,
    bytes: Vec<u8>,
}

impl Packet {
    /// Returns what a transport carries between two hosts.
    fn new(is_ipv6: bool, transport: Transport, payload: &[u8]) -> Self {
        let protocol = match transport {
            Transport::Udp | Transport::UdpWithoutChecksum => IpNumber::UDP,
            Transport::Tcp => IpNumber::TCP,
        };
        let bytes = match transport {
            Transport::Udp | Transport::UdpWithoutChecksum => UdpHeader::LEN + payload.len(),
            Transport::Tcp => TcpHeader::MIN_LEN + payload.len(),
        };
        let (from, to) = ([10, 0, 0xab, 1], [10, 0, 0xcd, 2]);
        let v4 = Ipv4Header::new(bytes as u16, 64, protocol, from, to).unwrap();
        let v6 = Ipv6Header {
            payload_length: bytes as u16,
            next_header: protocol,
            hop_limit: 64,
            source: CLIENT,
            destination: SERVER,
            ..Ipv6Header::default()
        };
        let mut packet = Vec::new();
        if is_ipv6 {
            v6.write(&mut packet).unwrap();
        } else {
            v4.write(&mut packet).unwrap();
        }
        match transport {
            Transport::Udp if is_ipv6 => UdpHeader::with_ipv6_checksum(1, 2, &v6, payload),
            Transport::Udp => UdpHeader::with_ipv4_checksum(1, 2, &v4, payload),
            Transport::UdpWithoutChecksum => UdpHeader::without_ipv4_checksum(1, 2, payload.len()),
            Transport::Tcp => {
                let mut tcp = TcpHeader::new(1, 2, 3, 4);
                tcp.checksum = if is_ipv6 {
                    tcp.calc_checksum_ipv6(&v6, payload)
                } else {
                    tcp.calc_checksum_ipv4(&v4, payload)
                }
                .unwrap();
                tcp.write(&mut packet).unwrap();
                packet.extend(payload);
                return Self::of(is_ipv6, packet);
            }
        }
        .unwrap()
        .write(&mut packet)
        .unwrap();
        packet.extend(payload);
        Self::of(is_ipv6, packet)
    }

    fn of(is_ipv6: bool, bytes: Vec<u8>) -> Self {
        let eth_proto = if is_ipv6 { ETH_P_IPV6 } else { ETH_P_IP };
        Self { eth_proto, bytes }
    }

    /// Puts it into a tunnel.
    fn into_tunnel(self, tunnel: Tunnel, is_ipv6: bool, transport: Transport) -> Self {
        let mut payload = match tunnel {
            Tunnel::Vxlan => vec![0x08, 0, 0, 0, 0, 0, 42, 0],
            Tunnel::Geneve(words) => {
                let mut header = vec![words, 0, 0x65, 0x58, 0, 0, 42, 0];
                header.extend(vec![0; usize::from(words) * 4]);
                header
            }
        };
        Ethernet2Header {
            source: [2; 6],
            destination: [4; 6],
            ether_type: EtherType(self.eth_proto),
        }
        .write(&mut payload)
        .unwrap();
        payload.extend(self.bytes);
        Self::new(is_ipv6, transport, &payload)
    }

    /// Returns how many checksums are good, of which so many have been verified before; nothing if GRO may find more.
    fn good(&self, verified: usize) -> Option<usize> {
        let good = self.known_good(verified);
        good.is_all.then_some(good.count)
    }

    /// Returns which checksums are known to be good.
    fn known_good(&self, verified: usize) -> Good {
        let first = CHECKSUM_HEADER_BYTES.min(self.bytes.len());
        good_checksums(
            self.eth_proto,
            &self.bytes[..first],
            self.bytes.len(),
            verified,
            |covered| self.sums_up(covered),
        )
    }

    /// Puts headers of IPv6's options between the network header and the transport's.
    fn with_options(mut self, kinds: &[u8]) -> Self {
        let protocol = self.bytes[6];
        let mut options = Vec::new();
        for (nr, _) in kinds.iter().enumerate() {
            let next = kinds.get(nr + 1).copied().unwrap_or(protocol);
            // One unit of eight bytes more than the first one.
            options.extend([next, 1]);
            options.extend([0; 14]);
        }
        let payload = u16::from_be_bytes([self.bytes[4], self.bytes[5]]);
        let payload = payload + options.len() as u16;
        self.bytes[4..6].copy_from_slice(&payload.to_be_bytes());
        self.bytes[6] = kinds[0];
        self.bytes.splice(40..40, options);
        self
    }

    /// Puts it behind the tag of a VLAN.
    fn tagged(mut self) -> Self {
        let mut tag = vec![0, 5];
        tag.extend(self.eth_proto.to_be_bytes());
        self.bytes.splice(0..0, tag);
        self.eth_proto = EtherType::VLAN_TAGGED_FRAME.0;
        self
    }

    fn sums_up(&self, covered: Covered) -> bool {
        sum(&self.bytes[covered.at..][..covered.bytes], covered.pseudo) == 0xffff
    }
}

/// Returns the sum of bytes and of a pseudo header, in words of two bytes as they are in memory.
fn sum(bytes: &[u8], pseudo: u32) -> u16 {
    let words = bytes.chunks(2).map(|word| match *word {
        [first, second] => u16::from_ne_bytes([first, second]),
        ref odd => u16::from_ne_bytes([odd[0], 0]),
    });
    let mut sum = u64::from(pseudo) + words.map(u64::from).sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn any_transport() -> impl Strategy<Value = Transport> {
    prop_oneof![
        Just(Transport::Udp),
        Just(Transport::UdpWithoutChecksum),
        Just(Transport::Tcp)
    ]
}

fn any_tunnel() -> impl Strategy<Value = Tunnel> {
    prop_oneof![
        Just(Tunnel::Vxlan),
        // More options would take the inner headers out of sight, below IPv6 twice.
        (0..=4_u8).prop_map(Tunnel::Geneve)
    ]
}

/// Returns bytes that are no tunnel's.
fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..200).prop_map(|mut payload| {
        payload.extend([0; 8]);
        // Neither VXLAN's flags nor the protocol of a frame in Geneve's header.
        (payload[0], payload[2]) = (0x01, 0);
        payload
    })
}

proptest! {
    #![proptest_config(cases(2048))]

    /// A sum by words of four bytes is that by words of two, for any number of bytes.
    #[test]
    fn a_checksum_suits_its_bytes_and_no_others(
        mut bytes in prop::collection::vec(any::<u8>(), 2..160),
        pseudo in 0..0x10_0000_u32,
        other_at: prop::sample::Index,
    ) {
        bytes[..2].fill(0);
        let checksum = !sum(&bytes, pseudo);
        bytes[..2].copy_from_slice(&checksum.to_ne_bytes());
        prop_assert!(suit_checksum(&bytes, pseudo));
        let other_at = other_at.index(bytes.len());
        bytes[other_at] ^= 1;
        prop_assert!(!suit_checksum(&bytes, pseudo));
    }

    /// Good checksums are found good, outside and in a tunnel.
    #[test]
    fn good_ones_are_found(
        [outer_is_ipv6, is_ipv6, outer_has_checksum] in any::<[bool; 3]>(),
        transport in any_transport(),
        tunnel in prop::option::of(any_tunnel()),
        payload in any_payload(),
    ) {
        let packet = Packet::new(is_ipv6, transport, &payload);
        prop_assert_eq!(packet.good(0), Some(1));
        if let Some(tunnel) = tunnel {
            let packet = packet.into_tunnel(tunnel, outer_is_ipv6, outer(outer_has_checksum));
            prop_assert_eq!(packet.good(0), Some(2));
        }
    }

    /// A bit that has changed on the way is found by the checksums that cover it, and those behind them count no more.
    #[test]
    fn bad_ones_are_found(
        [outer_is_ipv6, is_ipv6, outer_has_checksum, is_tcp] in any::<[bool; 4]>(),
        tunnel in any_tunnel(),
        payload in any_payload(),
        bit in 0..8_u32,
        verified in 0..=2_usize,
    ) {
        let transport = if is_tcp { Transport::Tcp } else { Transport::Udp };
        let mut packet = Packet::new(is_ipv6, transport, &payload)
            .into_tunnel(tunnel, outer_is_ipv6, outer(outer_has_checksum));
        *packet.bytes.last_mut().unwrap() ^= 1 << bit;
        let expected = match (verified, outer_has_checksum) {
            (0, true) => 0,
            (2, _) => 2,
            _ => 1,
        };
        prop_assert_eq!(packet.good(verified), Some(expected));
    }

    /// Bytes that a sender can change at will change at most the answer, and nothing beyond the packet's end is summed.
    #[test]
    fn survives_any_bytes(
        eth_proto in prop_oneof![Just(ETH_P_IP), Just(ETH_P_IPV6), any::<u16>()],
        outer_is_ipv6: bool,
        is_ipv6: bool,
        changes in prop::collection::vec((0_usize..200, any::<u8>()), 0..8),
        cut in 0_usize..200,
    ) {
        let mut packet = Packet::new(is_ipv6, Transport::Udp, &[0; 40])
            .into_tunnel(Tunnel::Vxlan, outer_is_ipv6, Transport::Udp);
        for (at, byte) in changes {
            if let Some(place) = packet.bytes.get_mut(at) {
                *place = byte;
            }
        }
        for len in [packet.bytes.len(), cut.min(packet.bytes.len())] {
            let seen = &packet.bytes[..cut.min(len)];
            let good = good_checksums(eth_proto, seen, len, 0, |covered| {
                assert!(covered.at + covered.bytes <= len);
                true
            });
            prop_assert!(good.count <= 2);
        }
    }
}

fn outer(has_checksum: bool) -> Transport {
    if has_checksum {
        Transport::Udp
    } else {
        Transport::UdpWithoutChecksum
    }
}

/// GRO verifies no fragment, nothing behind options of IPv4, and nothing that is padded.
#[test]
fn what_gro_leaves_alone_is_left_alone() {
    let plain = Packet::new(false, Transport::Udp, &[1; 40]);
    let mut padded = plain.clone();
    padded.bytes.push(0);
    assert_eq!(padded.good(0), Some(0));
    let mut short = plain.clone();
    short.bytes.pop();
    assert_eq!(short.good(0), Some(0));

    let mut fragment = plain.clone();
    let (mut ip, _) = Ipv4Header::from_slice(&fragment.bytes).unwrap();
    ip.dont_fragment = false;
    ip.fragment_offset = IpFragOffset::try_new(5).unwrap();
    fragment.bytes[..Ipv4Header::MIN_LEN].copy_from_slice(&ip.to_bytes());
    assert_eq!(fragment.good(0), Some(0));

    let mut options = plain.clone();
    options.bytes[0] = 0x46;
    assert_eq!(options.good(0), Some(0));

    let mut fragment = Packet::new(true, Transport::Udp, &[1; 40]);
    fragment.bytes[6] = IpNumber::IPV6_FRAGMENTATION_HEADER.0;
    assert_eq!(fragment.good(0), Some(0));

    // In a tunnel, whose own datagram has none to verify.
    let inside = padded.into_tunnel(Tunnel::Vxlan, false, Transport::UdpWithoutChecksum);
    assert_eq!(inside.good(0), Some(1));
}

/// GRO passes by tags of VLANs, and options of IPv6, inside a tunnel and outside.
#[test]
fn tags_and_options_are_passed_by() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let packet = |is_ipv6| Packet::new(is_ipv6, transport, &[1; 40]);
        for plain in [
            packet(false).tagged(),
            packet(true).tagged().tagged(),
            packet(true).with_options(&[60]),
            packet(true).with_options(&[0, 43]).tagged(),
        ] {
            assert_eq!(plain.good(0), Some(1), "{plain:?}");
            let mut bad = plain.clone();
            *bad.bytes.last_mut().unwrap() ^= 1;
            assert_eq!(bad.good(0), Some(0), "{bad:?}");
            let inside = plain.into_tunnel(Tunnel::Vxlan, false, Transport::Udp);
            assert_eq!(inside.good(0), Some(2), "{inside:?}");
            assert_eq!(inside.tagged().good(0), Some(2));
        }
    }
}

/// Whatever else GRO may know is for GRO; what is known in front of it is verified all the same.
#[test]
fn what_gro_alone_knows_is_not_known() {
    let mut other = Packet::new(true, Transport::Udp, &[1; 40]);
    other.bytes[6] = IpNumber::IPV6_ICMP.0;
    assert_eq!(other.good(0), None);
    let inside = other.into_tunnel(Tunnel::Vxlan, true, Transport::Udp);
    let outer_alone = Good {
        count: 1,
        is_all: false,
    };
    assert_eq!(inside.known_good(0), outer_alone);

    let tags = Packet::new(false, Transport::Udp, &[1; 40]);
    assert_eq!(tags.tagged().tagged().tagged().good(0), None);
    let options = Packet::new(true, Transport::Udp, &[1; 40]);
    assert_eq!(options.with_options(&[60; 5]).good(0), None);

    // Options that take the inner headers out of sight.
    let hidden = Packet::new(true, Transport::Udp, &[1; 40]).into_tunnel(
        Tunnel::Geneve(63),
        true,
        Transport::Udp,
    );
    assert_eq!(hidden.known_good(0), outer_alone);
}

/// Checksums that the NIC has verified are not summed once more.
#[test]
fn nothing_is_verified_twice() {
    let packet = Packet::new(true, Transport::Tcp, &[1; 40]).into_tunnel(
        Tunnel::Vxlan,
        false,
        Transport::Udp,
    );
    // The last byte is out of sight, and all that has it is summed elsewhere.
    let first = packet.bytes.len() - 1;
    for verified in 0..=2 {
        let sums = Cell::new(0);
        let good = good_checksums(
            packet.eth_proto,
            &packet.bytes[..first],
            packet.bytes.len(),
            verified,
            |covered| {
                sums.set(sums.get() + 1);
                packet.sums_up(covered)
            },
        );
        assert_eq!((good.count, sums.get()), (2, 2 - verified));
    }
}
