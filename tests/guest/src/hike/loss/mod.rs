// SPDX-License-Identifier: GPL-2.0

//! The loss that monitors report, and the flows for which they count.

pub(crate) mod blocks;
pub(crate) mod exact_flows;
pub(crate) mod flow_ids;
pub(crate) mod full_rate;
pub(crate) mod numbered_datagrams;
pub(crate) mod path_flows;
