// SPDX-License-Identifier: GPL-2.0

//! The command `mflow`: what operators see of the module, and how they set it.
//!
//! Read in this order: [`module`] (what the module tells and takes), [`change`] (several settings at once), [`confirm`] (for a time),
//! [`file`] (those of a file), [`status`], [`listing`] and [`metrics`] (what people and programs see of it), [`top`] (the same, again and
//! again), [`trace`] (events of flows and batches), [`diagnose`] (what limits a flow on a host), [`schema`] (of what is printed),
//! [`options`] (the command line).

#![deny(unsafe_code)]

pub mod change;
pub mod confirm;
pub mod cpus;
pub mod described;
pub mod diagnose;
pub mod file;
pub mod listing;
pub mod metrics;
pub mod module;
pub mod options;
pub mod output;
pub mod pages;
pub mod schema;
pub mod status;
pub mod top;
pub mod trace;
