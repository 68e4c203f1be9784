// SPDX-License-Identifier: GPL-2.0

//! Tests of what operators can set.

#[cfg(not(miri))]
mod cpulist;
#[cfg(not(miri))]
mod settings;
