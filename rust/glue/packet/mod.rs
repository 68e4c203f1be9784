// SPDX-License-Identifier: GPL-2.0

//! The packet path, from its end: slots, merging, lanes, sources, and the ports to which a device's hooks lead.

pub mod lane_progress;
pub mod pool;

pub mod merge_sink;

pub mod runs;

pub mod build_cpu;

pub mod lane;

pub mod source;

pub mod port;
pub mod stage_source;
