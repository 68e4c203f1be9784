// SPDX-License-Identifier: GPL-2.0

//! The packet-path algorithm: pure code on `core` alone, with no allocation and no kernel calls.
//!
//! It reaches its surroundings through three traits only, [`Host`](dispatcher::Host), [`Sink`](slot::Sink) and
//! [`Packet`](queue::Packet), and so knows neither what a packet is made of nor on which kernel, or on which host of a
//! simulation, it runs.
//!
//! In the order in which a packet meets them: [`flow_key`] (which flow; [`recent_keys`] for requests), [`flow_table`] (how
//! fast; [`hint`]: what is asked for it), `flow_state` and `splitting` (whether it is split; `fenced`: from which packet on), [`dispatcher`] (which
//! micro-flow, which lane), [`lane_set`] and [`queue::ring`] (to the lane), [`gro_trial`] (whether GRO is of use),
//! [`checksums`] and [`overlay_headers`] (what to verify and to pull where it is not), [`collector`] (at the merge point, still on the lane), [`slot`]
//! (back in order). [`ring_bytes`] and [`amount`] bound the memory of what waits on that way. Where flows are not split but
//! go from CPU to CPU, [`stage`] takes the place of all that is between [`flow_key`] and the rings. [`backoff`] says when
//! to search for new queues, [`builder`] which core may build a queue's packets ([`redirection`]: without our hooks), and
//! [`placement`] which CPUs are to be lanes. [`load`] decides, beside the packets, how many lanes a flow has and how large
//! its batches are. What people ask about flows is in [`flow_list`], from each one's [`flow_report`]: its [`flow_name`],
//! and the [`reason`] why it is not split, or what it gains ([`carried`]), [`published`] for readers. The rest is what
//! these share.

pub mod amount;
pub mod backoff;
pub mod builder;
pub mod carried;
pub mod checksums;
pub mod collector;
pub mod combinations;
pub mod counters;
pub mod cpulist;
pub mod dispatcher;
mod fenced;
pub mod flow_key;
pub mod flow_list;
pub mod flow_name;
pub mod flow_report;
mod flow_state;
pub mod flow_table;
pub mod gro_trial;
pub mod hint;
pub mod knobs;
pub mod lane_set;
pub mod load;
pub mod overlay_headers;
pub mod placement;
pub mod published;
pub mod queue;
pub mod reason;
pub mod recent_keys;
pub mod redirection;
mod reporting;
pub mod rest;
pub mod ring_bytes;
pub mod slot;
pub mod slot_pool;
mod splitting;
pub mod stage;
pub(crate) mod sync;
pub mod tag;
pub mod text;
