// SPDX-License-Identifier: GPL-2.0

//! A flow in stages, as FALCON has it: which core each is on, and when it may move.

use std::collections::VecDeque;

use mflow_algo::falcon::balancer::{self, LoadThreshold};
use mflow_algo::falcon::stage_path::StagePath;

use super::machine::Machine;
use super::packet::Packet;
use super::scene::{self, Balance, Count};

/// Packets that a stage's feeder holds at most while their flow is to move.
const HELD_PKTS: usize = 1024;

/// Returns the place of the core to which RPS gives all of a flow's work that is not the NIC's core's.
pub(super) fn rps_place(flow_hash: u32, nr_cores: usize) -> usize {
    // No device has this number.
    balancer::choose_static(flow_hash, 0, nr_cores).unwrap_or(0)
}

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
        loads: &[u32],
    ) -> Vec<(usize, Packet)> {
        let wanted = self.wanted(stage, loads);
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

    fn wanted(&self, stage: usize, loads: &[u32]) -> u32 {
        let hash = self.scene.flow_hash;
        // CAST: a handful of stages; each has a device of its own.
        let device = 1 + stage as u32;
        let chosen = match self.scene.balance {
            Balance::Dynamic(pct) => balancer::choose(hash, device, loads, LoadThreshold { pct }),
            Balance::Static(pct) => (!LoadThreshold { pct }.is_reached_by_mean_of(loads))
                .then(|| balancer::choose_static(hash, device, loads.len()))
                .flatten(),
        };
        // The original path is RPS's.
        let wanted = chosen.unwrap_or_else(|| rps_place(hash, loads.len()));
        // CAST: a few cores.
        wanted as u32
    }

    pub(super) fn leave(&self, stage: usize) {
        self.path.leave(stage);
    }
}

impl Machine<'_> {
    /// Packets of a pipelined stream have been carried on `from`: they go to their next stage.
    pub(super) fn advance(
        &mut self,
        stream: usize,
        from: usize,
        stage: Option<usize>,
        packets: Vec<Packet>,
    ) {
        let state = &mut self.streams[stream];
        let Some(pipelined) = &mut state.pipelined else {
            return;
        };
        match stage {
            Some(stage) if stage + 1 == pipelined.nr_stages() => {
                packets.iter().for_each(|_| pipelined.leave(stage));
                let reader = state.first + state.stages + 1;
                self.forward(stream, reader, packets);
            }
            _ => self.enter(stream, from, stage.map_or(0, |stage| stage + 1), packets),
        }
        // Where nothing of the flow is left, what is held may enter; the last stage first.
        let holding = self.streams[stream]
            .pipelined
            .as_ref()
            .map(Pipelined::holding);
        for stage in holding.unwrap_or_default().into_iter().rev() {
            self.enter(stream, usize::MAX, stage, Vec::new());
        }
    }

    /// Puts packets that come from core `from`, and those that are held there, into a stage's queues.
    fn enter(&mut self, stream: usize, from: usize, stage: usize, packets: Vec<Packet>) {
        let loads = &self.control.loads;
        let state = &mut self.streams[stream];
        let first = state.first + 1 + stage * loads.len();
        let Some(pipelined) = &mut state.pipelined else {
            return;
        };
        let entered = pipelined.enter(stage, packets, loads);
        for (place, mut packet) in entered {
            let queue = first + place;
            let core = self.queues[queue].place.core;
            let is_full = self.queues[queue].packets.len() >= self.knobs.backlog_pkts;
            if let Some(pipelined) = &self.streams[stream].pipelined {
                if let Some(before) = stage.checked_sub(1) {
                    pipelined.leave(before);
                }
                if is_full {
                    pipelined.leave(stage);
                }
            }
            if is_full {
                self.lose(stream, Count::BacklogFull, 1);
                continue;
            }
            packet.set_hopped(core != from);
            self.queues[queue].packets.push_back(packet);
            self.raise(queue, if core == from { 0 } else { self.knobs.ipi_ps });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD_PCT: u32 = 85;
    const CORES: usize = 6;

    fn wanted(flow_hash: u32, balance: Balance, loads: &[u32]) -> usize {
        let pipelined = Pipelined::new(scene::Stages {
            packet_ps: vec![1.0; 3],
            hop_ps: 1.0,
            flow_hash,
            balance,
        });
        // CAST: a few cores.
        pipelined.wanted(0, loads) as usize
    }

    #[test]
    fn a_hot_core_is_left_by_who_has_two_choices_and_busy_ones_leave_all_to_rps() {
        let mut left = 0;
        for flow in 0..100 {
            let both = [
                Balance::Dynamic(THRESHOLD_PCT),
                Balance::Static(THRESHOLD_PCT),
            ];
            let [first, fixed] = both.map(|balance| wanted(flow, balance, &[0; CORES]));
            assert_eq!(first, fixed);
            let mut loads = [100; CORES];
            loads[first] = 900;
            let [second, fixed] = both.map(|balance| wanted(flow, balance, &loads));
            assert_eq!(first, fixed);
            left += u32::from(second != first);
            let all = both.map(|balance| wanted(flow, balance, &[900; CORES]));
            assert_eq!(all, [rps_place(flow, CORES); 2]);
        }
        // A sixth of the second choices is the first again.
        assert!((70..95).contains(&left), "{left}");
    }
}
