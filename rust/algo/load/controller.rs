// SPDX-License-Identifier: GPL-2.0

//! The controller: one step per sample, from loads to orders.

use super::core_load::{CoreLoad, CpuTimes};
use super::flow_orders::Orders;
use super::flow_plan::{of_mask, FlowCount, FlowPlan, Loads, Targets};
use super::saturation::Saturation;
use super::FULL;
use crate::algo::limits::{MAX_LANES, MAX_SAMPLED, MAX_SLOTS};

/// The controller. Its owner calls it from one context at a time.
#[derive(Debug)]
pub struct Controller {
    cores: [CoreLoad; MAX_SAMPLED],
    flows: [FlowPlan; MAX_SLOTS],
    saturation: Saturation,
    // Whether new flows are refused.
    refuses: bool,
}

impl Controller {
    /// Returns a controller that has seen nothing.
    pub const fn new() -> Self {
        Self {
            cores: [CoreLoad::UNKNOWN; MAX_SAMPLED],
            flows: [FlowPlan::NONE; MAX_SLOTS],
            saturation: Saturation::CALM,
            refuses: false,
        }
    }

    /// Forgets all that it has seen.
    pub fn reset(&mut self) {
        self.cores.fill(CoreLoad::UNKNOWN);
        self.flows.fill(FlowPlan::NONE);
        self.saturation = Saturation::CALM;
        self.refuses = false;
    }

    /// Takes a sample and gives orders. `cpus` are the `nr_lanes` CPUs of the lanes, in the order of the lanes, then those
    /// that dispatch; `flows` the flows that are split.
    pub fn step(
        &mut self,
        targets: Targets,
        cpus: &[CpuTimes],
        nr_lanes: usize,
        flows: impl Iterator<Item = FlowCount>,
        orders: &Orders,
    ) {
        let nr_lanes = nr_lanes.min(MAX_LANES).min(cpus.len());
        for (core, times) in self.cores.iter_mut().zip(cpus) {
            core.sample(*times, targets.elapsed_us);
        }
        let lanes = self.cores.get(..nr_lanes).unwrap_or_default();
        let is_free = |lane: &usize| lanes.get(*lane).is_some_and(|core| !core.is_taken());
        let free = (0..nr_lanes)
            .filter(is_free)
            .fold(0, |mask, lane| mask | 1 << lane);
        // CAST: a mask of 16 lanes.
        let all = ((1u32 << nr_lanes) - 1) as u16;
        orders.bar(all & !free);

        self.count(targets, flows, free);
        let mut loads = Loads {
            cores: &self.cores[..nr_lanes],
            pkts: pkts_by_lane(&self.flows),
            moved: [0; MAX_LANES],
            free,
        };
        for plan in self.flows.iter_mut().filter(|plan| plan.is_live) {
            plan.leave_taken(&mut loads, targets);
        }
        for plan in self.flows.iter_mut().filter(|plan| plan.is_live) {
            let nic = plan.nic.and_then(|nic| self.cores.get(usize::from(nic)));
            plan.adjust(&mut loads, targets, nic.copied());
        }
        let sum: u32 = loads.cores.iter().map(CoreLoad::recent).sum();
        // CAST: at most MAX_LANES.
        let mean = sum / (nr_lanes as u32).max(1);
        let is_saturated = nr_lanes > 0 && self.saturation.judge(mean, targets.threshold());
        let live = self.flows.iter().filter(|plan| plan.is_live).count();
        let goes_back = is_saturated && send_back(&mut self.flows, &self.cores, &loads);
        // Fewer flows than cores: each can have more than one core's work. But what has gone back is not to come again before
        // cores have time.
        let gains_nothing = self.refuses || goes_back || live >= nr_lanes;
        self.refuses = free == 0 || (is_saturated && gains_nothing);
        orders.refuse(self.refuses);
        for (slot, plan) in self.flows.iter().enumerate() {
            if plan.is_live {
                orders.give(slot, plan.generation(), plan.order());
            }
        }
    }

    /// Takes what has come of the flows; those that are not named are split no more.
    fn count(&mut self, targets: Targets, flows: impl Iterator<Item = FlowCount>, free: u16) {
        for plan in &mut self.flows {
            plan.is_live = false;
        }
        for count in flows {
            if let Some(plan) = self.flows.get_mut(count.slot) {
                plan.count(&count, free, targets);
            }
        }
        for plan in &mut self.flows {
            if !plan.is_live {
                *plan = FlowPlan::NONE;
            }
        }
    }

    /// Returns the load of a sampled CPU, as far as it is known.
    pub fn core(&self, place: usize) -> Option<&CoreLoad> {
        self.cores.get(place)
    }
}

impl Default for Controller {
    fn default() -> Self {
        Self::new()
    }
}

fn pkts_by_lane(flows: &[FlowPlan]) -> [u32; MAX_LANES] {
    let mut pkts = [0u32; MAX_LANES];
    for plan in flows.iter().filter(|plan| plan.is_live) {
        let each = plan.pkts / plan.lanes.count_ones().max(1);
        for lane in of_mask(plan.lanes) {
            if let Some(sum) = pkts.get_mut(lane) {
                *sum = sum.saturating_add(each);
            }
        }
    }
    pkts
}

/// Sends flows back to the ordinary path: a part of those whose own CPU can do their work, so that the next sample shows what
/// it has brought; returns whether any goes. A flow with more than a core's work stays: it would lose.
fn send_back(flows: &mut [FlowPlan], cores: &[CoreLoad], loads: &Loads<'_>) -> bool {
    let mut back = [0u32; MAX_SAMPLED];
    let place_of = |plan: &FlowPlan| plan.nic.map(usize::from).filter(|nic| *nic < MAX_SAMPLED);
    for plan in flows.iter().filter(|plan| plan.is_live) {
        if let Some(work) = place_of(plan).and_then(|nic| back.get_mut(nic)) {
            *work += plan.work(loads);
        }
    }
    let fits = |plan: &FlowPlan| match place_of(plan) {
        // What other work, and the dispatching, take of it is taken as it is.
        Some(nic) => {
            let other = cores.get(nic).map_or(FULL, CoreLoad::other);
            back.get(nic).copied().unwrap_or(FULL) + other <= FULL + TOLERATED
        }
        None => plan.work(loads) <= FULL,
    };
    let going = |plan: &FlowPlan| plan.is_live && !plan.stops && plan.pkts > 0 && fits(plan);
    let nr = flows
        .iter()
        .filter(|plan| going(plan))
        .count()
        .div_ceil(SENT_BACK_PART);
    for plan in flows.iter_mut().filter(|plan| going(plan)).take(nr) {
        plan.stops = true;
    }
    nr > 0
}

/// The part of the flows that can go back which goes in one sample: one in this many.
const SENT_BACK_PART: usize = 4;

/// The load, in thousandths, by which a core may be overcommitted, as a flow's work is cheaper where it is not split.
const TOLERATED: u32 = 100;
