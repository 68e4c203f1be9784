// SPDX-License-Identifier: GPL-2.0

//! The receive path: queues in front of cores, polls, interrupts between cores, the merge, the reader.
//!
//! A core carries one packet after the other. What a poll has carried over a hop goes on when the poll ends, as in Linux, where a
//! softirq hands over to the next one; what a lane has carried is parked then, or at the end of its batch.

use mflow_algo::algo::counters::Counter;
use rand::rngs::Xoshiro256PlusPlus;
use rand::RngExt as _;

use super::calendar::PS_PER_US;
use super::control::{Kind, Times};
use super::machine::{Event, Machine, Poll, Stage};
use super::mflow::{self, Merged, Mflow, Moment};
use super::packet::Packet;
use super::pipelined::{At, Pipelined};
use super::scene::{Count, Counts, Knobs, Outcome, Scene, WhenFull, POLL_PKTS};

/// Events without a delivery after which there will be none.
const PATIENCE_EVENTS: u64 = 1_000_000;

/// Simulates a scene until enough is counted, or nothing is delivered any more.
pub(crate) fn simulate(scene: &Scene) -> Outcome {
    let mut machine = Machine::new(scene);
    let end = scene.warm_up_pkts.saturating_add(scene.count_pkts);
    let mut start: Option<(u64, Counts, Vec<u64>)> = None;
    let (mut last, mut vain) = (0, 0);
    while let Some(event) = machine.calendar.next() {
        machine.handle(event);
        let delivered = machine.counts.get(Count::Delivered);
        vain = if delivered > last { 0 } else { vain + 1 };
        last = delivered;
        if vain > PATIENCE_EVENTS {
            break;
        }
        if start.is_none() && delivered >= scene.warm_up_pkts {
            machine.latencies_ps.clear();
            start = Some((machine.calendar.now_ps(), machine.counts(), machine.busy()));
        }
        if delivered >= end {
            break;
        }
    }
    machine.outcome(start)
}

impl Machine<'_> {
    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival(stream) => {
                self.raise(self.streams[stream].first, 0);
            }
            Event::Ready(queue) => {
                let core = self.queues[queue].place.core;
                self.cores[core].ready.push_back(queue);
                self.start(core);
            }
            Event::Carried(core) => self.carried(core),
            Event::Deadline(stream) => self.mflow(stream, Mflow::expire),
            Event::Resume(core) => self.start(core),
            Event::Sample => {
                self.sample();
                // When all else has ended, so do samples.
                if !self.calendar.is_empty() {
                    self.await_sample();
                }
            }
        }
    }

    pub(crate) fn await_sample(&mut self) {
        if let Some(period_ps) = self.control.period_ps() {
            let time_ps = self.calendar.now_ps() + period_ps;
            self.calendar.plan(time_ps, Event::Sample);
        }
    }

    /// Shows the controller the loads of cores, and the state of the flows.
    fn sample(&mut self) {
        let cores = self.control.cores();
        let mut sampled = Vec::from(cores);
        let mut flows = Vec::new();
        for stream in &self.streams {
            let Some(mflow) = &stream.mflow else {
                continue;
            };
            let nic = self.queues[stream.first].place.core;
            let place = sampled.iter().position(|core| *core == nic);
            let place = place.unwrap_or_else(|| {
                sampled.push(nic);
                sampled.len() - 1
            });
            // What the controller has no place for is not known to it.
            let place = u8::try_from(place).ok();
            flows.extend(mflow.count(&self.slots, &self.control.orders, place));
        }
        let nics = sampled.split_off(cores.len());
        let times: Vec<Times> = self.cores.iter().map(|core| core.times).collect();
        self.control.sample(&times, &nics, flows);
        self.order_stages(self.control.stage_orders);
    }

    /// Schedules a queue on its core after `delay_ps`, the time of an interrupt, unless it is scheduled already.
    pub(crate) fn raise(&mut self, queue: usize, delay_ps: u64) {
        if !self.queues[queue].scheduled {
            self.queues[queue].scheduled = true;
            let time_ps = self.calendar.now_ps() + delay_ps;
            self.calendar.plan(time_ps, Event::Ready(queue));
        }
    }

    /// Plans the interrupt of an idle NIC queue.
    pub(crate) fn await_arrival(&mut self, stream: usize) {
        let state = &self.streams[stream];
        if self.queues[state.first].scheduled {
            return;
        }
        if let Some(next_ps) = state.arrivals.next_ps() {
            self.calendar.plan(next_ps, Event::Arrival(stream));
        }
    }

    /// Begins the next poll of a core that has time.
    fn start(&mut self, core: usize) {
        let now_ps = self.calendar.now_ps();
        if self.cores[core].poll.is_some() {
            return;
        }
        if let Some(stall) = self.stall.filter(|stall| stall.core == core) {
            if (stall.from_ps..stall.to_ps).contains(&now_ps) {
                self.calendar.plan(stall.to_ps, Event::Resume(core));
                return;
            }
        }
        while let Some(queue) = self.cores[core].ready.pop_front() {
            if let Stage::Nic = self.queues[queue].stage {
                self.pull(self.queues[queue].stream);
            }
            let mut poll = Poll {
                queue,
                left: POLL_PKTS,
                packet: None,
                inline: false,
                carried: Vec::new(),
            };
            if self.take(&mut poll) {
                self.carry(core, poll);
                return;
            }
            self.rest(queue);
        }
    }

    /// Notes that a queue is empty: it needs an interrupt to be polled again.
    fn rest(&mut self, queue: usize) {
        self.queues[queue].scheduled = false;
        if matches!(self.queues[queue].stage, Stage::Nic) {
            self.await_arrival(self.queues[queue].stream);
        }
    }

    fn pull(&mut self, stream: usize) {
        let now_ps = self.calendar.now_ps();
        let state = &mut self.streams[stream];
        let size = self.knobs.nic_ring_pkts;
        let lost = state.arrivals.pull(now_ps, &mut state.ring, size);
        self.counts.add(Count::NicFull, lost);
        // CAST: a window is at most the packets sent.
        state.arrivals.credit(lost as u32, now_ps);
    }

    /// Takes a poll's next packet; false if there is none, or there have been enough.
    fn take(&mut self, poll: &mut Poll) -> bool {
        if poll.left == 0 {
            return false;
        }
        poll.left -= 1;
        let queue = &mut self.queues[poll.queue];
        let stream = queue.stream;
        poll.packet = match queue.stage {
            Stage::Nic => {
                let state = &mut self.streams[stream];
                state.ring.pop_front().map(|arrived_ps| {
                    state.pulled += 1;
                    self.packets.packet(state.pulled - 1, arrived_ps)
                })
            }
            Stage::Hop | Stage::Step(_) | Stage::App => queue.packets.pop_front(),
            Stage::Lane(lane) => self.mflow(stream, |mflow, moment| mflow.take(moment, lane)),
        };
        poll.packet.is_some()
    }

    /// Plans when the packet of a poll has been carried.
    fn carry(&mut self, core: usize, poll: Poll) {
        let (kind, mean_ps) = self.work(&poll);
        let took_ps = cost_ps(&mut self.rng, self.knobs, mean_ps);
        self.cores[core].busy_ps += took_ps;
        self.cores[core].times.add(kind, took_ps);
        self.calendar
            .plan(self.calendar.now_ps() + took_ps, Event::Carried(core));
        self.cores[core].poll = Some(poll);
    }

    /// Returns the kind of a poll's work on its packet, and the time that it takes.
    fn work(&mut self, poll: &Poll) -> (Kind, f64) {
        let queue = &self.queues[poll.queue];
        let stream = &mut self.streams[queue.stream];
        let packet_ps = queue.place.packet_ps;
        match queue.stage {
            Stage::Nic if poll.inline => {
                let is_whole = poll
                    .packet
                    .as_ref()
                    .is_some_and(|packet| !mflow::is_split(packet));
                // The NIC core does what a lane would.
                let lane_ps = self.queues[poll.queue + 1].place.packet_ps;
                let whole_ps = stream.whole_ps.filter(|_| is_whole);
                (Kind::Softirq, whole_ps.unwrap_or(lane_ps))
            }
            Stage::Nic | Stage::Hop => (Kind::Softirq, packet_ps),
            Stage::Lane(lane) => {
                let ended = stream
                    .mflow
                    .as_mut()
                    .map_or(0, |mflow| mflow.take_ended_batches(lane));
                (
                    Kind::Lane,
                    packet_ps + f64::from(ended) * self.knobs.batch_ps,
                )
            }
            Stage::Step(_) => {
                let hopped = poll.packet.as_ref().is_some_and(|packet| packet.hopped);
                let hop_ps = stream.pipelined.as_ref().map_or(0.0, Pipelined::hop_ps);
                (Kind::Softirq, packet_ps + if hopped { hop_ps } else { 0.0 })
            }
            Stage::App => (Kind::Task, packet_ps),
        }
    }

    /// Goes on to the next packet of a core's poll when it has carried one, or ends the poll.
    fn carried(&mut self, core: usize) {
        let Some(mut poll) = self.cores[core].poll.take() else {
            return;
        };
        if let Some(packet) = poll.packet.take() {
            self.hand_on(&mut poll, packet);
        }
        if poll.packet.is_some() || self.take(&mut poll) {
            self.carry(core, poll);
            return;
        }
        let queue = poll.queue;
        self.end(poll);
        // At the end of the list: others on this core get their turn.
        self.cores[core].ready.push_back(queue);
        self.start(core);
    }

    /// Ends a stage's work on a packet.
    fn hand_on(&mut self, poll: &mut Poll, packet: Packet) {
        let queue = &self.queues[poll.queue];
        let stream = queue.stream;
        match queue.stage {
            Stage::Nic if poll.inline => {
                poll.inline = false;
                self.mflow(stream, |mflow, moment| mflow.arrive(moment, packet));
            }
            Stage::Nic if self.streams[stream].mflow.is_some() => {
                let kept = self.mflow(stream, |mflow, moment| mflow.dispatch(moment, packet));
                if let Some(packet) = kept {
                    self.keep(poll, stream, packet);
                }
            }
            Stage::Nic | Stage::Hop | Stage::Step(_) => poll.carried.push(packet),
            Stage::Lane(lane) => self.mflow(stream, |mflow, moment| {
                mflow.collect(moment, lane, packet);
            }),
            Stage::App => self.read(stream, &packet),
        }
    }

    /// Lets the NIC core carry a packet to the merge point, or loses it if lanes alone may carry batches.
    fn keep(&mut self, poll: &mut Poll, stream: usize, packet: Packet) {
        if mflow::is_split(&packet) {
            if self.knobs.when_full == WhenFull::Lose {
                return self.lose(stream, Count::LaneFull, 1);
            }
            self.counts.add(Count::Inline, 1);
        }
        poll.inline = true;
        poll.packet = Some(packet);
    }

    /// Ends a poll: the packets that it has carried go on.
    fn end(&mut self, poll: Poll) {
        let queue = &self.queues[poll.queue];
        let stream = queue.stream;
        match queue.stage {
            Stage::Nic if self.streams[stream].pipelined.is_some() => {
                self.advance(stream, queue.place.core, At::Nic, poll.carried);
            }
            Stage::Step(step) => {
                self.advance(stream, queue.place.core, At::Stage(step), poll.carried);
            }
            Stage::Nic | Stage::Hop => {
                let first = self.streams[stream].first;
                if let Some(mflow) = &mut self.streams[stream].mflow {
                    for lane in Vec::from_iter(mflow.touched()) {
                        self.raise(first + 1 + lane, self.knobs.ipi_ps);
                    }
                } else {
                    self.forward(stream, poll.queue + 1, poll.carried);
                }
            }
            Stage::Lane(lane) => {
                self.mflow(stream, |mflow, moment| mflow.flush(moment, lane));
            }
            Stage::App => {}
        }
    }

    /// Puts packets into the queue of the next hop, or of the reader.
    pub(crate) fn forward(&mut self, stream: usize, queue: usize, mut packets: Vec<Packet>) {
        let knobs = self.knobs;
        let (full, size, delay_ps) = match self.queues[queue].stage {
            Stage::App => (Count::SocketFull, knobs.socket_pkts, knobs.wake_up_ps),
            _ => (Count::BacklogFull, knobs.backlog_pkts, knobs.ipi_ps),
        };
        let waiting = &mut self.queues[queue].packets;
        let room = size.saturating_sub(waiting.len()).min(packets.len());
        let lost = packets.split_off(room).len();
        waiting.extend(packets);
        self.lose(stream, full, lost);
        if room > 0 {
            self.raise(queue, delay_ps);
        }
    }

    /// Calls into a stream's source or lanes, and handles the results of the call.
    fn mflow<R: Default>(
        &mut self,
        stream: usize,
        call: impl FnOnce(&mut Mflow, &mut Moment<'_>) -> R,
    ) -> R {
        let state = &mut self.streams[stream];
        let Some(mflow) = &mut state.mflow else {
            return R::default();
        };
        let mut moment = Moment {
            slots: &self.slots,
            orders: &self.control.orders,
            // CAST: a time, and the fraction of a microsecond is left out.
            now_us: (self.calendar.now_ps() as f64 / PS_PER_US) as u64,
            timeout_us: self.knobs.merge_timeout_us,
            merged: Merged::default(),
        };
        let result = call(mflow, &mut moment);
        let merged = moment.merged;
        let reader = state.first + state.stages + 1;
        if let Some(after_us) = merged.deadline_us {
            // CAST: a time.
            let time_ps = self.calendar.now_ps() + (f64::from(after_us) * PS_PER_US) as u64;
            self.calendar.plan(time_ps, Event::Deadline(stream));
        }
        self.counts.add(Count::EarlyRuns, merged.early_runs);
        if !merged.packets.is_empty() {
            self.forward(stream, reader, merged.packets);
        }
        result
    }

    fn read(&mut self, stream: usize, packet: &Packet) {
        let latency_ps = self.calendar.now_ps() - packet.arrived_ps;
        self.latencies_ps.push(latency_ps);
        let state = &mut self.streams[stream];
        if packet.number < state.expected {
            self.counts.add(Count::Reordered, 1);
        }
        state.expected = state.expected.max(packet.number + 1);
        self.counts.add(Count::Delivered, 1);
        self.left(stream, 1);
    }

    pub(crate) fn lose(&mut self, stream: usize, reason: Count, packets: usize) {
        if packets > 0 {
            self.counts.add(reason, packets as u64);
            self.left(stream, packets);
        }
    }

    /// Packets have left the system: a window lets more in.
    fn left(&mut self, stream: usize, packets: usize) {
        let now_ps = self.calendar.now_ps();
        let arrivals = &mut self.streams[stream].arrivals;
        let waited = arrivals.next_ps().is_none();
        // CAST: at most what is in all queues.
        arrivals.credit(packets as u32, now_ps);
        if waited {
            self.await_arrival(stream);
        }
    }

    fn busy(&self) -> Vec<u64> {
        self.cores.iter().map(|core| core.busy_ps).collect()
    }

    /// Returns all counts; those of the merge points are the module's own.
    fn counts(&self) -> Counts {
        let mut counts = self.counts;
        for (count, counter) in [
            (Count::EarlyPkts, Counter::EarlyPkts),
            (Count::LatePkts, Counter::LatePkts),
            (Count::DeadlineBatches, Counter::DeadlineBatches),
        ] {
            let slots = self.slots.iter();
            counts.add(count, slots.map(|slot| slot.counters.get(counter)).sum());
        }
        counts
    }

    fn outcome(mut self, start: Option<(u64, Counts, Vec<u64>)>) -> Outcome {
        let (start_ps, before, busy_ps) =
            start.unwrap_or((0, Counts::default(), vec![0; self.cores.len()]));
        let counted_ps = self.calendar.now_ps() - start_ps;
        let busy = self.busy().into_iter().zip(busy_ps).map(|(now, then)| {
            // A packet counts when it is taken, so the last may make a little more than the whole.
            ((now - then) as f64 / counted_ps.max(1) as f64).min(1.0)
        });
        self.latencies_ps.sort_unstable();
        let counts = self.counts();
        let streams = self.streams.iter();
        Outcome {
            all: counts,
            counted: counts.since(&before),
            counted_ps,
            arrived: streams.clone().map(|state| state.arrivals.arrived()).sum(),
            inside: self.packets.alive()
                + streams.map(|state| state.ring.len() as u64).sum::<u64>(),
            busy: busy.collect(),
            latencies_ps: self.latencies_ps,
        }
    }
}

/// Returns the cost of one packet: about the mean, as no two cores are in step.
fn cost_ps(rng: &mut Xoshiro256PlusPlus, knobs: &Knobs, mean_ps: f64) -> u64 {
    let factor = 1.0 + knobs.cost_spread * (2.0 * rng.random::<f64>() - 1.0);
    // CAST: positive and far below 2^63.
    (mean_ps * factor).round() as u64
}
