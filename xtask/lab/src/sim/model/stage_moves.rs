// SPDX-License-Identifier: GPL-2.0

//! The moves of packets from stage to stage, and of the module's stages to other cores.

use std::mem;

use mflow_algo::algo::lanes::queue::ring::RING_ITEMS;
use mflow_algo::algo::load::stage_plan::StageOrders;

use super::machine::Machine;
use super::packet::Packet;
use super::pipelined::At;
use super::scene::Count;

impl Machine<'_> {
    /// Packets of a pipelined stream have been carried on core `from`: they go to their next stage.
    pub(crate) fn advance(&mut self, stream: usize, from: usize, at: At, packets: Vec<Packet>) {
        let Some(pipelined) = &mut self.streams[stream].pipelined else {
            return;
        };
        let (is_modules, last) = (pipelined.is_modules(), pipelined.nr_stages() - 1);
        match at {
            At::Nic if is_modules && self.staging.is_moving => {
                pipelined.held.extend(packets);
                let full = pipelined.held.len().saturating_sub(RING_ITEMS);
                pipelined.held.truncate(RING_ITEMS);
                self.lose(stream, Count::BacklogFull, full);
            }
            At::Nic => self.begin(stream, from, packets),
            At::Stage(stage) if stage < last => self.enter(stream, from, stage + 1, packets),
            At::Stage(_) => {
                let state = &self.streams[stream];
                let reader = state.first + state.stages + 1;
                if is_modules {
                    self.staging.inside -= packets.len() as u64;
                }
                self.forward(stream, reader, packets);
                self.move_stages();
            }
        }
    }

    /// Takes new orders, as soon as nothing is in the stages.
    pub(crate) fn order_stages(&mut self, orders: StageOrders) {
        let was_moving = self.staging.is_moving;
        self.staging.is_moving = orders != self.staging.orders;
        if self.staging.is_moving {
            self.move_stages();
        } else if was_moving {
            self.release();
        }
    }

    fn move_stages(&mut self) {
        if self.staging.is_moving && self.staging.inside == 0 {
            self.staging.is_moving = false;
            self.staging.orders = self.control.stage_orders;
            self.release();
        }
    }

    /// Lets all go on that has been held.
    fn release(&mut self) {
        for stream in 0..self.streams.len() {
            let state = &mut self.streams[stream];
            if let Some(pipelined) = &mut state.pipelined {
                let held = Vec::from(mem::take(&mut pipelined.held));
                let nic = self.queues[state.first].place.core;
                self.begin(stream, nic, held);
            }
        }
    }

    /// Packets come from the NIC's core `nic`: into the first stage, or to the NIC's core again.
    fn begin(&mut self, stream: usize, nic: usize, packets: Vec<Packet>) {
        let Some(pipelined) = &self.streams[stream].pipelined else {
            return;
        };
        let mut stage = 0;
        if pipelined.is_modules() {
            self.staging.inside += packets.len() as u64;
            if !self.staging.orders.onward {
                stage = pipelined.nr_stages();
            }
        }
        self.enter(stream, nic, stage, packets);
    }

    /// Puts packets that come from core `from` into a stage's queues.
    fn enter(&mut self, stream: usize, from: usize, stage: usize, packets: Vec<Packet>) {
        for mut packet in packets {
            let state = &self.streams[stream];
            let Some(pipelined) = &state.pipelined else {
                return;
            };
            let is_modules = pipelined.is_modules();
            let nr_cores = pipelined.scene.cores.len();
            let (orders, loads) = (self.staging.orders, &self.control.loads);
            let place = if stage == pipelined.nr_stages() {
                0
            } else {
                pipelined.place(stage, from, &packet, orders, loads)
            };
            let queue = state.first + 1 + stage * nr_cores + place;
            let size = if is_modules {
                RING_ITEMS
            } else {
                self.knobs.backlog_pkts
            };
            if self.queues[queue].packets.len() >= size {
                if is_modules {
                    self.staging.inside -= 1;
                }
                self.lose(stream, Count::BacklogFull, 1);
                continue;
            }
            let core = self.queues[queue].place.core;
            packet.set_hopped(core != from);
            self.queues[queue].packets.push_back(packet);
            self.raise(queue, if core == from { 0 } else { self.knobs.ipi_ps });
        }
    }
}
