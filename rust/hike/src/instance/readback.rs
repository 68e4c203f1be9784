// SPDX-License-Identifier: GPL-2.0

//! The contents of a generation's tables, as the kernel reports them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use anyhow::{Context as _, Result};
use aya::maps::lpm_trie::Key;
use aya::maps::{Array, DevMapHash, HashMap, LpmTrie, MapData, MapError};

use super::generation::{program_ids, Generation};
use super::hike::Route;
use crate::config::behaviour::Behaviour;
use crate::config::destination::Destination;
use crate::config::exact_flow::ExactFlow;
use crate::config::lanes::Lanes;
use crate::config::path::Path;
use crate::layout::{self, Address};
use crate::limits::CHAINS;
use crate::maps::open;

/// A class by the places of what it takes: chains and paths have them in the order in which they were added, from 0 on,
/// behaviours from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// The place of the chain.
    pub chain: u32,
    /// The place of the path.
    pub path: Option<u32>,
    /// The place of the behaviour.
    pub behaviour: Option<u32>,
    /// The request to mflow for the flows.
    pub lanes: Option<Lanes>,
    /// True if it is for packets from inside alone.
    pub inside: bool,
}

/// The map of the groups of devices.
const GROUPS: &str = "groups";

impl Generation {
    /// Returns the classes.
    pub fn classes(&self) -> Result<BTreeMap<Destination, Places>> {
        let mut classes = BTreeMap::new();
        for table in ["classes", "prefixes"] {
            let table: HashMap<MapData, Key<Address>, layout::Class> =
                open(self.folder(), table)?.try_into()?;
            for entry in table.iter() {
                let (key, class) = entry?;
                if class.chain_place() == layout::Class::OF_FLOWS.chain {
                    continue;
                }
                let destination = key.data().destination(key.prefix_len())?;
                classes.insert(destination, places(class));
            }
        }
        Ok(classes)
    }

    /// Returns the flows that have classes of their own, as far as packets find them: the class of their destination has to tell.
    pub fn flow_classes(&self) -> Result<BTreeMap<ExactFlow, Places>> {
        let of_destinations: HashMap<MapData, Key<Address>, layout::Class> =
            open(self.folder(), "classes")?.try_into()?;
        let of_flows: HashMap<MapData, layout::ExactFlow, layout::Class> =
            open(self.folder(), "exact_flows")?.try_into()?;
        let mut classes = BTreeMap::new();
        for entry in of_flows.iter() {
            let (key, class) = entry?;
            let Some(flow) = ExactFlow::of_layout(&key) else {
                continue;
            };
            let told = of_destinations.get(&Address::whole(flow.destination()), 0);
            if told.is_ok_and(|told| told.chain & flow.bit() != 0) {
                classes.insert(flow, places(class));
            }
        }
        Ok(classes)
    }

    /// Returns which of these paths, by their places, are not what is there.
    pub fn other_paths<'a>(
        &self,
        paths: impl IntoIterator<Item = (u32, &'a Path)>,
    ) -> Result<BTreeSet<u32>> {
        let table: Array<MapData, layout::Path> = open(self.folder(), "paths")?.try_into()?;
        let mut others = BTreeSet::new();
        for (place, path) in paths {
            if table.get(&place, 0)? != path.layout()? {
                others.insert(place);
            }
        }
        Ok(others)
    }

    /// Returns which of these behaviours, by their places, are not what is there.
    pub fn other_behaviours<'a>(
        &self,
        behaviours: impl IntoIterator<Item = (u32, &'a Behaviour)>,
    ) -> Result<BTreeSet<u32>> {
        let table: Array<MapData, layout::Behaviour> =
            open(self.folder(), "behaviours")?.try_into()?;
        let mut others = BTreeSet::new();
        for (place, behaviour) in behaviours {
            let there = table.get(&place, 0)?;
            // Its number is what has come out of it.
            let number = there.number;
            if there
                != (layout::Behaviour {
                    number,
                    ..behaviour.layout()?
                })
            {
                others.insert(place);
            }
        }
        Ok(others)
    }

    /// Returns the routes of `fw-table`.
    pub fn routes(&self) -> Result<BTreeMap<Destination, Route>> {
        let table: LpmTrie<MapData, Address, layout::Route> =
            open(self.folder(), "routes")?.try_into()?;
        let mut routes = BTreeMap::new();
        for entry in table.iter() {
            let (key, route) = entry?;
            let destination = key.data().destination(key.prefix_len())?;
            let route = Route {
                port: route.port,
                mtu: route.mtu,
                source: route.source,
                destination: route.destination,
            };
            routes.insert(destination, route);
        }
        Ok(routes)
    }

    /// Returns the indices of the devices that are inside.
    pub fn inside(&self) -> Result<BTreeSet<u32>> {
        let mut inside = BTreeSet::new();
        if !self.folder().join(GROUPS).exists() {
            // The programs there are of a version that knows no groups.
            return Ok(inside);
        }
        let table: HashMap<MapData, u32, u32> = open(self.folder(), GROUPS)?.try_into()?;
        for entry in table.iter() {
            let (device, groups) = entry?;
            if groups & layout::GROUP_INSIDE != 0 {
                inside.insert(device);
            }
        }
        Ok(inside)
    }

    /// Returns the indices of the devices that packets may leave through.
    pub fn ports(&self) -> Result<BTreeSet<u32>> {
        let table: DevMapHash<MapData> = open(self.folder(), "ports")?.try_into()?;
        Ok(table.keys().collect::<Result<_, _>>()?)
    }
}

/// Returns the kernel's numbers of the programs that the chains in a folder begin with, by their places.
pub fn chain_programs(folder: &FilePath) -> Result<BTreeMap<u32, u32>> {
    let ids = program_ids(folder, "chains")?;
    let mut programs = BTreeMap::new();
    // CAST: some thousand.
    for place in 0..CHAINS as u32 {
        match ids.get(&place, 0) {
            Ok(program) => drop(programs.insert(place, program)),
            Err(MapError::KeyNotFound) => {}
            Err(error) => return Err(error).context("cannot read the chains"),
        }
    }
    Ok(programs)
}

fn places(class: layout::Class) -> Places {
    let lanes = Lanes::of_number(class.lanes());
    // Bits that say nothing there is make a place that nothing has.
    let behaviour = match lanes.map_or(0, Lanes::number) == class.lanes() {
        true => class.behaviour_place(),
        false => class.behaviour,
    };
    Places {
        chain: class.chain_place().into(),
        path: (class.path != u32::MAX).then_some(class.path),
        behaviour: (behaviour != 0).then_some(behaviour.into()),
        lanes,
        inside: class.chain & layout::Class::INSIDE != 0,
    }
}
