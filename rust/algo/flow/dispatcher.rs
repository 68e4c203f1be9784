// SPDX-License-Identifier: GPL-2.0

//! The dispatcher: decides for each packet of a source where it is carried on.
//!
//! A flow is split once it is fast, and only after a probe of it has reached a merge point on this host. The split begins behind
//! a *fence*: the last packet on the ordinary path is a micro-flow of its own, which is complete when it arrives. So no split
//! packet overtakes a packet that was under way. Each inner flow of an outer one has a fence (`fenced_flows.rs`). To stop, this core
//! carries the flow's packets itself (*inline*), as the last micro-flow, until all others have been delivered. The untagged
//! packets that follow are behind all of these. `state.rs` has a picture of this, and `lifecycle.rs` has the starts and stops.
//! This file has the way of most packets, and the choice of batches.
//!
//! A batch goes to a lane only if the lane's ring has room for all of it, and not too much memory waits in rings
//! (`ring_bytes.rs`); otherwise this core is the batch's lane. So nothing is lost that the ordinary path would have kept.
//! An open batch holds no packet up (its own are delivered as they come), so a flow may pause in the middle of one for as
//! long as it likes.

use super::fenced_flows::Fenced;
use super::poll_pace::{Pace, PollPace};
use super::run::{Run, Runs};
pub use super::run::{RunPlace, RUN_PLACES};
use super::state::{Carrier, FlowState, Split};
use super::table::FlowTable;
use super::transitions::Transition;
use super::work_counts::WorkCounts;
use crate::algo::counters::{Counter, Counters};
use crate::algo::headers::flow_key::{FlowKey, Ipv4Flow};
use crate::algo::headers::overlay::Fragment;
use crate::algo::knobs::Build;
use crate::algo::lanes::lane_set::{Builder, LaneSet, NoRoom, Reserved, OWN_LANE};
use crate::algo::lanes::queue::Packet;
use crate::algo::lanes::ring_bytes::RingBytes;
use crate::algo::load::flow_orders::{Order, Orders};
use crate::algo::merge::slot::{Joining, LaneId, Slot, INLINE};
use crate::algo::merge::slot_pool::{SlotPool, NR_SLOTS};
use crate::algo::report::flow_report::FlowNews;
use crate::algo::source::poll_sampling::Rest;
use crate::algo::tag::Tag;

/// The time without packets after which a flow gives its slot back.
pub(super) const IDLE_MS: u32 = 1_000;

/// The most fragments for which a batch of fragments waits until a datagram ends. A datagram of 64 KB has 48 fragments in a tunnel
/// over Ethernet.
const TAIL_PKTS: u32 = 64;

/// The surroundings of the dispatcher: a clock and the slots, and no more of any kernel.
pub trait Host<P: Packet> {
    /// The time that a probe may take, in milliseconds. Afterwards the flow is assumed not to end on this host.
    const PROBE_TIMEOUT_MS: u32 = 200;

    /// Returns a time in milliseconds that grows and wraps; a coarse one will do.
    fn now_ms(&mut self) -> u32;
    /// Returns the CPU that this runs on.
    fn cpu(&self) -> u32;
    /// Returns the same where a batch of `slot` is opened, and shows the batch to those who trace. `lane_cpu` is the CPU of the
    /// lane that carries it, or nothing if this core does.
    fn cpu_at_batch(&self, _slot: u8, _batch: u32, _lane_cpu: Option<u32>) -> u32 {
        self.cpu()
    }
    /// Returns all slots.
    fn slots(&self) -> &SlotPool<P>;
    /// Returns how much memory waits in the rings of all sources.
    fn ring_bytes(&self) -> &RingBytes;
    /// Returns the load controller's orders.
    fn orders(&self) -> &Orders;
    /// Returns whether no packets are held on the ordinary path of this CPU. Where probes and fences wait for the packets before
    /// them, flows begin to be split one after the other.
    fn is_clear(&self) -> bool {
        true
    }
    /// Returns whether each inner flow has a fence of its own, because inner flows may wait in different queues on the ordinary
    /// path.
    fn fences_inner_flows(&self) -> bool {
        false
    }
    /// Keeps packets that take the ordinary path from now on behind the packets that were carried inline. Called when a flow goes
    /// back to the ordinary path. (Untagged packets are another flow than tagged ones to GRO and to queues.)
    fn keep_behind_inline(&mut self) {}
    /// Flushes inline packets. On return, each of them has reached the merge point, or never will.
    fn flush_inline(&mut self);
    /// Merges `slot`.
    fn merge(&mut self, slot: usize);
    /// Notes that a flow of this source has taken (`true`) or given back (`false`) a slot.
    fn note_active(&mut self, taken: bool);
    /// Shows the news of the flow in a place of this source's table to readers. Called where a flow's state changes, and where a
    /// window of a fast flow ends.
    fn report(&mut self, _place: u8, _news: &FlowNews) {}
    /// Notes a transition of the flow in a place of this source's table. Only tests look at it.
    fn note_transition(&mut self, _place: u8, _transition: Transition) {}
}

/// The knobs that matter per packet.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Packets in a batch.
    pub batch_pkts: u32,
    /// Packets in a [`RATE_WINDOW_MS`](crate::algo::limits::RATE_WINDOW_MS) that make a flow fast.
    pub min_window_pkts: u32,
    /// The core that builds packets, where the driver leaves the choice.
    pub build: Build,
    /// True if no flow may be split any more.
    pub stopping: bool,
}

/// Packets of one flow that their driver has not built, each of which was one on the wire.
pub struct Unbuilt<K, I, F> {
    /// The flow, if it is one of IPv4. The packets of others are in no run.
    pub flow: Option<Ipv4Flow>,
    /// The function that returns the flow's key, if it has one. It is called only outside of a run (`run.rs`).
    pub key: K,
    /// The function that returns the inner flow of these packets, as [`Packet::inner_flow`] would. It is called only while the
    /// flow begins to be split.
    pub inner_flow: I,
    /// The function that returns the part of a datagram that the first of these packets is, as [`Packet::fragment`] would. It is
    /// called only at the end of a batch of fragments.
    pub fragment: F,
    /// The memory that each will hold, in bytes.
    pub bytes: u32,
    /// The greatest number of packets to take.
    pub most: u32,
}

/// The way that a packet takes.
#[derive(Debug)]
pub enum Dispatched<P> {
    /// To a lane; it is no longer ours.
    ToLane,
    /// Along the ordinary path, untagged or as a probe or fence.
    Ordinary(P),
    /// Carried to the merge point by this core, in this call or by the next [`Host::flush_inline`].
    Inline(P),
    /// Carried to the merge point by this core. The packet has come alone, so it need not wait for others that GRO could join to it.
    InlineAlone(P),
}

/// The dispatcher of one source. Used in one context at a time. Memory of zeros is a new one.
pub struct Dispatcher<P: Packet> {
    table: FlowTable,
    /// The lanes.
    pub lanes: LaneSet<P>,
    reaped_ms: u32,
    // True if all fences that other sources had sent before this source began have had their turn.
    settled: bool,
    // Of this source's flows, by their slots.
    work_counts: [WorkCounts; NR_SLOTS],
    fenced: [Fenced; NR_SLOTS],
    runs: Runs,
    rest: Rest,
    pace: PollPace,
}

impl<P: Packet> Dispatcher<P> {
    /// Returns a dispatcher that has seen no flow and has no lanes.
    pub fn new() -> Self {
        Self {
            table: FlowTable::new(),
            lanes: LaneSet::new(),
            reaped_ms: 0,
            settled: false,
            work_counts: [WorkCounts::NONE; NR_SLOTS],
            fenced: [Fenced::NONE; NR_SLOTS],
            runs: Runs::new(),
            rest: Rest::default(),
            pace: PollPace::default(),
        }
    }

    /// Decides where a packet goes. `counters` are the source's, which nobody else writes.
    #[inline]
    pub fn dispatch<H: Host<P>>(
        &mut self,
        counters: &Counters,
        host: &mut H,
        config: Config,
        key: FlowKey,
        packet: P,
    ) -> Dispatched<P> {
        self.dispatch_with(counters, host, config.stopping, || config, key, packet)
    }

    /// Does the same as [`dispatch`](Self::dispatch), but reads the configuration only if more of it than [`Config::stopping`]
    /// matters. It does for few packets.
    #[inline]
    pub fn dispatch_with<H: Host<P>>(
        &mut self,
        counters: &Counters,
        host: &mut H,
        stopping: bool,
        config: impl FnOnce() -> Config,
        key: FlowKey,
        packet: P,
    ) -> Dispatched<P> {
        self.end_run_of(counters, key);
        let now_ms = host.now_ms();
        let wire_pkts = packet.wire_pkts();
        let Some(flow) = self.table.find(key, now_ms) else {
            self.pace.add_ordinary(wire_pkts);
            return Dispatched::Ordinary(packet);
        };
        let ended_window = flow.count(now_ms, wire_pkts);
        if let (FlowState::Split(split), None, false) = (&mut flow.state, ended_window, stopping) {
            if let Some(lane) = split.take_lane_room(wire_pkts) {
                // All but one in `batch_pkts` packets of a split flow.
                return push(
                    &mut self.lanes,
                    counters,
                    lane,
                    split.tag(),
                    packet,
                    wire_pkts,
                );
            }
        }
        let mut step = Step {
            lanes: &mut self.lanes,
            settled: &mut self.settled,
            work_counts: &mut self.work_counts,
            fenced: &mut self.fenced,
            counters,
            host,
            config: config(),
            now_ms,
            wire_pkts,
            rest: &mut self.rest,
            pace: &mut self.pace,
            running_pkts: self.runs.taken_pkts(),
        };
        if let Some(window) = ended_window {
            step.on_window_end(flow, window, &packet);
        }
        let dispatched = step.on_packet(flow, packet);
        if let Dispatched::Ordinary(_) = &dispatched {
            self.pace.add_ordinary(wire_pkts);
        }
        dispatched
    }

    /// Returns the run to which the next packets of a driver belong, if it is one packet, of `flow`, and belongs to any. The caller takes
    /// it with [`take_of_run`](Self::take_of_run) then, and with [`take_requests`](Self::take_requests) otherwise.
    /// `flow` and `most` are those of [`Unbuilt`], and `stopping` is [`Config::stopping`].
    #[inline(always)]
    pub fn run_of(
        &self,
        flow: Option<Ipv4Flow>,
        most: u32,
        stopping: bool,
        now_ms: u32,
    ) -> Option<RunPlace> {
        match (flow, most, stopping) {
            (Some(flow), 1, false) => self.runs.of(flow, now_ms),
            _ => None,
        }
    }

    /// Takes the next packet of a run, as [`take_requests`](Self::take_requests) would. The run was returned by
    /// [`run_of`](Self::run_of) just before.
    #[inline(always)]
    pub fn take_of_run(&mut self, run: RunPlace, bytes: u32) -> &[P::Request] {
        let run = self.runs.at(run);
        debug_assert!(run.left_pkts != 0);
        let places = self.lanes.take_requests(run.lane, run.tag, 1, bytes);
        // CAST: 1 at most. The run has room, so there is a place.
        run.left_pkts -= places.len() as u32;
        places
    }

    /// Takes packets that are not built yet, and for which [`run_of`](Self::run_of) has found no run. Returns a place for each packet
    /// that a lane takes, from the first one on.
    /// The caller fills the places before it calls the dispatcher or its lanes again. Packets without a place are not counted,
    /// and the caller may ask for them again. If there is no place at all, the caller has to build and dispatch the next packet.
    /// Only packets that just join a lane's open batch can come this way, so a flow's state never changes without a packet.
    /// `stopping` is [`Config::stopping`].
    #[inline(never)]
    pub fn take_requests(
        &mut self,
        counters: &Counters,
        now_ms: u32,
        stopping: bool,
        unbuilt: Unbuilt<
            impl FnOnce() -> Option<FlowKey>,
            impl FnOnce() -> u64,
            impl FnOnce() -> Fragment,
        >,
    ) -> &[P::Request] {
        let Some(key) = (unbuilt.key)() else {
            return &[];
        };
        self.end_run_of(counters, key);
        let Some(flow) = self.table.get(key) else {
            return &[];
        };
        if stopping || flow.has_window_ended(now_ms) {
            return &[];
        }
        let (split, is_begun) = match &mut flow.state {
            FlowState::Split(split) => (split, true),
            FlowState::Starting(split) => {
                // PANIC: the remainder is below the length.
                let fenced = &mut self.fenced[usize::from(split.slot) % NR_SLOTS];
                fenced.pass_time(now_ms);
                if fenced.lacks(unbuilt.inner_flow) {
                    return &[];
                }
                (split, false)
            }
            _ => return &[],
        };
        split.extend(unbuilt.fragment);
        let Some((lane, room)) = split.take_request_room(unbuilt.most) else {
            return &[];
        };
        let tag = split.tag();
        let places = self.lanes.take_requests(lane, tag, room, unbuilt.bytes);
        // CAST: `room` at most.
        let pkts = places.len() as u32;
        if pkts < room {
            split.give_back_request_room(room - pkts);
        }
        if pkts == 0 {
            return places;
        }
        let room_pkts = split.request_room();
        // No window has so many packets that this wraps.
        flow.pkts = flow.pkts.wrapping_add(pkts);
        counters.add_owned(counter_of(lane), u64::from(pkts));
        counters.add_owned(Counter::RequestPkts, u64::from(pkts));
        if let (Some(header), 1, true, 1..) = (unbuilt.flow, unbuilt.most, is_begun, room_pkts) {
            let run = Run {
                flow: header,
                key,
                tag,
                lane,
                window_start_ms: flow.window_start_ms(),
                room_pkts,
                left_pkts: room_pkts,
            };
            if let Some(other) = self.runs.end_in_place_of(header) {
                Self::end_run(&mut self.table, counters, other);
            }
            if self.runs.is_in_a_row(header) {
                self.runs.begin(run);
            }
        }
        places
    }

    /// Ends all runs. Called at the end of a poll, before anything else that the poll's end does.
    #[inline]
    pub fn end_runs(&mut self, counters: &Counters) {
        while let Some(run) = self.runs.end_any() {
            Self::end_run(&mut self.table, counters, run);
        }
    }

    /// Ends the run of a key, if one is open.
    #[inline]
    fn end_run_of(&mut self, counters: &Counters, key: FlowKey) {
        if let Some(run) = self.runs.end_of(key) {
            Self::end_run(&mut self.table, counters, run);
        }
    }

    /// Gives a run's flow what the run has taken.
    #[inline(never)]
    fn end_run(table: &mut FlowTable, counters: &Counters, run: Run) {
        let pkts = run.taken_pkts();
        counters.add_owned(counter_of(run.lane), u64::from(pkts));
        counters.add_owned(Counter::RequestPkts, u64::from(pkts));
        if let Some(flow) = table.get(run.key) {
            // No window has so many packets that this wraps.
            flow.pkts = flow.pkts.wrapping_add(pkts);
            // INVARIANT: A run ends before anything else is done with its flow, so this is the batch of which it was.
            if let FlowState::Split(split) = &mut flow.state {
                debug_assert_eq!(split.tag(), run.tag);
                if split.tag() == run.tag {
                    split.take_request_room_of(pkts);
                }
            }
        }
    }

    /// Gives back the slots of flows that have gone quiet. Called about once a second, or when the source ends.
    pub fn reap<H: Host<P>>(
        &mut self,
        counters: &Counters,
        host: &mut H,
        config: Config,
        idle_ms: u32,
    ) {
        self.end_runs(counters);
        let now_ms = host.now_ms();
        self.reaped_ms = now_ms;
        let mut step = Step {
            lanes: &mut self.lanes,
            settled: &mut self.settled,
            work_counts: &mut self.work_counts,
            fenced: &mut self.fenced,
            counters,
            host,
            config,
            now_ms,
            wire_pkts: 0,
            rest: &mut self.rest,
            pace: &mut self.pace,
            running_pkts: 0,
        };
        for flow in self.table.with_slot() {
            if flow.is_idle(now_ms, idle_ms) {
                step.on_silence(flow);
            }
        }
    }

    /// Ends a poll. Returns whether the packets of the next poll may pass unseen, because no flow is to be split.
    /// `has_flows` says whether flows of this source have a slot. May be called more than once for a poll.
    #[inline]
    pub fn end_poll(
        &mut self,
        counters: &Counters,
        now_ms: u32,
        has_flows: bool,
        orders: &Orders,
    ) -> bool {
        self.pace.end_poll(counters);
        self.rest.end_poll(now_ms, has_flows, orders.refuses())
    }

    /// Calls [`reap`](Self::reap) if it is time to.
    #[inline]
    pub fn reap_if_due<H: Host<P>>(&mut self, counters: &Counters, host: &mut H, config: Config) {
        if host.now_ms().wrapping_sub(self.reaped_ms) >= IDLE_MS {
            self.reap(counters, host, config, IDLE_MS);
        }
    }
}

impl<P: Packet> Default for Dispatcher<P> {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn push<P: Packet>(
    lanes: &mut LaneSet<P>,
    counters: &Counters,
    lane: u8,
    tag: Tag,
    mut packet: P,
    wire_pkts: u32,
) -> Dispatched<P> {
    packet.set_tag(tag);
    match lanes.push(lane, packet) {
        Ok(()) => {
            counters.add_owned(counter_of(lane), u64::from(wire_pkts));
            Dispatched::ToLane
        }
        // Room was reserved, so this is not reached. If it were, the packet would only be early.
        Err(packet) => inline(counters, packet, wire_pkts),
    }
}

/// Returns the counter of the packets that go to a lane. Those of the own lane are carried by the core that dispatches.
#[inline]
fn counter_of(lane: u8) -> Counter {
    if lane == OWN_LANE {
        Counter::InlinePkts
    } else {
        Counter::LanePkts
    }
}

fn inline<P>(counters: &Counters, packet: P, wire_pkts: u32) -> Dispatched<P> {
    counters.add_owned(Counter::InlinePkts, u64::from(wire_pkts));
    Dispatched::Inline(packet)
}

/// All that one step of a flow needs besides the flow.
pub(super) struct Step<'a, P: Packet, H> {
    pub(super) lanes: &'a mut LaneSet<P>,
    pub(super) settled: &'a mut bool,
    pub(super) work_counts: &'a mut [WorkCounts; NR_SLOTS],
    pub(super) fenced: &'a mut [Fenced; NR_SLOTS],
    pub(super) counters: &'a Counters,
    pub(super) host: &'a mut H,
    pub(super) config: Config,
    pub(super) now_ms: u32,
    // Of the packet that is being carried.
    pub(super) wire_pkts: u32,
    pub(super) rest: &'a mut Rest,
    pace: &'a mut PollPace,
    // Packets that the counters lack yet (`run.rs`).
    running_pkts: u32,
}

impl<P: Packet, H: Host<P>> Step<'_, P, H> {
    #[inline]
    pub(super) fn slot(&self, slot: u8) -> &Slot<P> {
        self.host.slots().slot(usize::from(slot))
    }

    #[inline]
    pub(super) fn work_counts(&mut self, slot: u8) -> &mut WorkCounts {
        // PANIC: the remainder is below the length.
        &mut self.work_counts[usize::from(slot) % NR_SLOTS]
    }

    pub(super) fn fenced(&mut self, slot: u8) -> &mut Fenced {
        // PANIC: the remainder is below the length.
        &mut self.fenced[usize::from(slot) % NR_SLOTS]
    }

    pub(super) fn inline(&mut self, packet: P) -> Dispatched<P> {
        inline(self.counters, packet, self.wire_pkts)
    }

    pub(super) fn on_split(&mut self, split: &mut Split, mut packet: P) -> Dispatched<P> {
        if split.left_pkts == 0 {
            self.next_batch(split, packet.fragment());
        }
        if let Some(lane) = split.take_lane_room(self.wire_pkts) {
            let (lanes, counters) = (&mut *self.lanes, self.counters);
            return push(lanes, counters, lane, split.tag(), packet, self.wire_pkts);
        }
        split.left_pkts = split.left_pkts.saturating_sub(self.wire_pkts);
        packet.set_tag(split.tag());
        match self.inline(packet) {
            Dispatched::Inline(packet) if split.is_single => Dispatched::InlineAlone(packet),
            dispatched => dispatched,
        }
    }

    /// Returns the number of packets in a batch of the slot's flow, whose order is `order`. While one lane has its turn, the
    /// packets of the other lanes gather, and then come to the receiver at once. So the receiver's buffer bounds the batch.
    #[inline]
    pub(super) fn batch_pkts(&self, slot: u8, order: Order) -> u32 {
        let others = self.lanes.nr_carriers(order.lanes).saturating_sub(1);
        let burst_pkts = self.slot(slot).burst_pkts();
        u32::from(order.batch_pkts)
            .min(self.config.batch_pkts)
            .min(burst_pkts / others.max(1))
            .max(1)
    }

    /// Ends the open batch and opens another. The last number of the window always goes to an inline batch: that one can
    /// grow for as long as the window is full, in order, and slows this core down to the pace of the lanes.
    ///
    /// An inline batch also goes on where no lane can have the next one. This core carries the packets of both one after the
    /// other, so another number would keep nothing in order; and where GRO does not look at tags, it could join packets of two.
    ///
    /// `first` is the part of a datagram that the batch's first packet is. A batch of fragments ends between two datagrams, if one
    /// ends in time.
    fn next_batch(&mut self, split: &mut Split, first: Fragment) {
        let order = self.host.orders().order(usize::from(split.slot));
        let Pace {
            is_single,
            most_pkts,
        } = self
            .pace
            .look(self.counters, self.running_pkts, order.helps);
        let batch_pkts = self.batch_pkts(split.slot, order).min(most_pkts);
        if is_single && !split.is_single {
            // Packets that the open batch may have in GRO stay before those that do not wait there.
            self.host.flush_inline();
        }
        split.is_single = is_single;
        // Without a carrier there is room: the batch before is a fence, which is opened only if a number is left behind it
        // (`lifecycle.rs`).
        let window_left = self.window_left(split);
        if window_left == 0 && split.carrier.is_some() {
            // The open batch has the last number, so it is inline, and goes on.
            self.counters.add_owned(Counter::BatchesGrown, 1);
        } else {
            if split.carrier != Some(Carrier::Inline) {
                // The lane's ring gets back the room that the batch has not used.
                self.end_batch(split);
            }
            let builder = match (self.config.build, self.slot(split.slot).joining()) {
                (Build::Nic, _) => Builder::Nic,
                // A frame that joins costs a lane less than a packet that it gets: a lane without room for it is the wrong one.
                (Build::Auto | Build::Lane, Joining::Joined) => Builder::LaneAlone,
                (Build::Lane, _) | (Build::Auto, Joining::Untried) => Builder::Lane,
                (Build::Auto, Joining::Built) => Builder::LaneInTime,
            };
            let reserved = match window_left {
                0 | 1 => Err(NoRoom::Window),
                _ if is_single => Err(NoRoom::Single),
                _ => self
                    .lanes
                    .reserve_batch(batch_pkts, builder, order, self.host.ring_bytes()),
            };
            if reserved == Err(NoRoom::Memory) {
                self.counters.add_owned(Counter::MemoryBatches, 1);
            }
            // A lane's batch has ended above: if there is a carrier still, it is this core.
            match (reserved, split.carrier) {
                // The inline batch goes on.
                (Err(_), Some(_)) => self.note_cpu(split.slot, self.host.cpu()),
                (Err(_), None) => {
                    split.carrier = Some(Carrier::Inline);
                    split.batch = self.open_batch(split.slot, split.batch, INLINE, None);
                }
                (Ok(Reserved { lane, id, requests }), inline) => {
                    if inline.is_some() {
                        self.end_inline_batch(split.slot, split.batch);
                    }
                    split.carrier = Some(Carrier::Lane {
                        lane,
                        reserved_requests: requests,
                        reserved_items: batch_pkts,
                    });
                    let cpu = self.lanes.cpu(lane);
                    split.batch = self.open_batch(split.slot, split.batch, id, cpu);
                }
            }
        }
        self.work_counts(split.slot)
            .add_batch(split.carrier, batch_pkts);
        split.tail_pkts = match first {
            Fragment::None => 0,
            Fragment::First | Fragment::Later => TAIL_PKTS.min(batch_pkts / 2),
        };
        split.left_pkts = batch_pkts - split.tail_pkts;
    }

    /// Returns how many more batches may be opened now: none, one or more.
    pub(super) fn window_left(&self, split: &Split) -> u32 {
        self.slot(split.slot).room(split.batch.wrapping_add(1), 2)
    }

    /// Opens the batch that follows `last`, and returns its number. `lane_cpu` is the CPU of the lane that carries it, or nothing if
    /// this core does.
    pub(super) fn open_batch(
        &mut self,
        slot: u8,
        last: u32,
        carrier: LaneId,
        lane_cpu: Option<u32>,
    ) -> u32 {
        let batch = last.wrapping_add(1);
        self.slot(slot).open(batch, carrier);
        self.note_cpu(slot, self.host.cpu_at_batch(slot, batch, lane_cpu));
        self.counters.add_owned(Counter::Batches, 1);
        batch
    }

    /// Tells the load controller on which CPU batches of the slot's flow are handed out.
    fn note_cpu(&self, slot: u8, cpu: u32) {
        self.host.orders().note_cpu(usize::from(slot), cpu);
    }

    /// Ends the open batch, if there is one.
    pub(super) fn end_batch(&mut self, split: &mut Split) {
        match split.carrier.take() {
            None => return,
            Some(Carrier::Inline) => self.end_inline_batch(split.slot, split.batch),
            Some(Carrier::Lane {
                lane,
                reserved_requests,
                reserved_items,
            }) => self
                .lanes
                .end_batch(lane, split.tag(), reserved_items, reserved_requests),
        }
        split.left_pkts = 0;
        split.tail_pkts = 0;
    }

    pub(super) fn end_inline_batch(&mut self, slot: u8, batch: u32) {
        self.host.flush_inline();
        self.complete(slot, batch);
    }

    pub(super) fn complete(&mut self, slot: u8, batch: u32) {
        if self.slot(slot).complete(batch) {
            self.host.merge(usize::from(slot));
        }
    }
}
