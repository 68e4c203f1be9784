// SPDX-License-Identifier: GPL-2.0

//! The configuration as the programs read it.

pub(crate) mod access_list;
pub(crate) mod batch;
pub(crate) mod epoch;
pub(crate) mod packets;
pub(crate) mod prefixes;
pub(crate) mod rule_sets;
pub(crate) mod slots;
pub(crate) mod stamp_clock;
