// SPDX-License-Identifier: GPL-2.0

//! Tests of the life of a flow.

#[cfg(not(miri))]
mod dispatcher;
#[cfg(not(miri))]
mod fragments;
#[cfg(not(miri))]
mod hint;
#[cfg(not(miri))]
mod inner_flows;
#[cfg(not(miri))]
mod poll_pace;
#[cfg(not(miri))]
mod runs;
#[cfg(not(miri))]
pub(crate) mod transitions;
