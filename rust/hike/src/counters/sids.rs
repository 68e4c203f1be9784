// SPDX-License-Identifier: GPL-2.0

//! The counts of local SIDs (RFC 8986, 6): the packets that a behaviour was done to. Each behaviour in the tables has a number, under
//! which they are found, so that two instances can go on with the same counts.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use aya::maps::{MapData, MapError, PerCpuHashMap};

use crate::layout::SidCounts;
use crate::limits::BEHAVIOURS;
use crate::maps::{free_number, insert_of_cpus, is_full, is_not_there, open, NEW};

/// The map of the counts.
pub(crate) const NAME: &str = "sid_counts";
type Table = PerCpuHashMap<MapData, u64, SidCounts>;

/// The packets that a behaviour was done to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Their number.
    pub pkts: u64,
    /// The bytes of the IPv6 packets, as they came.
    pub bytes: u64,
}

/// Returns a number for the counts of a behaviour: this one if it has counts already, else a new one that counts from 0 on; 0: no more
/// can be counted.
pub(crate) fn add(folder: &Path, number: u64) -> Result<u64> {
    let mut table: Table = open(folder, NAME)?.try_into()?;
    if number != 0 && table.get(&number, 0).is_ok() {
        return Ok(number);
    }
    let number = free_number(&table)?.into();
    if number == 0 {
        return Ok(0);
    }
    match insert_of_cpus(&mut table, number, SidCounts::default(), NEW)? {
        Err(error) if is_full(&error) => Ok(0),
        written => Ok(written.map(|()| number)?),
    }
}

/// Ends the counts of a number, if there are any.
pub(crate) fn remove(folder: &Path, number: u64) -> Result<()> {
    let mut table: Table = open(folder, NAME)?.try_into()?;
    match table.remove(&number) {
        Err(error) if !is_not_there(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Ends all counts but those of these numbers.
pub(crate) fn keep(folder: &Path, numbers: &BTreeSet<u64>) -> Result<()> {
    if !folder.join(NAME).exists() {
        // The programs there are of a version that does not count these.
        return Ok(());
    }
    let table: Table = open(folder, NAME)?.try_into()?;
    let there = table.keys().collect::<Result<Vec<u64>, MapError>>()?;
    for number in there.into_iter().filter(|one| !numbers.contains(one)) {
        remove(folder, number)?;
    }
    Ok(())
}

/// Returns what was counted under a number; nothing if it has no counts.
pub(crate) fn read(folder: &Path, number: u64) -> Result<Traffic> {
    if !folder.join(NAME).exists() {
        return Ok(Traffic::default());
    }
    let table: Table = open(folder, NAME)?.try_into()?;
    match table.get(&number, 0) {
        Ok(counts) => Ok(Traffic {
            pkts: counts.iter().map(|one| one.pkts).sum(),
            bytes: counts.iter().map(|one| one.bytes).sum(),
        }),
        Err(MapError::KeyNotFound) => Ok(Traffic::default()),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the map is there, and of the shape that it has here.
pub(crate) fn is_alike(folder: &Path) -> bool {
    let alike = || -> Result<bool> {
        let entries = MapData::from_pin(folder.join(NAME))?.info()?.max_entries();
        let of_shape = Table::try_from(open(folder, NAME)?).is_ok();
        // CAST: some ten thousand.
        Ok(of_shape && entries == 2 * BEHAVIOURS as u32)
    };
    folder.join(NAME).exists() && alike().unwrap_or(false)
}
