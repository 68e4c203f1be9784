// SPDX-License-Identifier: GPL-2.0

//! The cases: ours, those of HIKE, and what the papers state about them.

pub(crate) mod cases;
pub(crate) mod hike_cases;
pub(crate) mod paper;
pub(crate) mod published;
