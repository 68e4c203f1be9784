// SPDX-License-Identifier: GPL-2.0

//! The merge point: [`lane_run`] has what a lane has carried there in its poll, and a [`slot`] puts the batches of a flow back in
//! order. [`slot_pool`] has the slots of all flows.

pub mod lane_run;
pub mod slot;
pub mod slot_pool;
