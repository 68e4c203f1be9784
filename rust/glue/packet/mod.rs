// SPDX-License-Identifier: GPL-2.0

//! The packet path, from its end: slots, merging, lanes, sources, the ports to which a device's hooks
//! lead, and the entries of lanes.

pub mod lane_progress;
pub mod pool;

pub mod merge_sink;

pub mod runs;

pub mod build_cpu;

pub mod lane;

pub mod flow_events;
pub mod source;

pub mod port;
pub mod stage_source;

pub mod lane_entry;
