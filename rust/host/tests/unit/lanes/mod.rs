// SPDX-License-Identifier: GPL-2.0

//! Tests of the way to a lane.

#[cfg(not(miri))]
mod carried_batches;
#[cfg(not(miri))]
mod gro_trial;
#[cfg(not(miri))]
mod own_lane;
mod queue;
