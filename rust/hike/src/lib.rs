// SPDX-License-Identifier: GPL-2.0

//! HIKE's user space: packets of chosen destinations take short chains of BPF programs at the XDP hook, or at tcx where they leave; all
//! others the kernel's path.
//!
//! The programs are in `c-shims/hike/`, and come with this crate. Read in this order: [`manifest`] (what programs there are),
//! [`chain`] (what a chain is, and which can work), [`destination`], [`exact_flow`], [`path`], [`behaviour`], [`rule`], [`flow`]
//! and [`Lanes`] (what else is configured), `layout` and `rule_sets` (all of that as the programs read it), `loader` (objects
//! into the kernel, and maps out of it; `batch`: whole arrays), [`hook`] (where they are attached), [`hike`] (one instance: its tables, and changes that
//! are taken whole), [`generation`], [`links`] and `readback` (instances that outlive their process, and what is in them), `access_list`,
//! `monitors` (what is counted of flows), [`reason`] and [`flow::Counts`] (what has become of packets); [`baseline`] is for
//! measurements.

#![deny(unsafe_code)]

mod access_list;
pub mod baseline;
mod batch;
pub mod behaviour;
pub mod chain;
pub mod destination;
pub mod exact_flow;
pub mod flow;
pub mod generation;
pub mod hike;
pub mod hook;
mod lanes;
mod layout;
pub mod links;
mod loader;
pub mod manifest;
mod monitors;
mod packets;
pub mod path;
mod path_flows;
mod readback;
pub mod reason;
pub mod rule;
mod rule_sets;
mod slots;

pub use self::baseline::Baseline;
pub use self::behaviour::{Behaviour, Flavours};
pub use self::chain::Chain;
pub use self::destination::Destination;
pub use self::exact_flow::ExactFlow;
pub use self::flow::{Direction, Flow, Marking, Monitor};
pub use self::generation::Generation;
pub use self::hike::{BehaviourId, ChainId, Class, Engine, Hike, PathId, Route};
pub use self::hook::Hook;
pub use self::lanes::Lanes;
pub use self::loader::fingerprint;
pub use self::path::Path;
pub use self::readback::{chain_programs, Places};
pub use self::rule::{Action, Rule};

use self::manifest::Program;
use self::reason::{Fate, Reason};

/// The largest number of everything: `c-shims/hike/limits.h`.
pub mod limits {
    include!(concat!(env!("OUT_DIR"), "/limits.rs"));
}

/// The other results of the build from `c-shims/hike/`: `PROGRAMS` and `REASONS`.
mod generated {
    use super::{Fate, Program, Reason};

    include!(concat!(env!("OUT_DIR"), "/generated.rs"));
}
