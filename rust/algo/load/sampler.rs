// SPDX-License-Identifier: GPL-2.0

//! The input of the controller: the choice of the CPUs to look at, and the readings of their clocks.

use super::controller::Controller;
use super::core_load::CpuTimes;
use super::flow_orders::Orders;
use super::flow_plan::{FlowCount, Targets};
use super::stage_plan::{StageOrders, StagePlan};
use super::FULL;
use crate::algo::limits::{MAX_LANES, MAX_NICS, MAX_SAMPLED, MAX_SLOTS};

/// The period between two samples of the CPUs. Where only ticks tell kinds of work apart, fewer than a dozen of them (at 250 a
/// second) would say little. And a lane whose core is taken is to be left within two samples, a tenth of a second.
pub const SAMPLE_PERIOD_MS: u32 = 50;

/// The kernel's record of a CPU's time since boot, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuClocks {
    /// The time at which the clocks were read.
    pub at_us: u64,
    /// Without work, measured; none if the kernel cannot tell.
    pub idle_us: Option<u64>,
    /// In softirqs, as ticks have met them.
    pub softirq_us: u64,
    /// In hard interrupts.
    pub interrupt_us: u64,
    /// In guests of a hypervisor, and taken by the one below.
    pub guest_us: u64,
    /// In tasks.
    pub task_us: u64,
}

/// A CPU that has been idle for less than one part in this many has had no time to spare.
const IDLE_PARTS: u64 = 16;

impl CpuClocks {
    /// Adds to `times` what has been done from `before` to now.
    ///
    /// Ticks stop while a CPU is idle, and so miss most softirqs of a core that has time left. But idle time is measured: what is
    /// neither idle nor known to be something else was spent in softirqs. On a core that is never idle no tick is left out but
    /// for those that all kinds of work lose alike (a hypervisor that has the CPU says nothing of it): they share the time.
    ///
    /// All softirqs count as lanes': a lane has no clock of its own, and a softirq of another device shows as load of the core,
    /// not as other work that has it.
    pub fn add_since(&self, before: &Self, times: &mut CpuTimes) {
        let mut softirq_us = self.softirq_us.saturating_sub(before.softirq_us);
        let mut interrupt_us = self.interrupt_us.saturating_sub(before.interrupt_us);
        let mut guest_us = self.guest_us.saturating_sub(before.guest_us);
        let mut task_us = self.task_us.saturating_sub(before.task_us);
        if let (Some(idle_us), Some(idle_before_us)) = (self.idle_us, before.idle_us) {
            let all_us = self.at_us.saturating_sub(before.at_us);
            let idle_us = idle_us.saturating_sub(idle_before_us);
            let busy_us = all_us.saturating_sub(idle_us);
            let others_us = interrupt_us + guest_us + task_us;
            let known_us = softirq_us + others_us;
            if idle_us < all_us / IDLE_PARTS && known_us > 0 {
                let share = |part_us: u64| part_us.saturating_mul(busy_us) / known_us;
                softirq_us = share(softirq_us);
                interrupt_us = share(interrupt_us);
                guest_us = share(guest_us);
                task_us = share(task_us);
            } else {
                softirq_us = busy_us.saturating_sub(others_us);
            }
        }
        times.softirq_us += softirq_us;
        times.lanes_us = times.softirq_us;
        times.interrupt_us += interrupt_us;
        times.guest_us += guest_us;
        times.task_us += task_us;
        // The lengths of run queues are not for modules to see.
        times.runnable_tasks = 0;
    }
}

/// A flow that is split.
#[derive(Clone, Copy, Debug)]
pub struct SplitFlow {
    /// Its slot.
    pub slot: usize,
    /// [`Orders::generation`] of the slot, read before the packets.
    pub generation: u16,
    /// Packets that have reached its merge point, modulo 2^32.
    pub arrived_pkts: u32,
    /// True if GRO joins its packets.
    pub gro_joins: bool,
    /// The CPU that opened its last batch.
    pub cpu: u32,
}

/// The controller with the CPUs that it looks at. Its owner calls it from one context at a time.
#[derive(Debug)]
pub struct Sampler {
    controller: Controller,
    // For flows in stages.
    plan: StagePlan,
    // The lanes', in their order, then those that dispatch.
    cpus: [u32; MAX_SAMPLED],
    nr_lanes: usize,
    nr_cpus: usize,
    times: [CpuTimes; MAX_SAMPLED],
    // Of the last sample.
    clocks: [Option<CpuClocks>; MAX_SAMPLED],
    counts: [Option<FlowCount>; MAX_SLOTS],
    sampled_us: u64,
}

impl Sampler {
    /// Returns a sampler without CPUs, which has seen nothing.
    pub const fn new() -> Self {
        Self {
            controller: Controller::new(),
            plan: StagePlan::new(),
            cpus: [0; MAX_SAMPLED],
            nr_lanes: 0,
            nr_cpus: 0,
            times: [CpuTimes::ZERO; MAX_SAMPLED],
            clocks: [None; MAX_SAMPLED],
            counts: [None; MAX_SLOTS],
            sampled_us: 0,
        }
    }

    /// Forgets everything; from now on there are lanes on these CPUs.
    pub fn restart(&mut self, lanes: impl Iterator<Item = u32>, now_us: u64) {
        self.controller.reset();
        self.plan = StagePlan::new();
        self.clocks.fill(None);
        self.nr_lanes = 0;
        for (place, cpu) in self.cpus.iter_mut().zip(lanes).take(MAX_LANES) {
            *place = cpu;
            self.nr_lanes += 1;
        }
        self.nr_cpus = self.nr_lanes;
        self.sampled_us = now_us;
    }

    /// Takes a sample and has the controller give orders. `batch_pkts` and `load_threshold_pct` are the knobs.
    pub fn sample(
        &mut self,
        (load_threshold_pct, batch_pkts): (u32, u32),
        now_us: u64,
        flows: impl Iterator<Item = SplitFlow>,
        clocks: impl FnMut(u32) -> CpuClocks,
        orders: &Orders,
    ) {
        self.count(flows);
        let elapsed_us = self.look(now_us, clocks);
        let targets = Targets {
            load_threshold_pct,
            batch_pkts,
            elapsed_us,
        };
        let times = self.times.get(..self.nr_cpus).unwrap_or_default();
        let counts = self.counts.iter().flatten().copied();
        self.controller
            .step(targets, times, self.nr_lanes, counts, orders);
    }

    /// Takes a sample for flows that go from CPU to CPU, and returns what is decided for them. `nics` are the CPUs whose GRO may
    /// go elsewhere.
    pub fn sample_stages(
        &mut self,
        load_threshold_pct: u32,
        now_us: u64,
        nics: impl Iterator<Item = u32>,
        clocks: impl FnMut(u32) -> CpuClocks,
    ) -> StageOrders {
        let mut used = 0u64;
        for cpu in nics {
            if let Some(place) = self.place_of(cpu, used) {
                used |= 1 << place;
            }
        }
        let elapsed_us = self.look(now_us, clocks);
        let times = self.times.get(..self.nr_cpus).unwrap_or_default();
        let threshold = load_threshold_pct.saturating_mul(FULL / 100);
        self.plan
            .step(threshold, elapsed_us, times, self.nr_lanes, used)
    }

    /// Looks at the clocks of all CPUs; returns how long ago that was done before.
    fn look(&mut self, now_us: u64, mut clocks: impl FnMut(u32) -> CpuClocks) -> u64 {
        let places = self.times.iter_mut().zip(&mut self.clocks);
        for ((times, before), cpu) in places.zip(self.cpus).take(self.nr_cpus) {
            let now = clocks(cpu);
            match before {
                Some(before) if times.cpu == cpu => now.add_since(before, times),
                _ => {
                    *times = CpuTimes {
                        cpu,
                        ..CpuTimes::ZERO
                    };
                }
            }
            *before = Some(now);
        }
        let before_us = core::mem::replace(&mut self.sampled_us, now_us);
        now_us.saturating_sub(before_us)
    }

    /// Notes what has come of the flows, and whose CPUs are to be looked at.
    fn count(&mut self, flows: impl Iterator<Item = SplitFlow>) {
        self.counts.fill(None);
        let mut used = 0u64;
        for flow in flows {
            let nic = self.place_of(flow.cpu, used);
            if let Some(place) = nic {
                used |= 1 << place;
            }
            if let Some(count) = self.counts.get_mut(flow.slot) {
                *count = Some(FlowCount {
                    slot: flow.slot,
                    generation: flow.generation,
                    arrived_pkts: flow.arrived_pkts,
                    gro_joins: flow.gro_joins,
                    nic,
                });
            }
        }
    }

    /// Returns a CPU's place in the sample. One that is new to it takes a place that no flow uses; if there is none left, its
    /// load stays unknown.
    fn place_of(&mut self, cpu: u32, used: u64) -> Option<u8> {
        let known = self.cpus.iter().take(self.nr_cpus);
        // CAST, both: below MAX_SAMPLED.
        if let Some(place) = known.into_iter().position(|known| *known == cpu) {
            return Some(place as u8);
        }
        let most = self.nr_lanes + MAX_NICS;
        let place = if self.nr_cpus < most {
            self.nr_cpus += 1;
            self.nr_cpus - 1
        } else {
            (self.nr_lanes..most).find(|place| used >> place & 1 == 0)?
        };
        *self.cpus.get_mut(place)? = cpu;
        Some(place as u8)
    }
}

impl Default for Sampler {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(MAX_SAMPLED <= u64::BITS as usize);
