// SPDX-License-Identifier: GPL-2.0

//! What is counted of flows: one map for each number of SIDs, as all keys of a map have the same size.

use std::path::Path;

use anyhow::{anyhow, bail, ensure, Context as _, Result};
use aya::maps::{Map, MapData, MapError, PerCpuHashMap, PerCpuValues};
use aya::util::nr_cpus;

use crate::flow::{Direction, Flow};
use crate::layout::Counters;
use crate::loader::open;

/// What is done with the entry of a flow.
enum Action {
    Add(Counters),
    Remove,
    Read,
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
    let map = open(folder, &format!("flows_{}", flow.sids().len()))?;
    let key = flow.key(direction);
    /// Calls with the type of the key for the number of SIDs.
    macro_rules! by_sids {
        ($($sids:literal)*) => {
            match flow.sids().len() {
                $($sids => in_map::<{ 24 + 16 * $sids }>(map, &key, action),)*
                sids => bail!("no map for {sids} SIDs"),
            }
        };
    }
    by_sids!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
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
            table.insert(key, values, 0)?;
            return Ok(Vec::new());
        }
        Action::Remove if known.is_some() => table.remove(&key)?,
        Action::Remove | Action::Read => {}
    }
    known.context("this flow is not monitored")
}
