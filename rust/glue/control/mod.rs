// SPDX-License-Identifier: GPL-2.0

//! Devices, and everything that is configured: how it is counted, stopped and started. Process context.

pub mod device;
pub mod stages;

pub mod placing;
pub mod sampling;

pub mod configuration;

pub mod stop;
pub mod totals;

pub mod balancing;
pub mod watch;

pub mod redirecting;

pub mod switch;
