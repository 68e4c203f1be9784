// SPDX-License-Identifier: GPL-2.0

//! The configuration as the programs read it.

pub(crate) mod access_list;
pub(crate) mod batch;
pub(crate) mod layout;
pub(crate) mod packets;
pub(crate) mod path_flows;
pub(crate) mod rule_sets;
pub(crate) mod slots;
