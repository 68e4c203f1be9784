// SPDX-License-Identifier: GPL-2.0

//! Tests of what the headers of packets say.

#[cfg(not(miri))]
mod checksums;
#[cfg(not(miri))]
mod classic_filter;
#[cfg(not(miri))]
pub(crate) mod flow_key;
#[cfg(not(miri))]
mod overlay;
#[cfg(not(miri))]
mod recent_keys;
