// SPDX-License-Identifier: GPL-2.0

//! The CPUs that carry flows, and the choice among them.

pub(crate) mod auto;
pub(crate) mod build;
pub(crate) mod freeing;
pub(crate) mod hints;
pub(crate) mod interrupts;
pub(crate) mod load;
pub(crate) mod mode;
pub(crate) mod redirected;
pub(crate) mod scaling;
pub(crate) mod sources;
pub(crate) mod stage_load;
