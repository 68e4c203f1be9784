// SPDX-License-Identifier: GPL-2.0

//! The kernel's own segment routing as the peer.

pub(crate) mod kernel;
pub(crate) mod local_sids;
pub(crate) mod mesh;
pub(crate) mod other_hosts;
pub(crate) mod own_traffic;
pub(crate) mod port_drops;
pub(crate) mod required_hmac;
pub(crate) mod selftests;
pub(crate) mod sids;
pub(crate) mod tcx;
pub(crate) mod too_big;
