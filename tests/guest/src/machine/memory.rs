// SPDX-License-Identifier: GPL-2.0

//! The kernel's memory of the kinds that lanes, rings and slots are made of, and whether it grows.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;

use anyhow::{bail, ensure, Context as _, Result};

/// Callers whose allocations are no leak: stacks of threads, which the kernel keeps for later threads (some compilers put the one
/// function into the other), and areas it frees late.
const KEPT: [&str; 3] = ["copy_process", "kernel_clone", "unpurged"];

/// The pages of a lane, and of its places for packets that are not built, each with that which the kernel leaves free behind them:
/// little else is of that size.
const LANE_BYTES: RangeInclusive<i64> = (68 << 10)..=(84 << 10);
const PLACES_BYTES: RangeInclusive<i64> = (260 << 10)..=(260 << 10);

/// The number of lanes, and how many of them have places for packets that are not built; with other things of these sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    pub(crate) all: usize,
    pub(crate) with_places: usize,
    /// Of all these together.
    pub(crate) bytes: i64,
}

impl Lanes {
    pub(crate) fn count() -> Result<Self> {
        let areas = fs::read_to_string("/proc/vmallocinfo")?;
        let mut areas: Vec<_> = areas.lines().map(area).collect::<Result<_>>()?;
        areas.retain(|(_, caller)| !is_kept(caller));
        let of = |sizes: RangeInclusive<i64>| {
            let bytes = areas.iter().map(|&(bytes, _)| bytes);
            let found: Vec<_> = bytes.filter(|bytes| sizes.contains(bytes)).collect();
            (found.len(), found.iter().sum::<i64>())
        };
        let ((all, lane_bytes), (with_places, places_bytes)) = (of(LANE_BYTES), of(PLACES_BYTES));
        Ok(Self {
            all,
            with_places,
            bytes: lane_bytes + places_bytes,
        })
    }

    /// Returns what there was besides, earlier or later.
    pub(crate) fn beside(&self, others: &Self) -> Self {
        Self {
            all: self.all.saturating_sub(others.all),
            with_places: self.with_places.saturating_sub(others.with_places),
            bytes: self.bytes - others.bytes,
        }
    }
}

/// Fails if each round has cost memory; the samples are of the same moment of every round.
///
/// Packets and other small things are the leak detector's business, on the checking kernel.
pub(crate) fn no_growth(samples: &[Memory]) -> Result<()> {
    let vmalloc_kib = samples.iter().map(|memory| memory.vmalloc_kib());
    let percpu_kib = samples.iter().map(|memory| memory.percpu_kib);
    for (name, sizes) in [
        ("pages", vmalloc_kib.collect::<Vec<_>>()),
        ("per CPU", percpu_kib.collect()),
    ] {
        let mut growth: Vec<i64> = sizes.windows(2).map(|pair| pair[1] - pair[0]).collect();
        growth.sort_unstable();
        // A leak grows in each round, a cache that fills does not.
        let middle = growth.get(growth.len() / 2).copied().unwrap_or(0);
        ensure!(
            middle <= 0,
            "memory ({name}) grows by {middle} KiB each time: {sizes:?}; pages by caller: {}",
            grown(samples)
        );
    }
    Ok(())
}

/// Returns the memory that nothing uses.
pub(crate) fn free_kib() -> Result<i64> {
    meminfo_kib(&fs::read_to_string("/proc/meminfo")?, "MemFree")
}

/// Fails if more memory than this has gone in rounds; the samples of free memory are of the same moment of every round. The first round
/// fills caches.
pub(crate) fn no_loss(free_kib: &[i64], most_kib: i64) -> Result<()> {
    let (Some(second), Some(last)) = (free_kib.get(1), free_kib.last()) else {
        bail!("one round shows nothing: {free_kib:?}");
    };
    let lost = second - last;
    ensure!(
        lost <= most_kib,
        "{lost} KiB of memory have gone, and {most_kib} may: {free_kib:?} KiB were free"
    );
    Ok(())
}

/// Returns which callers have more pages at the end than in the beginning, and by how many bytes.
fn grown(samples: &[Memory]) -> String {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return String::new();
    };
    let grown = last.vmalloc_bytes.iter().filter_map(|(caller, bytes)| {
        let more = bytes - first.vmalloc_bytes.get(caller).copied().unwrap_or(0);
        (more > 0).then(|| format!("{caller} {more}"))
    });
    grown.collect::<Vec<_>>().join(", ")
}

/// Returns the bytes of an area, and the function that has allocated it.
fn area(line: &str) -> Result<(i64, &str)> {
    let mut words = line.split_whitespace().skip(1);
    let (bytes, caller) = (words.next(), words.next().unwrap_or_default());
    let bytes = bytes
        .and_then(|bytes| bytes.parse().ok())
        .with_context(|| format!("/proc/vmallocinfo: {line:?}"))?;
    Ok((bytes, caller))
}

/// Returns a line of `/proc/meminfo`.
fn meminfo_kib(meminfo: &str, name: &str) -> Result<i64> {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|value| value.trim().strip_suffix("kB")?.trim().parse().ok())
        .with_context(|| format!("/proc/meminfo has no {name}"))
}

fn is_kept(caller: &str) -> bool {
    KEPT.iter().any(|kept| caller.starts_with(kept))
}

/// The memory of lanes, rings and slots is of these kinds.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// By the function that has allocated it.
    vmalloc_bytes: BTreeMap<String, i64>,
    percpu_kib: i64,
}

impl Memory {
    pub(crate) fn read() -> Result<Self> {
        Self::parse(
            &fs::read_to_string("/proc/vmallocinfo")?,
            &fs::read_to_string("/proc/meminfo")?,
        )
    }

    fn vmalloc_kib(&self) -> i64 {
        self.vmalloc_bytes.values().sum::<i64>() / 1024
    }

    fn parse(vmallocinfo: &str, meminfo: &str) -> Result<Self> {
        let mut vmalloc_bytes = BTreeMap::new();
        for line in vmallocinfo.lines() {
            let (bytes, caller) = area(line)?;
            if is_kept(caller) {
                continue;
            }
            *vmalloc_bytes.entry(caller.to_owned()).or_insert(0) += bytes;
        }
        Ok(Self {
            vmalloc_bytes,
            percpu_kib: meminfo_kib(meminfo, "Percpu")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_told_from_a_cache_that_fills() {
        let rounds = |sizes: [i64; 6]| {
            sizes.map(|kib| Memory {
                vmalloc_bytes: BTreeMap::from([("ring".to_owned(), kib * 1024)]),
                percpu_kib: 1600,
            })
        };
        assert!(no_growth(&rounds([900, 964, 964, 948, 964, 964])).is_ok());
        let error = no_growth(&rounds([900, 964, 1028, 1092, 1156, 1220])).unwrap_err();
        assert!(error.to_string().ends_with("ring 327680"), "{error}");
    }

    #[test]
    fn memory_that_goes_in_each_round_is_missed() {
        assert!(no_loss(&[9_000, 7_000, 7_400, 6_900, 7_100, 6_800], 1_000).is_ok());
        assert!(no_loss(&[9_000, 7_000, 6_700, 6_400, 6_100, 5_800], 1_000).is_err());
        assert!(no_loss(&[9_000], 1_000).is_err());
    }

    #[test]
    fn stacks_are_left_out() {
        let vmallocinfo =
            "0xffffc9000000-0xffffc9000005   20480 copy_process+0x1/0xe20 pages=4 vmalloc\n\
             0xffffc9000006-0xffffc9000008   69632 ring+0x1/0x2 pages=16 vmalloc\n\
             0xffffc9000006-0xffffc9000008    8192 unpurged vm_area\n";
        let memory = Memory::parse(vmallocinfo, "MemTotal: 5 kB\nPercpu:    1600 kB\n").unwrap();
        assert_eq!((memory.vmalloc_kib(), memory.percpu_kib), (68, 1600));
    }
}
