// SPDX-License-Identifier: GPL-2.0

//! The packet path, from its end: slots, merging, lanes, sources, and the ports to which a device's hooks lead.

pub mod pool;
pub mod progress;

pub mod merge;

pub mod runs;

pub mod build_cpu;

pub mod lane;

pub mod source;

pub mod hand_on;
pub mod port;
