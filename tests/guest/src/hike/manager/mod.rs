// SPDX-License-Identifier: GPL-2.0

//! The daemon and its command in a node.

pub(crate) mod daemon;
pub(crate) mod devices;
pub(crate) mod inside;
pub(crate) mod kernel;
pub(crate) mod nics;
pub(crate) mod notes;
pub(crate) mod ports;
pub(crate) mod rules;
pub(crate) mod sids;
pub(crate) mod socket;
pub(crate) mod transactions;
pub(crate) mod watch;
