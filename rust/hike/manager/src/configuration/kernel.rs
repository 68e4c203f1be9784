// SPDX-License-Identifier: GPL-2.0

//! Routes of the kernel's own: as they are written, and what they are. The kernel encapsulates with them (H.Encaps), or has local SIDs
//! (seg6local), for packets that take its path.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mflow_hike::config::path::Mode;
use mflow_hike::Destination;
use serde::{Deserialize, Serialize};

use super::at::{At, Result};
use super::check::device_name;
use super::entries::{is_default, FlavourWord, ModeWord};

/// The kernel's number of its main table, and the metric that it gives routes of IPv6 which say none.
const MAIN_TABLE: u32 = 254;
const USUAL_METRIC_V6: u32 = 1024;
/// SIDs of an SRH that the kernel writes: as many as a monitored flow can have.
const MOST_SIDS: usize = 16;

/// A route, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KernelRouteEntry {
    /// An address or a prefix; of `action`, of IPv6.
    pub destination: String,
    /// The device that it is for.
    pub device: String,
    /// The router that packets go to; absent: the destination is on the link, or the first SID says more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// The table that it is in, 1 to 4294967295; absent: 254, the main one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<i64>,
    /// 1 to 4294967295; absent: what the kernel takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<i64>,
    /// The SIDs of the path that it puts packets on, 1 to 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sids: Option<Vec<String>>,
    /// The mode of encapsulation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: ModeWord,
    /// The action on packets of a local SID; either this or `sids` is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<KernelActionWord>,
    /// The next hop of End.X, End.DX4 and End.DX6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
    /// The table in which End.T and End.DT6 look, 1 to 4294967295.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookup_table: Option<i64>,
    /// The table of the VRF in which End.DT4, DT6 and DT46 look, 1 to 4294967295.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf_table: Option<i64>,
    /// The flavours of End: the kernel has PSP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavours: Vec<FlavourWord>,
}

/// A behaviour of RFC 8986 that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelActionWord {
    /// Goes on to the next segment.
    End,
    /// Does so, and forwards to a next hop.
    #[serde(rename = "End.X")]
    EndX,
    /// Does so, and forwards by a table.
    #[serde(rename = "End.T")]
    EndT,
    /// Takes the outer headers off IPv6, and forwards to a next hop.
    #[serde(rename = "End.DX6")]
    Dx6,
    /// The same of IPv4.
    #[serde(rename = "End.DX4")]
    Dx4,
    /// Takes the outer headers off IPv6, and forwards by a table.
    #[serde(rename = "End.DT6")]
    Dt6,
    /// The same of IPv4.
    #[serde(rename = "End.DT4")]
    Dt4,
    /// The same of both.
    #[serde(rename = "End.DT46")]
    Dt46,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// The destination of packets that take it.
    pub destination: Destination,
    /// The name of its device.
    pub device: String,
    /// The router.
    pub via: Option<IpAddr>,
    /// The kernel's table that it is in.
    pub table: u32,
    /// The cost by which one of several routes to one destination is chosen.
    pub metric: u32,
    /// The action on packets.
    pub does: Does,
}

/// The action of a route on packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// Puts them on a path: H.Encaps, H.Encaps.Red.
    Encaps {
        /// Its SIDs, in the order in which they are visited.
        sids: Vec<Ipv6Addr>,
        /// The mode of encapsulation.
        mode: Mode,
    },
    /// End.
    End {
        /// True with PSP.
        psp: bool,
    },
    /// End.X.
    EndX(Ipv6Addr),
    /// End.T.
    EndT(u32),
    /// End.DX6.
    Dx6(Ipv6Addr),
    /// End.DX4.
    Dx4(Ipv4Addr),
    /// End.DT6, by a table.
    Dt6(u32),
    /// End.DT6, by the table of a VRF.
    Dt6Vrf(u32),
    /// End.DT4, likewise.
    Dt4Vrf(u32),
    /// End.DT46, likewise.
    Dt46Vrf(u32),
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

impl KernelRoute {
    /// Returns the parts that tell it from others.
    pub fn key(&self) -> RouteKey {
        RouteKey {
            destination: self.destination,
            table: self.table,
            metric: self.metric,
        }
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

/// Returns the route that an entry says.
pub(super) fn kernel_route(at: At<'_>, entry: &KernelRouteEntry) -> Result<KernelRoute> {
    let destination = entry.destination.parse();
    let destination: Destination =
        destination.map_err(|error| at.problem_of("destination", error))?;
    if destination == Destination::Default {
        return Err(at.problem_of(
            "destination",
            "a route has an address or a prefix; write the default as 0.0.0.0/0 and ::/0",
        ));
    }
    if let Some(text) = device_name(&entry.device) {
        return Err(at.problem_of("device", format!("device: {text}")));
    }
    let number = |field, number| at.number::<u32>(field, number, 1, u32::MAX.into());
    let via = entry.via.as_deref();
    let via = via.map(|text| at.any_address("via", text)).transpose()?;
    if via.is_some_and(|via| via.is_ipv4() != is_v4(destination)) {
        return Err(at.problem_of("via", "via is of another version than the destination"));
    }
    let does = does(at, entry)?;
    if !matches!(does, Does::Encaps { .. }) {
        if is_v4(destination) {
            return Err(at.problem_of("destination", "a local SID is an address of IPv6"));
        }
        if via.is_some() {
            return Err(at.problem_of("via", "a local SID has no via; leave it out"));
        }
    }
    Ok(KernelRoute {
        destination,
        device: entry.device.clone(),
        via,
        table: number("table", entry.table)?.unwrap_or(MAIN_TABLE),
        metric: number("metric", entry.metric)?.unwrap_or(usual_metric(destination)),
        does,
    })
}

fn does(at: At<'_>, entry: &KernelRouteEntry) -> Result<Does> {
    use KernelActionWord as Word;
    let number = |field, number| at.number::<u32>(field, number, 1, u32::MAX.into());
    let (lookup, vrf) = (
        number("lookup-table", entry.lookup_table)?,
        number("vrf-table", entry.vrf_table)?,
    );
    let hop = entry.next_hop.as_deref();
    let hop = hop
        .map(|text| at.any_address("next-hop", text))
        .transpose()?;
    let (mode, flavours) = (entry.mode, &entry.flavours[..]);
    let does = match (entry.action, &entry.sids, hop, lookup, vrf) {
        (None, Some(sids), None, None, None) if flavours.is_empty() => {
            let sids = at.addresses("sids", sids)?;
            if sids.is_empty() || sids.len() > MOST_SIDS {
                let text = format!(
                    "there are {} SIDs: 1 to {MOST_SIDS} are allowed",
                    sids.len()
                );
                return Err(at.problem_of("sids", text));
            }
            let mode = match mode {
                ModeWord::Encaps => Mode::Encaps,
                ModeWord::Reduced => Mode::Reduced,
            };
            Does::Encaps { sids, mode }
        }
        (Some(Word::End), None, None, None, None)
            if flavours.iter().all(|word| *word == FlavourWord::Psp) =>
        {
            let psp = !flavours.is_empty();
            Does::End { psp }
        }
        (Some(Word::EndX), None, Some(IpAddr::V6(hop)), None, None) => Does::EndX(hop),
        (Some(Word::EndT), None, None, Some(table), None) => Does::EndT(table),
        (Some(Word::Dx6), None, Some(IpAddr::V6(hop)), None, None) => Does::Dx6(hop),
        (Some(Word::Dx4), None, Some(IpAddr::V4(hop)), None, None) => Does::Dx4(hop),
        (Some(Word::Dt6), None, None, Some(table), None) => Does::Dt6(table),
        (Some(Word::Dt6), None, None, None, Some(table)) => Does::Dt6Vrf(table),
        (Some(Word::Dt4), None, None, None, Some(table)) => Does::Dt4Vrf(table),
        (Some(Word::Dt46), None, None, None, Some(table)) => Does::Dt46Vrf(table),
        _ => {
            return Err(at.problem(
                "it has sids and a mode, or an action: End with flavours [\"psp\"] or none, End.X, DX6 and DX4 with a next-hop, End.T with a lookup-table, End.DT6 with that or a vrf-table, End.DT4 and DT46 with a vrf-table",
            ));
        }
    };
    let extra = !matches!(does, Does::End { .. }) && !flavours.is_empty();
    let mode_of_none = !matches!(does, Does::Encaps { .. }) && mode != ModeWord::default();
    if extra || mode_of_none {
        return Err(
            at.problem("flavours are those of End, and a mode is one of sids; leave them out")
        );
    }
    Ok(does)
}

/// Returns how a route is written.
pub(crate) fn entry(route: &KernelRoute) -> KernelRouteEntry {
    use KernelActionWord as Word;
    let mut entry = KernelRouteEntry {
        destination: route.destination.to_string(),
        device: route.device.clone(),
        via: route.via.map(|via| via.to_string()),
        table: (route.table != MAIN_TABLE).then_some(route.table.into()),
        metric: (route.metric != usual_metric(route.destination)).then_some(route.metric.into()),
        ..KernelRouteEntry::default()
    };
    let action = match &route.does {
        Does::Encaps { sids, mode } => {
            entry.sids = Some(sids.iter().map(ToString::to_string).collect());
            entry.mode = match mode {
                Mode::Encaps => ModeWord::Encaps,
                Mode::Reduced => ModeWord::Reduced,
            };
            return entry;
        }
        Does::End { psp } => {
            entry.flavours = psp.then_some(FlavourWord::Psp).into_iter().collect();
            Word::End
        }
        Does::EndX(hop) | Does::Dx6(hop) => {
            entry.next_hop = Some(hop.to_string());
            match route.does {
                Does::EndX(_) => Word::EndX,
                _ => Word::Dx6,
            }
        }
        Does::Dx4(hop) => {
            entry.next_hop = Some(hop.to_string());
            Word::Dx4
        }
        Does::EndT(table) | Does::Dt6(table) => {
            entry.lookup_table = Some((*table).into());
            match route.does {
                Does::EndT(_) => Word::EndT,
                _ => Word::Dt6,
            }
        }
        Does::Dt6Vrf(table) | Does::Dt4Vrf(table) | Does::Dt46Vrf(table) => {
            entry.vrf_table = Some((*table).into());
            match route.does {
                Does::Dt6Vrf(_) => Word::Dt6,
                Does::Dt4Vrf(_) => Word::Dt4,
                _ => Word::Dt46,
            }
        }
    };
    entry.action = Some(action);
    entry
}

/// Fails if two routes are one to the kernel.
pub(super) fn check(routes: &BTreeMap<String, KernelRoute>) -> Result<()> {
    let mut known = BTreeMap::new();
    for (name, route) in routes {
        if let Some(other) = known.insert(route.key(), name) {
            let at = At {
                kind: super::objects::Kind::KernelRoute,
                name,
            };
            return Err(at.problem(format!(
                "the kernel-route {other} has the same destination, table and metric; change one of them"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::configuration::error;

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
        assert_eq!(
            error("[kernel-routes]\na = { device = \"e\", destination = \"fc00::/64\", action = \"End\" }\nb = { device = \"f\", destination = \"fc00::/64\", action = \"End\", metric = 1024 }"),
            "f:3: kernel-route b: the kernel-route a has the same destination, table and metric; change one of them"
        );
    }
}
