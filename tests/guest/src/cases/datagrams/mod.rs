// SPDX-License-Identifier: GPL-2.0

//! Cases with datagrams alone: only they can show what is lost on the way.

pub(super) mod drops;
pub(super) mod forward;
pub(super) mod hotplug;
pub(super) mod readers;
pub(super) mod tail;
pub(super) mod teardown;
