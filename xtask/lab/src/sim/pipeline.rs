// SPDX-License-Identifier: GPL-2.0

//! The receive path: queues in front of cores, polls, interrupts between cores, the merge, the reader.
//!
//! What a poll has carried goes on when the poll ends, as in Linux, where a softirq hands over to the next one; the
//! reader alone is done with each packet by itself.

use std::collections::VecDeque;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::calendar::Calendar;
use super::dispatch::{Dispatcher, To};
use super::load::Arrivals;
use super::merge::{Carrier, Merger, Packet};
use super::model::{Count, Counts, Knobs, Outcome, Scene, Stall, POLL_PKTS};
use super::parts::{Core, Event, Kind, Queue, State, Work};

struct Machine<'a> {
    knobs: &'a Knobs,
    stall: Option<Stall>,
    calendar: Calendar<Event>,
    cores: Vec<Core>,
    queues: Vec<Queue>,
    streams: Vec<State>,
    rng: Xoshiro256PlusPlus,
    counts: Counts,
    latencies_ps: Vec<u64>,
}

/// Events without a delivery after which there will be none.
const PATIENCE_EVENTS: u64 = 1_000_000;

/// Simulates a scene until enough is counted, or nothing is delivered any more.
pub(super) fn simulate(scene: &Scene) -> Outcome {
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
            start = Some((machine.calendar.now_ps(), machine.counts, machine.busy()));
        }
        if delivered >= end {
            break;
        }
    }
    machine.outcome(start)
}

impl<'a> Machine<'a> {
    fn new(scene: &'a Scene) -> Self {
        let mut machine = Self {
            knobs: &scene.knobs,
            stall: scene.stall,
            calendar: Calendar::new(),
            cores: (0..scene.cores).map(|_| Core::default()).collect(),
            queues: Vec::new(),
            streams: Vec::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(scene.knobs.seed),
            counts: Counts::default(),
            latencies_ps: Vec::new(),
        };
        for (number, stream) in scene.streams.iter().enumerate() {
            let first = machine.queues.len();
            let mut add = |kind, place| {
                machine.queues.push(Queue {
                    stream: number,
                    kind,
                    place,
                    packets: VecDeque::new(),
                    scheduled: false,
                    taken_ps: 0,
                });
            };
            add(Kind::Nic, stream.nic);
            for (index, place) in stream.hops.iter().enumerate() {
                add(Kind::Hop(index), *place);
            }
            for (index, place) in stream.lanes.iter().enumerate() {
                add(Kind::Lane(index), *place);
            }
            add(Kind::App, stream.app);
            // Streams must not all draw the same numbers.
            let seed = scene.knobs.seed.wrapping_add(1 + number as u64);
            let arrivals = Arrivals::new(stream.load.clone(), scene.stream_pkts, seed);
            machine.streams.push(State {
                arrivals,
                ring: VecDeque::new(),
                pulled: 0,
                dispatcher: Dispatcher::new(stream.lanes.len()),
                merger: Merger::default(),
                deadline_planned: false,
                expected: 0,
                first,
                stages: stream.hops.len() + stream.lanes.len(),
            });
            machine.await_arrival(number);
        }
        machine
    }

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
            Event::Done(core) => self.done(core),
            Event::Deadline(stream) => self.deadline(stream),
            Event::Resume(core) => self.start(core),
        }
    }

    /// Has a queue polled on its core, unless it will be anyway; returns whether that takes an interrupt.
    fn raise(&mut self, queue: usize, delay_ps: u64) -> bool {
        let idle = !self.queues[queue].scheduled;
        if idle {
            self.queues[queue].scheduled = true;
            let time_ps = self.calendar.now_ps() + delay_ps;
            self.calendar.plan(time_ps, Event::Ready(queue));
        }
        idle
    }

    /// Plans the interrupt of an idle NIC queue.
    fn await_arrival(&mut self, stream: usize) {
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
        if self.cores[core].work.is_some() {
            return;
        }
        if let Some(stall) = self.stall.filter(|stall| stall.core == core) {
            if (stall.from_ps..stall.to_ps).contains(&now_ps) {
                self.calendar.plan(stall.to_ps, Event::Resume(core));
                return;
            }
        }
        while let Some(queue) = self.cores[core].ready.pop_front() {
            let work = self.take(queue);
            if work.packets.is_empty() {
                self.rest(queue);
                continue;
            }
            self.calendar.plan(now_ps + work.took_ps, Event::Done(core));
            self.cores[core].work = Some(work);
            return;
        }
    }

    /// A queue is empty: it needs an interrupt to be polled again.
    fn rest(&mut self, queue: usize) {
        self.queues[queue].scheduled = false;
        if matches!(self.queues[queue].kind, Kind::Nic) {
            self.await_arrival(self.queues[queue].stream);
        }
    }

    /// Takes a poll's packets from a queue.
    fn take(&mut self, number: usize) -> Work {
        let now_ps = self.calendar.now_ps();
        let queue = &mut self.queues[number];
        queue.taken_ps = now_ps;
        let (kind, place, index) = (queue.kind, queue.place, queue.stream);
        let mut work = Work {
            queue: number,
            packets: Vec::with_capacity(POLL_PKTS),
            to: Vec::new(),
            took_ps: 0,
        };
        if let Kind::Nic = kind {
            self.poll_nic(index, &mut work);
            return work;
        }
        let count = queue.packets.len().min(POLL_PKTS);
        work.packets.extend(queue.packets.drain(..count));
        for packet in &work.packets {
            work.took_ps += cost_ps(&mut self.rng, self.knobs, place.packet_ps);
            match kind {
                Kind::Lane(lane) => self.streams[index].dispatcher.taken(lane),
                Kind::App => self
                    .latencies_ps
                    .push(now_ps + work.took_ps - packet.arrived_ps),
                Kind::Nic | Kind::Hop(_) => {}
            }
        }
        work
    }

    fn poll_nic(&mut self, stream: usize, work: &mut Work) {
        let now_ps = self.calendar.now_ps();
        let state = &mut self.streams[stream];
        let size = self.knobs.nic_ring_pkts;
        let lost = state.arrivals.pull(now_ps, &mut state.ring, size);
        self.counts.add(Count::NicFull, lost);
        // CAST: a window is at most the packets sent.
        state.arrivals.credit(lost as u32, now_ps);
        let place = self.queues[state.first].place;
        let inline_ps = self.queues[state.first + 1].place.packet_ps;
        for _ in 0..POLL_PKTS {
            let Some(arrived_ps) = state.ring.pop_front() else {
                break;
            };
            let (to, batch) = state.dispatcher.next(&mut state.merger, self.knobs);
            work.packets.push(Packet {
                number: state.pulled,
                arrived_ps,
                batch,
            });
            work.to.push(to);
            state.pulled += 1;
            work.took_ps += cost_ps(&mut self.rng, self.knobs, place.packet_ps);
            if to == To::Inline {
                work.took_ps += cost_ps(&mut self.rng, self.knobs, inline_ps);
            }
        }
    }

    /// Ends a core's poll: its packets go on.
    fn done(&mut self, core: usize) {
        let Some(work) = self.cores[core].work.take() else {
            return;
        };
        self.cores[core].busy_ps += work.took_ps;
        let queue = &self.queues[work.queue];
        let (stream, first) = (queue.stream, self.streams[queue.stream].first);
        match queue.kind {
            Kind::Nic => self.dispatched(stream, &work),
            Kind::Hop(index) => self.forward(stream, first + 1 + index + 1, &work.packets),
            Kind::Lane(_) => self.park(stream, &work.packets),
            Kind::App => self.read(stream, &work.packets),
        }
        // At the end of the list: others on this core get their turn.
        self.cores[core].ready.push_back(work.queue);
        self.start(core);
    }

    fn dispatched(&mut self, stream: usize, work: &Work) {
        let first = self.streams[stream].first;
        let mut touched = Vec::new();
        let (mut inline, mut plain, mut lost) = (Vec::new(), Vec::new(), 0);
        for (packet, to) in work.packets.iter().zip(&work.to) {
            match *to {
                To::Next => plain.push(*packet),
                To::Inline => inline.push(*packet),
                To::Lost => lost += 1,
                To::Lane(lane) => {
                    let queue = first + 1 + lane;
                    self.queues[queue].packets.push_back(*packet);
                    if !touched.contains(&queue) {
                        touched.push(queue);
                    }
                }
            }
        }
        self.counts.add(Count::Inline, inline.len() as u64);
        self.lose(stream, Count::LaneFull, lost);
        for queue in touched {
            let needed = self.raise(queue, self.knobs.ipi_ps);
            self.counts.add(Count::Ipis, u64::from(needed));
        }
        if self.streams[stream].stages == 0 || !plain.is_empty() {
            self.forward(stream, first + 1, &plain);
        } else {
            // A batch that has just been closed may be complete.
            self.park(stream, &inline);
        }
    }

    /// Puts packets into the queue of the next hop, or of the reader.
    fn forward(&mut self, stream: usize, queue: usize, packets: &[Packet]) {
        let state = &self.streams[stream];
        if queue > state.first + state.stages {
            return self.deliver(stream, packets);
        }
        let room = self
            .knobs
            .backlog_pkts
            .saturating_sub(self.queues[queue].packets.len());
        let taken = packets.len().min(room);
        self.queues[queue]
            .packets
            .extend(packets[..taken].iter().copied());
        self.lose(stream, Count::BacklogFull, packets.len() - taken);
        let needed = taken > 0 && self.raise(queue, self.knobs.ipi_ps);
        self.counts.add(Count::Ipis, u64::from(needed));
    }

    /// Packets have come to the merge point.
    fn park(&mut self, stream: usize, packets: &[Packet]) {
        let now_ps = self.calendar.now_ps();
        let merger = &mut self.streams[stream].merger;
        let mut out = Vec::new();
        for run in packets.chunk_by(|one, next| one.batch == next.batch) {
            merger.park(run, now_ps, &mut self.counts, &mut out);
        }
        merger.merge(now_ps, &mut out);
        self.merged(stream, &out);
    }

    fn merged(&mut self, stream: usize, out: &[Packet]) {
        self.deliver(stream, out);
        let state = &mut self.streams[stream];
        if state.merger.parked() > 0 && !state.deadline_planned {
            state.deadline_planned = true;
            let time_ps = self.calendar.now_ps() + self.knobs.merge_timeout_ps;
            self.calendar.plan(time_ps, Event::Deadline(stream));
        }
    }

    /// Gives the batch whose turn it is up if its carrier has been silent for too long.
    fn deadline(&mut self, stream: usize) {
        self.streams[stream].deadline_planned = false;
        let now_ps = self.calendar.now_ps();
        let Some((carrier, waiting_ps)) = self.streams[stream].merger.turn() else {
            return;
        };
        let first = self.streams[stream].first;
        let number = match carrier {
            Carrier::Lane(lane) => first + 1 + lane,
            Carrier::NicCore => first,
        };
        let queue = &self.queues[number];
        let polling = self.cores[queue.place.core].work.as_ref();
        let silent_ps = if polling.is_some_and(|work| work.queue == number) {
            now_ps
        } else {
            queue.taken_ps.max(waiting_ps)
        };
        let due_ps = silent_ps + self.knobs.merge_timeout_ps;
        if due_ps > now_ps {
            self.streams[stream].deadline_planned = true;
            self.calendar.plan(due_ps, Event::Deadline(stream));
            return;
        }
        let mut out = Vec::new();
        self.streams[stream].merger.give_up(now_ps, &mut out);
        self.counts.add(Count::DeadlineBatches, 1);
        self.merged(stream, &out);
    }

    /// Puts packets into the socket's queue.
    fn deliver(&mut self, stream: usize, packets: &[Packet]) {
        if packets.is_empty() {
            return;
        }
        let state = &self.streams[stream];
        let number = state.first + state.stages + 1;
        let queue = &mut self.queues[number];
        let room = self.knobs.socket_pkts.saturating_sub(queue.packets.len());
        let taken = packets.len().min(room);
        queue.packets.extend(packets[..taken].iter().copied());
        self.lose(stream, Count::SocketFull, packets.len() - taken);
        self.raise(number, self.knobs.wake_up_ps);
    }

    /// The application has the packets.
    fn read(&mut self, stream: usize, packets: &[Packet]) {
        let state = &mut self.streams[stream];
        for packet in packets {
            if packet.number < state.expected {
                self.counts.add(Count::Reordered, 1);
            }
            state.expected = state.expected.max(packet.number + 1);
        }
        self.counts.add(Count::Delivered, packets.len() as u64);
        self.left(stream, packets.len());
    }

    fn lose(&mut self, stream: usize, reason: Count, packets: usize) {
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
        // CAST: at most what is parked.
        arrivals.credit(packets as u32, now_ps);
        if waited {
            self.await_arrival(stream);
        }
    }

    fn busy(&self) -> Vec<u64> {
        self.cores.iter().map(|core| core.busy_ps).collect()
    }

    fn outcome(mut self, start: Option<(u64, Counts, Vec<u64>)>) -> Outcome {
        let (start_ps, before, busy_ps) =
            start.unwrap_or((0, Counts::default(), vec![0; self.cores.len()]));
        let counted_ps = self.calendar.now_ps() - start_ps;
        let busy = self.busy().into_iter().zip(busy_ps).map(|(now, then)| {
            // A poll counts when it ends, so one that began before may make a little more than the whole.
            ((now - then) as f64 / counted_ps.max(1) as f64).min(1.0)
        });
        let busy = busy.collect();
        let queued = self.queues.iter().map(|queue| queue.packets.len());
        let polled = self.cores.iter().filter_map(|core| core.work.as_ref());
        let held = self
            .streams
            .iter()
            .map(|state| state.ring.len() + state.merger.parked());
        let inside = queued
            .chain(polled.map(|work| work.packets.len()))
            .chain(held)
            .sum::<usize>() as u64;
        self.latencies_ps.sort_unstable();
        Outcome {
            all: self.counts,
            counted: self.counts.since(&before),
            counted_ps,
            arrived: self
                .streams
                .iter()
                .map(|state| state.arrivals.arrived())
                .sum(),
            inside,
            latencies_ps: self.latencies_ps,
            busy,
        }
    }
}

/// Returns what one packet costs: about the mean, as no two cores are in step.
fn cost_ps(rng: &mut Xoshiro256PlusPlus, knobs: &Knobs, mean_ps: f64) -> u64 {
    let factor = 1.0 + knobs.cost_spread * (2.0 * rng.random::<f64>() - 1.0);
    // CAST: positive and far below 2^63.
    (mean_ps * factor).round() as u64
}
