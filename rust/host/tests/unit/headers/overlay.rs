// SPDX-License-Identifier: GPL-2.0

//! Header lengths of overlay packets, from packets that an independent library has written.

use etherparse::{
    EtherType, Ethernet2Header, IpFragOffset, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header,
    TcpHeader, TcpOptionElement, UdpHeader,
};
use mflow_algo::algo::headers::flow_key::{ETH_P_IP, ETH_P_IPV6};
use mflow_algo::algo::headers::overlay::{
    fragment, inner_flow, may_be_data, may_reach_socket, overlay_header_bytes, Fragment,
};
use proptest::prelude::*;

use crate::common::cases;

const PAYLOAD: [u8; 40] = [0xa5; 40];

#[derive(Clone, Copy, Debug)]
struct Inner {
    is_ipv6: bool,
    is_tcp: bool,
    /// In units of eight bytes, and whether it is a fragment at all.
    fragment: Option<u16>,
    tcp_options: bool,
    syn: bool,
}

fn l4(inner: Inner) -> Vec<u8> {
    let mut bytes = Vec::new();
    if inner.fragment.is_some_and(|offset| offset > 0) {
        // What looks like a header here is payload.
    } else if inner.is_tcp {
        let mut tcp = TcpHeader::new(1, 2, 3, 4);
        tcp.syn = inner.syn;
        if inner.tcp_options {
            tcp.set_options(&[TcpOptionElement::Timestamp(1, 2)])
                .unwrap();
        }
        tcp.write(&mut bytes).unwrap();
    } else {
        UdpHeader::without_ipv4_checksum(1, 2, PAYLOAD.len())
            .unwrap()
            .write(&mut bytes)
            .unwrap();
    }
    bytes
}

fn ip(is_ipv6: bool, protocol: IpNumber, fragment: Option<u16>, payload_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let offset = fragment.map(|offset| IpFragOffset::try_new(offset).unwrap());
    if is_ipv6 {
        let fragment = offset
            .map(|offset| {
                Ipv6FragmentHeader::new(protocol, offset, true, 7)
                    .to_bytes()
                    .to_vec()
            })
            .unwrap_or_default();
        Ipv6Header {
            payload_length: (payload_bytes + fragment.len()) as u16,
            next_header: if fragment.is_empty() {
                protocol
            } else {
                IpNumber::IPV6_FRAGMENTATION_HEADER
            },
            hop_limit: 64,
            ..Ipv6Header::default()
        }
        .write(&mut bytes)
        .unwrap();
        bytes.extend_from_slice(&fragment);
    } else {
        let mut header = Ipv4Header::new(
            payload_bytes as u16,
            64,
            protocol,
            [10, 0, 0, 1],
            [10, 0, 0, 2],
        )
        .unwrap();
        if let Some(offset) = offset {
            header.dont_fragment = false;
            header.more_fragments = true;
            header.fragment_offset = offset;
        }
        header.write(&mut bytes).unwrap();
    }
    bytes
}

/// Returns a packet and how many bytes of headers it has.
fn overlay(outer_is_ipv6: bool, inner: Inner) -> (u16, Vec<u8>, usize) {
    let protocol = if inner.is_tcp {
        IpNumber::TCP
    } else {
        IpNumber::UDP
    };
    let l4 = l4(inner);
    let mut frame = vec![0x08, 0, 0, 0, 0, 0, 42, 0];
    Ethernet2Header {
        source: [2; 6],
        destination: [4; 6],
        ether_type: if inner.is_ipv6 {
            EtherType::IPV6
        } else {
            EtherType::IPV4
        },
    }
    .write(&mut frame)
    .unwrap();
    frame.extend(ip(
        inner.is_ipv6,
        protocol,
        inner.fragment,
        l4.len() + PAYLOAD.len(),
    ));
    frame.extend(l4);
    let udp = UdpHeader::without_ipv4_checksum(50_000, 4789, frame.len()).unwrap();
    let mut packet = ip(outer_is_ipv6, IpNumber::UDP, None, 8 + frame.len());
    udp.write(&mut packet).unwrap();
    packet.extend(frame);
    let headers = packet.len();
    packet.extend(PAYLOAD);
    let eth_proto = if outer_is_ipv6 { ETH_P_IPV6 } else { ETH_P_IP };
    (eth_proto, packet, headers)
}

fn any_inner() -> impl Strategy<Value = Inner> {
    // As many first fragments as later ones.
    let fragment = prop::option::of(prop_oneof![Just(0), 1..=0x1fff_u16]);
    (any::<[bool; 4]>(), fragment).prop_map(|([is_ipv6, is_tcp, tcp_options, syn], fragment)| {
        Inner {
            is_ipv6,
            is_tcp,
            fragment,
            tcp_options,
            syn,
        }
    })
}

proptest! {
    #![proptest_config(cases(2048))]

    /// All headers, and nothing behind them.
    #[test]
    fn ends_where_the_payload_begins(outer_is_ipv6: bool, inner in any_inner()) {
        let (eth_proto, packet, headers) = overlay(outer_is_ipv6, inner);
        prop_assert_eq!(overlay_header_bytes(eth_proto, &packet), Some(headers));
    }

    /// A packet of which too little is there has no answer, and never one beyond its end.
    #[test]
    fn never_past_the_end(outer_is_ipv6: bool, inner in any_inner(), len in 0_usize..200) {
        let (eth_proto, packet, headers) = overlay(outer_is_ipv6, inner);
        let packet = packet.get(..len).unwrap_or(&packet);
        let bytes = overlay_header_bytes(eth_proto, packet);
        prop_assert_eq!(bytes, (headers <= packet.len()).then_some(headers));
    }

    /// A segment without data, or one that opens a connection, is none; everything else may be.
    #[test]
    fn data_is_what_has_some(outer_is_ipv6: bool, inner in any_inner(), has_payload: bool) {
        let (eth_proto, mut packet, headers) = overlay(outer_is_ipv6, inner);
        if !has_payload {
            packet.truncate(headers);
        }
        let is_later_fragment = inner.fragment.is_some_and(|offset| offset > 0);
        let expected = !is_later_fragment && (!inner.is_tcp || has_payload && !inner.syn);
        prop_assert_eq!(may_be_data(eth_proto, &packet, packet.len()), expected);
    }

    /// Both families, behind tags of VLANs and in both tunnels.
    #[test]
    fn fragments_are_told_apart(
        outer_is_ipv6: bool,
        inner in any_inner(),
        is_tagged: bool,
        geneve_words in prop::option::of(0..=4_u8),
    ) {
        let (eth_proto, mut packet, _) = overlay(outer_is_ipv6, inner);
        let tunnel_at = if outer_is_ipv6 { 40 } else { 20 } + 8;
        let frame_at = tunnel_at + 8;
        if is_tagged {
            packet.splice(frame_at + 12..frame_at + 12, [0x81, 0, 0, 5]);
        }
        if let Some(words) = geneve_words {
            packet[tunnel_at..frame_at].copy_from_slice(&[words, 0, 0x65, 0x58, 0, 0, 1, 0]);
            packet.splice(frame_at..frame_at, vec![0xff; usize::from(words) * 4]);
        }
        let expected = match inner.fragment {
            None => Fragment::None,
            Some(0) => Fragment::First,
            Some(_) => Fragment::Later,
        };
        prop_assert_eq!(fragment(eth_proto, &packet), expected);
        for len in 0..packet.len() {
            let found = fragment(eth_proto, &packet[..len]);
            prop_assert!(found == expected || found == Fragment::None);
        }
    }

    /// Bytes that a sender can change at will change at most the answer.
    #[test]
    fn survives_any_bytes(
        outer_is_ipv6: bool,
        inner in any_inner(),
        changes in prop::collection::vec((0_usize..128, any::<u8>()), 0..16),
    ) {
        let (eth_proto, mut packet, _) = overlay(outer_is_ipv6, inner);
        for (at, byte) in changes {
            if let Some(old) = packet.get_mut(at) {
                *old = byte;
            }
        }
        if let Some(bytes) = overlay_header_bytes(eth_proto, &packet) {
            prop_assert!(bytes <= packet.len());
        }
        let _ = inner_flow(eth_proto, &packet);
        let _ = fragment(eth_proto, &packet);
        let _ = may_reach_socket(eth_proto, &packet);
    }
}

const PLAIN: Inner = Inner {
    is_ipv6: false,
    is_tcp: false,
    fragment: None,
    tcp_options: false,
    syn: false,
};

/// Neighbours and routers are looked for, and groups joined, in the outer flow of the data; no program has a socket for it.
#[test]
fn what_is_neither_udp_nor_tcp_is_no_data() {
    // Where the type of the inner frame and the inner protocol are.
    const TYPE_AT: usize = 20 + 8 + 8 + 12;
    for is_ipv6 in [false, true] {
        let (eth_proto, packet, _) = overlay(false, Inner { is_ipv6, ..PLAIN });
        let protocol_at = TYPE_AT + 2 + if is_ipv6 { 6 } else { 9 };
        assert_eq!(packet[protocol_at], IpNumber::UDP.0);
        assert!(may_be_data(eth_proto, &packet, packet.len()));
        // ICMP; hop-by-hop options, in front of MLD; ICMPv6.
        for protocol in [1, 0, 58] {
            let mut other = packet.clone();
            other[protocol_at] = protocol;
            assert!(!may_be_data(eth_proto, &other, other.len()), "{protocol}");
        }
        let mut arp = packet.clone();
        arp[TYPE_AT..TYPE_AT + 2].copy_from_slice(&[0x08, 0x06]);
        assert!(!may_be_data(eth_proto, &arp, arp.len()));
        // No VXLAN: nothing is known of it.
        let mut plain = packet;
        plain[20 + 8] = 0;
        assert!(may_be_data(eth_proto, &plain, plain.len()));
    }
}

/// A batch waits only for what comes to a socket.
#[test]
fn only_udp_and_tcp_reach_sockets() {
    const INNER_AT: usize = 20 + 8 + 8 + 14;
    for is_ipv6 in [false, true] {
        for is_tcp in [false, true] {
            let inner = Inner {
                is_ipv6,
                is_tcp,
                ..PLAIN
            };
            let (eth_proto, mut packet, _) = overlay(false, inner);
            assert!(may_reach_socket(eth_proto, &packet));
            let (protocol_at, group_report) = if is_ipv6 { (6, 0) } else { (9, 2) };
            packet[INNER_AT + protocol_at] = group_report;
            assert!(!may_reach_socket(eth_proto, &packet));
            // ARP.
            packet[INNER_AT - 2..INNER_AT].copy_from_slice(&[8, 6]);
            assert!(!may_reach_socket(eth_proto, &packet));
            let fragment = Some(100);
            let (eth_proto, packet, _) = overlay(false, Inner { fragment, ..inner });
            assert!(may_reach_socket(eth_proto, &packet));
        }
    }
    // Outside a tunnel a flow is of UDP or TCP.
    assert!(may_reach_socket(
        ETH_P_IP,
        &ip(false, IpNumber::TCP, None, 40)
    ));
}

/// All that tells one inner flow from another is in its number, and nothing that changes from packet to packet.
#[test]
fn inner_flows_have_numbers() {
    const MAC_AT: usize = 20 + 8 + 8;
    const NETWORK_AT: usize = MAC_AT - 4;
    const INNER_AT: usize = MAC_AT + 14;
    for (is_ipv6, is_tcp, addresses_at, ports_at) in [
        (false, false, 12, 20),
        (false, true, 12, 20),
        (true, false, 8, 40),
        (true, true, 8, 40),
    ] {
        let inner = Inner {
            is_ipv6,
            is_tcp,
            ..PLAIN
        };
        let (eth_proto, packet, headers) = overlay(false, inner);
        let number = inner_flow(eth_proto, &packet);
        assert_ne!(number, 0);
        let number_with = |at: usize| {
            let mut other = packet.clone();
            other[at] ^= 1;
            inner_flow(eth_proto, &other)
        };
        for at in [
            NETWORK_AT,
            NETWORK_AT + 2,
            MAC_AT,
            INNER_AT + addresses_at,
            INNER_AT + ports_at - 1,
            INNER_AT + ports_at,
            INNER_AT + ports_at + 3,
        ] {
            assert_ne!(number_with(at), number, "{inner:?}: byte {at}");
        }
        // What outer and inner headers have of a packet alone, and payload.
        let of_packet = [5, 20 + 6, NETWORK_AT + 3, INNER_AT + ports_at + 6, headers];
        for at in of_packet {
            assert_eq!(number_with(at), number, "{inner:?}: byte {at}");
        }
        let fragments = [0, 100].map(|offset| {
            let fragment = Some(offset);
            let (eth_proto, packet, _) = overlay(false, Inner { fragment, ..inner });
            inner_flow(eth_proto, &packet)
        });
        assert_eq!(fragments[0], fragments[1], "{inner:?}");
        let mut plain = packet;
        plain[20 + 8] = 0;
        assert_eq!(inner_flow(eth_proto, &plain), 0);
    }
}

/// No more fragments follow the last one.
#[test]
fn last_fragment_is_a_later_one() {
    const INNER_AT: usize = 20 + 8 + 8 + 14;
    for (is_ipv6, flags_at, more) in [(false, 6, 0x20), (true, 40 + 3, 1)] {
        for (offset, expected) in [(100, Fragment::Later), (0, Fragment::None)] {
            let inner = Inner {
                is_ipv6,
                fragment: Some(offset),
                ..PLAIN
            };
            let (eth_proto, mut packet, _) = overlay(false, inner);
            packet[INNER_AT + flags_at] &= !more;
            assert_eq!(fragment(eth_proto, &packet), expected, "{inner:?}");
        }
    }
}

#[test]
fn only_vxlan_is_known() {
    let (eth_proto, packet, _) = overlay(false, PLAIN);
    // Not UDP outside; no network identifier; nothing in Ethernet; inside, another version of IP, and too short a header.
    for (at, byte) in [(9, 47), (28, 0), (48, 0x06), (50, 0x55), (50, 0x44)] {
        let mut other = packet.clone();
        other[at] = byte;
        assert_eq!(overlay_header_bytes(eth_proto, &other), None, "byte {at}");
    }
    assert_eq!(overlay_header_bytes(0x0806, &packet), None);
}
