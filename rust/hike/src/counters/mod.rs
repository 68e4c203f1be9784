// SPDX-License-Identifier: GPL-2.0

//! The fates of packets ([`reason`]), and the counts of flows (`monitors`) and of local SIDs ([`sids`]).

pub(crate) mod monitors;
pub(crate) mod path_flows;
pub mod reason;
pub mod sids;
