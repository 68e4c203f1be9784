// SPDX-License-Identifier: GPL-2.0

//! Which core carries a stage of a pipelined flow: FALCON's dynamic balancing (section 4.3, Algorithm 1).
//!
//! The first choice is a hash of flow and device, so stages of one flow, and flows of one stage, are on different cores without
//! anything to remember. If that core is loaded, a hash of the hash is the second choice, and final: going on to search for the
//! idlest core would have all flows meet there before the next sample. While the cores are loaded on average, no choice is made:
//! a pipeline costs more in all, and there is nothing left to pay it with.
//!
//! A choice may change with any sample. [`StagePath`](super::stage_path::StagePath) says when a flow may follow it.

use crate::algo::load::FULL;

/// Odd and near the golden ratio of 2^32: neighbouring device numbers end up far apart.
const GOLDEN_RATIO: u32 = 0x9e37_79b9;

/// How loaded a core may be to be chosen; 0 lets none be chosen, and with 101 all are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadThreshold {
    /// In per cent of a core.
    pub pct: u32,
}

impl LoadThreshold {
    fn is_reached_by(self, load: u32) -> bool {
        load >= self.pct.saturating_mul(FULL / 100)
    }

    /// Returns whether CPUs with these loads, in thousandths, are loaded on average.
    pub fn is_reached_by_mean_of(self, loads: &[u32]) -> bool {
        let sum: u32 = loads.iter().sum();
        // CAST: a few CPUs.
        self.is_reached_by(sum / (loads.len() as u32).max(1))
    }
}

fn hash(value: u32) -> u32 {
    let mixed = (value ^ value >> 16).wrapping_mul(GOLDEN_RATIO);
    // The product's lower bits know little of its factor's upper ones.
    mixed ^ mixed >> 15
}

/// Returns a number below `n` that follows the upper bits of `hash`.
fn place(hash: u32, n: usize) -> usize {
    // CAST: below n, as the hash is below 2^32.
    ((u64::from(hash) * n as u64) >> 32) as usize
}

/// Returns the place of the CPU that is to carry what a flow does on a device; none: the original path. `loads` are those of
/// the CPUs to choose from, in thousandths.
pub fn choose(
    flow_hash: u32,
    ifindex: u32,
    loads: &[u32],
    threshold: LoadThreshold,
) -> Option<usize> {
    if threshold.is_reached_by_mean_of(loads) {
        return None;
    }
    let first = choose_static(flow_hash, ifindex, loads.len())?;
    let is_loaded = |load: &u32| threshold.is_reached_by(*load);
    if loads.get(first).is_some_and(is_loaded) {
        let second_hash = hash(hash(flow_hash.wrapping_add(ifindex)));
        return Some(place(second_hash, loads.len()));
    }
    Some(first)
}

/// Returns the first choice alone, whatever the loads are: static hashing.
pub fn choose_static(flow_hash: u32, ifindex: u32, nr_cpus: usize) -> Option<usize> {
    (nr_cpus > 0).then(|| place(hash(flow_hash.wrapping_add(ifindex)), nr_cpus))
}
