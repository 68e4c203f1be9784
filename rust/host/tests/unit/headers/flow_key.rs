// SPDX-License-Identifier: GPL-2.0

//! Flow keys, from packets that an independent library has written.

use std::collections::HashSet;

use etherparse::{
    IpFragOffset, IpNumber, Ipv4Header, Ipv4Options, Ipv6Header, TcpHeader, UdpHeader,
};
use mflow_algo::algo::headers::flow_key::{
    FlowHasher, FlowKey, ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP,
};
use proptest::prelude::*;

use crate::common::cases;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tuple {
    pub(crate) is_ipv6: bool,
    pub(crate) is_tcp: bool,
    /// IPv4 uses the first four bytes.
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
}

/// The other fields of a packet; none of them may show in the key.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    pub(crate) nr_option_words: u8,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) number: u32,
    pub(crate) dont_fragment: bool,
    pub(crate) payload: Vec<u8>,
}

impl Tuple {
    pub(crate) fn eth_proto(&self) -> u16 {
        if self.is_ipv6 {
            ETH_P_IPV6
        } else {
            ETH_P_IP
        }
    }

    fn ip_number(&self) -> IpNumber {
        if self.is_tcp {
            IpNumber::TCP
        } else {
            IpNumber::UDP
        }
    }

    fn tcp(&self, rest: &Rest) -> TcpHeader {
        let mut tcp = TcpHeader::new(self.source_port, self.destination_port, rest.number, 1000);
        tcp.ack = true;
        tcp.psh = rest.dont_fragment;
        tcp
    }

    fn l4(&self, rest: &Rest) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.is_tcp {
            self.tcp(rest).write(&mut bytes).unwrap();
        } else {
            let udp = UdpHeader {
                source_port: self.source_port,
                destination_port: self.destination_port,
                length: 8 + rest.payload.len() as u16,
                checksum: rest.number as u16,
            };
            udp.write(&mut bytes).unwrap();
        }
        bytes.extend_from_slice(&rest.payload);
        bytes
    }

    fn ipv4(&self, rest: &Rest, payload_size: usize) -> Ipv4Header {
        let source = self.source.first_chunk().unwrap();
        let destination = self.destination.first_chunk().unwrap();
        let size = u16::try_from(payload_size).unwrap();
        let mut ip =
            Ipv4Header::new(size, rest.ttl, self.ip_number(), *source, *destination).unwrap();
        let options = vec![1; usize::from(rest.nr_option_words) * 4];
        ip.options = Ipv4Options::try_from(options.as_slice()).unwrap();
        ip.identification = rest.number as u16;
        ip.dont_fragment = rest.dont_fragment;
        ip
    }

    fn ipv6(&self, rest: &Rest, payload_size: usize) -> Ipv6Header {
        Ipv6Header {
            traffic_class: rest.tos,
            payload_length: u16::try_from(payload_size).unwrap(),
            next_header: self.ip_number(),
            hop_limit: rest.ttl,
            source: self.source,
            destination: self.destination,
            ..Ipv6Header::default()
        }
    }

    pub(crate) fn packet(&self, rest: &Rest) -> Vec<u8> {
        let l4 = self.l4(rest);
        let mut bytes = Vec::new();
        if self.is_ipv6 {
            self.ipv6(rest, l4.len()).write(&mut bytes).unwrap();
        } else {
            self.ipv4(rest, l4.len()).write(&mut bytes).unwrap();
        }
        bytes.extend_from_slice(&l4);
        bytes
    }

    /// Bytes of a packet without its payload: what has to be there for a key.
    fn headers_size(&self, rest: &Rest) -> usize {
        let ip = match self.is_ipv6 {
            true => 40,
            false => 20 + usize::from(rest.nr_option_words) * 4,
        };
        ip + if self.is_tcp { 20 } else { 8 }
    }

    fn key(&self, hasher: FlowHasher, rest: &Rest) -> Option<FlowKey> {
        hasher.key(self.eth_proto(), &self.packet(rest))
    }
}

pub(crate) const PLAIN: Rest = Rest {
    nr_option_words: 0,
    ttl: 64,
    tos: 0,
    number: 7,
    dont_fragment: true,
    payload: Vec::new(),
};

pub(crate) const HASHER: FlowHasher = FlowHasher::new(0x0123_4567_89ab_cdef);

pub(crate) fn tuple_of(is_ipv6: bool, is_tcp: bool) -> Tuple {
    Tuple {
        is_ipv6,
        is_tcp,
        source: [10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        destination: [10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
        source_port: 40_000,
        destination_port: 4789,
    }
}

#[test]
fn four_kinds_of_flow_have_four_keys() {
    let mut keys = HashSet::new();
    for (is_ipv6, is_tcp) in [(false, false), (false, true), (true, false), (true, true)] {
        let key = tuple_of(is_ipv6, is_tcp).key(HASHER, &PLAIN).unwrap();
        assert!(keys.insert(key));
    }
}

#[test]
fn other_ethernet_protocols_have_no_key() {
    let packet = tuple_of(false, false).packet(&PLAIN);
    // ARP, VLAN, zero, IPv6, and IPv4 in the wrong byte order.
    for eth_proto in [0x0806, 0x8100, 0, ETH_P_IPV6, ETH_P_IP.swap_bytes()] {
        assert_eq!(HASHER.key(eth_proto, &packet), None, "{eth_proto:#x}");
    }
    let packet = tuple_of(true, false).packet(&PLAIN);
    assert_eq!(HASHER.key(ETH_P_IP, &packet), None);
}

#[test]
fn other_ip_protocols_have_no_key() {
    for number in (0..=255).filter(|number| ![IPPROTO_TCP, IPPROTO_UDP].contains(number)) {
        for (is_ipv6, at) in [(false, 9), (true, 6)] {
            let tuple = tuple_of(is_ipv6, true);
            let mut packet = tuple.packet(&PLAIN);
            packet[at] = number;
            assert_eq!(HASHER.key(tuple.eth_proto(), &packet), None, "{number}");
        }
    }
}

#[test]
fn ipv4_fragments_have_no_key() {
    let tuple = tuple_of(false, false);
    // More fragments, offset in units of eight bytes, whether there is a key.
    for (more_fragments, offset, has_key) in [
        (false, 0, true),
        (true, 0, false),
        (true, 185, false),
        (false, 185, false),
        (false, 1, false),
        (false, 8191, false),
    ] {
        let l4 = tuple.l4(&PLAIN);
        let mut ip = tuple.ipv4(&PLAIN, l4.len());
        ip.more_fragments = more_fragments;
        ip.fragment_offset = IpFragOffset::try_new(offset).unwrap();
        let mut packet = Vec::new();
        ip.write(&mut packet).unwrap();
        packet.extend_from_slice(&l4);
        let key = HASHER.key(ETH_P_IP, &packet);
        assert_eq!(
            key.is_some(),
            has_key,
            "more {more_fragments}, offset {offset}"
        );
    }
}

#[test]
fn ipv6_extension_headers_have_no_key() {
    // Hop-by-hop options, routing, fragment, authentication, destination options: eight bytes before the UDP header.
    for extension in [0, 43, 44, 51, 60] {
        let tuple = tuple_of(true, false);
        let mut packet = Vec::new();
        let mut ip = tuple.ipv6(&PLAIN, 16);
        ip.next_header = IpNumber(extension);
        ip.write(&mut packet).unwrap();
        packet.extend_from_slice(&[IPPROTO_UDP, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend_from_slice(&tuple.l4(&PLAIN));
        assert_eq!(HASHER.key(ETH_P_IPV6, &packet), None, "{extension}");
    }
}

#[test]
fn tcp_segments_that_open_a_connection_have_no_key() {
    type Flag = fn(&mut TcpHeader);
    let flags: [(Flag, bool); 9] = [
        (|tcp| tcp.syn = true, false),
        (|tcp| tcp.fin = true, true),
        (|tcp| tcp.rst = true, true),
        (|tcp| tcp.psh = true, true),
        (|tcp| tcp.urg = true, true),
        (|tcp| tcp.ece = true, true),
        (|tcp| tcp.cwr = true, true),
        (|tcp| tcp.ns = true, true),
        (|tcp| tcp.ack = false, true),
    ];
    for (at, (set_flag, has_key)) in flags.iter().enumerate() {
        for is_ipv6 in [false, true] {
            let tuple = tuple_of(is_ipv6, true);
            let mut tcp = tuple.tcp(&PLAIN);
            set_flag(&mut tcp);
            let mut packet = tuple.packet(&PLAIN);
            packet.truncate(packet.len() - 20);
            tcp.write(&mut packet).unwrap();
            let key = HASHER.key(tuple.eth_proto(), &packet);
            // Behind the data of its flow, so of the same.
            let data = HASHER.key(tuple.eth_proto(), &tuple.packet(&PLAIN));
            let expected = data.filter(|_| *has_key);
            assert_eq!(key, expected, "flag {at}, IPv6 {is_ipv6}");
        }
    }
}

#[test]
fn broken_ip_headers_have_no_key() {
    let packet = tuple_of(false, false).packet(&PLAIN);
    for version_ihl in [0x00, 0x05, 0x35, 0x40, 0x44, 0x55, 0x65, 0x46, 0x4f, 0xf5] {
        // 0x46 and 0x4f are sound, but the ports are then beyond the end of the packet.
        let broken = [&[version_ihl], &packet[1..]].concat();
        assert_eq!(HASHER.key(ETH_P_IP, &broken), None, "{version_ihl:#x}");
    }
    let packet = tuple_of(true, false).packet(&PLAIN);
    for version in [0x00, 0x40, 0x50, 0x70, 0xf0] {
        let broken = [&[version], &packet[1..]].concat();
        assert_eq!(HASHER.key(ETH_P_IPV6, &broken), None, "{version:#x}");
    }
}

/// Flows that differ in one small number only, as those of one tunnel do, must still fill a table evenly.
#[test]
fn neighbouring_flows_spread_over_the_slots() {
    const NR_SLOTS: usize = 256;
    const NR_FLOWS: usize = 16 * NR_SLOTS;
    let seeds = [0, 1, 2, u64::MAX, 0x9e37_79b9_7f4a_7c15];
    for seed in seeds {
        let hasher = FlowHasher::new(seed);
        for (is_ipv6, by_address) in [(false, false), (false, true), (true, false), (true, true)] {
            // Any eight bits of the hash may be the index.
            for shift in [0, 27, 54] {
                let mut load = [0; NR_SLOTS];
                for i in 0..NR_FLOWS as u16 {
                    let mut tuple = tuple_of(is_ipv6, false);
                    if by_address {
                        let at = if is_ipv6 { 14 } else { 2 };
                        tuple.source[at..at + 2].copy_from_slice(&i.to_be_bytes());
                    } else {
                        tuple.source_port = i;
                    }
                    let key = tuple.key(hasher, &PLAIN).unwrap();
                    load[(key.get() >> shift) as usize % NR_SLOTS] += 1;
                }
                // 16 on average with a standard deviation of 4: a fair hash leaves this band once in 10^5 tables.
                let (min, max) = (*load.iter().min().unwrap(), *load.iter().max().unwrap());
                assert!(
                    min >= 1 && max <= 45,
                    "seed {seed:#x}: {min} to {max} flows in a slot"
                );
            }
        }
    }
}

pub(crate) fn tuple() -> impl Strategy<Value = Tuple> {
    let endpoint = (any::<[u8; 16]>(), any::<u16>());
    (any::<bool>(), any::<bool>(), endpoint, endpoint).prop_map(
        |(is_ipv6, is_tcp, (mut source, source_port), (mut destination, destination_port))| {
            if !is_ipv6 {
                source[4..].fill(0);
                destination[4..].fill(0);
            }
            Tuple {
                is_ipv6,
                is_tcp,
                source,
                destination,
                source_port,
                destination_port,
            }
        },
    )
}

pub(crate) fn rest() -> impl Strategy<Value = Rest> {
    let payload = prop::collection::vec(any::<u8>(), 0..40);
    (0u8..=10, any::<(u8, u8, u32, bool)>(), payload).prop_map(
        |(nr_option_words, (ttl, tos, number, dont_fragment), payload)| Rest {
            nr_option_words,
            ttl,
            tos,
            number,
            dont_fragment,
            payload,
        },
    )
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn key_depends_on_the_tuple_alone(seed: u64, tuple in tuple(), a in rest(), b in rest()) {
        let hasher = FlowHasher::new(seed);
        let key = tuple.key(hasher, &a);
        // The highest bit says that it is a key, the next which protocol: so none is zero, which stands for no flow.
        prop_assert_eq!(key.map(|key| key.get() >> 62), Some(0b10 + u64::from(tuple.is_tcp)));
        prop_assert_eq!(key, tuple.key(hasher, &b));
    }

    #[test]
    fn every_part_of_the_tuple_counts(seed: u64, tuple in tuple(), bit in 0u32..128) {
        // Two equal keys of 62 bits by chance are not to be expected in the lifetime of a test.
        let mut others = vec![
            Tuple { source_port: tuple.source_port ^ (1 << (bit % 16)), ..tuple.clone() },
            Tuple { destination_port: tuple.destination_port ^ (1 << (bit % 16)), ..tuple.clone() },
            Tuple { is_tcp: !tuple.is_tcp, ..tuple.clone() },
        ];
        let bit = if tuple.is_ipv6 { bit } else { bit % 32 };
        let flipped = |mut address: [u8; 16]| {
            address[bit as usize / 8] ^= 1 << (bit % 8);
            address
        };
        others.push(Tuple { source: flipped(tuple.source), ..tuple.clone() });
        others.push(Tuple { destination: flipped(tuple.destination), ..tuple.clone() });

        let hasher = FlowHasher::new(seed);
        for other in others {
            prop_assert_ne!(tuple.key(hasher, &PLAIN), other.key(hasher, &PLAIN), "{:?}", other);
        }
    }

    #[test]
    fn seeds_give_different_keys(seed: u64, other: u64, tuple in tuple()) {
        prop_assume!(seed != other);
        prop_assert_ne!(tuple.key(FlowHasher::new(seed), &PLAIN), tuple.key(FlowHasher::new(other), &PLAIN));
    }

    #[test]
    fn truncated_headers_have_no_key(tuple in tuple(), rest in rest()) {
        let packet = tuple.packet(&rest);
        let key = HASHER.key(tuple.eth_proto(), &packet);
        for size in 0..packet.len() {
            let expected = key.filter(|_| size >= tuple.headers_size(&rest));
            prop_assert_eq!(HASHER.key(tuple.eth_proto(), &packet[..size]), expected, "{} bytes", size);
        }
    }

    #[test]
    fn any_bytes_are_looked_at_without_a_panic(
        eth_proto in prop_oneof![Just(ETH_P_IP), Just(ETH_P_IPV6), any::<u16>()],
        first in prop_oneof![Just(0x45u8), Just(0x4f), Just(0x60), any::<u8>()],
        mut packet in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        if let Some(byte) = packet.first_mut() {
            *byte = first;
        }
        if let Some(key) = HASHER.key(eth_proto, &packet) {
            prop_assert!(key.get() != 0);
        }
    }
}
