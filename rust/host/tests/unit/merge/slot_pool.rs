// SPDX-License-Identifier: GPL-2.0

//! The pool of slots, against a set.

use std::collections::BTreeSet;

use mflow_algo::algo::merge::slot::MAX_PARKED_PKTS;
use mflow_algo::algo::merge::slot_pool::{SlotPool, NR_SLOTS};
use proptest::prelude::*;

use crate::common::cases;
use crate::support::packet::TestPacket;
use crate::zeroed::zeroed;

#[test]
fn all_slots_then_none() {
    let pool: Box<SlotPool<TestPacket>> = zeroed();
    let slots: BTreeSet<_> = (0..NR_SLOTS).map(|_| pool.claim().unwrap()).collect();
    assert_eq!(slots, (0..NR_SLOTS).collect());
    assert_eq!(pool.claim(), None);
    pool.release(NR_SLOTS - 1);
    assert_eq!(pool.claim(), Some(NR_SLOTS - 1));
    assert_eq!(pool.iter().count(), NR_SLOTS);
}

#[test]
fn flows_share_the_room_for_parked_packets() {
    let pool: Box<SlotPool<TestPacket>> = zeroed();
    for flows in 1..=NR_SLOTS as u32 {
        let slot = pool.claim().unwrap();
        assert_eq!(pool.slot(slot).share_pkts(), MAX_PARKED_PKTS / flows);
        assert_eq!(pool.slot(0).share_pkts(), MAX_PARKED_PKTS / flows);
    }
    for slot in 1..NR_SLOTS {
        pool.release(slot);
    }
    assert_eq!(pool.slot(0).share_pkts(), MAX_PARKED_PKTS);
}

#[test]
fn probes_have_different_numbers() {
    let pool: Box<SlotPool<TestPacket>> = zeroed();
    let probes: BTreeSet<_> = (0..NR_SLOTS).map(|_| pool.next_probe()).collect();
    assert_eq!(probes.len(), NR_SLOTS);
}

#[test]
fn numbers_begin_where_they_are_told_to() {
    let pool: Box<SlotPool<TestPacket>> = zeroed();
    let mut numbers = 7..;
    pool.start(|| numbers.next().unwrap());
    assert_eq!(pool.next_probe(), 7);
    assert!(pool
        .iter()
        .map(|slot| slot.next())
        .eq(8..8 + NR_SLOTS as u32));
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn claims_and_releases(ops in prop::collection::vec(prop::option::of(0..NR_SLOTS), 0..200)) {
        let pool: Box<SlotPool<TestPacket>> = zeroed();
        let mut taken = BTreeSet::new();
        for op in ops {
            match op {
                None => match pool.claim() {
                    Some(slot) => prop_assert!(taken.insert(slot)),
                    None => prop_assert_eq!(taken.len(), NR_SLOTS),
                },
                Some(slot) => if taken.remove(&slot) {
                    pool.release(slot);
                },
            }
            prop_assert!(pool.taken().eq(taken.iter().copied()));
        }
    }
}
