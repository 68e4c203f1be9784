// SPDX-License-Identifier: GPL-2.0

//! What is known of the CPUs for the choice of lanes (`cpus` `auto`): where each is, which of them dispatch fast flows, and on which
//! the readers of split flows run. Process context, under the configuration lock.

use super::runtime::{self, MAX_CPUS};
use super::source::Source;
use super::{ffi, stack};
use crate::algo::counters::Counter;
use crate::algo::cpulist::{self, CpuSet};
use crate::algo::flow_report::Found;
use crate::algo::knobs::Knobs;
use crate::algo::placement::occupancy::{is_at_home, Occupancy};
use crate::algo::placement::{choose, Nearness, LOOK_PERIOD_MS};
use core::ffi::c_int;

/// What looks have shown so far.
pub(super) struct Placing {
    dispatching: Occupancy,
    reading: Occupancy,
    /// What each CPU had counted at the last look.
    reader_ticks: [u32; MAX_CPUS],
    looked_ms: u32,
}

fn place(cpu: u32) -> ffi::mflow_cpu_place {
    let mut place = ffi::mflow_cpu_place::default();
    // SAFETY: It fills in what it is given, for any number.
    unsafe { ffi::mflow_cpu_place(cpu, &mut place) };
    place
}

impl Placing {
    pub(super) const NONE: Self = Self {
        dispatching: Occupancy::NONE,
        reading: Occupancy::NONE,
        reader_ticks: [0; MAX_CPUS],
        looked_ms: 0,
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
    }

    fn readers_since(&mut self, elapsed_ms: u32) -> CpuSet {
        let elapsed_ticks = u64::from(elapsed_ms) * u64::from(ffi::MFLOW_HZ) / 1000;
        let elapsed_ticks = u32::try_from(elapsed_ticks).unwrap_or(u32::MAX);
        let mut cpus = CpuSet::EMPTY;
        for (cpu, before) in (0..cpulist::MAX_CPUS).zip(&mut self.reader_ticks) {
            let ticks = place(cpu).reader_ticks;
            if is_at_home(ticks.wrapping_sub(*before), elapsed_ticks) {
                cpus.insert(cpu);
            }
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
        let (dispatching, reading) = (self.dispatching.taken(), self.reading.taken());
        let nodes = Iterator::chain(devices, dispatching.iter().map(|cpu| place(cpu).node));
        let nodes = nodes.filter(|node| *node != ffi::MFLOW_NO_NODE);
        let knows_nodes = nodes.clone().next().is_some();
        let mut ranks = [None; MAX_CPUS];
        for (cpu, rank) in (0..cpulist::MAX_CPUS).zip(&mut ranks) {
            let place = place(cpu);
            if !place.usable || dispatching.contains(cpu) || reading.contains(cpu) {
                continue;
            }
            // SAFETY: It is online, and so were those that have been seen: all are possible CPUs.
            let is_sibling = |taken| unsafe { ffi::mflow_cpus_are_one_core(cpu, taken) };
            *rank = Some(
                if Iterator::chain(dispatching.iter(), reading.iter()).any(is_sibling) {
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
        let rank = |cpu: u32| ranks.get(cpu as usize).copied().flatten();
        choose(rank, &knobs.cpus, knobs.layout)
    }
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
