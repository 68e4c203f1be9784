// SPDX-License-Identifier: GPL-2.0

//! Tests of the algorithm without regard to interleavings: tables, and properties against models that are too simple to
//! be wrong.
//!
//! They run natively and under Miri. What several threads do to each other is for the loom tests; `threads` runs the
//! whole path on real ones.

#![cfg(not(loom))]

#[path = "../support/mod.rs"]
#[cfg_attr(
    miri,
    expect(dead_code, reason = "hosts are for the tests that Miri does not run")
)]
mod support;

#[path = "../support/drawn_flow.rs"]
mod drawn_flow;

mod common;
mod counters;
mod parked_amount;
mod tag;
mod zeroed;

// In folders, what Miri does not run has no unsafe code beneath it but that of the queues, which have tests of their own; and Miri
// looks at each of the thousands of atomics in a slot whenever it is borrowed.
mod flow;
mod headers;
mod knobs;
mod lanes;
mod load;
mod merge;
mod report;
mod source;

#[cfg(not(miri))]
mod bounds;
#[cfg(not(miri))]
mod join;
#[cfg(not(miri))]
mod known_packets;
#[cfg(not(miri))]
mod model;
#[cfg(not(miri))]
mod stage;
#[cfg(not(miri))]
mod threads;
#[cfg(not(miri))]
mod world;
