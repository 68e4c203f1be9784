// SPDX-License-Identifier: GPL-2.0

//! Packets that never come, for which the merger must not wait: dropped ones, and those behind the end of a flow.

pub(crate) mod drops;
pub(crate) mod filtered;
pub(crate) mod old_tags;
pub(crate) mod tail;
