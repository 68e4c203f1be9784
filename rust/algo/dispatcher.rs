// SPDX-License-Identifier: GPL-2.0

//! The dispatcher: decides for each packet of a source where it is carried on.
//!
//! A flow is split once it is fast, and only after a probe of it has reached a merge point on this host. It starts
//! behind a *fence*: the last packet on the ordinary path is a micro-flow of its own that is complete when it arrives,
//! so nothing that is split overtakes what was on its way. It stops by carrying its packets on this core (*inline*)
//! as the last micro-flow until all others have been delivered; what follows untagged is behind them.
//!
//! A batch goes to a lane only if the lane's ring has room for all of it; otherwise this core is the batch's lane. So
//! nothing is lost that the ordinary path would have kept. An open batch holds nobody up (its packets are delivered as
//! they come), so a flow may pause in the middle of one for as long as it likes.

use super::counters::{Counter, Counters};
use super::flow_key::FlowKey;
use super::flow_table::{Flow, FlowState, FlowTable, INLINE};
use super::lane_set::LaneSet;
use super::queue::Packet;
use super::slot::{Slot, ORDINARY_PATH, WINDOW_BATCHES};
use super::slot_pool::SlotPool;
use super::tag::{Tag, TagKind};

/// How long a probe may take; then the flow is taken not to end here.
const PROBE_TIMEOUT_MS: u32 = 200;
/// How long a flow whose probe was not seen stays on the ordinary path.
const PROBE_HOLD_MS: u32 = 1_000;
/// After so many packets in a row that do not look as if they arrived, one is taken for a probe or a fence all the same.
const ANY_KIND_AFTER_PKTS: u16 = 256;
/// How long packets may be dispatched without one reaching the merge point.
const PATH_LOST_MS: u32 = 1_000;
/// How long a flow whose path does not suit stays on the ordinary path.
const PATH_HOLD_MS: u32 = 5_000;
/// After how long without packets a flow's slot is given back.
const IDLE_MS: u32 = 1_000;

/// What the dispatcher needs from its surroundings.
pub trait Host<P: Packet> {
    /// Returns a time in milliseconds that grows and wraps; a coarse one will do.
    fn now_ms(&mut self) -> u32;
    /// Returns all slots.
    fn slots(&self) -> &SlotPool<P>;
    /// Returns when what was carried inline so far has reached the merge point, or will never.
    fn flush_inline(&mut self);
    /// Merges `slot`.
    fn merge(&mut self, slot: usize);
    /// A flow of this source has taken (`true`) or given back (`false`) a slot.
    fn note_active(&mut self, taken: bool);
}

/// The knobs that matter per packet.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Packets in a batch.
    pub batch_pkts: u32,
    /// Packets in a [`RATE_WINDOW_MS`](super::flow_table::RATE_WINDOW_MS) that make a flow fast.
    pub min_window_pkts: u32,
    /// No flow may be split any more.
    pub stopping: bool,
}

/// Where a packet goes.
#[derive(Debug)]
pub enum Dispatched<P> {
    /// To a lane; it is no longer ours.
    ToLane,
    /// Along the ordinary path, untagged or as a probe or fence.
    Ordinary(P),
    /// Carried to the merge point by this core, in this call or by the next [`Host::flush_inline`].
    Inline(P),
}

/// The dispatcher of one source. Used in one context at a time.
pub struct Dispatcher<P: Packet> {
    table: FlowTable,
    /// The lanes.
    pub lanes: LaneSet<P>,
    reaped_ms: u32,
    /// What has happened here; written by the source's context only.
    pub counters: Counters,
}

impl<P: Packet> Dispatcher<P> {
    /// Returns a dispatcher that has seen no flow and has no lanes.
    pub fn new() -> Self {
        Self {
            table: FlowTable::new(),
            lanes: LaneSet::new(),
            reaped_ms: 0,
            counters: Counters::new(),
        }
    }

    /// Decides where a packet goes.
    #[inline]
    pub fn dispatch<H: Host<P>>(
        &mut self,
        host: &mut H,
        config: Config,
        key: FlowKey,
        packet: P,
    ) -> Dispatched<P> {
        let now_ms = host.now_ms();
        let Some(flow) = self.table.find(key, now_ms) else {
            return Dispatched::Ordinary(packet);
        };
        let wire_pkts = packet.wire_pkts();
        let ended = flow.count(now_ms, wire_pkts);
        if ended.is_none() && flow.fills_lane() && !config.stopping {
            // All but one in `batch_pkts` packets of a split flow.
            return push(flow, &mut self.lanes, &self.counters, packet, wire_pkts);
        }
        let mut step = Step {
            flow,
            lanes: &mut self.lanes,
            counters: &self.counters,
            host,
            config,
            now_ms,
            wire_pkts,
        };
        if let Some(pkts) = ended {
            step.end_window(pkts);
        }
        step.carry(packet)
    }

    /// Gives back the slots of flows that have gone quiet. Called about once a second, or when the source ends.
    pub fn reap<H: Host<P>>(&mut self, host: &mut H, config: Config, idle_ms: u32) {
        let now_ms = host.now_ms();
        self.reaped_ms = now_ms;
        for flow in self.table.with_slot() {
            if !flow.is_idle(now_ms, idle_ms) {
                continue;
            }
            let mut step = Step {
                flow,
                lanes: &mut self.lanes,
                counters: &self.counters,
                host,
                config,
                now_ms,
                wire_pkts: 0,
            };
            step.reap();
        }
    }

    /// Calls [`reap`](Self::reap) if it is time to.
    #[inline]
    pub fn reap_if_due<H: Host<P>>(&mut self, host: &mut H, config: Config) {
        if host.now_ms().wrapping_sub(self.reaped_ms) >= IDLE_MS {
            self.reap(host, config, IDLE_MS);
        }
    }
}

impl<P: Packet> Default for Dispatcher<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Puts a packet into the open batch, which is a lane's.
#[inline]
fn push<P: Packet>(
    flow: &mut Flow,
    lanes: &mut LaneSet<P>,
    counters: &Counters,
    mut packet: P,
    wire_pkts: u32,
) -> Dispatched<P> {
    flow.left = flow.left.saturating_sub(wire_pkts);
    flow.room = flow.room.saturating_sub(1);
    packet.set_tag(Tag::new(TagKind::Split, usize::from(flow.slot), flow.batch));
    match lanes.push(flow.lane, packet) {
        Ok(()) => {
            counters.add_owned(Counter::LanePkts, u64::from(wire_pkts));
            Dispatched::ToLane
        }
        // Room was reserved, so this is not reached; if it were, the packet would only be early.
        Err(packet) => inline(counters, packet, wire_pkts),
    }
}

fn inline<P>(counters: &Counters, packet: P, wire_pkts: u32) -> Dispatched<P> {
    counters.add_owned(Counter::InlinePkts, u64::from(wire_pkts));
    Dispatched::Inline(packet)
}

/// All that one step of one flow needs.
struct Step<'a, P: Packet, H> {
    flow: &'a mut Flow,
    lanes: &'a mut LaneSet<P>,
    counters: &'a Counters,
    host: &'a mut H,
    config: Config,
    now_ms: u32,
    // Of the packet that is being carried.
    wire_pkts: u32,
}

impl<P: Packet, H: Host<P>> Step<'_, P, H> {
    #[inline]
    fn slot(&self) -> &Slot<P> {
        self.host.slots().slot(usize::from(self.flow.slot))
    }

    #[inline]
    fn tag(&self, kind: TagKind, number: u32) -> Tag {
        Tag::new(kind, usize::from(self.flow.slot), number)
    }

    /// Carries a packet that does not just go into the open batch.
    #[cold]
    fn carry(&mut self, packet: P) -> Dispatched<P> {
        if self.flow.state == FlowState::Split && !self.config.stopping {
            self.split(packet)
        } else {
            self.other(packet)
        }
    }

    /// Carries a packet of a split flow.
    fn split(&mut self, mut packet: P) -> Dispatched<P> {
        if self.flow.left == 0 {
            if self.slot().take_path_queues() {
                // In order all the same, but at the pace of that queue: no use splitting for it.
                self.counters.add_owned(Counter::PathsAsync, 1);
                self.flow.hold(self.now_ms, PATH_HOLD_MS);
                self.begin_stop();
                return self.stop(packet);
            }
            self.next_batch();
        }
        if self.flow.lane != INLINE {
            let (lanes, counters) = (&mut *self.lanes, self.counters);
            return push(self.flow, lanes, counters, packet, self.wire_pkts);
        }
        self.flow.left = self.flow.left.saturating_sub(self.wire_pkts);
        packet.set_tag(self.tag(TagKind::Split, self.flow.batch));
        self.inline(packet)
    }

    fn inline(&mut self, packet: P) -> Dispatched<P> {
        inline(self.counters, packet, self.wire_pkts)
    }

    /// Ends the open batch and opens another.
    ///
    /// The last number of the window always goes to an inline batch: that one can grow for as long as the window is
    /// full, in order, and slows this core down to the pace of the lanes.
    #[cold]
    fn next_batch(&mut self) {
        let batch_pkts = self.config.batch_pkts.max(1);
        let full = self.window_left() == 0;
        if full && self.flow.open {
            self.counters.add_owned(Counter::BatchesGrown, 1);
        } else {
            self.end_batch();
            self.flow.lane = match self.window_left() {
                0 | 1 => INLINE,
                _ => self.lanes.reserve_batch(batch_pkts).unwrap_or(INLINE),
            };
            self.open_batch();
        }
        self.flow.left = batch_pkts;
        self.flow.room = batch_pkts;
    }

    /// Returns how many more batches may be opened now.
    ///
    /// One place of the window stays free: the merger gives the turn away before it has looked at that batch's place
    /// for the last time.
    fn window_left(&self) -> u32 {
        let ahead = self.flow.batch.wrapping_sub(self.slot().next());
        // A flow whose batches have all been delivered is one behind: `ahead` is -1.
        (WINDOW_BATCHES - 1).saturating_sub(ahead.wrapping_add(1))
    }

    fn open_batch(&mut self) {
        self.flow.batch = self.flow.batch.wrapping_add(1);
        self.flow.open = true;
        let lane = self.lanes.id(self.flow.lane);
        self.slot().open(self.flow.batch, lane);
        self.counters.add_owned(Counter::Batches, 1);
    }

    /// Ends the open batch, if there is one.
    fn end_batch(&mut self) {
        if !self.flow.open {
            return;
        }
        self.flow.open = false;
        if self.flow.lane == INLINE {
            self.host.flush_inline();
            self.complete(self.flow.batch);
        } else {
            let tag = self.tag(TagKind::Split, self.flow.batch);
            self.lanes.end_batch(self.flow.lane, tag, self.flow.room);
        }
        self.flow.left = 0;
        self.flow.room = 0;
    }

    fn complete(&mut self, batch: u32) {
        if self.slot().complete(batch) {
            self.host.merge(usize::from(self.flow.slot));
        }
    }

    /// Carries a packet of a flow that is not split, or shall not be any more.
    fn other(&mut self, packet: P) -> Dispatched<P> {
        match self.flow.state {
            FlowState::Counting => self.count(packet),
            FlowState::Probing => self.probe_pending(packet),
            FlowState::Split => {
                self.begin_stop();
                self.stop(packet)
            }
            FlowState::Stopping => self.stop(packet),
            FlowState::Draining => self.drain(packet),
        }
    }

    fn count(&mut self, mut packet: P) -> Dispatched<P> {
        let fast = self.flow.pkts >= self.config.min_window_pkts;
        if !fast || self.config.stopping || self.lanes.is_empty() || self.flow.is_held(self.now_ms)
        {
            return Dispatched::Ordinary(packet);
        }
        if !self.suits(&packet) {
            return Dispatched::Ordinary(packet);
        }
        let Some(slot) = self.host.slots().claim() else {
            self.counters.add_owned(Counter::NoSlot, 1);
            self.flow.hold(self.now_ms, PROBE_HOLD_MS);
            return Dispatched::Ordinary(packet);
        };
        self.host.note_active(true);
        // CAST: a slot index is below 64.
        self.flow.slot = slot as u8;
        self.flow.state = FlowState::Probing;
        self.flow.since_ms = self.now_ms;
        self.flow.mark = self.host.slots().next_probe();
        self.counters.add_owned(Counter::ProbesSent, 1);
        packet.set_tag(self.tag(TagKind::Probe, self.flow.mark));
        Dispatched::Ordinary(packet)
    }

    fn probe_pending(&mut self, mut packet: P) -> Dispatched<P> {
        if self.config.stopping {
            self.release();
            return Dispatched::Ordinary(packet);
        }
        let seen = self
            .slot()
            .has_seen_probe(self.tag(TagKind::Probe, self.flow.mark).batch_bits());
        if seen {
            if self.suits(&packet) {
                self.start(&mut packet);
            }
        } else if self.now_ms.wrapping_sub(self.flow.since_ms) >= PROBE_TIMEOUT_MS {
            self.release();
            self.flow.hold(self.now_ms, PROBE_HOLD_MS);
        }
        Dispatched::Ordinary(packet)
    }

    /// Returns whether a packet can be a probe or a fence: a flow of an overlay may hold connections that just begin or
    /// end, and what is behind a fence that does not arrive waits for the deadline.
    fn suits(&mut self, packet: &P) -> bool {
        let in_a_row = self.flow.unsuited_pkts + 1;
        let suits = packet.may_merge() || in_a_row == ANY_KIND_AFTER_PKTS;
        self.flow.unsuited_pkts = if suits { 0 } else { in_a_row };
        suits
    }

    /// Starts splitting behind `packet`, which is still on the ordinary path.
    fn start(&mut self, packet: &mut P) {
        let fence = self.slot().next();
        self.flow.state = FlowState::Split;
        self.flow.batch = fence;
        self.flow.mark = fence;
        self.flow.open = false;
        self.flow.left = 0;
        self.flow.since_ms = self.now_ms;
        self.slot().open(fence, ORDINARY_PATH);
        // Of the flow that had the slot before.
        self.slot().take_path_queues();
        self.look_at_slot();
        self.counters.add_owned(Counter::FlowsSplit, 1);
        packet.set_tag(self.tag(TagKind::Fence, fence));
    }

    fn look_at_slot(&mut self) -> (bool, u64, u64) {
        let slot = self.slot();
        let arrived = slot.arrived_pkts();
        let late = slot.counters.get(Counter::LatePkts);
        let given_up = slot.counters.get(Counter::DeadlineBatches)
            + slot.counters.get(Counter::OverflowBatches);
        let flow = &mut *self.flow;
        let change = (
            arrived != flow.arrived_pkts,
            late.wrapping_sub(flow.late_pkts),
            given_up.wrapping_sub(flow.given_up),
        );
        flow.arrived_pkts = arrived;
        flow.late_pkts = late;
        flow.given_up = given_up;
        change
    }

    /// Judges a split flow by the window that has ended: still fast, still on a path that suits?
    #[cold]
    fn end_window(&mut self, pkts: u32) {
        if self.flow.state != FlowState::Split {
            return;
        }
        let (arrives, late_pkts, given_up) = self.look_at_slot();
        if arrives {
            self.flow.since_ms = self.now_ms;
        }
        if self.now_ms.wrapping_sub(self.flow.since_ms) >= PATH_LOST_MS {
            self.counters.add_owned(Counter::PathsLost, 1);
            self.flow.hold(self.now_ms, PATH_HOLD_MS);
            self.begin_stop();
        } else if given_up == 0 && late_pkts > u64::from(pkts / 2) {
            // Completed by the lane and yet not there: something on the path holds packets, and no hook knows.
            self.counters.add_owned(Counter::PathsAsync, 1);
            self.flow.hold(self.now_ms, PATH_HOLD_MS);
            self.begin_stop();
        } else if pkts < self.config.min_window_pkts / 2 {
            self.begin_stop();
        }
    }

    fn begin_stop(&mut self) {
        self.counters.add_owned(Counter::FlowsStopped, 1);
        self.flow.state = FlowState::Stopping;
        self.flow.since_ms = self.now_ms;
        if self.flow.open && self.flow.lane != INLINE {
            self.end_batch();
        }
    }

    /// Carries a packet of a stopping flow: inline until all before it have been delivered.
    fn stop(&mut self, mut packet: P) -> Dispatched<P> {
        if self.now_ms.wrapping_sub(self.flow.since_ms) >= IDLE_MS {
            // Nothing that reaches the merge point may be left of the flow to start the deadline.
            self.give_up_missing();
        }
        if self.flow.open && self.slot().next() == self.flow.batch {
            self.host.flush_inline();
            if self.slot().is_drained_up_to(self.flow.batch) {
                // What is still on its way was queued on the ordinary path, which this packet takes, too.
                self.end_batch();
                self.flow.state = FlowState::Draining;
                self.flow.since_ms = self.now_ms;
                return self.drain(packet);
            }
        }
        if !self.flow.open {
            // There is a number left: lanes never get the last one.
            self.flow.lane = INLINE;
            self.open_batch();
        }
        packet.set_tag(self.tag(TagKind::Split, self.flow.batch));
        self.inline(packet)
    }

    /// Passes a packet on, and gives the slot back once nothing is missing.
    fn drain(&mut self, packet: P) -> Dispatched<P> {
        if self.now_ms.wrapping_sub(self.flow.since_ms) >= IDLE_MS {
            self.forget_queued();
        }
        self.release_if_drained();
        Dispatched::Ordinary(packet)
    }

    /// Gives up what was sent towards the merge point long ago and has not come.
    fn give_up_missing(&mut self) {
        // The fence itself may have been dropped, with nothing behind it to start the deadline.
        let fence = self.flow.mark;
        if self.slot().next() == fence && self.slot().parked_pkts() == 0 {
            self.complete(fence);
        }
        self.forget_queued();
    }

    fn forget_queued(&mut self) {
        let mut batch = self.slot().next();
        while batch != self.flow.batch.wrapping_add(1) {
            if self.slot().forget_queued(batch) {
                self.host.merge(usize::from(self.flow.slot));
            }
            batch = batch.wrapping_add(1);
        }
    }

    fn release_if_drained(&mut self) {
        let after = self.flow.batch.wrapping_add(1);
        if self.slot().is_drained_up_to(after) {
            self.release();
        }
    }

    /// Brings a flow without packets one step nearer to giving its slot back.
    fn reap(&mut self) {
        match self.flow.state {
            FlowState::Counting => {}
            FlowState::Probing => self.release(),
            FlowState::Draining => {
                self.forget_queued();
                self.release_if_drained();
            }
            FlowState::Split | FlowState::Stopping => {
                if self.flow.state == FlowState::Split {
                    self.begin_stop();
                }
                // Not before its turn: the next packet would open another one, and the window could be full.
                if self.flow.lane != INLINE || self.slot().next() == self.flow.batch {
                    self.end_batch();
                }
                self.give_up_missing();
                self.release_if_drained();
            }
        }
    }

    fn release(&mut self) {
        self.flow.state = FlowState::Counting;
        self.host.slots().release(usize::from(self.flow.slot));
        self.host.note_active(false);
    }
}
