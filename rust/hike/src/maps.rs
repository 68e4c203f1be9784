// SPDX-License-Identifier: GPL-2.0

//! The pinned maps of an instance, and what their errors mean.

use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail, Context as _, Result};
use aya::maps::{Map, MapData, MapError, PerCpuHashMap, PerCpuValues};
use aya::util::nr_cpus;
use aya::Pod;

/// The kernel's `BPF_NOEXIST`: only what is not there yet is written.
pub(crate) const NEW: u64 = 1;

/// Of this many numbers one is free, as good as certainly: some ten thousand of four billion are taken.
const MOST_DRAWS: u32 = 16;

/// The pauses in which the kernel may get memory ready, and the length of each.
const MOST_PAUSES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Opens a map of an instance.
pub(crate) fn open(folder: &Path, name: &str) -> Result<Map> {
    let path = folder.join(name);
    let data =
        MapData::from_pin(&path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Map::from_map_data(data)?)
}

/// Returns whether a map has refused because there is no such entry.
pub(crate) fn is_not_there(error: &MapError) -> bool {
    match error {
        MapError::KeyNotFound | MapError::ElementNotFound => true,
        MapError::SyscallError(error) => error.io_error.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

/// Returns whether a map has refused because there is such an entry.
pub(crate) fn is_there(error: &MapError) -> bool {
    match error {
        MapError::SyscallError(error) => error.io_error.kind() == ErrorKind::AlreadyExists,
        _ => false,
    }
}

/// Says of a map that is full that it is, and how many entries it has.
pub(crate) fn or_full(
    written: Result<(), MapError>,
    what: &'static str,
    most: usize,
) -> Result<()> {
    match written {
        Err(error) if is_full(&error) => {
            bail!("there are {most} {what} already, and no more are allowed")
        }
        written => Ok(written?),
    }
}

/// Returns whether a map has refused because it is full.
pub(crate) fn is_full(error: &MapError) -> bool {
    // A trie says the one, all others the other.
    const FULL: [i32; 2] = [libc::ENOSPC, libc::E2BIG];
    let MapError::SyscallError(error) = error else {
        return false;
    };
    let code = error.io_error.raw_os_error();
    code.is_some_and(|code| FULL.contains(&code))
}

/// Returns a number that nothing in a map has, or 0. It is random, so that one that has gone is not soon given to something else.
pub(crate) fn free_number<V: Pod>(table: &PerCpuHashMap<MapData, u64, V>) -> Result<u32> {
    for _ in 0..MOST_DRAWS {
        // CAST: half of the bits are as random.
        let number = RandomState::new().hash_one(()) as u32;
        match table.get(&number.into(), 0) {
            Err(MapError::KeyNotFound) if number != 0 => return Ok(number),
            Err(MapError::KeyNotFound) | Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(0)
}

/// Returns how many CPUs this host may have: maps of CPUs have a value for each, whether it is there or not.
pub fn possible_cpus() -> Result<usize> {
    nr_cpus().map_err(|(what, error)| anyhow!("{what}: {error}"))
}

/// Inserts the same value for each CPU. Such tables have no memory before they have entries, and a write may not wait for it: the kernel
/// gets more ready after a write has found none (`mm/percpu.c`: `pcpu_balance_workfn`), as behind tables that have just taken much. So this
/// tries some times, in a fifth of a second at most.
pub(crate) fn insert_of_cpus<K: Pod, V: Pod>(
    table: &mut PerCpuHashMap<MapData, K, V>,
    key: K,
    value: V,
    flags: u64,
) -> Result<Result<(), MapError>> {
    let cpus = possible_cpus()?;
    let mut pauses = MOST_PAUSES;
    loop {
        let values = PerCpuValues::try_from(vec![value; cpus])?;
        match table.insert(key, values, flags) {
            Err(error) if pauses > 0 && is_of_memory(&error) => {
                pauses -= 1;
                thread::sleep(PAUSE);
            }
            written => return Ok(written),
        }
    }
}

/// Returns whether the kernel had no memory for what was asked of a map.
fn is_of_memory(error: &MapError) -> bool {
    let MapError::SyscallError(error) = error else {
        return false;
    };
    error.io_error.raw_os_error() == Some(libc::ENOMEM)
}
