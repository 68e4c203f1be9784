// SPDX-License-Identifier: GPL-2.0

//! The load controller in the time of the model: the module's own controller and orders.

use mflow_algo::algo::load::controller::Controller;
use mflow_algo::algo::load::core_load::{CoreLoad, CpuTimes};
use mflow_algo::algo::load::flow_orders::Orders;
use mflow_algo::algo::load::flow_plan::{FlowCount, Targets};
use mflow_algo::algo::load::stage_plan::{StageOrders, StagePlan};
use mflow_algo::algo::load::FULL;

use super::calendar::PS_PER_US;
use super::scene::{self, Follows};

/// The kind of work that a core does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Drivers, GRO, stages behind other cores.
    Softirq,
    Lane,
    Task,
}

/// The time that a core has spent on each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    softirq_ps: u64,
    lanes_ps: u64,
    task_ps: u64,
}

impl Times {
    pub(crate) fn add(&mut self, kind: Kind, ps: u64) {
        match kind {
            Kind::Softirq => self.softirq_ps += ps,
            Kind::Lane => self.lanes_ps += ps,
            Kind::Task => self.task_ps += ps,
        }
    }
}

/// The orders, and the controllers that give them.
pub(crate) struct Control {
    pub(crate) orders: Box<Orders>,
    /// The loads of the controlled cores, in thousandths, which follow the samples slowly.
    pub(crate) loads: Vec<u32>,
    /// The orders that the stages are to follow.
    pub(crate) stage_orders: StageOrders,
    controller: Box<Controller>,
    stage_plan: Box<StagePlan>,
    scene: Option<scene::Control>,
    batch_pkts: u32,
}

impl Control {
    pub(crate) fn new(scene: Option<scene::Control>, batch_pkts: u32) -> Self {
        Self {
            orders: Box::default(),
            loads: scene
                .iter()
                .flat_map(|scene| &scene.cores)
                .map(|_| 0)
                .collect(),
            stage_orders: match scene.as_ref().map(|scene| scene.follows) {
                Some(Follows::Stages(_)) => StageOrders::CALM,
                _ => StageOrders::FORCED,
            },
            controller: Box::default(),
            stage_plan: Box::default(),
            scene,
            batch_pkts,
        }
    }

    /// Returns how long after one sample the next is; `None`: nothing is controlled.
    pub(crate) fn period_ps(&self) -> Option<u64> {
        self.scene.as_ref().map(|scene| scene.period_ps)
    }

    /// Returns the cores whose loads count.
    pub(crate) fn cores(&self) -> &[usize] {
        self.scene.as_ref().map_or(&[], |scene| &scene.cores)
    }

    /// Takes a sample: `times` by core, of which those that dispatch, and are none of the controlled ones, are `nics`.
    pub(crate) fn sample(&mut self, times: &[Times], nics: &[usize], flows: Vec<FlowCount>) {
        let Some(scene) = &self.scene else {
            return;
        };
        let us = |ps: u64| (ps as f64 / PS_PER_US) as u64;
        let cpus: Vec<CpuTimes> = scene
            .cores
            .iter()
            .chain(nics)
            .map(|core| CpuTimes {
                // CAST: a few cores.
                cpu: *core as u32,
                softirq_us: us(times[*core].softirq_ps + times[*core].lanes_ps),
                lanes_us: us(times[*core].lanes_ps),
                task_us: us(times[*core].task_ps),
                ..CpuTimes::default()
            })
            .collect();
        let (elapsed_us, nr_cores) = (us(scene.period_ps), scene.cores.len());
        if let Follows::Stages(pct) = scene.follows {
            // Stages begin before the NIC's GRO in `falcon-func` only.
            let nics = 0;
            let plan = &mut self.stage_plan;
            self.stage_orders = plan.step(pct * FULL / 100, elapsed_us, &cpus, nr_cores, nics);
            return;
        }
        let threshold_pct = match scene.follows {
            Follows::Lanes(pct) => Some(pct),
            _ => None,
        };
        let targets = Targets {
            // Without lanes to control, only the loads are of use.
            load_threshold_pct: threshold_pct.unwrap_or(100),
            batch_pkts: self.batch_pkts,
            elapsed_us,
        };
        let flows = flows.into_iter().filter(|_| threshold_pct.is_some());
        self.controller
            .step(targets, &cpus, nr_cores, flows, &self.orders);
        for (place, load) in self.loads.iter_mut().enumerate() {
            *load = self.controller.core(place).map_or(0, CoreLoad::smoothed);
        }
    }
}
