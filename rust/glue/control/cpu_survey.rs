// SPDX-License-Identifier: GPL-2.0

//! The knowledge of the CPUs for the choice of lanes (`cpus` `auto`): the place of each CPU, the CPUs that dispatch fast flows,
//! and the CPUs on which the readers of split flows run. Process context, under the configuration lock.

use crate::algo::counters::Counter;
use crate::algo::knobs::cpulist::CpuSet;
use crate::algo::knobs::Knobs;
use crate::algo::limits;
use crate::algo::placement::change_limit::ChangeLimit;
use crate::algo::placement::occupancy::{is_at_home, mean_use, Occupancy};
use crate::algo::placement::{choose, Candidate, Nearness, LOOK_PERIOD_MS};
use crate::algo::report::flow_report::Found;
use crate::glue::packet::source::Source;
use crate::glue::runtime::{self, MAX_CPUS};
use crate::glue::{ffi, stack};
use core::ffi::c_int;

/// The results of all looks so far.
pub(super) struct CpuSurvey {
    dispatching: Occupancy,
    reading: Occupancy,
    /// The reader ticks that each CPU had counted at the last look.
    reader_ticks: [u32; MAX_CPUS],
    /// The part of each CPU's time that readers have, of 255.
    reading_means: [u8; MAX_CPUS],
    looked_ms: u32,
    /// The part of these results that lanes are placed by.
    placed_by: Seen,
    changes: ChangeLimit,
}

/// The state of the CPUs, as far as it has been seen.
struct Seen {
    dispatching: CpuSet,
    reading: CpuSet,
    reading_means: [u8; MAX_CPUS],
}

fn place(cpu: u32) -> ffi::mflow_cpu_place {
    let mut place = ffi::mflow_cpu_place::default();
    // SAFETY: It fills in what it is given, for any number.
    unsafe { ffi::mflow_cpu_place(cpu, &mut place) };
    place
}

impl CpuSurvey {
    pub(super) const NONE: Self = Self {
        dispatching: Occupancy::NONE,
        reading: Occupancy::NONE,
        reader_ticks: [0; MAX_CPUS],
        reading_means: [0; MAX_CPUS],
        looked_ms: 0,
        placed_by: Seen {
            dispatching: CpuSet::EMPTY,
            reading: CpuSet::EMPTY,
            reading_means: [0; MAX_CPUS],
        },
        changes: ChangeLimit::ALL,
    };

    /// Looks what has happened since the last look, which should be about [`LOOK_PERIOD_MS`] ago. `for_each_source` calls with the
    /// sources of all devices.
    pub(super) fn look(
        &mut self,
        knobs: &Knobs,
        for_each_source: impl FnOnce(&mut dyn FnMut(&Source)),
    ) {
        let now_ms = runtime::now_ms();
        let elapsed_ms = now_ms.wrapping_sub(self.looked_ms);
        self.looked_ms = now_ms;
        let reading = self.readers_since(elapsed_ms);
        let dispatching = dispatchers_since(now_ms, elapsed_ms, knobs, for_each_source);
        // Of a shorter or a far longer time there is not enough to see.
        if !(LOOK_PERIOD_MS / 2..LOOK_PERIOD_MS * 8).contains(&elapsed_ms) {
            return;
        }
        // Where nobody is seen, traffic pauses; it is likely to go on where it was. But without lanes nobody can be seen: then each
        // look is one, and some time lanes are tried again.
        let is_blind = knobs.cpus.is_empty();
        for (occupancy, seen) in [
            (&mut self.dispatching, &dispatching),
            (&mut self.reading, &reading),
        ] {
            if is_blind || !seen.is_empty() {
                occupancy.look(seen);
            }
        }
        self.changes.look();
    }

    /// Orders lanes to be placed by what looks have shown so far. Where that means other CPUs, it waits until there may be a change.
    pub(super) fn take_up(&mut self, knobs: &Knobs, devices: impl Iterator<Item = c_int> + Clone) {
        let (dispatching, reading) = (self.dispatching.taken(), self.reading.taken());
        let seen = choice(
            knobs,
            devices.clone(),
            dispatching,
            reading,
            &self.reading_means,
        );
        if seen != self.lanes(knobs, devices) && !self.changes.take() {
            return;
        }
        let placed_by = &mut self.placed_by;
        placed_by.dispatching = *dispatching;
        placed_by.reading = *reading;
        placed_by.reading_means.copy_from_slice(&self.reading_means);
    }

    fn readers_since(&mut self, elapsed_ms: u32) -> CpuSet {
        let elapsed_ticks = u64::from(elapsed_ms) * u64::from(ffi::MFLOW_HZ) / 1000;
        let elapsed_ticks = u32::try_from(elapsed_ticks).unwrap_or(u32::MAX);
        let mut cpus = CpuSet::EMPTY;
        let counts = self.reader_ticks.iter_mut().zip(&mut self.reading_means);
        for (cpu, (before, mean)) in (0..limits::MAX_CPUS).zip(counts) {
            let ticks = place(cpu).reader_ticks;
            let seen = ticks.wrapping_sub(*before);
            if is_at_home(seen, elapsed_ticks) {
                cpus.insert(cpu);
            }
            *mean = mean_use(*mean, seen, elapsed_ticks);
            *before = ticks;
        }
        cpus
    }

    /// Returns the CPUs that are to be the lanes of `knobs`, for devices on these nodes.
    pub(super) fn lanes(
        &self,
        knobs: &Knobs,
        devices: impl Iterator<Item = c_int> + Clone,
    ) -> CpuSet {
        let Seen {
            dispatching,
            reading,
            reading_means,
        } = &self.placed_by;
        choice(knobs, devices, dispatching, reading, reading_means)
    }
}

/// Returns the CPUs that are best as the lanes of `knobs`, for devices on these nodes, by what has been seen.
fn choice(
    knobs: &Knobs,
    devices: impl Iterator<Item = c_int> + Clone,
    dispatching: &CpuSet,
    reading: &CpuSet,
    reading_means: &[u8; MAX_CPUS],
) -> CpuSet {
    let nodes = Iterator::chain(devices, dispatching.iter().map(|cpu| place(cpu).node));
    let nodes = nodes.filter(|node| *node != ffi::MFLOW_NO_NODE);
    let knows_nodes = nodes.clone().next().is_some();
    let mut ranks = [None; MAX_CPUS];
    for (cpu, rank) in (0..limits::MAX_CPUS).zip(&mut ranks) {
        let place = place(cpu);
        if !place.usable || dispatching.contains(cpu) {
            continue;
        }
        // SAFETY: It is online, and so were those that have been seen: all are possible CPUs.
        let is_sibling = |other| unsafe { ffi::mflow_cpus_are_one_core(cpu, other) };
        // A reader's CPU is one core with itself.
        let others_reading = reading.iter().filter(|other| *other != cpu);
        *rank = Some(
            if Iterator::chain(dispatching.iter(), others_reading).any(is_sibling) {
                Nearness::Sibling
            } else if dispatching
                .iter()
                .any(|dispatches| stack::device::share_cache(cpu, dispatches))
            {
                Nearness::Cache
            } else if !knows_nodes || nodes.clone().any(|node| node == place.node) {
                Nearness::Node
            } else {
                Nearness::Far
            },
        );
    }
    let candidate = |cpu: u32| {
        // CAST: 32 bits into a usize.
        let nearness = (*ranks.get(cpu as usize)?)?;
        let is_reading = reading.contains(cpu);
        let mean = reading_means.get(cpu as usize).copied();
        Some(Candidate {
            nearness,
            reading: mean.filter(|_| is_reading),
        })
    };
    choose(candidate, &knobs.cpus, knobs.layout)
}

/// Returns the CPUs that have dispatched fast flows of late.
fn dispatchers_since(
    now_ms: u32,
    elapsed_ms: u32,
    knobs: &Knobs,
    for_each_source: impl FnOnce(&mut dyn FnMut(&Source)),
) -> CpuSet {
    let fast_pkts = u64::from(knobs.min_flow_pps) * u64::from(elapsed_ms) / 1000;
    let mut cpus = CpuSet::EMPTY;
    for_each_source(&mut |source| {
        if source.hands_on() {
            let pkts = source.pkts_since_look(source.count(Counter::StageNicPkts));
            if let (true, Some(cpu)) = (pkts >= fast_pkts.max(1), source.cpu()) {
                cpus.insert(cpu);
            }
            return;
        }
        for found in source.board.read() {
            match found {
                Found::Flow(report) if !report.is_silent(now_ms) => {
                    cpus.insert(report.now.cpu);
                }
                _ => {}
            }
        }
    });
    cpus
}
