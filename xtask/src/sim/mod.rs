// SPDX-License-Identifier: GPL-2.0

//! A discrete-event model.

mod calendar;
mod costs;
mod dispatch;
#[cfg(test)]
mod fixture;
mod load;
mod merge;
mod model;
mod pipeline;
#[cfg(test)]
mod pipeline_tests;
mod settings;
mod validate;
mod wire;
