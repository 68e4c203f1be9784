// SPDX-License-Identifier: GPL-2.0

//! Names of flows, from packets that an independent library has written.

use std::net::{IpAddr, SocketAddr};

use mflow_algo::algo::headers::flow_key::{ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP};
use mflow_algo::algo::headers::flow_name::WireName;
use proptest::prelude::*;

use crate::common::cases;
use crate::headers::flow_key::{rest, tuple, tuple_of, Tuple, HASHER, PLAIN};

fn name(tuple: &Tuple) -> WireName {
    let end = |address: [u8; 16], port| {
        let ip: IpAddr = match tuple.is_ipv6 {
            true => address.into(),
            false => <[u8; 4]>::try_from(&address[..4]).unwrap().into(),
        };
        SocketAddr::new(ip, port)
    };
    WireName {
        protocol: if tuple.is_tcp {
            IPPROTO_TCP
        } else {
            IPPROTO_UDP
        },
        source: end(tuple.source, tuple.source_port),
        destination: end(tuple.destination, tuple.destination_port),
    }
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn a_flow_is_called_by_what_is_on_the_wire((tuple, rest) in (tuple(), rest())) {
        let packet = tuple.packet(&rest);
        prop_assert_eq!(WireName::of(tuple.eth_proto(), &packet), Some(name(&tuple)));
    }

    /// Also where a packet is cut short, or is none.
    #[test]
    fn what_has_a_key_has_a_name(
        (tuple, rest) in (tuple(), rest()),
        size in 0usize..100,
        noise in prop::option::of(prop::collection::vec(any::<u8>(), 0..100)),
    ) {
        let packet = noise.unwrap_or_else(|| tuple.packet(&rest));
        let packet = &packet[..size.min(packet.len())];
        for eth_proto in [ETH_P_IP, ETH_P_IPV6, 0x0806] {
            let has_name = WireName::of(eth_proto, packet).is_some();
            prop_assert!(has_name || HASHER.key(eth_proto, packet).is_none());
        }
    }
}

#[test]
fn names_are_written_as_addresses_are() {
    let written = |is_ipv6, is_tcp| {
        let tuple = Tuple {
            source: [10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            ..tuple_of(is_ipv6, is_tcp)
        };
        let packet = tuple.packet(&PLAIN);
        let name = WireName::of(tuple.eth_proto(), &packet).unwrap();
        (name.to_string(), name)
    };
    let (text, name) = written(false, false);
    let port = name.source.port();
    assert!(
        text.starts_with(&format!("proto udp from 10.0.0.1:{port} to ")),
        "{text}"
    );
    let (text, _) = written(true, true);
    assert!(
        text.starts_with(&format!("proto tcp from [a00:1::1]:{port} to [")),
        "{text}"
    );
}
