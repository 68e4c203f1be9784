// SPDX-License-Identifier: GPL-2.0

//! The configuration: read from text, checked, and compared with another one, all without a kernel.
//!
//! Read in this order: this file (a configuration and its parts), [`way`], [`flow`], [`route`], [`monitor`], [`session`] and [`kernel`] (those parts
//! that are not the library's), [`fields`] and `maps` (what serde does not know of them), [`file`] (the file that a person writes), `checks`
//! (that all parts fit together), [`objects`] (the parts of a configuration by name, and the differences between two).

mod checks;
pub mod fields;
pub mod file;
pub mod flow;
pub mod kernel;
mod maps;
pub mod monitor;
pub mod objects;
pub mod route;
pub mod session;
pub mod way;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::bail;
use mflow_hike::{
    Behaviour, Cache, CacheEntries, Chain, Destination, DeviceName, Engine, Flow, Hook, Path, Rule,
    XdpMode,
};
use serde::{Deserialize, Serialize};

pub use self::flow::Classed;
pub use self::kernel::KernelRoute;
pub use self::monitor::Counted;
use self::objects::{Key, Kind};
pub use self::route::{Mac, Route};
pub use self::session::Session;
pub use self::way::{Fast, Origin, Way};

/// A configuration, by default one with nothing in it: all packets take the kernel's path. Once it is [checked](Self::checked), every
/// name leads to something, and every chain has what it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Configuration {
    /// The hook at which packets take chains.
    pub hook: Hook,
    /// The engine that runs chains.
    pub engine: Engine,
    /// The part of the kernel that runs programs at XDP.
    pub mode: XdpMode,
    /// The cache by flow.
    pub cache: Cache,
    /// The number of entries that it has for each CPU.
    pub cache_entries: CacheEntries,
    /// The devices whose packets are looked at, when they are received or when they leave.
    #[serde(deserialize_with = "maps::names")]
    pub devices: BTreeSet<String>,
    /// Those of them that are inside of the SR domain (RFC 8754, 5.1).
    #[serde(deserialize_with = "maps::names")]
    pub inside: BTreeSet<String>,
    /// The devices through which packets may leave.
    #[serde(deserialize_with = "maps::names")]
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
    #[serde(deserialize_with = "maps::by_destination")]
    pub classes: BTreeMap<Destination, Way>,
    /// The flows that take a way of their own, whatever the way of their destination is, by name.
    pub flows: BTreeMap<String, Classed>,
    /// The table of `fw-table`.
    #[serde(deserialize_with = "maps::by_destination")]
    pub routes: BTreeMap<Destination, Route>,
    /// The flows that are counted, by the monitors' names.
    pub monitors: BTreeMap<String, Counted>,
    /// The sessions of test packets, by name.
    pub sessions: BTreeMap<String, Session>,
    /// Routes of the kernel's own, by name.
    pub kernel_routes: BTreeMap<String, KernelRoute>,
}

impl Configuration {
    /// Returns the names of all devices that have a part in it; some stand there more than once.
    pub fn device_names(&self) -> impl Iterator<Item = &str> {
        let ports = self.routes.values().map(|route| &route.port);
        let kernel = self.kernel_routes.values().map(|route| &route.device);
        let named = self.devices.iter().chain(&self.ports);
        let named = named.chain(ports).chain(kernel).map(String::as_str);
        let hops = self.behaviours.values().filter_map(Behaviour::device);
        named.chain(hops.map(DeviceName::as_str))
    }

    /// Returns all routes that the kernel is to have, each with the object that wants it: those that are configured, and those by which
    /// behaviours find their next hops.
    pub(crate) fn wanted_routes(&self) -> Vec<(Key, KernelRoute)> {
        let routes = self.kernel_routes.iter();
        let routes = routes.map(|(name, route)| (Key::new(Kind::KernelRoute, name), route.clone()));
        let hops = self.behaviours.iter().filter_map(|(name, behaviour)| {
            Some((
                Key::new(Kind::Behaviour, name),
                KernelRoute::to_hop(behaviour)?,
            ))
        });
        // Behaviours with the same next hop want the same route.
        let mut seen = BTreeSet::new();
        let all = routes.chain(hops);
        all.filter(|(_, route)| seen.insert(route.key())).collect()
    }

    /// Returns a way as tables have it: one that is for packets from inside alone says so, and others say nothing.
    pub(crate) fn resolved(&self, way: &Way) -> Way {
        let Way::Fast(fast) = way else {
            return Way::Kernel;
        };
        let is_usual = || fast.behaviour.is_some() && !self.inside.is_empty();
        let inside = match fast.from {
            Some(origin) => origin == Origin::Inside,
            None => is_usual(),
        };
        Way::Fast(Fast {
            from: inside.then_some(Origin::Inside),
            ..fast.clone()
        })
    }

    /// Returns what can be, and yet may not be meant, on a host by whose devices packets of this many bytes at most can leave.
    pub fn warnings(&self, most_mtu: Option<u32>) -> Vec<String> {
        let is_sid = |way: &Way| matches!(way, Way::Fast(fast) if fast.behaviour.is_some() && fast.from.is_none());
        let open = self.classes.iter().find(|(_, way)| is_sid(way));
        let open = open.filter(|_| self.inside.is_empty() && self.devices.len() > 1);
        let open = open.map(|(destination, _)| {
            format!(
                "class {destination}: any of the devices can reach this local SID; name those inside of the SR domain with inside = [NAME], or \
                 say from = \"anywhere\" (RFC 8754, 5.1)"
            )
        });
        let paths = self.paths.iter();
        let paths = paths.filter_map(|(name, path)| mtu_warning(name, path, most_mtu));
        // An earlier version has applied these.
        let uncounted = self.without_colour().map(|name| {
            format!("monitor {name}: it counts nothing any more; give it the flow-id of its packets, or a dscp-bit")
        });
        open.into_iter().chain(paths).chain(uncounted).collect()
    }

    /// Returns what should be said of the cache on a host that may have this many CPUs, and has this many bytes of memory.
    pub fn memory_warning(&self, cpus: usize, memory: u64) -> Option<String> {
        /// The cache may take one of this many bytes.
        const SHARE: u64 = 16;
        const MB: u64 = 1_000_000;
        // CAST: usize has 64 bits here.
        let bytes = self.cache_entries.bytes() * cpus as u64;
        let is_small = bytes <= memory / SHARE;
        if is_small || self.cache == Cache::Off || self.hook != Hook::Xdp {
            return None;
        }
        Some(format!(
            "cache-entries is {}: for the {cpus} CPUs that this host may have, they take {} of its {} MB, and twice that while a \
             configuration is applied; fewer are safer",
            self.cache_entries.get(),
            bytes / MB,
            memory / MB
        ))
    }

    /// Returns what a monitor counts.
    pub fn flow(&self, counted: &Counted) -> anyhow::Result<Flow> {
        let id = counted.flow_id;
        match (&counted.path, counted.source, &counted.sids) {
            (Some(path), None, None) if id.is_none() => {
                Flow::of(checks::find("path", path, &self.paths)?)
            }
            (None, Some(source), Some(sids)) => Flow::new(source, sids.clone())?.with_id(id),
            _ => bail!("it has to have either a path, or a source, sids and perhaps a flow-id"),
        }
    }
}

/// Returns what is wrong with the MTU of a path, by itself or on such a host.
fn mtu_warning(name: &str, path: &Path, most_mtu: Option<u32>) -> Option<String> {
    /// The MTU that each link of IPv6 has at least: RFC 8200, 5.
    const LEAST_MTU: usize = 1280;
    let (mtu, bytes) = (usize::from(path.mtu), path.bytes());
    if mtu < LEAST_MTU + bytes {
        return Some(format!(
            "path {name}: its mtu of {mtu} leaves {} bytes to packets, and those of IPv6 may have {LEAST_MTU} always (RFC 8200, 5); give it \
             {} at least",
            mtu - bytes,
            LEAST_MTU + bytes
        ));
    }
    let most = most_mtu.filter(|most| *most < path.mtu.into())?;
    Some(format!(
        "path {name}: its mtu is {mtu}, and no device that packets can leave by takes more than {most}; give it {most}, or the devices more"
    ))
}

/// Why a configuration cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// The object with the problem, if it is one object's; without a name, all of a kind.
    pub at: Option<Key>,
    /// One sentence with what is allowed.
    pub text: String,
}

impl Problem {
    pub(crate) fn new(kind: Kind, name: &str, text: impl fmt::Display) -> Self {
        Self {
            at: Some(Key::new(kind, name)),
            text: text.to_string(),
        }
    }

    /// Returns a problem of no object.
    pub(crate) fn of_none(text: impl fmt::Display) -> Self {
        Self {
            at: None,
            text: text.to_string(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(key) if !key.name.is_empty() => write!(f, "{key}: {}", self.text),
            _ => f.write_str(&self.text),
        }
    }
}

/// Returns what is said of a file `f` with this text, which cannot be taken.
#[cfg(test)]
fn error(text: &str) -> String {
    let parsed = file::parse(std::path::Path::new("f"), text);
    parsed.expect_err(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Configuration {
        file::parse(std::path::Path::new("f"), text).expect(text)
    }

    #[test]
    fn local_sids_are_for_packets_from_inside_if_any_device_is() {
        let text = |inside: &str| {
            format!(
                r#"
devices = ["eth0", "eth1"]
{inside}
[chains]
local = "dec"
pass = "fw-kernel"
[behaviours]
exit = {{ action = "End.DT46" }}
[classes]
"fc00::1" = {{ chain = "local", behaviour = "exit" }}
"fc00::2" = {{ chain = "local", behaviour = "exit", from = "anywhere" }}
"fc00::3" = {{ chain = "pass" }}
"fc00::4" = "kernel"
"#
            )
        };
        let limited = |configuration: &Configuration| {
            let ways = configuration.classes.values();
            let ways = ways.map(|way| configuration.resolved(way));
            let limited = |way| matches!(way, Way::Fast(fast) if fast.from == Some(Origin::Inside));
            Vec::from_iter(ways.map(limited))
        };
        let open = parsed(&text(""));
        assert_eq!(limited(&open), [false; 4]);
        let warnings = open.warnings(None);
        assert!(
            warnings.len() == 1 && warnings[0].starts_with("class fc00::1: any of the devices"),
            "{warnings:?}"
        );
        let closed = parsed(&text("inside = [\"eth1\"]"));
        assert_eq!(limited(&closed), [true, false, false, false]);
        assert_eq!(closed.warnings(None), [] as [String; 0]);
        let inside = text("inside = [\"eth1\"]");
        let inside = parsed(&inside.replace("\"pass\" }", "\"pass\", from = \"inside\" }"));
        assert_eq!(limited(&inside), [true, false, true, false]);
    }

    #[test]
    fn a_path_s_mtu_is_held_against_headers_and_devices() {
        let path = |mtu| {
            parsed(&format!(
                "[paths.p]\nsource = \"fd00::1\"\nsids = [\"fc00::1\"]\nmtu = {mtu}\n"
            ))
        };
        // 64 bytes of headers.
        assert_eq!(
            path(1343).warnings(Some(9_000)),
            ["path p: its mtu of 1343 leaves 1279 bytes to packets, and those of IPv6 may have 1280 always (RFC 8200, 5); give it 1344 at least"]
        );
        assert!(path(1344).warnings(Some(1_344)).is_empty());
        assert!(path(9_000).warnings(None).is_empty());
        assert_eq!(
            path(1500).warnings(Some(1_400)),
            ["path p: its mtu is 1500, and no device that packets can leave by takes more than 1400; give it 1400, or the devices more"]
        );
    }

    #[test]
    fn a_cache_that_takes_much_of_the_memory_is_told() {
        let of = |text: &str| parsed(text).memory_warning(8, 1_024 << 20);
        assert_eq!(of(""), None);
        assert_eq!(of("cache-entries = 16384"), None);
        assert_eq!(
            of("cache-entries = 32768").as_deref(),
            Some("cache-entries is 32768: for the 8 CPUs that this host may have, they take 85 of its 1073 MB, and twice that while a configuration is applied; fewer are safer")
        );
        for without in ["cache = false", "hook = \"tcx\""] {
            assert_eq!(of(&format!("{without}\ncache-entries = 131072")), None);
        }
        assert_eq!(
            error("hook = \"xdp\"\ncache-entries = 5000"),
            "f:2: cache-entries is 5000: powers of two from 1024 to 131072 are allowed"
        );
    }

    #[test]
    fn link_local_next_hops_want_a_route_each() {
        let text = r#"
ports = ["eth1", "eth2"]
[behaviours]
a = { action = "End.X", next-hop = "fe80::1", device = "eth1" }
b = { action = "End.X", next-hop = "fe80::1", device = "eth1", flavours = ["psp"] }
c = { action = "End.X", next-hop = "fe80::1", device = "eth2" }
d = { action = "End.X", next-hop = "2001:db8::1" }
[kernel-routes]
e = { destination = "fc00::/64", device = "eth3", action = "End" }
"#;
        let configuration = parsed(text);
        let routes = configuration.wanted_routes();
        let wanted: Vec<String> = routes.iter().map(|(key, _)| key.to_string()).collect();
        assert_eq!(wanted, ["kernel-route e", "behaviour a", "behaviour c"]);
        let (_, route) = &routes[1];
        assert_eq!(route.via, Some("fe80::1".parse().expect("an address")));
        assert_eq!((route.device.as_str(), route.action), ("eth1", None));
        let devices: BTreeSet<&str> = configuration.device_names().collect();
        assert_eq!(Vec::from_iter(devices), ["eth1", "eth2", "eth3"]);
    }
}
