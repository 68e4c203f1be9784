// SPDX-License-Identifier: GPL-2.0

//! Devices, and everything that is configured: how it is counted, stopped and started. Process context.

pub mod device;
pub mod pipeline;

pub mod cpu_survey;
pub mod sampling_work;

pub mod configuration;

pub mod totals;

pub mod flow_changes;

pub mod stop;

pub mod auto_cpus;
pub mod balancing;

pub mod xdp_attachment;

pub mod switch;
