// SPDX-License-Identifier: GPL-2.0

//! Test packets that measure delay (STAMP).
//!
//! All namespaces of a guest have one clock, so the times of both ends can be compared without an error of clocks.

pub(crate) mod asker;
pub(crate) mod path;
pub(crate) mod reflector;
