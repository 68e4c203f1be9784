// SPDX-License-Identifier: GPL-2.0

//! A configuration into the tables of a new instance, and where in them everything is.
//!
//! Chains have the places 1, 2, …, and paths 0, 1, …, in the order of their names; the chain in place 0 hands over to the kernel. Each
//! local SID has its behaviour in a place of its own, 1, 2, … in the order of destinations, so that it is counted by itself.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use mflow_hike::{Chain, Class, Destination, Hike, Places};

use crate::configuration::{Configuration, Fast, Mac, Origin, Route, Way};
use crate::devices::Devices;

/// The chain of packets that take the kernel's path, so that they are counted.
const KERNEL: &str = "fw-kernel";

/// The place of that chain.
pub(crate) const KERNEL_PLACE: u32 = 0;

/// The numbers under which local SIDs are counted, by destination.
pub(crate) type CountNumbers = BTreeMap<String, u64>;

/// Fills the tables; devices are looked up, and all of them have to be there. Local SIDs go on with their counts. Returns the numbers
/// of these.
pub(crate) fn fill(
    hike: &mut Hike,
    wanted: &Configuration,
    devices: &Devices,
    counted: &CountNumbers,
) -> Result<CountNumbers> {
    let kernel = Class {
        chain: hike.add_chain(&KERNEL.parse::<Chain>()?)?,
        path: None,
        lanes: None,
    };
    hike.set_rules(&wanted.rules).context("the access list")?;
    let mut chains = BTreeMap::new();
    for (name, chain) in &wanted.chains {
        let id = hike.add_chain(chain);
        chains.insert(name, id.with_context(|| format!("chain {name}"))?);
    }
    let mut paths = BTreeMap::new();
    for (name, path) in &wanted.paths {
        let id = hike.add_path(path);
        paths.insert(name, id.with_context(|| format!("path {name}"))?);
    }
    let (mut behaviours, mut numbers) = (BTreeMap::new(), CountNumbers::new());
    for (destination, name) in local_sids(wanted).into_values() {
        let behaviour = wanted.behaviours.get(name).context("no such behaviour")?;
        let sid = destination.to_string();
        let number = counted.get(&sid).copied().unwrap_or(0);
        let id = hike.add_behaviour_counted(behaviour, number);
        let id = id.with_context(|| format!("behaviour {name}"))?;
        numbers.insert(sid, hike.count_number(id)?);
        behaviours.insert(destination, id);
    }
    for name in &wanted.inside {
        let device = devices.get(name)?;
        hike.add_inside(device.index)
            .with_context(|| format!("inside {name}"))?;
    }
    for name in &wanted.ports {
        let device = devices.get(name)?;
        let added = match wanted.devices.contains(name) {
            true => hike.add_port_with_entry(device.index),
            false => hike.add_port(device.index),
        };
        added.with_context(|| format!("port {name}"))?;
    }
    for (&destination, route) in &wanted.routes {
        let route = resolve(route, devices);
        route
            .and_then(|route| hike.set_route(destination, &route))
            .with_context(|| format!("route {destination}"))?;
    }
    let class_of = |way: &Way| -> Result<_> {
        Ok(match way {
            Way::Kernel => kernel,
            Way::Fast(Fast {
                chain, path, lanes, ..
            }) => Class {
                // The configuration was checked: all of them are there.
                chain: *chains.get(chain).context("no such chain")?,
                path: path.as_ref().and_then(|path| paths.get(path)).copied(),
                lanes: *lanes,
            },
        })
    };
    for (&destination, way) in &wanted.classes {
        let class = class_of(way)?;
        let behaviour = behaviours.get(&destination).copied();
        match (is_from_inside(&wanted.resolved(way)), behaviour) {
            (true, behaviour) => hike.set_class_inside(destination, class, behaviour),
            (false, Some(behaviour)) => hike.set_local_sid(destination, class, behaviour),
            (false, None) => hike.set_class(destination, class),
        }
        .with_context(|| format!("class {destination}"))?;
    }
    for (name, classed) in &wanted.flows {
        // Of a flow, only its destination could have a behaviour.
        let (class, flow) = (class_of(&classed.class)?, classed.flow()?);
        match is_from_inside(&wanted.resolved(&classed.class)) {
            true => hike.set_flow_class_inside(&flow, class),
            false => hike.set_flow_class(&flow, class),
        }
        .with_context(|| format!("flow {name}"))?;
    }
    Ok(numbers)
}

/// Returns whether a way, as tables have it, is for packets from inside alone.
fn is_from_inside(way: &Way) -> bool {
    matches!(way, Way::Fast(fast) if fast.from == Some(Origin::Inside))
}

/// Returns a route with what its port says of itself.
pub(crate) fn resolve(route: &Route, devices: &Devices) -> Result<mflow_hike::Route> {
    let port = devices.get(&route.port)?;
    let source = route.source.map(|Mac(source)| source).or(port.mac);
    let source = source.with_context(|| {
        format!(
            "{} has no Ethernet address; give the route a source",
            route.port
        )
    })?;
    Ok(mflow_hike::Route {
        port: port.index,
        mtu: route
            .mtu
            .unwrap_or(u16::try_from(port.mtu).unwrap_or(u16::MAX)),
        source,
        destination: route.next_hop.0,
    })
}

/// Returns the names of chains by their places; the kernel's has none.
pub(crate) fn chain_names(configuration: &Configuration) -> BTreeMap<u32, &str> {
    let names = configuration.chains.keys().map(String::as_str);
    (KERNEL_PLACE + 1..).zip(names).collect()
}

/// Returns the names of paths by their places.
pub(crate) fn path_names(configuration: &Configuration) -> BTreeMap<u32, &str> {
    let names = configuration.paths.keys().map(String::as_str);
    (0..).zip(names).collect()
}

/// Returns the local SIDs, each with the name of its behaviour, by the places of these; the first place stands for none.
pub(crate) fn local_sids(configuration: &Configuration) -> BTreeMap<u32, (Destination, &str)> {
    let classes = configuration.classes.iter();
    let sids = classes.filter_map(|(&destination, way)| match way {
        Way::Fast(fast) => Some((destination, fast.behaviour.as_deref()?)),
        Way::Kernel => None,
    });
    (1..).zip(sids).collect()
}

/// Names by their places.
pub(crate) struct Names<'a> {
    pub(crate) chains: BTreeMap<u32, &'a str>,
    pub(crate) paths: BTreeMap<u32, &'a str>,
    pub(crate) behaviours: BTreeMap<u32, &'a str>,
}

/// Returns what a class with these places does, if they lead somewhere: as [`Configuration::resolved`] has it.
pub(crate) fn way(places: Places, names: &Names<'_>) -> Option<Way> {
    let of_kernel = Places {
        chain: KERNEL_PLACE,
        path: None,
        behaviour: None,
        lanes: None,
        inside: false,
    };
    if places == of_kernel {
        return Some(Way::Kernel);
    }
    let name =
        |names: &BTreeMap<u32, &str>, place: u32| names.get(&place).map(|&name| name.to_owned());
    // What is there and has no name is nothing that this program has made.
    let if_there = |names, place: Option<u32>| match place {
        None => Some(None),
        Some(place) => name(names, place).map(Some),
    };
    Some(Way::Fast(Fast {
        chain: name(&names.chains, places.chain)?,
        path: if_there(&names.paths, places.path)?,
        behaviour: if_there(&names.behaviours, places.behaviour)?,
        lanes: places.lanes,
        from: places.inside.then_some(Origin::Inside),
    }))
}
