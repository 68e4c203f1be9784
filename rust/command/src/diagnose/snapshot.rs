// SPDX-License-Identifier: GPL-2.0

//! All that is known of a host when causes are judged: what it is, and what its counters have counted in an interval.
//!
//! The snapshot holds facts only. `read` fills it in, and the causes (`causes`) decide on nothing else.

use std::collections::{BTreeMap, BTreeSet};

use crate::cpus::Cpu;
use crate::module::text::{FlowList, Stats, Version, Way};

/// A host, over an interval.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The length of the interval.
    pub seconds: f64,
    /// The online CPUs.
    pub cpus: Vec<Cpu>,
    /// The devices of this network namespace.
    pub devices: Vec<Device>,
    /// The network namespaces in which there are programs.
    pub networks: Vec<Network>,
    /// True if irqbalance runs.
    pub irqbalance: bool,
    /// The module.
    pub module: Module,
}

/// A network device.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// The kind of a virtual device, such as `vxlan`; nothing for hardware.
    pub kind: String,
    /// True if a driver has it: a NIC.
    pub is_nic: bool,
    /// True if it is up.
    pub is_up: bool,
    /// The longest packet that it sends.
    pub mtu: u32,
    /// The number of the bridge or bond that it is a port of.
    pub controller: Option<u32>,
    /// The number of the device that its tunnel's packets leave by.
    pub tunnel_over: Option<u32>,
    /// True if its tunnel's outer packets are of IPv6.
    pub tunnel_is_ipv6: bool,
    /// The features that are on. `None` if they can't be read.
    pub features: Option<BTreeSet<String>>,
    /// The features that can be switched on and off.
    pub changeable_features: BTreeSet<String>,
    /// True if threads poll it.
    pub is_threaded: bool,
    /// The number of its receive queues.
    pub rx_queues: u32,
    /// The CPUs to which RPS spreads what it receives.
    pub rps_cpus: BTreeSet<u32>,
    /// The CPUs that its interrupts go to.
    pub interrupt_cpus: BTreeSet<u32>,
    /// True if its interrupts have gone to others during the interval.
    pub interrupts_moved: bool,
    /// Packets that it received.
    pub rx_pkts: u64,
    /// Packets that it dropped as nobody fetched them in time.
    pub rx_missed: u64,
}

/// The counts of sockets of a network namespace in the interval.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// The name of a program in it.
    pub program: String,
    /// Counters by name, such as `UdpRcvbufErrors` or `TcpExtPruneCalled`.
    pub counted: BTreeMap<String, u64>,
}

/// The module.
#[derive(Clone, Debug, Default)]
pub enum Module {
    /// It is not loaded.
    #[default]
    NotLoaded,
    /// It is loaded, and can't be asked for this reason.
    Unreadable(String),
    /// It is loaded.
    Loaded(Box<Loaded>),
}

/// A loaded module.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its version, and its way into the kernel's stack.
    pub version: Version,
    /// True if flows are split.
    pub enabled: bool,
    /// True if it chooses the lanes itself. `None` if knobs can't be read.
    pub auto_cpus: Option<bool>,
    /// The CPUs that are lanes.
    pub lanes: BTreeSet<u32>,
    /// The opted-in devices. `None` if they can't be read.
    pub devices: Option<Vec<String>>,
    /// The fast flows.
    pub flows: FlowList,
    /// The counts that were added in the interval.
    pub counted: Stats,
}

impl Snapshot {
    /// Returns a count as a number per second.
    pub fn per_s(&self, count: u64) -> f64 {
        // CAST: far below where f64 loses whole numbers.
        count as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Returns the device of this number.
    pub fn device(&self, index: u32) -> Option<&Device> {
        self.devices.iter().find(|device| device.index == index)
    }

    /// Returns NICs that are up, with the one that receives most first.
    pub fn nics(&self) -> Vec<&Device> {
        let nics = self.devices.iter();
        let mut nics: Vec<_> = nics.filter(|one| one.is_nic && one.is_up).collect();
        nics.sort_by_key(|nic| std::cmp::Reverse(nic.rx_pkts));
        nics
    }

    /// Returns NICs that receive enough to be looked at, with the one that receives most first.
    pub fn busy_nics(&self) -> Vec<&Device> {
        let mut nics = self.nics();
        nics.retain(|nic| self.per_s(nic.rx_pkts) >= BUSY_PPS);
        nics
    }

    /// Returns the module, if it is loaded and can be asked.
    pub fn loaded(&self) -> Option<&Loaded> {
        match &self.module {
            Module::Loaded(loaded) => Some(loaded),
            _ => None,
        }
    }

    /// Returns the module, if flows of this device are split by it.
    pub fn splitting(&self, device: &str) -> Option<&Loaded> {
        self.loaded().filter(|loaded| {
            let opted_in = loaded.devices.as_ref();
            loaded.enabled && opted_in.is_none_or(|names| names.iter().any(|name| name == device))
        })
    }

    /// Returns the sum of counters over all network namespaces.
    pub fn counted(&self, names: &[&str]) -> u64 {
        let networks = self.networks.iter();
        networks.map(|network| network.sum(names)).sum()
    }
}

impl Network {
    /// Returns the sum of these counters.
    pub fn sum(&self, names: &[&str]) -> u64 {
        let found = names.iter().filter_map(|name| self.counted.get(*name));
        found.sum()
    }
}

impl Device {
    /// Returns whether a feature is known to be off, and could be switched on.
    pub fn could_have(&self, feature: &str) -> bool {
        let is_off = |on: &BTreeSet<String>| !on.contains(feature);
        self.features.as_ref().is_some_and(is_off) && self.changeable_features.contains(feature)
    }

    /// Returns whether it is the end of a tunnel in UDP.
    pub fn is_tunnel(&self) -> bool {
        matches!(self.kind.as_str(), "vxlan" | "geneve")
    }
}

impl Loaded {
    /// Returns whether the NIC's own GRO stays off while it splits.
    pub fn does_gro_itself(&self) -> bool {
        self.enabled && self.version.way == Way::Stock
    }
}

/// A device with fewer packets per second has none that a core could be too slow for.
const BUSY_PPS: f64 = 2_000.0;
