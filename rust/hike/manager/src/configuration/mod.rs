// SPDX-License-Identifier: GPL-2.0

//! The configuration: made from text, checked, and compared with another one, all without a kernel.
//!
//! Read in this order: this file (the parts of a configuration), [`document`] and [`entries`] (as a person or a client writes
//! it), `check` (makes a configuration from a document, or says why it cannot; `at` says for which entry), [`rules`], [`exact`]
//! and [`kernel`] (the same for rules, for flows with classes of their own, and for the kernel's routes), `whole` (checks that
//! all parts fit together), `describe` (the way back), [`objects`] (the parts of a configuration, and the differences between
//! two).

mod at;
mod check;
pub(crate) mod describe;
pub mod document;
pub mod entries;
pub mod exact;
pub mod kernel;
pub mod objects;
pub mod rules;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mflow_hike::{
    Behaviour, Chain, Destination, Direction, Engine, ExactFlow, Flow, Hook, Lanes, Monitor, Path,
    Rule,
};

pub use self::document::Document;
use self::kernel::KernelRoute;

/// A configuration in which every name leads to something, and every chain has what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The hook at which packets take chains.
    pub hook: Hook,
    /// The engine that runs chains.
    pub engine: Engine,
    /// The devices whose packets are looked at, when they are received or when they leave.
    pub devices: BTreeSet<String>,
    /// The devices through which packets may leave.
    pub ports: BTreeSet<String>,
    /// The access list.
    pub rules: Vec<Rule>,
    /// The chains, by name.
    pub chains: BTreeMap<String, Chain>,
    /// The paths, by name.
    pub paths: BTreeMap<String, Path>,
    /// The behaviours of local SIDs, by name.
    pub behaviours: BTreeMap<String, Behaviour>,
    /// The ways of packets, by destination.
    pub classes: BTreeMap<Destination, Way>,
    /// The flows that take a way of their own, whatever the way of their destination is, by name.
    pub flows: BTreeMap<String, Classed>,
    /// The table of `fw-table`.
    pub routes: BTreeMap<Destination, Route>,
    /// The flows that are counted, by the monitors' names.
    pub monitors: BTreeMap<String, Counted>,
    /// Routes of the kernel's own, by name.
    pub kernel_routes: BTreeMap<String, KernelRoute>,
}

impl Default for Configuration {
    /// Returns one with nothing in it: all packets take the kernel's path.
    fn default() -> Self {
        Self {
            hook: Hook::Xdp,
            engine: Engine::Compiled,
            devices: BTreeSet::new(),
            ports: BTreeSet::new(),
            rules: Vec::new(),
            chains: BTreeMap::new(),
            paths: BTreeMap::new(),
            behaviours: BTreeMap::new(),
            classes: BTreeMap::new(),
            flows: BTreeMap::new(),
            routes: BTreeMap::new(),
            monitors: BTreeMap::new(),
            kernel_routes: BTreeMap::new(),
        }
    }
}

/// The way of the packets of a class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The kernel's path.
    Kernel,
    /// A chain.
    Fast {
        /// Its name.
        chain: String,
        /// The name of the path that its programs use.
        path: Option<String>,
        /// The name of what they do, where the destinations are local SIDs.
        behaviour: Option<String>,
        /// The request to mflow for the flows.
        lanes: Option<Lanes>,
    },
}

/// A flow that has a class of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classed {
    /// The flow.
    pub flow: ExactFlow,
    /// The way of its packets.
    pub way: Way,
}

/// The next hop to which `fw-table` sends packets, and the link to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The name of the port.
    pub port: String,
    /// The Ethernet address of the next hop.
    pub next_hop: [u8; 6],
    /// That which packets come from; `None`: that of the port.
    pub source: Option<[u8; 6]>,
    /// The largest packet that the link carries; `None`: what the port takes.
    pub mtu: Option<u16>,
}

/// A flow that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The end of the flow at which it is counted.
    pub direction: Direction,
    /// The flow.
    pub flow: FlowOf,
    /// The way in which it is monitored.
    pub monitor: Monitor,
}

/// The identity of a flow that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowOf {
    /// The flow of all packets that take the path of this name.
    Path(String),
    /// The flow with this source and these SIDs.
    Sids(Flow),
}

impl Configuration {
    /// Returns the names of all devices that have a part in it; some stand there more than once.
    pub fn device_names(&self) -> impl Iterator<Item = &String> {
        let ports = self.routes.values().map(|route| &route.port);
        let kernel = self.kernel_routes.values().map(|route| &route.device);
        let named = self.devices.iter().chain(&self.ports);
        named.chain(ports).chain(kernel)
    }

    /// Returns what a monitor counts.
    pub fn flow(&self, of: &FlowOf) -> anyhow::Result<Flow> {
        match of {
            FlowOf::Sids(flow) => Ok(flow.clone()),
            FlowOf::Path(name) => {
                let path = self.paths.get(name);
                Flow::of(path.ok_or_else(|| anyhow::anyhow!("there is no path `{name}`"))?)
            }
        }
    }
}

/// Why a configuration cannot be, and of what in it that is said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// The section, the name in it and the field, as far as it is about one.
    pub at: Vec<String>,
    /// One sentence with what is allowed.
    pub text: String,
}

impl Problem {
    pub(crate) fn new<const N: usize>(at: [&str; N], text: impl fmt::Display) -> Self {
        Self {
            at: at.map(str::to_owned).to_vec(),
            text: text.to_string(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `chains.edge` is the chain edge; what is said of a field names it.
        match &self.at[..] {
            [section, name, ..] => {
                let kind = objects::Kind::of_section(section);
                let kind = kind.map_or(section.as_str(), |kind| kind.name());
                write!(f, "{kind} {name}: {}", self.text)
            }
            _ => f.write_str(&self.text),
        }
    }
}

/// Returns what is said of a file `f` with this text, which cannot be taken.
#[cfg(test)]
fn error(text: &str) -> String {
    let parsed = document::parse(std::path::Path::new("f"), text);
    parsed.expect_err(text).to_string()
}
