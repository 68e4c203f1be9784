// SPDX-License-Identifier: GPL-2.0

//! The reading of a snapshot: counters at the begin of an interval and at its end, and what devices are.

mod interrupts;
mod links;
mod networks;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use mflow_algo::algo::knobs::cpulist::CpuSet;
use mflow_algo::algo::knobs::Knob;

use self::interrupts::Affinities;
use self::links::Link;
use self::networks::Networks;
use super::snapshot::{Device, Loaded, Module, Snapshot};
use crate::cpus::Counts;
use crate::module::text::Stats;
use crate::module::{self, Unreachable};

/// All that changes during the interval.
struct Moment {
    at: Instant,
    cpus: Counts,
    networks: Networks,
    links: Vec<Link>,
    interrupts: BTreeMap<String, Affinities>,
    stats: Option<Stats>,
}

impl Moment {
    fn read(root: &Path) -> Result<Self> {
        let links = links::read()?;
        let nics = links.iter().map(|link| link.name.as_str());
        let interrupts = nics.map(|name| (name.to_owned(), interrupts::of(root, name)));
        Ok(Self {
            interrupts: interrupts.collect(),
            cpus: Counts::read(root)?,
            networks: networks::read(root),
            stats: module::open(root).and_then(|module| module.stats()).ok(),
            at: Instant::now(),
            links,
        })
    }
}

/// Looks at this host for some time.
pub fn snapshot(root: &Path, time: Duration) -> Result<Snapshot> {
    let before = Moment::read(root)?;
    thread::sleep(time);
    let after = Moment::read(root)?;
    Ok(Snapshot {
        seconds: after.at.duration_since(before.at).as_secs_f64(),
        cpus: after.cpus.since(&before.cpus),
        devices: devices(root, &before, &after),
        networks: networks::since(&before.networks, after.networks),
        irqbalance: networks::runs(root, "irqbalance"),
        module: read_module(root, before.stats.as_ref()),
    })
}

fn devices(root: &Path, before: &Moment, after: &Moment) -> Vec<Device> {
    let device = |link: &Link| {
        let mut earlier = before.links.iter();
        // A device of this number that was not there before has counted nothing.
        let earlier = earlier.find(|one| one.index == link.index).unwrap_or(link);
        let affinities = &after.interrupts[&link.name];
        let moved = before.interrupts.get(&link.name);
        Device {
            name: link.name.clone(),
            index: link.index,
            kind: link.kind.clone(),
            is_nic: links::is_nic(root, &link.name),
            is_up: link.is_up,
            mtu: link.mtu,
            controller: link.controller,
            tunnel_over: link.tunnel_over,
            tunnel_is_ipv6: link.tunnel_is_ipv6,
            features: link.features.clone(),
            changeable_features: link.changeable_features.clone(),
            is_threaded: links::is_threaded(root, &link.name),
            rx_queues: links::rx_queues(root, &link.name),
            rps_cpus: links::rps_cpus(root, &link.name),
            interrupt_cpus: affinities.values().flatten().copied().collect(),
            interrupts_moved: moved.is_some_and(|moved| interrupts::differ(moved, affinities)),
            rx_pkts: link.rx_pkts.wrapping_sub(earlier.rx_pkts),
            rx_missed: link.rx_missed.wrapping_sub(earlier.rx_missed),
        }
    };
    after.links.iter().map(device).collect()
}

fn read_module(root: &Path, before: Option<&Stats>) -> Module {
    match loaded(root, before) {
        Ok(loaded) => Module::Loaded(Box::new(loaded)),
        Err(error) if error.is_not_loaded() => Module::NotLoaded,
        Err(error) => Module::Unreadable(error.to_string()),
    }
}

fn loaded(root: &Path, before: Option<&Stats>) -> Result<Loaded, Unreachable> {
    let module = module::open(root)?;
    let stats = module.stats()?;
    let flows = module.flows()?;
    let none_split = flows.none_split.as_ref();
    // Without netlink, no knob can be read under lockdown. The list of flows tells if splitting is on.
    let enabled = none_split.is_none_or(|why| why.reason != "not_enabled");
    let lanes = CpuSet::parse(module.lanes()?.as_bytes()).unwrap_or(CpuSet::EMPTY);
    Ok(Loaded {
        version: module.version()?,
        enabled,
        auto_cpus: module.knob(Knob::Cpus).ok().map(|cpus| cpus == "auto"),
        lanes: lanes.iter().collect(),
        devices: module.devices().ok(),
        counted: match before {
            Some(before) => stats.since(before),
            // It was loaded in between.
            None => stats,
        },
        flows,
    })
}
