// SPDX-License-Identifier: GPL-2.0

//! The packet-path algorithm: pure code on `core` alone, with no allocation and no kernel calls.
//!
//! It reaches its surroundings through three traits only, [`Host`](flow::dispatcher::Host), [`Sink`](merge::slot::Sink) and
//! [`Packet`](lanes::queue::Packet), and so knows neither what a packet is made of nor on which kernel, or on which host of a
//! simulation, it runs.
//!
//! In the order in which a packet meets them: [`headers`] (which flow), [`flow`] (whether it is split, and which batch carries the
//! packet), [`lanes`] (on the way to another core, and there), [`merge`] (back in order). [`tag`] is what a packet carries along,
//! and [`parked_amount`] how much it counts for. Where flows are not split but go from CPU to CPU, [`stage`] takes the place of all
//! that is between the headers and the rings. Beside the packets, [`source`] looks after queues, [`placement`] says which CPUs are
//! to be lanes, and [`load`] how many lanes a flow has and how large its batches are. [`knobs`] are what people set; [`counters`]
//! and [`report`] are what they are told. [`limits`] has the limits that several modules share.

pub mod counters;
pub mod flow;
pub mod headers;
pub mod join;
pub mod knobs;
pub mod lanes;
pub mod limits;
pub mod load;
pub mod merge;
pub mod parked_amount;
pub mod placement;
pub mod report;
pub mod source;
pub mod stage;
pub(crate) mod sync;
pub mod tag;
pub mod text;
