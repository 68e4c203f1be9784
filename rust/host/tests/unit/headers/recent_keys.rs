// SPDX-License-Identifier: GPL-2.0

//! Recent keys, against the hasher that makes each key again.

use mflow_algo::algo::headers::flow_key::ETH_P_IP;
use mflow_algo::algo::headers::recent_keys::RecentKeys;
use proptest::prelude::*;

use crate::common::cases;
use crate::headers::flow_key::{rest, tuple, tuple_of, Tuple, HASHER, PLAIN};
use crate::zeroed::{zeroed, Zeroable};

// SAFETY: Numbers only.
unsafe impl Zeroable for RecentKeys {}

#[test]
fn flows_that_take_turns_are_not_hashed_again() {
    for is_tcp in [false, true] {
        let mut recent = RecentKeys::new();
        let packets = [40_000, 40_001, 40_002].map(|source_port| {
            let tuple = tuple_of(false, is_tcp);
            Tuple {
                source_port,
                ..tuple
            }
            .packet(&PLAIN)
        });
        let keys = packets
            .each_ref()
            .map(|packet| recent.key(|| HASHER, ETH_P_IP, packet));
        for (packet, key) in packets.iter().zip(keys) {
            assert!(key.is_some());
            let again = recent.key(|| panic!("made again"), ETH_P_IP, packet);
            assert_eq!(again, key);
        }
    }
}

#[test]
fn zeros_are_no_keys() {
    let zeros: Box<RecentKeys> = zeroed();
    assert_eq!(format!("{zeros:?}"), format!("{:?}", RecentKeys::new()));
}

proptest! {
    #![proptest_config(cases(1024))]

    /// Whatever came before: the same flow, one of the other protocol, another one, or a packet of which one bit is wrong.
    #[test]
    fn keys_are_those_of_the_hasher(
        (one, other) in (tuple(), tuple()),
        packets in prop::collection::vec((0usize..3, rest(), 0usize..800, any::<bool>()), 1..20),
    ) {
        let twin = Tuple { is_tcp: !one.is_tcp, ..one.clone() };
        let tuples = [one, twin, other];
        let mut recent = RecentKeys::new();
        for (which, rest, bit, is_intact) in packets {
            let tuple = &tuples[which];
            let mut packet = tuple.packet(&rest);
            if let (false, Some(byte)) = (is_intact, packet.get_mut(bit / 8)) {
                *byte ^= 1 << (bit % 8);
            }
            let expected = HASHER.key(tuple.eth_proto(), &packet);
            prop_assert_eq!(recent.key(|| HASHER, tuple.eth_proto(), &packet), expected);
        }
    }
}
