// SPDX-License-Identifier: GPL-2.0

//! The operator's manual, held against the bounds and reasons of the code.

use mflow_algo::algo::lanes::queue::ring::{Ring, REQUEST_BYTES, RING_ITEMS, RING_REQUESTS};
use mflow_algo::algo::lanes::ring_bytes::{MAX_CPU_RING_BYTES, MAX_RING_BYTES};
use mflow_algo::algo::merge::slot::{MAX_PARKED_BYTES, MAX_PARKED_PKTS, WINDOW_BATCHES};
use mflow_algo::algo::merge::slot_pool::NR_SLOTS;
use mflow_algo::algo::report::reason::Reason;

use crate::support::packet::TestPacket;

/// Returns a number with commas between its thousands.
fn grouped(number: u64) -> String {
    match number {
        1_000.. => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
        _ => number.to_string(),
    }
}

#[test]
fn manual_has_the_bounds_of_the_code() {
    let manual = include_str!("../../../README.md");
    let mib = |bytes: u64| bytes >> 20;
    let kib = |bytes: usize| bytes >> 10;
    let parked = grouped(u64::from(MAX_PARKED_PKTS));
    for row in [
        format!("of one NIC queue | {} |", grouped(RING_ITEMS as u64)),
        format!("of all devices | {} MiB,", mib(MAX_CPU_RING_BYTES)),
        format!("for all lanes | {} MiB,", mib(MAX_RING_BYTES)),
        format!(
            "of one NIC queue, without packets | {} KiB for its ring and less than 16 KiB besides, and {} KiB more",
            kib(size_of::<Ring<TestPacket>>()),
            kib(RING_REQUESTS * REQUEST_BYTES)
        ),
        format!(
            "and their memory | {parked} and {} MiB,",
            mib(MAX_PARKED_BYTES)
        ),
        format!("split at once | {NR_SLOTS} |"),
        // One place of the window stays free.
        format!("under way | {} |", grouped(u64::from(WINDOW_BATCHES - 1))),
    ] {
        assert!(manual.contains(&row), "rust/README.md has no {row:?}");
    }
}

/// A line of `flows` has the words; what to do about it is in the operator's manual.
#[test]
fn manual_has_all_reasons() {
    let manual = include_str!("../../../README.md");
    for name in Reason::ALL.iter().map(|reason| reason.name()) {
        assert!(
            manual.contains(&format!("`{name}`")),
            "rust/README.md does not say what to do about `{name}`"
        );
    }
}
