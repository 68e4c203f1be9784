// SPDX-License-Identifier: GPL-2.0

//! The configuration: each [`chain`] of programs ([`manifest`]), the packets that take one ([`destination`], [`exact_flow`]), and what programs of chains need:
//! [`path`], [`behaviour`], [`rule`], [`flow`] and `lanes`, with names of devices ([`device`]); and the [`cache`]. With serde they are read and written as files have them; [`fields`] says
//! which numbers and texts there can be.

pub mod behaviour;
pub mod cache;
pub mod chain;
pub mod destination;
pub mod device;
pub mod exact_flow;
pub mod fields;
pub mod flow;
pub(crate) mod lanes;
pub mod manifest;
pub mod path;
pub mod rule;
