// SPDX-License-Identifier: GPL-2.0

//! Flows in stages: which core each stage is on, by the module's own choice or by the paper's, and how the module's change.
//!
//! The module moves all flows at once, when no packet of any flow is in the stages. Packets that come meanwhile are held before
//! the stages.

use std::collections::VecDeque;

use mflow_algo::algo::load::stage_plan::StageOrders;
use mflow_algo::algo::stage::choose;

use super::packet::Packet;
use super::scene::{self, Balance};

/// A pipelined stream's stages.
pub(crate) struct Pipelined {
    /// The packets that wait until the stages have moved, in order.
    pub(super) held: VecDeque<Packet>,
    pub(super) scene: scene::Stages,
}

/// The orders that all the module's stages follow, and whether they change.
pub(crate) struct Staging {
    pub(super) orders: StageOrders,
    /// Packets in stages that the module chose, and on the ordinary path instead.
    pub(super) inside: u64,
    pub(super) is_moving: bool,
}

impl Staging {
    pub(crate) fn new(orders: StageOrders) -> Self {
        Self {
            orders,
            inside: 0,
            is_moving: false,
        }
    }
}

/// The place of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum At {
    /// The NIC's core has carried it.
    Nic,
    /// In this stage; the one behind the last is the NIC's core again, which does all of them.
    Stage(usize),
}

impl Pipelined {
    pub(crate) fn new(scene: scene::Stages) -> Self {
        Self {
            held: VecDeque::new(),
            scene,
        }
    }

    pub(super) fn nr_stages(&self) -> usize {
        self.scene.packet_ps.len()
    }

    pub(super) fn is_modules(&self) -> bool {
        matches!(self.scene.balance, Balance::Module(_))
    }

    pub(crate) fn hop_ps(&self) -> f64 {
        self.scene.hop_ps
    }

    /// Returns the place of the core that does a stage for a packet that comes from core `from`.
    pub(super) fn place(
        &self,
        stage: usize,
        from: usize,
        packet: &Packet,
        orders: StageOrders,
        loads: &[u32],
    ) -> usize {
        // CAST: a handful of stages; each has a device of its own.
        let device = 1 + stage as u32;
        let cores = &self.scene.cores;
        match &self.scene.balance {
            Balance::Module(flows) => {
                // CAST: below the number of flows.
                let flow = (packet.number % flows.len() as u64) as usize;
                let here = cores.iter().position(|core| *core == from);
                // CAST: a few cores.
                let (here, nr_cores) = (here.map(|here| here as u8), cores.len() as u8);
                usize::from(choose(flows[flow], device, here, nr_cores, orders.loaded))
            }
            Balance::Paper(balance) => balance.choose(device, loads),
        }
    }
}
