// SPDX-License-Identifier: GPL-2.0

//! Where lanes are to be if the operator leaves that to us (`cpus` `auto`).
//!
//! Twice a second something outside looks which CPUs dispatch fast flows and on which their readers run. [`occupancy`] makes of
//! these looks which CPUs are somebody's, and [`choose`] which of the others are to be lanes. A choice that differs from the one
//! before costs each flow a stop and a start, so both hold on to what there is.

pub mod occupancy;

use super::cpulist::{CpuSet, MAX_CPUS};
use super::knobs::Layout;
use super::lane_set::MAX_LANES;

/// How often there is a look.
pub const LOOK_PERIOD_MS: u32 = 500;

/// With so many lanes in reach of the NIC's cache, none is taken from further away. With four, the busiest core does a sixth of
/// what it does without a split (the README's table); eight do little better.
pub const ENOUGH_LANES: usize = 4;

/// How near a CPU is to where flows are dispatched, and so to their packets: the nearest is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    /// It has a cache in common with a CPU that dispatches.
    Cache,
    /// It is on the node of the NIC, or of a CPU that dispatches.
    Node,
    /// Neither.
    Far,
    /// It is one core with a CPU that dispatches or a reader's, and takes from what that has.
    Sibling,
}

impl Nearness {
    const ALL: [Self; 4] = [Self::Cache, Self::Node, Self::Far, Self::Sibling];
}

/// Returns the CPUs that are to be lanes with `layout`: at most [`MAX_LANES`], the nearest. `nearness` says of each how near it
/// is, and nothing of those that cannot be lanes: offline or isolated ones, and those that dispatch or are a reader's. Of CPUs that
/// are as near, those in `previous` stay.
pub fn choose(
    nearness: impl Fn(u32) -> Option<Nearness>,
    previous: &CpuSet,
    layout: Layout,
) -> CpuSet {
    let mut lanes = CpuSet::EMPTY;
    let mut nr_lanes = 0;
    let mut last = None;
    for rank in Nearness::ALL {
        let has_enough = match rank {
            Nearness::Cache => false,
            Nearness::Node => nr_lanes >= ENOUGH_LANES,
            Nearness::Far | Nearness::Sibling => nr_lanes > 0,
        };
        if has_enough {
            break;
        }
        for stays in [true, false] {
            let as_near = (0..MAX_CPUS).filter(|cpu| previous.contains(*cpu) == stays);
            for cpu in as_near.filter(|cpu| nearness(*cpu) == Some(rank)) {
                if nr_lanes < MAX_LANES {
                    lanes.insert(cpu);
                    nr_lanes += 1;
                    last = Some(cpu);
                }
            }
        }
    }
    if let (Layout::LaneStage, 1, Some(cpu)) = (layout, nr_lanes % 2, last) {
        lanes.remove(cpu);
    }
    lanes
}
