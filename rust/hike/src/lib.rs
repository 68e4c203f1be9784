// SPDX-License-Identifier: GPL-2.0

//! HIKE's user space: packets of chosen destinations take short chains of BPF programs at the XDP hook, or at tcx where they leave; all
//! others the kernel's path.
//!
//! The programs are in `c-shims/hike/`, and come with this crate. Read in this order: [`config`] (what is configured, chains above all),
//! `tables` (all of that as the programs read it; `layout` has their structures), [`host`] (devices and addresses of this host),
//! [`routing`] (what programs have to know of its routes), [`instance`] (programs and tables in the kernel, and changes that are taken
//! whole), [`counters`] (what has become of packets). [`stamp`] has the test packets that measure delay, and [`baseline`] is for measurements.

#![deny(unsafe_code)]

pub mod baseline;
pub mod config;
pub mod counters;
pub mod host;
pub mod instance;
mod layout;
mod maps;
pub mod routing;
pub mod stamp;
mod tables;

pub use self::baseline::Baseline;
pub use self::config::behaviour::{Behaviour, Flavour, Flavours, Hop, HOPS_TABLE};
pub use self::config::cache::{Cache, CacheEntries, Caching, Notice};
pub use self::config::chain::Chain;
pub use self::config::destination::Destination;
pub use self::config::device::DeviceName;
pub use self::config::exact_flow::ExactFlow;
pub use self::config::flow::{Direction, Flow, Marking, Monitor};
pub use self::config::lanes::Lanes;
pub use self::config::path::Path;
pub use self::config::rule::{Action, Rule};
pub use self::counters::cache::CacheCounts;
pub use self::counters::sids::Traffic;
pub use self::host::Host;
pub use self::instance::generation::Generation;
pub use self::instance::hike::{BehaviourId, ChainId, Class, Engine, Hike, PathId, Route};
pub use self::instance::hook::{Hook, XdpMode};
pub use self::instance::loader::fingerprint;
pub use self::instance::readback::{chain_programs, Places};
pub use self::instance::watch::Watch;
pub use self::maps::possible_cpus;
pub use self::routing::{Facts, Follower, Routing};

/// The largest number of everything: `c-shims/hike/limits.h`.
pub mod limits {
    include!(concat!(env!("OUT_DIR"), "/limits.rs"));
}
