// SPDX-License-Identifier: GPL-2.0

//! The acts of operators under traffic, and the answers that they get.

pub(crate) mod command;
pub(crate) mod control;
pub(crate) mod devices;
pub(crate) mod forged;
pub(crate) mod held;
pub(crate) mod hooks;
pub(crate) mod knobs;
pub(crate) mod leaks;
pub(crate) mod lockdown;
pub(crate) mod netlink;
pub(crate) mod no_debugfs;
pub(crate) mod reasons;
pub(crate) mod reload;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod unread;
