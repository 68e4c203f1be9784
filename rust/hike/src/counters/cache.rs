// SPDX-License-Identifier: GPL-2.0

//! The counts of the cache.

use std::path::Path;

use anyhow::Result;
use aya::maps::{MapData, PerCpuArray};
use serde::Serialize;

use crate::layout::Fill;
use crate::maps::open;

const NAME: &str = "cache_fill";

/// The number of packets at the cache since an instance was made. Packets without a key, and those that come while nobody watches, are in
/// none of these numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheCounts {
    /// Those that an entry was good for.
    pub hits: u64,
    /// Those that took their chain, as there was no good entry.
    pub misses: u64,
    /// Those of these that have made one.
    pub learned: u64,
}

/// Returns the counts of the instance in a folder; none if it has no cache.
pub fn read(folder: &Path) -> Result<CacheCounts> {
    let mut sum = CacheCounts::default();
    if !folder.join(NAME).exists() {
        return Ok(sum);
    }
    let fill: PerCpuArray<MapData, Fill> = open(folder, NAME)?.try_into()?;
    for of_cpu in fill.get(&0, 0)?.iter() {
        sum.hits += of_cpu.hits;
        sum.misses += of_cpu.misses;
        sum.learned += of_cpu.learned;
    }
    Ok(sum)
}
