// SPDX-License-Identifier: GPL-2.0

//! Polls that pass unseen.

use mflow_algo::algo::source::poll_sampling::Rest;

/// Returns the polls that are looked at, of `polls` polls in one millisecond.
fn looks(rest: &mut Rest, now_ms: u32, polls: usize) -> Vec<usize> {
    (0..polls)
        .filter(|_| !rest.end_poll(now_ms, false, false))
        .collect()
}

#[test]
fn every_poll_is_looked_at_at_first_and_while_flows_have_slots() {
    let mut rest = Rest::default();
    assert_eq!(rest.stands_for(), 1);
    for now_ms in 7..307 {
        assert!(!rest.end_poll(now_ms, false, false));
        assert_eq!(rest.stands_for(), 1);
    }
    for now_ms in 307..3_000 {
        assert!(!rest.end_poll(now_ms, true, true));
    }
    // The time begins again with the last poll that had a flow.
    for now_ms in 3_000..3_299 {
        assert!(!rest.end_poll(now_ms, false, false));
    }
    assert!(rest.end_poll(3_299, false, false));
}

#[test]
fn one_poll_in_thirteen_is_looked_at_and_stands_for_all() {
    let mut rest = Rest::default();
    assert!(!rest.end_poll(0, false, false));
    assert_eq!(looks(&mut rest, 300, 39), [12, 25, 38]);
    assert_eq!(rest.stands_for(), 13);
    // In the middle of it, too, the next poll is looked at when a flow seems fast.
    assert!(rest.end_poll(301, false, false));
    assert!(rest.wake(301));
    assert_eq!(rest.stands_for(), 1);
    assert!(!rest.wake(301));
    assert_eq!(looks(&mut rest, 600, 39).len(), 39);
    assert_eq!(looks(&mut rest, 601, 39).len(), 3);
}

#[test]
fn a_source_rests_at_once_while_flows_are_refused() {
    let mut rest = Rest::default();
    assert!(rest.end_poll(0, false, true));
    assert_eq!(rest.stands_for(), 13);
    // The next poll is looked at when that is over.
    assert!(!rest.end_poll(1, false, false));
    assert_eq!(rest.stands_for(), 1);
}

#[test]
fn a_long_rest_is_deep_and_ends_in_two_steps() {
    let mut rest = Rest::default();
    assert!(!rest.end_poll(0, false, false));
    // What rests is at the end of a round: each round is of one kind.
    assert_eq!(looks(&mut rest, 999, 13), [12]);
    assert_eq!(looks(&mut rest, 1_000, 58), [28, 57]);
    assert_eq!(rest.stands_for(), 29);
    // A burst of a slow flow ends the deep rest, and no more.
    assert!(rest.wake(1_001));
    assert_eq!(looks(&mut rest, 1_001, 26), [12, 25]);
    assert_eq!(rest.stands_for(), 13);
    assert!(rest.wake(1_002));
    assert_eq!(rest.stands_for(), 1);
    assert_eq!(looks(&mut rest, 1_301, 5).len(), 5);
    assert_eq!(looks(&mut rest, 1_302, 13), [12]);
    // Where flows are refused no rest is deep.
    assert_eq!(looks(&mut rest, 2_002, 29), [28]);
    assert!(rest.end_poll(2_003, false, true));
    assert_eq!(rest.stands_for(), 13);
}
