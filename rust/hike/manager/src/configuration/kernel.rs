// SPDX-License-Identifier: GPL-2.0

//! Routes of the kernel's own. The kernel encapsulates with them (H.Encaps), or has local SIDs (seg6local), for packets that take its
//! path.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use anyhow::{ensure, Result};
use mflow_hike::config::fields as library;
use mflow_hike::config::path::Mode;
use mflow_hike::{Behaviour, Destination, Flavours, HOPS_TABLE};
use serde::{Deserialize, Serialize};

use super::objects::Kind;
use super::{fields, Problem};

/// The kernel's number of its main table, and the metric that it gives routes of IPv6 which say none.
pub(crate) const MAIN_TABLE: u32 = 254;
const USUAL_METRIC_V6: u32 = 1024;
/// The loopback device. The kernel makes an unreachable route of one of IPv6 with this device, whatever else is said of it
/// (net/ipv6/route.c: fib6_is_reject).
const LOOPBACK: &str = "lo";
/// SIDs of an SRH that the kernel writes: as many as a monitored flow can have.
const MOST_SIDS: usize = 16;

/// A route: it puts packets on a path, or has a local SID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KernelRoute {
    /// The destination of packets that take it.
    pub destination: Destination,
    /// The name of its device.
    pub device: String,
    /// The router.
    #[serde(deserialize_with = "fields::via", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The kernel's table that it is in.
    #[serde(deserialize_with = "library::table")]
    #[serde(default = "library::usual::<_, MAIN_TABLE>")]
    #[serde(skip_serializing_if = "library::is_usual::<_, MAIN_TABLE>")]
    pub table: u32,
    /// The cost by which one of several routes to one destination is chosen; `None`: what the kernel takes.
    #[serde(deserialize_with = "fields::metric", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// The SIDs of the path, in the order in which they are visited.
    #[serde(deserialize_with = "library::sids", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sids: Option<Vec<Ipv6Addr>>,
    /// The mode of encapsulation.
    #[serde(default, skip_serializing_if = "library::is_default")]
    pub mode: Mode,
    /// The behaviour of the local SID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<KernelAction>,
    /// The next hop of End.X, End.DX4 and End.DX6.
    #[serde(deserialize_with = "fields::ip_next_hop", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// The table in which End.T and End.DT6 look.
    #[serde(deserialize_with = "fields::lookup_table", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookup_table: Option<u32>,
    /// The table of the VRF in which End.DT4, DT6 and DT46 look.
    #[serde(deserialize_with = "fields::vrf_table", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf_table: Option<u32>,
    /// The flavours of End: the kernel has PSP.
    #[serde(default, skip_serializing_if = "library::is_default")]
    pub flavours: Flavours,
}

/// A behaviour of RFC 8986 that the kernel has, with its number in linux/seg6_local.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelAction {
    /// Goes on to the next segment.
    End = 1,
    /// Does so, and forwards to a next hop.
    #[serde(rename = "End.X")]
    EndX = 2,
    /// Does so, and forwards by a table.
    #[serde(rename = "End.T")]
    EndT = 3,
    /// Takes the outer headers off IPv6, and forwards to a next hop.
    #[serde(rename = "End.DX6")]
    EndDx6 = 5,
    /// The same of IPv4.
    #[serde(rename = "End.DX4")]
    EndDx4 = 6,
    /// Takes the outer headers off IPv6, and forwards by a table.
    #[serde(rename = "End.DT6")]
    EndDt6 = 7,
    /// The same of IPv4.
    #[serde(rename = "End.DT4")]
    EndDt4 = 8,
    /// The same of both.
    #[serde(rename = "End.DT46")]
    EndDt46 = 16,
}

/// The parts that tell one route from all others in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    /// The destination of packets.
    pub destination: Destination,
    /// The table.
    pub table: u32,
    /// The cost.
    pub metric: u32,
}

impl RouteKey {
    /// Returns the metric if it is not the one that the kernel takes anyway.
    pub(crate) fn unusual_metric(&self) -> Option<u32> {
        let usual = usual_metric(self.destination);
        (self.metric != usual).then_some(self.metric)
    }
}

impl KernelRoute {
    /// Returns the route by which a behaviour finds its link-local next hop, if it has one: a route without a path or an action, which
    /// is not part of a file.
    pub(crate) fn to_hop(behaviour: &Behaviour) -> Option<Self> {
        let hop = behaviour.hop()?;
        Some(Self {
            destination: Destination::Address(hop.stands_for.into()),
            device: hop.device.to_string(),
            via: Some(hop.next_hop.into()),
            table: HOPS_TABLE,
            ..Self::default()
        })
    }

    /// Returns the parts that tell it from others.
    pub fn key(&self) -> RouteKey {
        RouteKey {
            destination: self.destination,
            table: self.table,
            metric: self.metric.unwrap_or(usual_metric(self.destination)),
        }
    }

    /// Fails if it cannot be.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(
            self.destination != Destination::Default,
            "a route has an address or a prefix; write the default as 0.0.0.0/0 and ::/0"
        );
        let is_v4 = is_v4(self.destination);
        ensure!(
            self.via.is_none_or(|via| via.is_ipv4() == is_v4),
            "via is of another version than the destination"
        );
        ensure!(
            is_v4 || self.device != LOOPBACK,
            "the kernel makes an unreachable route of each one of IPv6 with {LOOPBACK}; name another device, by which packets can leave"
        );
        self.check_action()?;
        if self.action.is_some() {
            ensure!(!is_v4, "a local SID is an address of IPv6");
            ensure!(self.via.is_none(), "a local SID has no via; leave it out");
        }
        Ok(())
    }

    /// Fails if a path or an action lacks a part, or has one of another.
    pub(crate) fn check_action(&self) -> Result<()> {
        use KernelAction::{End, EndDt4, EndDt46, EndDt6, EndDx4, EndDx6, EndT, EndX};
        let parts = (self.next_hop, self.lookup_table, self.vrf_table);
        let has_parts = matches!(
            (self.action, parts),
            (None | Some(End), (None, None, None))
                | (Some(EndX | EndDx6), (Some(IpAddr::V6(_)), None, None))
                | (Some(EndDx4), (Some(IpAddr::V4(_)), None, None))
                | (Some(EndT | EndDt6), (None, Some(_), None))
                | (Some(EndDt4 | EndDt6 | EndDt46), (None, None, Some(_)))
        );
        let Flavours { usp, usd, .. } = self.flavours;
        ensure!(
            has_parts && self.action.is_none() == self.sids.is_some() && !usp && !usd,
            "it has sids and a mode, or an action: End with flavours [\"psp\"] or none, End.X, DX6 and DX4 with a next-hop, End.T with a lookup-table, End.DT6 with that or a vrf-table, End.DT4 and DT46 with a vrf-table"
        );
        ensure!(
            (self.action == Some(End) || self.flavours == Flavours::default())
                && (self.action.is_none() || self.mode == Mode::default()),
            "flavours are those of End, and a mode is one of sids; leave them out"
        );
        let sids = self.sids.as_ref().map_or(1, Vec::len);
        ensure!(
            (1..=MOST_SIDS).contains(&sids),
            "there are {sids} SIDs: 1 to {MOST_SIDS} are allowed"
        );
        Ok(())
    }
}

fn is_v4(destination: Destination) -> bool {
    match destination {
        Destination::Address(address) | Destination::Prefix(address, _) => address.is_ipv4(),
        Destination::Default => false,
    }
}

fn usual_metric(destination: Destination) -> u32 {
    if is_v4(destination) {
        0
    } else {
        USUAL_METRIC_V6
    }
}

/// Fails if two routes are one to the kernel.
pub(super) fn check(routes: &BTreeMap<String, KernelRoute>) -> Result<(), Problem> {
    let mut known = BTreeMap::new();
    for (name, route) in routes {
        if let Some(other) = known.insert(route.key(), name) {
            let text = format!(
                "the kernel-route {other} has the same destination, table and metric; change one of them"
            );
            return Err(Problem::new(Kind::KernelRoute, name, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path as FilePath;

    use crate::configuration::error;
    use crate::configuration::file::parse;

    #[test]
    fn kernel_routes_are_checked_one_by_one() {
        let of = |text: &str| {
            error(&format!(
                "[kernel-routes]\nr = {{ device = \"e\", {text} }}"
            ))
        };
        let rule = "f:2: kernel-route r: it has sids and a mode, or an action: ";
        for text in [
            "destination = \"fc00::/64\"",
            "destination = \"fc00::/64\", sids = [\"fc00::1\"], action = \"End\"",
            "destination = \"fc00::/64\", action = \"End.X\"",
            "destination = \"fc00::/64\", action = \"End\", flavours = [\"usp\"]",
            "destination = \"fc00::/64\", action = \"End.DX4\", next-hop = \"fc00::1\"",
            "destination = \"fc00::/64\", action = \"End.DT46\", lookup-table = 7",
        ] {
            assert!(of(text).starts_with(rule), "{}", of(text));
        }
        assert_eq!(
            of("destination = \"10.0.0.0/8\", action = \"End\""),
            "f:2: kernel-route r: a local SID is an address of IPv6"
        );
        assert_eq!(
            of("destination = \"10.0.0.0/8\", sids = [\"fc00::1\"], via = \"fe80::1\""),
            "f:2: kernel-route r: via is of another version than the destination"
        );
        assert_eq!(
            of("destination = \"10.0.0.0/8\", sids = []"),
            "f:2: kernel-route r: there are 0 SIDs: 1 to 16 are allowed"
        );
        assert_eq!(
            of("destination = \"10.0.0.0/8\", sids = [\"fc00::1\"], table = 0"),
            "f:2: kernel-route r: table is 0: 1 to 4294967295 are allowed"
        );
        for text in ["action = \"End\"", "sids = [\"fc00::1\"]"] {
            assert_eq!(
                error(&format!("[kernel-routes]\nr = {{ device = \"lo\", destination = \"fc00::/64\", {text} }}")),
                "f:2: kernel-route r: the kernel makes an unreachable route of each one of IPv6 with lo; name another device, by which packets can leave"
            );
        }
        assert_eq!(
            error("[kernel-routes]\na = { device = \"e\", destination = \"fc00::/64\", action = \"End\" }\nb = { device = \"f\", destination = \"fc00::/64\", action = \"End\", metric = 1024 }"),
            "f:3: kernel-route b: the kernel-route a has the same destination, table and metric; change one of them"
        );
    }

    #[test]
    fn a_usual_metric_is_the_same_as_none() {
        let read = |metric: &str| {
            let route =
                format!("device = \"e\", destination = \"fc00::/64\", action = \"End\"{metric}");
            let text = format!("[kernel-routes]\nr = {{ {route} }}");
            parse(FilePath::new("f"), &text).expect("good")
        };
        assert_eq!(read(", metric = 1024"), read(""));
        assert_ne!(read(", metric = 1025"), read(""));
    }
}
