// SPDX-License-Identifier: GPL-2.0

//! The load controller: how many lanes each split flow has and which, how large its batches are, and when it is better not
//! split at all.
//!
//! Something outside calls [`Sampler::sample`](sampler::Sampler::sample), and so
//! [`Controller::step`](controller::Controller::step), some twenty times a second. What that decides stands in
//! [`Orders`](flow_orders::Orders), where the dispatcher looks when it opens a batch. So no packet waits for the controller,
//! and what it says can do no more harm than to be a sample old: any batch may go to any lane, as batches have numbers; a lane
//! that leaves a flow simply gets no more of them.
//!
//! [`sampler`] looks at CPUs and flows, and [`core_load`] says how busy a core is, and with whose work. [`controller`] goes through the
//! flows, and refuses new ones. [`flow_plan`] decides how many lanes a flow has, and how large its batches are. `saturation` says when
//! splitting gains nothing. `trial_backoff` keeps decisions from being made and unmade forever. Where flows are not split, but go from CPU
//! to CPU, [`stage_plan`] decides instead.
//!
//! Loads are in thousandths of a core.

pub mod controller;
pub mod core_load;
pub mod flow_orders;
pub mod flow_plan;
pub mod sampler;
mod saturation;
pub mod stage_plan;
pub(super) mod trial_backoff;

/// A core that is busy all the time.
pub const FULL: u32 = 1_000;
