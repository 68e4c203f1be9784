// SPDX-License-Identifier: GPL-2.0

//! Tests of what is decided about a queue of a NIC apart from its packets.

#[cfg(not(miri))]
mod backoff;
#[cfg(not(miri))]
mod builder;
mod poll_sampling;
mod redirection;
