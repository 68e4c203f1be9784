// SPDX-License-Identifier: GPL-2.0

//! What is counted of flows: one map for each number of SIDs, as all keys of a map have the same size.

use std::path::Path;

use anyhow::{anyhow, bail, ensure, Context as _, Result};
use aya::maps::{Map, MapData, MapError, PerCpuHashMap, PerCpuValues};
use aya::util::nr_cpus;

use crate::flow::{Direction, Flow, Monitor};
use crate::layout::Counters;
use crate::limits::{FLOWS, FLOW_SIDS};
use crate::loader::{open, or_full};

/// What is done with the entry of a flow.
enum Action {
    Add(Counters),
    Remove,
    Read,
}

/// Calls a function with the size of the key for the number of SIDs.
macro_rules! by_sids {
    ($sids:expr, $call:ident $arguments:tt) => {
        by_sids!(@ $sids, $call $arguments, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
    };
    (@ $sids:expr, $call:ident $arguments:tt, $($number:literal)*) => {
        match $sids {
            $($number => $call::<{ 24 + 16 * $number }> $arguments,)*
            sids => bail!("no map for {sids} SIDs"),
        }
    };
}

/// Has a flow counted from these counters on, by all CPUs; fails if it is counted already.
pub(crate) fn add(
    folder: &Path,
    flow: &Flow,
    direction: Direction,
    counters: Counters,
) -> Result<()> {
    with_entry(folder, flow, direction, Action::Add(counters)).map(drop)
}

pub(crate) fn remove(folder: &Path, flow: &Flow, direction: Direction) -> Result<()> {
    with_entry(folder, flow, direction, Action::Remove).map(drop)
}

/// Returns what each CPU has counted.
pub(crate) fn read(folder: &Path, flow: &Flow, direction: Direction) -> Result<Vec<Counters>> {
    with_entry(folder, flow, direction, Action::Read)
}

fn with_entry(
    folder: &Path,
    flow: &Flow,
    direction: Direction,
    action: Action,
) -> Result<Vec<Counters>> {
    let sids = flow.sids().len();
    let map = open(folder, &name(sids))?;
    let key = flow.key(direction);
    by_sids!(sids, in_map(map, &key, action))
}

/// Returns what is counted, and how.
pub(crate) fn list(folder: &Path) -> Result<Vec<(Flow, Direction, Monitor)>> {
    let mut found = Vec::new();
    for sids in 1..=FLOW_SIDS {
        let map = open(folder, &name(sids))?;
        by_sids!(sids, list_map(map, &mut found))?;
    }
    Ok(found)
}

/// Returns the names of the maps that are there, and of the shape they have here.
pub(crate) fn maps_alike(folder: &Path) -> Vec<String> {
    let alike = |sids: &usize| {
        let sids = *sids;
        let map = open(folder, &name(sids))?;
        by_sids!(sids, is_alike(map))
    };
    let sids = (1..=FLOW_SIDS).filter(|sids| alike(sids).unwrap_or(false));
    sids.map(name).collect()
}

fn name(sids: usize) -> String {
    format!("flows_{sids}")
}

fn is_alike<const BYTES: usize>(map: Map) -> Result<bool> {
    let data = match &map {
        Map::PerCpuHashMap(data) => data.info()?,
        _ => return Ok(false),
    };
    let sizes = PerCpuHashMap::<MapData, [u8; BYTES], Counters>::try_from(map);
    // CAST: some thousand.
    Ok(sizes.is_ok() && data.max_entries() == FLOWS as u32)
}

fn list_map<const BYTES: usize>(
    map: Map,
    found: &mut Vec<(Flow, Direction, Monitor)>,
) -> Result<()> {
    let table: PerCpuHashMap<MapData, [u8; BYTES], Counters> = map.try_into()?;
    for entry in table.iter() {
        let (key, of_cpus) = entry?;
        let (flow, direction) = Flow::of_key(&key)?;
        let counters = of_cpus.first().context("this host has no CPU")?;
        found.push((flow, direction, Monitor::of_counters(counters)));
    }
    Ok(())
}

fn in_map<const BYTES: usize>(map: Map, key: &[u8], action: Action) -> Result<Vec<Counters>> {
    let mut table: PerCpuHashMap<MapData, [u8; BYTES], Counters> = map.try_into()?;
    let key: [u8; BYTES] = key.try_into()?;
    let known = match table.get(&key, 0) {
        Ok(counters) => Some(counters.to_vec()),
        Err(MapError::KeyNotFound) => None,
        Err(error) => return Err(error.into()),
    };
    match action {
        Action::Add(counters) => {
            // The kernel would write over counters that packets are counted with just then.
            ensure!(
                known.is_none(),
                "this flow is monitored already; remove its monitor first to count from 0 again"
            );
            let cpus = nr_cpus().map_err(|(what, error)| anyhow!("{what}: {error}"))?;
            let values = PerCpuValues::try_from(vec![counters; cpus])?;
            or_full(
                table.insert(key, values, 0),
                "monitored flows with as many SIDs",
                FLOWS,
            )?;
            return Ok(Vec::new());
        }
        Action::Remove if known.is_some() => table.remove(&key)?,
        Action::Remove | Action::Read => {}
    }
    known.context("this flow is not monitored")
}
