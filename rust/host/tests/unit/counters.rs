// SPDX-License-Identifier: GPL-2.0

//! Counters: the names that operators' scripts rely on, and adding up.

use std::collections::HashSet;

use mflow_algo::algo::counters::{Counter, Counters, NR_COUNTERS};

#[test]
fn names_are_plain_and_differ() {
    let names: HashSet<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
    assert_eq!(names.len(), NR_COUNTERS);
    for name in names {
        assert!(
            name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
            "{name}"
        );
    }
}

#[test]
fn documented_names_are_there() {
    let documented = [
        "flows_split",
        "flows_stopped",
        "batches",
        "lane_pkts",
        "inline_pkts",
        "merged_pkts",
        "late_pkts",
        "deadline_batches",
        "overflow_batches",
        "probes_sent",
        "probes_seen",
    ];
    for name in documented {
        assert!(
            Counter::ALL.iter().any(|counter| counter.name() == name),
            "{name}"
        );
    }
}

#[test]
fn each_counter_counts_for_itself() {
    let counters = Counters::new();
    for (n, counter) in Counter::ALL.iter().enumerate() {
        counters.add_owned(*counter, n as u64);
        counters.add_shared(*counter, 1);
    }
    for (n, counter) in Counter::ALL.iter().enumerate() {
        assert_eq!(counters.get(*counter), n as u64 + 1, "{}", counter.name());
    }
    counters.add_shared(Counter::Batches, u64::MAX);
    counters.add_owned(Counter::Batches, 1);
    let index = Counter::ALL
        .iter()
        .position(|counter| *counter == Counter::Batches);
    assert_eq!(counters.get(Counter::Batches), index.unwrap() as u64 + 1);
}
