// SPDX-License-Identifier: GPL-2.0

//! Cases with datagrams alone: only they can show what is lost on the way.

pub(super) mod by_cpu;
pub(super) mod drops;
pub(super) mod filtered;
pub(super) mod forward;
pub(super) mod hotplug;
pub(super) mod multicast;
pub(super) mod readers;
pub(super) mod receive_buffer;
pub(super) mod refragmented;
pub(super) mod routes;
pub(super) mod sockmap;
pub(super) mod tail;
pub(super) mod takeover;
pub(super) mod teardown;
pub(super) mod timestamps;
pub(super) mod virtual_nic;
