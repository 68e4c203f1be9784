// SPDX-License-Identifier: GPL-2.0

//! Cases that only datagrams can show: what is lost, and what vanishes on the way.

pub(super) mod drops;
pub(super) mod forward;
pub(super) mod hotplug;
pub(super) mod readers;
pub(super) mod tail;
pub(super) mod teardown;
