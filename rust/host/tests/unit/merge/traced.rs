// SPDX-License-Identifier: GPL-2.0

//! The events that a slot tells those who trace of.

use mflow_algo::algo::merge::slot::{GivenUp, MAX_PARKED_PKTS};

use super::slot::Merger;
use crate::world::Told;

/// Returns a slot to whose merges somebody listens.
fn traced() -> Merger {
    let mut merger = Merger::new();
    merger.socket.is_traced = true;
    merger
}

#[test]
fn a_merge_tells_how_long_later_packets_have_waited() {
    let mut m = traced();
    m.park(0, &[0]);
    m.complete(0);
    m.open(1, 1);
    m.park(2, &[2]);
    m.wait(60);
    // The lane works, which starts its deadline again. The packet of the next batch goes on waiting.
    m.socket.progress[0] += 1;
    m.park(1, &[1]);
    m.wait(70);
    m.complete(1);
    m.complete(2);
    let expected = [
        Told::Merged(0, None),
        Told::Merged(1, Some(130)),
        Told::Merged(2, None),
    ];
    assert_eq!(m.socket.told, expected);
}

#[test]
fn a_batch_is_held_up_from_the_first_packet_that_waits_for_it() {
    let mut m = traced();
    m.open(0, 1);
    m.wait(1_000);
    m.park(1, &[1]);
    m.wait(5);
    m.complete(0);
    m.complete(1);
    let expected = [Told::Merged(0, Some(5)), Told::Merged(1, None)];
    assert_eq!(m.socket.told, expected);
}

#[test]
fn what_is_given_up_and_what_is_late_is_told_in_any_case() {
    let mut m = Merger::new();
    m.park(1, &[1, 2]);
    m.wait(200);
    m.park(0, &[0]);
    m.complete(1);
    let given_up = GivenUp {
        batch: 0,
        waited_us: 200,
        parked_pkts: 2,
        has_overflowed: false,
    };
    let expected = [Told::GivenUp(given_up), Told::Late(1, 1)];
    assert_eq!(m.socket.told, expected, "nobody listens to merges");
}

#[test]
fn too_many_packets_have_a_batch_given_up() {
    let mut m = traced();
    for id in 0..=u64::from(MAX_PARKED_PKTS) {
        m.park(1, &[id]);
    }
    let given_up = GivenUp {
        batch: 0,
        waited_us: 0,
        parked_pkts: MAX_PARKED_PKTS + 1,
        has_overflowed: true,
    };
    let expected = [Told::GivenUp(given_up), Told::Merged(0, Some(0))];
    assert_eq!(m.socket.told, expected);
}
