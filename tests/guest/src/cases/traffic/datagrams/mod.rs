// SPDX-License-Identifier: GPL-2.0

//! Cases with datagrams alone: only they can show what is lost on the way.

pub(crate) mod by_cpu;
pub(crate) mod drops;
pub(crate) mod filtered;
pub(crate) mod forward;
pub(crate) mod hotplug;
pub(crate) mod multicast;
pub(crate) mod readers;
pub(crate) mod receive_buffer;
pub(crate) mod refragmented;
pub(crate) mod routes;
pub(crate) mod sockmap;
pub(crate) mod tail;
pub(crate) mod takeover;
pub(crate) mod teardown;
pub(crate) mod timestamps;
pub(crate) mod virtual_nic;
