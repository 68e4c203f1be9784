// SPDX-License-Identifier: GPL-2.0

//! Tests of the way to a lane.

#[cfg(not(miri))]
mod gro_trial;
#[cfg(not(miri))]
mod open_batches;
mod queue;
