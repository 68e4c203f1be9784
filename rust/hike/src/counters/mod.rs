// SPDX-License-Identifier: GPL-2.0

//! The fates of packets ([`reason`]), and the counts of flows (`monitors`), of local SIDs ([`sids`]) and of the [`cache`].

pub mod cache;
pub(crate) mod monitors;
pub(crate) mod path_flows;
pub mod reason;
pub mod sids;
