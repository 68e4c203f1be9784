// SPDX-License-Identifier: GPL-2.0

//! Tests of what is decided about a queue of a NIC apart from its packets.

mod poll_sampling;
#[cfg(not(miri))]
mod queue_builder;
mod redirection;
#[cfg(not(miri))]
mod search_backoff;
