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

mod amount;
#[cfg(not(miri))]
mod bounds;
mod common;
mod counters;
mod published;
mod queue;
mod tag;
mod zeroed;

// Not under Miri: no unsafe code lies beneath these but that of the queues, which have tests of their own; and Miri looks
// at each of the thousands of atomics in a slot whenever it is borrowed.
#[cfg(not(miri))]
mod backoff;
#[cfg(not(miri))]
mod builder;
#[cfg(not(miri))]
mod checksums;
#[cfg(not(miri))]
mod cpulist;
#[cfg(not(miri))]
mod dispatcher;
#[cfg(not(miri))]
#[cfg(not(miri))]
#[cfg(not(miri))]
mod flow_key;
#[cfg(not(miri))]
mod flow_list;
#[cfg(not(miri))]
mod flow_name;
#[cfg(not(miri))]
mod gro_trial;
#[cfg(not(miri))]
mod hint;
#[cfg(not(miri))]
mod inner_flows;
#[cfg(not(miri))]
mod knobs;
#[cfg(not(miri))]
mod load;
#[cfg(not(miri))]
mod load_orders;
#[cfg(not(miri))]
mod load_sampler;
#[cfg(not(miri))]
mod model;
#[cfg(not(miri))]
mod overlay_headers;
#[cfg(not(miri))]
mod placement;
mod poll_sampling;
#[cfg(not(miri))]
mod reasons;
#[cfg(not(miri))]
mod recent_keys;
mod redirection;
#[cfg(not(miri))]
mod slot;
#[cfg(not(miri))]
mod slot_pool;
#[cfg(not(miri))]
mod stage;
#[cfg(not(miri))]
mod stage_plan;
#[cfg(not(miri))]
mod threads;
#[cfg(not(miri))]
mod world;
