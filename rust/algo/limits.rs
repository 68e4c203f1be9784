// SPDX-License-Identifier: GPL-2.0

//! The limits that several modules share. This file imports nothing, so each of them can take its limits from here.

/// CPUs that a set can hold: 0 to `MAX_CPUS - 1`.
pub const MAX_CPUS: u32 = 1024;

/// Lanes a source can have, each on a CPU of its own.
pub const MAX_LANES: usize = 16;

/// Packets a batch can have: a ring holds all of them, and the batch's end.
pub const MAX_BATCH_PKTS: u32 = 4096;

/// Number of flows that can be split at once; a tag has room for the number of each.
pub const MAX_SLOTS: usize = 64;

/// Flows that the table of a source has room for.
pub const FLOW_PLACES: usize = 256;

/// CPUs beside the lanes' whose loads can be told: those that dispatch.
pub const MAX_NICS: usize = 16;

/// CPUs of a sample of loads at most.
pub const MAX_SAMPLED: usize = MAX_LANES + MAX_NICS;

/// Length of the window over which a flow's rate is counted, in milliseconds.
pub const RATE_WINDOW_MS: u32 = 100;
