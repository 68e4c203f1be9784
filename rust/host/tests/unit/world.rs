// SPDX-License-Identifier: GPL-2.0

//! One host on one thread: a NIC's core with its dispatcher, lanes, the ordinary path, timers and a socket.
//!
//! It does what the kernel module's glue does around the algorithm, step by step as a test asks for, so a test decides
//! on the interleaving: nothing moves on its own.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::LazyLock;

use mflow_algo::algo::counters::{Counter, Counters};
use mflow_algo::algo::flow::dispatcher::{
    Config, Dispatched, Dispatcher, Host, Unbuilt, RUN_PLACES,
};
use mflow_algo::algo::flow::transitions::Transition;
use mflow_algo::algo::headers::flow_key::{FlowHasher, FlowKey, Ipv4Flow, ETH_P_IP};
use mflow_algo::algo::knobs::Build;
use mflow_algo::algo::lanes::queue::chain::Chain;
use mflow_algo::algo::lanes::queue::ring::{Consumer, Item, Producer};
use mflow_algo::algo::lanes::queue::Packet;
use mflow_algo::algo::lanes::ring_bytes::RingBytes;
use mflow_algo::algo::load::flow_orders::Orders;
use mflow_algo::algo::merge::lane_run::{Collector, Run};
use mflow_algo::algo::merge::slot::{GivenUp, LaneId, Merged, PathFault, Sink, Slot};
use mflow_algo::algo::merge::slot_pool::{SlotPool, NR_SLOTS};
use mflow_algo::algo::parked_amount::Amount;
use mflow_algo::algo::report::flow_report::{FlowBoard, FlowNews, FlowReport, Found};
use mflow_algo::algo::tag::{Tag, TagKind};

use crate::flow::transitions::Reached;
use crate::support::host::OwnedRing;
use crate::support::packet::{name_of_flow, Factory, TestPacket, TestRequest, FLOW_SHIFT};
use crate::zeroed::zeroed;

/// Packets that GRO of a lane holds back before it hands them up.
const GRO_PKTS: usize = 8;

/// The treatment of a packet by the stack between the split and the merge point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Pass,
    Drop,
    /// A copy of it arrives as well.
    Duplicate,
    /// It is queued where a hook notes it, and arrives later.
    Queue,
    /// The same, but it is dropped there.
    QueueAndDrop,
    /// It is held back somewhere unknown, and arrives later, whatever its lane says.
    Detour,
}

pub(crate) struct Lane {
    consumer: Consumer<TestPacket>,
    gro: Vec<TestPacket>,
    /// Packets that something on the path has queued on this core.
    queue: VecDeque<TestPacket>,
    collector: Collector<TestPacket>,
}

/// The receiver of merged packets, and the timers.
pub(crate) struct Socket {
    pub(crate) delivered: Vec<u64>,
    pub(crate) now_us: u64,
    pub(crate) timeout_us: u32,
    /// The time at which each slot's timer fires.
    pub(crate) timers: [Option<u64>; NR_SLOTS],
    /// Items that each lane has taken from its ring.
    pub(crate) progress: Vec<u32>,
    /// True if somebody listens to merges.
    pub(crate) is_traced: bool,
    /// The events that were told.
    pub(crate) told: Vec<Told>,
}

/// An event for those who trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The turn of a batch has passed, for which later ones have waited for so many microseconds.
    Merged(u32, Option<u64>),
    GivenUp(GivenUp),
    /// So many packets were late, in the turn of this batch.
    Late(u32, u32),
}

impl Socket {
    pub(crate) fn new(nr_lanes: usize) -> Self {
        Self {
            delivered: Vec::new(),
            now_us: 1_000_000,
            timeout_us: 200,
            timers: [None; NR_SLOTS],
            progress: vec![0; nr_lanes],
            is_traced: false,
            told: Vec::new(),
        }
    }

    pub(crate) fn sink(&mut self, slot: usize) -> SlotSink<'_> {
        SlotSink { socket: self, slot }
    }
}

pub(crate) struct SlotSink<'a> {
    socket: &'a mut Socket,
    slot: usize,
}

impl Sink<TestPacket> for SlotSink<'_> {
    fn deliver(&mut self, mut chain: Chain<TestPacket>) -> Amount {
        let mut amount = Amount::default();
        while let Some(packet) = chain.pop() {
            amount += packet.amount();
            self.socket.delivered.push(packet.id());
        }
        amount
    }

    fn now_us(&mut self) -> u64 {
        self.socket.now_us
    }

    fn timeout_us(&mut self) -> u32 {
        self.socket.timeout_us
    }

    fn lane_progress(&mut self, lane: LaneId) -> u32 {
        self.socket.progress[lane as usize - 1]
    }

    fn arm_deadline(&mut self, after_us: u32) {
        assert!(after_us > 0);
        let at = self.socket.now_us + u64::from(after_us);
        self.socket.timers[self.slot] = Some(at);
    }

    fn is_traced(&self) -> bool {
        self.socket.is_traced
    }

    fn note_merged(&mut self, batch: u32, since_us: Option<u64>) {
        let waited_us = since_us.map(|since| self.socket.now_us - since);
        self.socket.told.push(Told::Merged(batch, waited_us));
    }

    fn note_given_up(&mut self, given_up: GivenUp) {
        self.socket.told.push(Told::GivenUp(given_up));
    }

    fn note_late(&mut self, batch: u32, pkts: u32) {
        self.socket.told.push(Told::Late(batch, pkts));
    }
}

/// All but the dispatcher, which borrows this while it works.
pub(crate) struct Surroundings {
    pub(crate) slots: Box<SlotPool<TestPacket>>,
    pub(crate) ring_bytes: Box<RingBytes>,
    pub(crate) orders: Box<Orders>,
    pub(crate) board: Box<FlowBoard>,
    pub(crate) socket: Socket,
    /// Packets that the GRO of the NIC's core holds.
    inline: Vec<TestPacket>,
    pub(crate) ordinary: VecDeque<TestPacket>,
    detours: VecDeque<TestPacket>,
    /// The carrier of each packet to the merge point: a lane, or (none) the ordinary path or the NIC's core.
    pub(crate) carried: Vec<(Option<usize>, Tag)>,
    /// The packets of `carried`.
    pub(crate) carried_ids: Vec<u64>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) fate: fn(u64) -> Fate,
    /// The fault that a packet finds in its path where it is queued.
    pub(crate) fault: PathFault,
    pub(crate) merge_budget_pkts: u32,
    /// True if a probe or a fence waits for no other.
    pub(crate) is_clear: bool,
    /// The choice that each inner flow has a fence.
    pub(crate) fences_inner_flows: bool,
    /// The batches that were opened and told: the number, and the CPU of the lane, unless the NIC's core carries it.
    pub(crate) opened: RefCell<Vec<(u32, Option<u32>)>>,
    /// The number of times that the ordinary path was told to stay behind packets that were carried inline.
    pub(crate) kept_behind: usize,
    pub(crate) nr_active: i32,
    /// The transitions of all flows so far.
    pub(crate) reached: Reached,
    pub(crate) packets: Factory,
}

impl Surroundings {
    pub(crate) fn slot(&self, slot: usize) -> &Slot<TestPacket> {
        self.slots.slot(slot)
    }

    fn merge_slot(&mut self, slot: usize) {
        let mut sink = self.socket.sink(slot);
        let merged = self
            .slots
            .slot(slot)
            .merge(&mut sink, self.merge_budget_pkts);
        if merged == Merged::More {
            sink.arm_deadline(1);
        }
    }

    fn park(&mut self, run: Run<TestPacket>) {
        let slot = self.slots.slot(run.tag.slot());
        if slot.park(run.tag.batch_near(slot.next()), run.chain, run.amount) {
            self.merge_slot(run.tag.slot());
        }
    }

    fn park_one(&mut self, packet: TestPacket) {
        let (tag, amount) = (packet.tag(), packet.amount());
        let mut chain = Chain::new();
        chain.push(packet);
        self.park(Run {
            chain,
            amount,
            tag,
            socket: 0,
        });
    }

    fn complete(&mut self, tag: Tag) {
        let slot = self.slots.slot(tag.slot());
        if slot.complete(tag.batch_near(slot.next())) {
            self.merge_slot(tag.slot());
        }
    }

    /// Brings a packet up the stack to its socket.
    fn arrive(&mut self, packet: TestPacket, lane: Option<usize>) {
        let tag = packet.tag();
        self.carried.push((lane, tag));
        self.carried_ids.push(packet.id());
        match (tag.kind(), lane) {
            (TagKind::Split, Some(lane)) => {
                let amount = packet.amount();
                let run = self.lanes[lane].collector.add(tag, 0, packet, amount);
                if let Some(run) = run {
                    self.park(run);
                }
            }
            (TagKind::Split, None) => self.park_one(packet),
            (TagKind::Queued, _) => {
                self.park_one(packet);
                let slot = self.slot(tag.slot());
                if slot.note_arrived(tag.batch_near(slot.next()), 1) {
                    self.merge_slot(tag.slot());
                }
            }
            (TagKind::Fence, _) => {
                self.park_one(packet);
                self.complete(tag);
            }
            (TagKind::Probe | TagKind::None, _) => {
                if tag.kind() == TagKind::Probe {
                    self.slot(tag.slot()).note_probe(tag.batch_bits());
                }
                self.socket.delivered.push(packet.id());
            }
        }
    }

    /// Queues a packet, as something on the path does. One that is not on a lane comes behind the ordinary ones.
    fn queue(&mut self, mut packet: TestPacket, lane: Option<usize>, is_dropped: bool) {
        let tag = packet.tag();
        match tag.kind() {
            TagKind::Split => {}
            TagKind::Probe => {
                self.slot(tag.slot()).note_path_fault(self.fault);
                packet.set_tag(Tag::NONE);
                return self.travel_on(packet, lane, is_dropped);
            }
            _ => return self.travel_on(packet, lane, is_dropped),
        }
        if let Some(lane) = lane {
            self.park_collected(lane);
        }
        let slot = self.slot(tag.slot());
        slot.note_path_fault(self.fault);
        slot.note_queued(tag.batch_near(slot.next()), 1);
        packet.set_tag(Tag::new(TagKind::Queued, tag.slot(), tag.batch_bits()));
        match lane {
            _ if is_dropped => drop(packet),
            Some(lane) => self.lanes[lane].queue.push_back(packet),
            None => self.ordinary.push_back(packet),
        }
    }

    fn travel_on(&mut self, packet: TestPacket, lane: Option<usize>, is_dropped: bool) {
        if !is_dropped {
            self.arrive(packet, lane);
        }
    }

    fn travel(&mut self, packet: TestPacket, lane: Option<usize>) {
        if packet.tag().kind() == TagKind::Queued {
            return self.arrive(packet, lane);
        }
        match (self.fate)(packet.id()) {
            Fate::Queue => self.queue(packet, lane, false),
            Fate::QueueAndDrop => self.queue(packet, lane, true),
            Fate::Pass => self.arrive(packet, lane),
            Fate::Drop => drop(packet),
            Fate::Duplicate => {
                let mut copy = self.packets.packet(packet.id());
                copy.set_tag(packet.tag());
                self.arrive(packet, lane);
                self.arrive(copy, lane);
            }
            Fate::Detour => self.detours.push_back(packet),
        }
    }

    fn flush_lane_gro(&mut self, lane: usize) {
        for packet in std::mem::take(&mut self.lanes[lane].gro) {
            self.travel(packet, Some(lane));
        }
    }

    fn flush_lane(&mut self, lane: usize) {
        self.flush_lane_gro(lane);
        self.park_collected(lane);
    }

    fn park_collected(&mut self, lane: usize) {
        if let Some(run) = self.lanes[lane].collector.take() {
            self.park(run);
        }
    }

    fn receive_on_lane(&mut self, lane: usize, packet: TestPacket) {
        let bytes = u64::from(packet.memory_bytes());
        self.ring_bytes.release(lane as u32 + 1, bytes);
        self.lanes[lane].gro.push(packet);
        if self.lanes[lane].gro.len() >= GRO_PKTS {
            self.flush_lane_gro(lane);
        }
    }

    /// Polls a lane for at most this many packets. Returns whether it had anything to do.
    pub(crate) fn poll(&mut self, lane: usize, budget: usize) -> bool {
        let mut work = 0;
        let mut items = 0;
        while work < budget {
            let Some(item) = self.lanes[lane].consumer.pop(TestRequest::build) else {
                break;
            };
            items += 1;
            self.socket.progress[lane] += 1;
            match item {
                Item::Packet(packet) | Item::Built(packet) => {
                    work += 1;
                    self.receive_on_lane(lane, packet);
                }
                // There is no building end.
                Item::Nothing => {}
                Item::BatchEnd(tag) => {
                    self.flush_lane(lane);
                    self.complete(tag);
                }
            }
        }
        self.flush_lane(lane);
        items > 0
    }

    /// Brings at most this many packets to the end of the ordinary path.
    pub(crate) fn run_ordinary(&mut self, pkts: usize) -> bool {
        let pkts = pkts.min(self.ordinary.len());
        for _ in 0..pkts {
            let packet = self.ordinary.pop_front().unwrap();
            self.travel(packet, None);
        }
        pkts > 0
    }

    /// Brings at most this many packets of an inner flow to the end of the ordinary path, past those of others.
    pub(crate) fn run_ordinary_of(&mut self, inner_flow: u64, pkts: usize) {
        for _ in 0..pkts {
            let mut waiting = self.ordinary.iter();
            let Some(place) = waiting.position(|packet| packet.inner_flow() == inner_flow) else {
                return;
            };
            if let Some(packet) = self.ordinary.remove(place) {
                self.travel(packet, None);
            }
        }
    }

    /// Brings at most this many packets out of the queue on a lane's core.
    pub(crate) fn run_queue(&mut self, lane: usize, pkts: usize) -> bool {
        let pkts = pkts.min(self.lanes[lane].queue.len());
        for _ in 0..pkts {
            let packet = self.lanes[lane].queue.pop_front().unwrap();
            self.arrive(packet, None);
        }
        pkts > 0
    }

    pub(crate) fn run_detours(&mut self, pkts: usize) -> bool {
        let pkts = pkts.min(self.detours.len());
        for _ in 0..pkts {
            let packet = self.detours.pop_front().unwrap();
            self.arrive(packet, None);
        }
        pkts > 0
    }

    /// Lets time pass, and fires the timers that are due, one by one.
    pub(crate) fn wait(&mut self, us: u64) {
        let end_us = self.socket.now_us + us;
        loop {
            let due = (0..NR_SLOTS)
                .filter_map(|slot| Some((self.socket.timers[slot]?, slot)))
                .min()
                .filter(|(at, _)| *at <= end_us);
            let Some((at, slot)) = due else {
                break;
            };
            self.socket.now_us = self.socket.now_us.max(at);
            self.socket.timers[slot] = None;
            self.slot(slot).expire();
            self.merge_slot(slot);
        }
        self.socket.now_us = end_us;
    }

    /// Checks that a timer is armed wherever packets wait.
    pub(crate) fn check_waits(&self) {
        for slot in 0..NR_SLOTS {
            if self.slot(slot).parked_pkts() > 0 {
                assert!(
                    self.socket.timers[slot].is_some(),
                    "slot {slot} has no timer"
                );
            }
        }
    }
}

/// The CPU on which the dispatcher runs.
pub(crate) const NIC_CPU: u32 = 7;

impl Host<TestPacket> for Surroundings {
    fn now_ms(&mut self) -> u32 {
        (self.socket.now_us / 1000) as u32
    }

    fn cpu(&self) -> u32 {
        NIC_CPU
    }

    fn cpu_at_batch(&self, _slot: u8, batch: u32, lane_cpu: Option<u32>) -> u32 {
        self.opened.borrow_mut().push((batch, lane_cpu));
        NIC_CPU
    }

    fn slots(&self) -> &SlotPool<TestPacket> {
        &self.slots
    }

    fn ring_bytes(&self) -> &RingBytes {
        &self.ring_bytes
    }

    fn orders(&self) -> &Orders {
        &self.orders
    }

    fn is_clear(&self) -> bool {
        self.is_clear
    }

    fn fences_inner_flows(&self) -> bool {
        self.fences_inner_flows
    }

    fn keep_behind_inline(&mut self) {
        self.kept_behind += 1;
    }

    fn flush_inline(&mut self) {
        for packet in std::mem::take(&mut self.inline) {
            self.travel(packet, None);
        }
    }

    fn merge(&mut self, slot: usize) {
        self.merge_slot(slot);
    }

    fn note_active(&mut self, taken: bool) {
        self.nr_active += if taken { 1 } else { -1 };
    }

    fn report(&mut self, place: u8, news: &FlowNews) {
        self.board.report(place, news);
    }

    fn note_transition(&mut self, place: u8, transition: Transition) {
        self.reached.add(place, transition);
    }
}

pub(crate) struct World {
    pub(crate) dispatcher: Box<Dispatcher<TestPacket>>,
    counters: Counters,
    pub(crate) around: Surroundings,
    pub(crate) config: Config,
    /// True if the driver asks who builds a packet.
    pub(crate) driver_asks: bool,
    /// The greatest number of packets that the driver asks for at once.
    pub(crate) asks_for: u32,
    /// Of so many packets the driver builds one without asking; 0: none.
    pub(crate) unasked_one_of: u32,
    nr_received: u32,
    /// Packets that were left to lanes, and how often a flow's key was needed for one.
    pub(crate) left_to_lanes: u64,
    pub(crate) keys_needed: u64,
    /// True if what is received is a part of a poll, which goes on.
    pub(crate) poll_goes_on: bool,
    /// True if the packets of this poll pass the dispatcher unseen.
    rests: bool,
    hasher: FlowHasher,
    nr_sent: Vec<u64>,
    /// Dropped last.
    _rings: Vec<OwnedRing>,
}

impl World {
    pub(crate) fn new(nr_lanes: usize, batch_pkts: u32) -> Self {
        let mut world = Self::without_lanes(batch_pkts);
        for id in 1..=nr_lanes as LaneId {
            let producer = world.add_lane();
            assert!(world.dispatcher.lanes.add(producer, id, id).is_ok());
        }
        world
    }

    /// Returns a world in which the core that dispatches has a lane, too: the last one.
    pub(crate) fn with_own_lane(nr_lanes: usize, batch_pkts: u32) -> Self {
        let mut world = Self::new(nr_lanes, batch_pkts);
        let producer = world.add_lane();
        let id = world.around.lanes.len() as LaneId;
        world.dispatcher.lanes.add_own(producer, id, id);
        world
    }

    /// Adds a lane to be polled, and returns the end for the dispatcher.
    fn add_lane(&mut self) -> Producer<TestPacket> {
        let (ring, producer, consumer) = OwnedRing::new(zeroed());
        self._rings.push(ring);
        self.around.socket.progress.push(0);
        self.around.lanes.push(Lane {
            consumer,
            gro: Vec::new(),
            queue: VecDeque::new(),
            collector: Collector::new(),
        });
        producer
    }

    fn without_lanes(batch_pkts: u32) -> Self {
        Self {
            dispatcher: zeroed(),
            counters: Counters::default(),
            around: Surroundings {
                slots: zeroed(),
                ring_bytes: zeroed(),
                orders: zeroed(),
                board: zeroed(),
                socket: Socket::new(0),
                inline: Vec::new(),
                ordinary: VecDeque::new(),
                detours: VecDeque::new(),
                carried: Vec::new(),
                carried_ids: Vec::new(),
                lanes: Vec::new(),
                fate: |_| Fate::Pass,
                fault: PathFault::Queues,
                merge_budget_pkts: u32::MAX,
                is_clear: true,
                fences_inner_flows: false,
                opened: RefCell::default(),
                kept_behind: 0,
                nr_active: 0,
                reached: Reached::new(),
                packets: Factory::of_bytes(2_304),
            },
            config: Config {
                batch_pkts,
                min_window_pkts: 4,
                build: Build::Auto,
                stopping: false,
            },
            driver_asks: false,
            asks_for: u32::MAX,
            unasked_one_of: 0,
            nr_received: 0,
            left_to_lanes: 0,
            keys_needed: 0,
            poll_goes_on: false,
            rests: false,
            hasher: FlowHasher::new(1),
            nr_sent: Vec::new(),
            _rings: Vec::new(),
        }
    }

    pub(crate) fn key(&self, flow: u16) -> FlowKey {
        self.hasher.key(ETH_P_IP, &header(flow)).unwrap()
    }

    /// Receives the next packets of a flow on the NIC's core; returns the lanes (bit mask) that got items.
    pub(crate) fn receive(&mut self, flow: u16, pkts: u32) -> u32 {
        let key = self.key(flow);
        if self.nr_sent.len() <= usize::from(flow) {
            self.nr_sent.resize(usize::from(flow) + 1, 0);
        }
        let mut left = pkts;
        while left > 0 {
            self.nr_received = self.nr_received.wrapping_add(1);
            let asks = self.nr_received.checked_rem(self.unasked_one_of) != Some(0);
            let taken = if asks {
                self.leave_to_lane(flow, key, left)
            } else {
                0
            };
            if taken > 0 {
                left -= taken;
                continue;
            }
            left -= 1;
            let packet = self.around.packets.packet(next_id(&mut self.nr_sent, flow));
            if self.rests {
                self.around.ordinary.push_back(packet);
                continue;
            }
            match self.dispatcher.dispatch(
                &self.counters,
                &mut self.around,
                self.config,
                key,
                packet,
            ) {
                Dispatched::ToLane => {}
                Dispatched::Ordinary(packet) => self.around.ordinary.push_back(packet),
                Dispatched::Inline(packet) => self.around.inline.push(packet),
                Dispatched::InlineAlone(packet) => self.around.travel(packet, None),
            }
        }
        if !self.poll_goes_on {
            self.dispatcher.end_runs(&self.counters);
        }
        self.dispatcher.lanes.take_touched(&self.around.ring_bytes)
    }

    /// Makes a lane build the next packets of a flow, `most` at most, and returns how many.
    fn leave_to_lane(&mut self, flow: u16, key: FlowKey, most: u32) -> u32 {
        let now_ms = self.around.now_ms();
        let packets = &self.around.packets;
        if !self.driver_asks || self.rests || packets.joined_pkts > 1 {
            return 0;
        }
        let (counters, stopping, bytes) = (&self.counters, self.config.stopping, packets.bytes);
        let may_take = self.dispatcher.lanes.takes_requests();
        // Inner flows come in turn.
        let most = most.min(if packets.inner_flows > 1 {
            1
        } else {
            self.asks_for
        });
        let next = packets.packet(id_of(flow, self.nr_sent[usize::from(flow)]));
        let keys_needed = &mut self.keys_needed;
        // Flow 2 stands for those of IPv6.
        let ipv4_flow = Ipv4Flow::of(&header(flow)).filter(|_| flow != 2);
        let unbuilt = Unbuilt {
            flow: ipv4_flow,
            key: || {
                *keys_needed += 1;
                Some(key)
            },
            inner_flow: || next.inner_flow(),
            fragment: || next.fragment(),
            bytes,
            most,
        };
        let dispatcher = &mut self.dispatcher;
        let requests = match dispatcher.run_of(ipv4_flow, most, stopping, now_ms) {
            Some(run) => dispatcher.take_of_run(run, bytes),
            None => dispatcher.take_requests(counters, now_ms, stopping, unbuilt),
        };
        assert!(
            may_take || requests.is_empty(),
            "a quick look is enough to know that none is taken"
        );
        for request in requests {
            request.fill(packets.packet(next_id(&mut self.nr_sent, flow)));
        }
        self.left_to_lanes += requests.len() as u64;
        requests.len() as u32
    }

    /// Returns what a reader of the board finds of a flow: nothing if that is not listed.
    pub(crate) fn report(&mut self, flow: u16) -> Option<FlowReport> {
        let now_ms = self.around.now_ms();
        let mut listed = self.around.board.read().filter_map(|found| match found {
            Found::Flow(report) => {
                (report.name == name_of_flow(flow) && report.is_listed(now_ms)).then_some(report)
            }
            Found::Nothing => None,
            Found::Changing => unreachable!("nobody writes now"),
        });
        let report = listed.next();
        assert!(listed.next().is_none(), "the flow is listed twice");
        report
    }

    pub(crate) fn end_nic_poll(&mut self) {
        self.dispatcher.end_runs(&self.counters);
        self.around.flush_inline();
        self.dispatcher
            .reap_if_due(&self.counters, &mut self.around, self.config);
        self.dispatcher.lanes.take_touched(&self.around.ring_bytes);
        let has_flows = self.around.nr_active > 0;
        let now_ms = self.around.now_ms();
        self.rests =
            self.dispatcher
                .end_poll(&self.counters, now_ms, has_flows, &self.around.orders);
    }

    /// Returns whether the packets of the next poll pass the dispatcher unseen.
    pub(crate) fn rests(&self) -> bool {
        self.rests
    }

    pub(crate) fn nr_sent(&self) -> &[u64] {
        &self.nr_sent
    }

    /// Returns the sum of a counter over dispatcher and slots.
    pub(crate) fn count(&self, counter: Counter) -> u64 {
        let slots: u64 = self
            .around
            .slots
            .iter()
            .map(|slot| slot.counters.get(counter))
            .sum();
        self.counters.get(counter) + slots
    }

    pub(crate) fn delivered(&self, flow: u16) -> Vec<u64> {
        let delivered = self.around.socket.delivered.iter();
        delivered
            .filter(|id| **id >> FLOW_SHIFT == u64::from(flow))
            .map(|id| id & ((1 << FLOW_SHIFT) - 1))
            .collect()
    }

    /// Checks that all packets of a flow were delivered, in order.
    pub(crate) fn assert_in_order(&self, flow: u16) {
        let sent = self.nr_sent()[usize::from(flow)];
        let delivered = self.delivered(flow);
        let first_wrong = delivered
            .iter()
            .zip(0..)
            .find(|(id, expected)| *id != expected);
        assert_eq!((first_wrong, delivered.len() as u64), (None, sent));
    }

    /// Lets everything that can move do so until nothing does, without time passing.
    pub(crate) fn settle(&mut self) {
        loop {
            self.around.flush_inline();
            let mut moved = self.around.run_ordinary(usize::MAX);
            for lane in 0..self.around.lanes.len() {
                moved |= self.around.poll(lane, usize::MAX);
                moved |= self.around.run_queue(lane, usize::MAX);
            }
            moved |= self.around.run_detours(usize::MAX);
            if !moved {
                return;
            }
        }
    }

    /// Receives packets of a flow, all of which reach the merge point at once, until the flow is split.
    pub(crate) fn start_split(&mut self, flow: u16) {
        let split = self.count(Counter::FlowsSplit);
        for _ in 0..100 {
            self.receive(flow, 1);
            self.settle();
            if self.count(Counter::FlowsSplit) > split {
                return;
            }
        }
        panic!("the flow is not split");
    }

    /// Ends all flows and brings all packets to their end.
    pub(crate) fn finish(&mut self) {
        // Each packet that was dropped from a queue may have to be waited for by itself.
        for _ in 0..10_000 {
            self.settle();
            if self.around.nr_active == 0 && self.around.packets.alive() == 0 {
                return;
            }
            self.around.wait(2_000_000);
            self.around
                .wait(u64::from(self.around.socket.timeout_us) + 1);
            self.dispatcher
                .reap(&self.counters, &mut self.around, self.config, 0);
        }
        panic!("the flows do not end");
    }
}

/// Returns how many of these come after a larger one.
pub(crate) fn nr_overtaken(delivered: &[u64]) -> u64 {
    let mut largest = 0;
    let mut overtaken = 0;
    for id in delivered {
        if *id < largest {
            overtaken += 1;
        }
        largest = largest.max(*id);
    }
    overtaken
}

/// Returns what the next packet of a flow is known by, and counts it.
fn next_id(nr_sent: &mut [u64], flow: u16) -> u64 {
    let number = &mut nr_sent[usize::from(flow)];
    let id = id_of(flow, *number);
    *number += 1;
    id
}

fn id_of(flow: u16, number: u64) -> u64 {
    u64::from(flow) << FLOW_SHIFT | number
}

/// Returns the numbers from `range` that arrive, in the order in which they were sent: the oracle of all order tests.
pub(crate) fn expected(flow: u16, range: Range<u64>, fate: fn(u64) -> Fate) -> Vec<u64> {
    let mut ids = Vec::new();
    for number in range {
        let nr_copies = match fate(u64::from(flow) << FLOW_SHIFT | number) {
            Fate::Drop | Fate::QueueAndDrop => 0,
            Fate::Pass | Fate::Queue | Fate::Detour => 1,
            Fate::Duplicate => 2,
        };
        ids.extend(std::iter::repeat_n(number, nr_copies));
    }
    ids
}

/// The source port of flow 1. The dispatcher has one place for its run and that of flow 0 (`algo/flow/run.rs`).
static PORT_OF_FLOW_1: LazyLock<u16> = LazyLock::new(|| {
    let place = |port| Ipv4Flow::of(&header_from(port)).map(|flow| flow.place(RUN_PLACES));
    let mut ports = 0x100..;
    ports.find(|port| place(*port) == place(0)).unwrap()
});

/// Returns the first bytes of a flow's packets.
fn header(flow: u16) -> [u8; 28] {
    header_from(if flow == 1 { *PORT_OF_FLOW_1 } else { flow })
}

fn header_from(port: u16) -> [u8; 28] {
    let mut packet = [0; 28];
    packet[0] = 0x45;
    packet[9] = 17;
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet
}
