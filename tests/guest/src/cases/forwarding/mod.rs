// SPDX-License-Identifier: GPL-2.0

//! Packets that go on, and steps on their path.

pub(crate) mod forwarded;
pub(crate) mod paths;
pub(crate) mod routed;
pub(crate) mod upper_devices;
