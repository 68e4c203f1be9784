// SPDX-License-Identifier: GPL-2.0

//! GRO is tried now and then, and used where it joins packets.

use mflow_algo::algo::lanes::gro_trial::GroTrial;
use mflow_algo::algo::limits::MAX_SLOTS;
use proptest::prelude::*;

/// Carries batches of a slot; GRO joins packets if `joins`. Returns how many packets went past it.
fn carry(trial: &mut GroTrial, slot: usize, batches: u32, batch_pkts: u32, joins: bool) -> u32 {
    let mut past = 0;
    for _ in 0..batches {
        for packet in 0..batch_pkts {
            if trial.goes_past(slot) {
                past += 1;
            } else {
                // The first of a batch finds nothing to be joined with.
                trial.note(slot, joins && packet > 0);
            }
        }
        trial.end_batch(slot);
    }
    past
}

#[test]
fn where_gro_joins_packets_all_are_given_to_it() {
    let mut trial = GroTrial::default();
    assert_eq!(carry(&mut trial, 3, 1_000, 256, true), 0);
    // However few they are.
    assert_eq!(carry(&mut trial, 3, 10_000, 2, true), 0);
}

#[test]
fn where_it_joins_none_it_is_tried_seldom() {
    for batch_pkts in [1, 2, 7, 64, 256, 1024, 4096] {
        let mut trial = GroTrial::default();
        let batches = 400_000 / batch_pkts;
        let past = carry(&mut trial, 0, batches, batch_pkts, false);
        let given = batches * batch_pkts - past;
        // A trial takes a batch at least.
        let trials = 400_000 / 8_192 + 1;
        assert!(
            given <= trials * batch_pkts.max(64).next_multiple_of(batch_pkts),
            "{batch_pkts}: {given}"
        );
        assert!(given > 0);
    }
}

#[test]
fn a_flow_that_changes_its_nature_is_noticed() {
    let mut trial = GroTrial::default();
    carry(&mut trial, 0, 8, 256, false);
    assert!(trial.goes_past(0));
    // This is noticed, at the latest, after the packets that go past GRO, rounded up to whole batches, and one trial.
    carry(&mut trial, 0, 8_192 / 256 + 1, 256, true);
    assert_eq!(carry(&mut trial, 0, 100, 256, true), 0);
    carry(&mut trial, 0, 1, 256, false);
    assert!(trial.goes_past(0));
}

#[test]
fn slots_do_not_know_each_other() {
    let mut trial = GroTrial::default();
    for slot in 0..MAX_SLOTS {
        let joins = slot % 2 == 0;
        carry(&mut trial, slot, 4, 256, joins);
    }
    for slot in 0..MAX_SLOTS {
        assert_eq!(trial.goes_past(slot), slot % 2 == 1, "slot {slot}");
    }
}

#[test]
fn once_there_are_lists_a_flow_is_tried_again() {
    let mut trial = GroTrial::default();
    for slot in [0, 5] {
        assert_eq!(carry(&mut trial, slot, 8, 256, false), 7 * 256);
    }
    trial.note_lists(5, true);
    // The way of a batch stays the same to its end, also if it has begun.
    assert_eq!(carry(&mut trial, 5, 1, 256, true), 256);
    assert_eq!(carry(&mut trial, 5, 100, 256, true), 0);
    // The other flow has none.
    assert_eq!(carry(&mut trial, 0, 2, 256, true), 2 * 256);
    // Neither a word that changes nothing nor the end of lists is a reason for a trial.
    trial.note_lists(0, true);
    assert_eq!(carry(&mut trial, 0, 1, 256, false), 256);
    assert_eq!(carry(&mut trial, 0, 8, 256, false), 7 * 256);
    trial.note_lists(0, true);
    assert_eq!(carry(&mut trial, 0, 2, 256, false), 2 * 256);
    trial.note_lists(0, false);
    assert_eq!(carry(&mut trial, 0, 2, 256, false), 2 * 256);
    trial.note_lists(0, true);
    assert_eq!(carry(&mut trial, 0, 2, 256, true), 256);
}

proptest! {
    /// Packets of a batch take one way, whatever happens to other slots meanwhile.
    #[test]
    fn a_batch_takes_one_way(steps in prop::collection::vec((0..3usize, any::<bool>(), 0..40u8), 1..2_000)) {
        let mut trial = GroTrial::default();
        let mut ways: [Option<bool>; 3] = [None; 3];
        for (slot, joined, end) in steps {
            trial.note_lists(slot, joined);
            let past = trial.goes_past(slot);
            prop_assert_eq!(past, *ways[slot].get_or_insert(past));
            if !past {
                trial.note(slot, joined);
            }
            if end == 0 {
                trial.end_batch(slot);
                ways[slot] = None;
            }
        }
    }
}

#[test]
fn the_end_of_a_trial_says_whether_gro_is_of_use() {
    for joins in [false, true] {
        let mut trial = GroTrial::default();
        let mut said = Vec::new();
        for _ in 0..40 {
            for packet in 0..256 {
                if !trial.goes_past(0) {
                    trial.note(0, joins && packet > 0);
                }
            }
            said.extend(trial.end_batch(0));
        }
        // If GRO joins packets, each batch is a trial. If it joins none, one batch in 33 is.
        assert_eq!(said, vec![joins; if joins { 40 } else { 2 }]);
    }
}

#[test]
fn single_packets_show_nothing_and_the_next_pair_is_tried() {
    let mut trial = GroTrial::default();
    for _ in 0..1_000 {
        if !trial.goes_past(0) {
            trial.note(0, false);
        }
        assert_eq!(trial.end_batch(0), None);
    }
    assert!(trial.goes_past(0));
    trial.end_batch(0);
    // The first pair goes past GRO still, and then 64 packets are enough.
    assert_eq!(carry(&mut trial, 0, 1, 2, true), 2);
    assert_eq!(carry(&mut trial, 0, 32, 2, true), 0);
    assert_eq!(carry(&mut trial, 0, 1_000, 2, true), 0);
}
