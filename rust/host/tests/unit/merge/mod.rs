// SPDX-License-Identifier: GPL-2.0

//! Tests of the merge point.

#[cfg(not(miri))]
mod slot;
#[cfg(not(miri))]
mod slot_pool;
#[cfg(not(miri))]
mod traced;
