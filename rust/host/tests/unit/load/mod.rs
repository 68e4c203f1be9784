// SPDX-License-Identifier: GPL-2.0

//! Tests of what follows the loads of CPUs.

#[cfg(not(miri))]
mod controller;
#[cfg(not(miri))]
mod flow_orders;
#[cfg(not(miri))]
mod placement;
#[cfg(not(miri))]
mod sampler;
#[cfg(not(miri))]
mod stage_plan;
