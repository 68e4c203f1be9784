// SPDX-License-Identifier: GPL-2.0

//! The choice of the CPUs for lanes if the operator leaves it to the module (`cpus` `auto`).
//!
//! Twice a second the caller looks which CPUs dispatch fast flows and on which CPUs their readers run. From these looks
//! [`occupancy`] finds which CPUs are in use, and [`choose`] selects lanes among the others. A choice that differs from the one
//! before costs each flow a stop and a start. So both keep to the present state where they can, and [`change_limit`] limits how
//! often the choice changes.

pub mod change_limit;
pub mod occupancy;

use super::knobs::Layout;
use crate::algo::knobs::cpulist::CpuSet;
use crate::algo::limits::{MAX_CPUS, MAX_LANES};

/// The period between two looks.
pub const LOOK_PERIOD_MS: u32 = 500;

/// With this many lanes within reach of the NIC's cache, no lane is taken from further away. With four, the busiest core does a
/// sixth of the work that it does without a split (the measured figures); eight do little better.
pub const ENOUGH_LANES: usize = 4;

/// Readers' CPUs are left free as long as there are this many others. With one lane a flow has only moved: that lane is then the
/// busiest core. And a program that reads on all CPUs must not keep the flows of others from being split.
pub const LEAST_LANES: usize = 2;

/// The distance of a CPU from the CPUs that dispatch flows, and so from the packets of these flows: the nearest is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    /// It has a cache in common with a CPU that dispatches.
    Cache,
    /// It is on the node of the NIC, or of a CPU that dispatches.
    Node,
    /// Neither.
    Far,
    /// It shares a core with a CPU that dispatches or with another CPU of a reader, and takes from what that one has.
    Sibling,
}

impl Nearness {
    const ALL: [Self; 4] = [Self::Cache, Self::Node, Self::Far, Self::Sibling];
}

/// A CPU that can be a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its distance from where flows are dispatched.
    pub nearness: Nearness,
    /// The part of its time that readers have, of 255, if it is a reader's CPU.
    pub reading: Option<u8>,
}

/// Lanes that are being chosen.
struct Choice<'a, F> {
    candidate: F,
    previous: &'a CpuSet,
    lanes: CpuSet,
    nr_lanes: usize,
    last: Option<u32>,
}

impl<'a, F: Fn(u32) -> Option<Candidate>> Choice<'a, F> {
    fn new(candidate: F, previous: &'a CpuSet) -> Self {
        Self {
            candidate,
            previous,
            lanes: CpuSet::EMPTY,
            nr_lanes: 0,
            last: None,
        }
    }

    fn add(&mut self, cpu: u32) {
        self.lanes.insert(cpu);
        self.nr_lanes += 1;
        self.last = Some(cpu);
    }

    /// Adds CPUs that are nobody's, `most` lanes in all, and then, with `takes_readers`, those of readers. The nearest come first, and
    /// nothing that is further away if those are enough.
    fn fill(&mut self, most: usize, takes_readers: bool) {
        for rank in Nearness::ALL {
            let has_enough = match rank {
                Nearness::Cache => false,
                Nearness::Node => self.nr_lanes >= ENOUGH_LANES,
                Nearness::Far | Nearness::Sibling => self.nr_lanes > 0,
            };
            if has_enough {
                break;
            }
            for stays in [true, false] {
                for cpu in 0..MAX_CPUS {
                    let free = Candidate {
                        nearness: rank,
                        reading: None,
                    };
                    let is_next =
                        self.previous.contains(cpu) == stays && (self.candidate)(cpu) == Some(free);
                    if is_next && self.nr_lanes < most {
                        self.add(cpu);
                    }
                }
            }
            while takes_readers && self.nr_lanes < most {
                let Some(cpu) = self.least_read(rank) else {
                    break;
                };
                self.add(cpu);
            }
        }
    }

    /// Returns the readers' CPU of this rank that is next: of those that have been lanes, or else of all, that with the least reading.
    fn least_read(&self, rank: Nearness) -> Option<u32> {
        let readings = (0..MAX_CPUS).filter_map(|cpu| {
            let candidate = (self.candidate)(cpu)?;
            let is_left = candidate.nearness == rank && !self.lanes.contains(cpu);
            let reading = candidate.reading.filter(|_| is_left)?;
            Some((!self.previous.contains(cpu), reading, cpu))
        });
        readings.min().map(|(.., cpu)| cpu)
    }
}

/// Returns the CPUs that are to be lanes with `layout`: at most [`MAX_LANES`], the nearest. `candidate` says of each what it is, and
/// nothing of those that cannot be lanes: offline or isolated ones, and those that dispatch. Of CPUs that are as near, those in
/// `previous` stay.
///
/// Readers' CPUs are left free, unless fewer than [`LEAST_LANES`] are left then: this many are taken, if there are this many in reach.
pub fn choose(
    candidate: impl Fn(u32) -> Option<Candidate>,
    previous: &CpuSet,
    layout: Layout,
) -> CpuSet {
    let mut choice = Choice::new(&candidate, previous);
    choice.fill(MAX_LANES, false);
    if choice.nr_lanes < LEAST_LANES {
        let mut with_readers = Choice::new(&candidate, previous);
        with_readers.fill(LEAST_LANES, true);
        if with_readers.nr_lanes == LEAST_LANES {
            choice = with_readers;
        }
    }
    if let (Layout::LaneStage, 1, Some(cpu)) = (layout, choice.nr_lanes % 2, choice.last) {
        choice.lanes.remove(cpu);
    }
    choice.lanes
}
