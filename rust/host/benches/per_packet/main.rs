// SPDX-License-Identifier: GPL-2.0

//! What a packet costs: flow key, ring, and the whole way from the dispatcher through lane and merge to the socket.
//!
//! The whole way is compared with what one would build from general parts: crossbeam's queues to the lanes, and a
//! structure that puts single packets back in order behind them. All take the same packets in the same interleaving.
//! Everything runs on one core, so the figures are instructions and cache hits, not the traffic between cores.

mod flow_key;
mod mflow;
mod packet;
mod parts;
mod ring;
mod whole_way;

use criterion::{criterion_group, criterion_main};

criterion_group!(benches, flow_key::bench, ring::bench, whole_way::bench);
criterion_main!(benches);
