// SPDX-License-Identifier: GPL-2.0

//! The sampler and the load controller in the time of the model: the module's own controller, orders and balancer.

use std::collections::VecDeque;

use mflow_algo::algo::balancer::{self, LoadThreshold};
use mflow_algo::algo::load::controller::{Controller, FlowCount, Targets};
use mflow_algo::algo::load::core_load::CpuTimes;
use mflow_algo::algo::load::orders::Orders;
use mflow_algo::algo::stage_path::StagePath;

use super::calendar::PS_PER_US;
use super::packet::Packet;
use super::scene::{self, Balance};

/// Whose work a core does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Drivers, GRO, stages behind other cores.
    Softirq,
    Lane,
    Task,
}

/// For how long a core has done each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    softirq_ps: u64,
    lanes_ps: u64,
    task_ps: u64,
}

impl Times {
    pub(super) fn add(&mut self, kind: Kind, ps: u64) {
        match kind {
            Kind::Softirq => self.softirq_ps += ps,
            Kind::Lane => self.lanes_ps += ps,
            Kind::Task => self.task_ps += ps,
        }
    }
}

/// Orders, and who gives them.
pub(super) struct Control {
    pub(super) orders: Box<Orders>,
    controller: Box<Controller>,
    scene: Option<scene::Control>,
    batch_pkts: u32,
}

impl Control {
    pub(super) fn new(scene: Option<scene::Control>, batch_pkts: u32) -> Self {
        Self {
            orders: Box::default(),
            controller: Box::default(),
            scene,
            batch_pkts,
        }
    }

    /// Returns how long after one sample the next is; `None`: nothing is controlled.
    pub(super) fn period_ps(&self) -> Option<u64> {
        self.scene.as_ref().map(|scene| scene.period_ps)
    }

    /// Returns the cores whose loads count.
    pub(super) fn cores(&self) -> &[usize] {
        self.scene.as_ref().map_or(&[], |scene| &scene.cores)
    }

    /// Takes a sample: `times` by core, of which those that dispatch, and are none of the controlled ones, are `nics`.
    pub(super) fn sample(&mut self, times: &[Times], nics: &[usize], flows: Vec<FlowCount>) {
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
        let targets = Targets {
            // Without lanes to control, only the loads are of use.
            load_threshold_pct: scene.lanes.unwrap_or(100),
            batch_pkts: self.batch_pkts,
            elapsed_us: us(scene.period_ps),
        };
        let flows = flows.into_iter().filter(|_| scene.lanes.is_some());
        self.controller
            .step(targets, &cpus, scene.cores.len(), flows, &self.orders);
    }
}

/// Packets that a stage's feeder holds at most while their flow is to move.
const HELD_PKTS: usize = 1024;

/// A pipelined stream's stages.
pub(super) struct Pipelined {
    path: StagePath,
    /// For each stage, what waits until the flow may move, in order.
    held: Vec<VecDeque<Packet>>,
    scene: scene::Stages,
}

impl Pipelined {
    pub(super) fn new(scene: scene::Stages) -> Self {
        Self {
            path: StagePath::new(),
            held: scene.packet_ps.iter().map(|_| VecDeque::new()).collect(),
            scene,
        }
    }

    pub(super) fn nr_stages(&self) -> usize {
        self.scene.packet_ps.len()
    }

    pub(super) fn hop_ps(&self) -> f64 {
        self.scene.hop_ps
    }

    /// Packets come to a stage, behind those that are held there. Returns those that enter it now, each with its core's place.
    pub(super) fn enter(
        &mut self,
        stage: usize,
        packets: Vec<Packet>,
        nr_cores: usize,
        orders: &Orders,
    ) -> Vec<(usize, Packet)> {
        let wanted = self.wanted(stage, nr_cores, orders);
        let held = &mut self.held[stage];
        held.extend(packets);
        let mut entered = Vec::new();
        while let Some(packet) = held.pop_front() {
            let queue = if held.len() >= HELD_PKTS {
                // It has waited for long enough: it stays where it is.
                self.path.enter_behind(stage, wanted)
            } else if self.path.try_enter(stage, wanted) {
                wanted
            } else {
                held.push_front(packet);
                break;
            };
            // CAST: a few cores.
            entered.push((queue as usize, packet));
        }
        entered
    }

    /// Returns the stages at which packets are held.
    pub(super) fn holding(&self) -> Vec<usize> {
        let stages = self.held.iter().enumerate();
        stages
            .filter(|(_, held)| !held.is_empty())
            .map(|(stage, _)| stage)
            .collect()
    }

    fn wanted(&self, stage: usize, nr_cores: usize, orders: &Orders) -> u32 {
        let hash = self.scene.flow_hash;
        // CAST: a handful of stages; each has a device of its own.
        let device = 1 + stage as u32;
        let chosen = match self.scene.balance {
            Balance::Dynamic(pct) => {
                balancer::choose(hash, device, nr_cores, LoadThreshold { pct }, orders)
            }
            Balance::Static(pct) => (orders.average() < pct * 10)
                .then(|| balancer::choose_static(hash, device, nr_cores))
                .flatten(),
        };
        // The original path is RPS's: all of it on the core that the flow alone decides.
        let wanted = chosen.or_else(|| balancer::choose_static(hash, 0, nr_cores));
        // CAST: a few cores.
        wanted.unwrap_or(0) as u32
    }

    pub(super) fn leave(&self, stage: usize) {
        self.path.leave(stage);
    }
}
