// SPDX-License-Identifier: GPL-2.0

//! The counts of flows: one map for each number of SIDs, as all keys of a map have the same size; and one more by numbers of
//! flows, for packets that `enc` has put on a path, whose headers need not be looked at for that. The count of a flow is the sum
//! of both.

use std::path::Path;

use anyhow::{bail, ensure, Context as _, Result};
use aya::maps::{Map, MapData, MapError, PerCpuHashMap};

use crate::config::flow::{Direction, Flow, Monitor};
use crate::layout::Counters;
use crate::limits::{FLOWS, FLOW_SIDS};
use crate::maps::{free_number, insert_of_cpus, is_full, is_not_there, open, or_full, NEW};

/// The names of the maps by addresses begin with this. They are other ones than those of earlier versions, whose keys had the same size and
/// no FlowMonID.
const MAPS: &str = "id_flows_";
/// The map of what is counted by numbers of flows.
const NUMBERED: &str = "numbered_flows";
type Numbered = PerCpuHashMap<MapData, u64, Counters>;

/// The operation on the entry of a flow.
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

/// Starts counting a flow from these counters on, by all CPUs; fails if it is counted already. Returns its number, or 0 if it has
/// none.
pub(crate) fn add(
    folder: &Path,
    flow: &Flow,
    direction: Direction,
    counters: Counters,
) -> Result<u64> {
    let mut table = match direction {
        Direction::In => numbered(folder)?,
        Direction::Out => None,
    };
    let number = table.as_ref().map_or(Ok(0), free_number)?;
    let counters = Counters { number, ..counters };
    with_entry(folder, flow, direction, Action::Add(counters))?;
    let (Some(table), number @ 1..) = (&mut table, u64::from(number)) else {
        return Ok(0);
    };
    // If the process is killed in between, nothing is found by this number, and packets are counted by their headers.
    match insert_of_cpus(table, number, counters, NEW)? {
        Err(error) if is_full(&error) => Ok(0),
        Err(error) => {
            with_entry(folder, flow, direction, Action::Remove)?;
            Err(error.into())
        }
        Ok(()) => Ok(number),
    }
}

pub(crate) fn remove(folder: &Path, flow: &Flow, direction: Direction) -> Result<()> {
    let number = number_of(&with_entry(folder, flow, direction, Action::Read)?);
    if let (Some(mut table), 1..) = (numbered(folder)?, number) {
        match table.remove(&number) {
            Err(error) if !is_not_there(&error) => return Err(error.into()),
            _ => {}
        }
    }
    with_entry(folder, flow, direction, Action::Remove).map(drop)
}

/// Returns what each CPU has counted: by headers and, if the flow has a number, by that.
pub(crate) fn read(folder: &Path, flow: &Flow, direction: Direction) -> Result<Vec<Counters>> {
    let mut counted = with_entry(folder, flow, direction, Action::Read)?;
    if let (Some(table), number @ 1..) = (numbered(folder)?, number_of(&counted)) {
        match table.get(&number, 0) {
            Ok(of_cpus) => counted.extend(of_cpus.iter()),
            Err(MapError::KeyNotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(counted)
}

/// Returns the number of a flow where it enters what is monitored; 0: it has none, or is not monitored.
pub(crate) fn number(folder: &Path, flow: &Flow) -> Result<u64> {
    let sids = flow.sids().len();
    let key = flow.key(Direction::In);
    let known = by_sids!(sids, known(open(folder, &name(sids))?, &key))?;
    Ok(known.map_or(0, |counters| number_of(&counters)))
}

fn number_of(counters: &[Counters]) -> u64 {
    counters
        .first()
        .map_or(0, |counters| counters.number.into())
}

/// Opens the map of what is counted by numbers; `None`: the programs there are of a version that has none.
fn numbered(folder: &Path) -> Result<Option<Numbered>> {
    match folder.join(NUMBERED).exists() {
        true => Ok(Some(open(folder, NUMBERED)?.try_into()?)),
        false => Ok(None),
    }
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

/// Returns whether all maps by addresses are of the shape that they have here.
pub(crate) fn are_alike(folder: &Path) -> bool {
    let names = maps_alike(folder);
    (1..=FLOW_SIDS).all(|sids| names.contains(&name(sids)))
}

/// Returns the names of the maps that are there, and of the shape they have here. Numbers of flows are worth nothing without the keys that
/// have them.
pub(crate) fn maps_alike(folder: &Path) -> Vec<String> {
    let alike = |sids: &usize| {
        let sids = *sids;
        let map = open(folder, &name(sids))?;
        by_sids!(sids, is_alike(map))
    };
    let sids = (1..=FLOW_SIDS).filter(|sids| alike(sids).unwrap_or(false));
    let mut names: Vec<String> = sids.map(name).collect();
    let numbered = || open(folder, NUMBERED).and_then(is_alike::<{ size_of::<u64>() }>);
    if names.len() == FLOW_SIDS && numbered().unwrap_or(false) {
        names.push(NUMBERED.to_owned());
    }
    names
}

fn name(sids: usize) -> String {
    format!("{MAPS}{sids}")
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
    let known = known_in(&table, &key)?;
    match action {
        Action::Add(counters) => {
            // The kernel would write over counters that packets are counted with just then.
            ensure!(
                known.is_none(),
                "this flow is monitored already; remove its monitor first to count from 0 again"
            );
            or_full(
                insert_of_cpus(&mut table, key, counters, 0)?,
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

/// Returns what a map has of a flow; `None`: it is not counted.
fn known<const BYTES: usize>(map: Map, key: &[u8]) -> Result<Option<Vec<Counters>>> {
    known_in::<BYTES>(&map.try_into()?, &key.try_into()?)
}

fn known_in<const BYTES: usize>(
    table: &PerCpuHashMap<MapData, [u8; BYTES], Counters>,
    key: &[u8; BYTES],
) -> Result<Option<Vec<Counters>>> {
    match table.get(key, 0) {
        Ok(counters) => Ok(Some(counters.to_vec())),
        Err(MapError::KeyNotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
