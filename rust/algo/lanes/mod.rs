// SPDX-License-Identifier: GPL-2.0

//! The way to a lane: [`lane_set`] says which lane gets the next batch, and [`queue`] has the rings that lead there, whose memory
//! [`ring_bytes`] counts. [`gro_trial`] finds out whether GRO is of use for a flow that a lane carries, and [`carried_batches`] has what
//! holds for a batch as a whole.

pub mod carried_batches;
pub mod gro_trial;
pub mod lane_id;
pub mod lane_set;
pub mod queue;
pub mod ring_bytes;
