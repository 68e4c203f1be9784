// SPDX-License-Identifier: GPL-2.0

//! A configuration into the tables of a new instance, and where in them everything is.
//!
//! Chains have the places 1, 2, … and paths 0, 1, … in the order of their names; the chain in place 0 hands over to the kernel.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use mflow_hike::{Chain, Class, Hike, Places};

use crate::configuration::{Configuration, Route, Way};
use crate::devices::Devices;

/// What takes the kernel's path takes this chain, so that it is counted.
const KERNEL: &str = "fw-kernel";

/// The place of that chain.
pub(crate) const KERNEL_PLACE: u32 = 0;

/// Fills the tables; devices are looked up, and all of them have to be there.
pub(crate) fn fill(hike: &mut Hike, wanted: &Configuration, devices: &Devices) -> Result<()> {
    let kernel = Class {
        chain: hike.add_chain(&KERNEL.parse::<Chain>()?)?,
        path: None,
    };
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
    for name in &wanted.ports {
        let device = devices.get(name)?;
        hike.add_port(device.index)
            .with_context(|| format!("port {name}"))?;
    }
    for (&destination, route) in &wanted.routes {
        let route = resolve(route, devices);
        route
            .and_then(|route| hike.set_route(destination, &route))
            .with_context(|| format!("route {destination}"))?;
    }
    for (&destination, way) in &wanted.classes {
        let class = match way {
            Way::Kernel => kernel,
            Way::Fast { chain, path } => Class {
                // The configuration was checked: both are there.
                chain: *chains.get(chain).context("no such chain")?,
                path: path.as_ref().and_then(|path| paths.get(path)).copied(),
            },
        };
        hike.set_class(destination, class)
            .with_context(|| format!("class {destination}"))?;
    }
    Ok(())
}

/// Returns a route with what its port says of itself.
pub(crate) fn resolve(route: &Route, devices: &Devices) -> Result<mflow_hike::Route> {
    let port = devices.get(&route.port)?;
    let source = route.source.or(port.mac);
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
        destination: route.next_hop,
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

/// Returns what a class with these places does, if they lead somewhere.
pub(crate) fn way(
    places: Places,
    chains: &BTreeMap<u32, &str>,
    paths: &BTreeMap<u32, &str>,
) -> Option<Way> {
    if places.chain == KERNEL_PLACE && places.path.is_none() {
        return Some(Way::Kernel);
    }
    let name = |names: &BTreeMap<u32, &str>, place| names.get(&place).map(|&name| name.to_owned());
    let path = match places.path {
        None => None,
        Some(place) => Some(name(paths, place)?),
    };
    Some(Way::Fast {
        chain: name(chains, places.chain)?,
        path,
    })
}
