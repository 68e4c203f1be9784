// SPDX-License-Identifier: GPL-2.0

//! The receive path in the time of the model.

pub(crate) mod arrivals;
pub(crate) mod calendar;
pub(crate) mod control;
pub(crate) mod machine;
pub(crate) mod mflow;
pub(crate) mod packet;
pub(crate) mod paper_balance;
pub(crate) mod pipeline;
#[cfg(test)]
pub(crate) mod pipeline_tests;
pub(crate) mod pipelined;
pub(crate) mod scene;
pub(crate) mod stage_moves;
pub(crate) mod wire;
