// SPDX-License-Identifier: GPL-2.0

//! The configuration: each [`chain`], the packets that take one ([`destination`], [`exact_flow`]), and what programs of chains need:
//! [`path`], [`behaviour`], [`rule`], [`flow`] and `lanes`.

pub mod behaviour;
pub mod chain;
pub mod destination;
pub mod exact_flow;
pub mod flow;
pub(crate) mod lanes;
pub mod path;
pub mod rule;
