// SPDX-License-Identifier: GPL-2.0

//! The amount that packets count where they are parked.

use mflow_algo::algo::parked_amount::Amount;
use proptest::prelude::*;

use crate::common::cases;

#[test]
fn most_are_as_many_as_half_a_word_holds() {
    let most = Amount::of(u32::MAX, u32::MAX);
    assert_eq!((most.pkts(), most.bytes()), (65_535, 65_535 * 256));
    assert_eq!(most.word(), u32::MAX);
    assert_eq!(Amount::of(0, 0), Amount::default());
}

proptest! {
    #![proptest_config(cases(256))]

    /// The kernel's half adds the words of packets; what comes out is what was parked.
    #[test]
    fn words_add_up(packets in prop::collection::vec((1..=65_535u32, 0..=16_776_960u32), 0..300)) {
        let mut parked = Amount::default();
        let mut delivered = 0;
        for (pkts, bytes) in &packets {
            let amount = Amount::of(*pkts, *bytes);
            parked += amount;
            // As in mflow_deliver() of c-shims/kernel/net/core/mflow.c.
            delivered += u64::from(amount.word() >> 16) << 32 | u64::from(amount.word() as u16);
        }
        prop_assert_eq!(Amount::from_bits(delivered), parked);
        prop_assert_eq!(parked.pkts(), packets.iter().map(|(pkts, _)| pkts).sum::<u32>());
        let bytes = packets.iter().map(|(_, bytes)| u64::from(bytes.div_ceil(256) * 256));
        prop_assert_eq!(parked.bytes(), bytes.sum::<u64>());
    }
}

#[test]
fn packets_fit_into_memory() {
    let some = Amount::of(4, 4 * 2_304);
    assert_eq!(some.fit_into(212_992), 92);
    assert_eq!(some.fit_into(1_000), 0);
    assert_eq!(some.fit_into(0), 0);
    assert_eq!(Amount::default().fit_into(212_992), 0);
    assert_eq!(Amount::of(1, 768).fit_into(u32::MAX), 5_592_405);
}
