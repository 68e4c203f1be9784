// SPDX-License-Identifier: GPL-2.0

//! The start and the end of splitting a flow: the events of `transitions.rs`, and the only place where the state of a flow changes.

use super::dispatcher::{Dispatched, Host, Step, IDLE_MS};
use super::fenced_flows::Fenced;
use super::state::{Carrier, Draining, FlowState, Probing, SlotCounts, Split, Stopping};
use super::table::{Flow, Window};
use super::transitions::{Event, Transition, TRANSITIONS};
use crate::algo::counters::Counter;
use crate::algo::headers::hint::Hint;
use crate::algo::lanes::queue::Packet;
use crate::algo::merge::slot::{PathFault, Slot, INLINE, WINDOW_BATCHES};
use crate::algo::report::reason::{Hold, Reason};
use crate::algo::tag::{is_before, Tag, TagKind};

/// The number of packets in a row that do not suit, of which the last may be a probe or a fence all the same.
const ANY_KIND_AFTER_PKTS: u16 = 256;
/// The time for which packets may be dispatched without one reaching the merge point.
const PATH_LOST_MS: u32 = 1_000;
/// The longest time that a flow stays on the ordinary path before it is tried again.
const MOST_HOLD_MS: u32 = 3_600_000;
/// The most doublings of a hold. [`MOST_HOLD_MS`] is reached before.
const MOST_DOUBLINGS: u8 = 10;

impl Flow {
    /// Returns whether a packet can be a probe or a fence. Packets of a connection that begins or ends may never reach a merge
    /// point, and a lost fence holds up the packets behind it until the deadline.
    fn suits(&mut self, packet: &impl Packet) -> bool {
        let in_a_row = self.unsuited_pkts + 1;
        let suits = packet.may_merge() || in_a_row == ANY_KIND_AFTER_PKTS;
        self.unsuited_pkts = if suits { 0 } else { in_a_row };
        suits
    }

    /// Keeps the flow on the ordinary path for as long as the reason says.
    fn hold_for(&mut self, reason: Reason, now_ms: u32) {
        match reason.hold() {
            Hold::No => {}
            Hold::ForMs(ms) => self.hold(now_ms, ms),
            Hold::FromMs(first_ms) => {
                let ms = first_ms << self.path_faults.min(MOST_DOUBLINGS);
                self.hold(now_ms, ms.min(MOST_HOLD_MS));
                self.path_faults = self.path_faults.saturating_add(1);
            }
        }
    }
}

impl SlotCounts {
    fn of<P: Packet>(slot: &Slot<P>) -> Self {
        let count = |counter| slot.counters.get(counter);
        // CAST: modulo 2^32, as documented.
        Self {
            arrived_pkts: slot.arrived_pkts(),
            late_pkts: count(Counter::LatePkts) as u32,
            given_up_batches: (count(Counter::DeadlineBatches) + count(Counter::OverflowBatches))
                as u32,
        }
    }
}

impl<P: Packet, H: Host<P>> Step<'_, P, H> {
    /// Dispatches a packet that does not just join a lane's open batch. Not inlined: the code for most packets stays short.
    #[inline(never)]
    pub(super) fn on_packet(&mut self, flow: &mut Flow, packet: P) -> Dispatched<P> {
        if let FlowState::Starting(ref mut split) | FlowState::Split(ref mut split) = flow.state {
            split.extend(|| packet.fragment());
            if let Some(reason) = self.cause_to_stop(split) {
                let split = *split;
                let stopping = self.begin_stop(flow, split, reason);
                return self.on_stopping(flow, stopping, packet);
            }
        }
        match flow.state {
            FlowState::Counting => self.on_counting(flow, packet),
            FlowState::Probing(probing) => self.on_probing(flow, probing, packet),
            FlowState::Starting(split) => self.on_starting(flow, split, packet),
            FlowState::Split(ref mut split) => self.on_split(split, packet),
            FlowState::Stopping(stopping) => self.on_stopping(flow, stopping, packet),
            FlowState::Draining(draining) => self.on_draining(flow, draining, packet),
        }
    }

    /// Decides at the end of a window whether a split flow is still fast, and whether its path still suits. Reports the result.
    /// `packet` is the one that has ended the window.
    #[cold]
    pub(super) fn on_window_end(&mut self, flow: &mut Flow, window: Window, packet: &P) {
        if let FlowState::Starting(ref mut split) | FlowState::Split(ref mut split) = flow.state {
            flow.hint = packet.hint();
            let reason = self.judge_window(split, window.pkts, flow.hint);
            if let Some(reason) = reason {
                let split = *split;
                self.begin_stop(flow, split, reason);
            }
        }
        self.report_window(flow, window, packet);
    }

    /// Brings a flow without packets one step nearer to giving its slot back.
    pub(super) fn on_silence(&mut self, flow: &mut Flow) {
        match flow.state {
            FlowState::Counting => {}
            FlowState::Probing(probing) => self.end_probing(flow, probing.slot, Reason::Silent),
            FlowState::Starting(split) | FlowState::Split(split) => {
                let stopping = self.begin_stop(flow, split, Reason::Silent);
                self.on_silent_stopping(flow, stopping);
            }
            FlowState::Stopping(stopping) => self.on_silent_stopping(flow, stopping),
            FlowState::Draining(draining) => {
                self.forget_queued(draining.slot, draining.batch);
                self.release_if_drained(flow, draining.slot, draining.batch);
            }
        }
    }

    /// Enters the state that follows an event.
    fn enter(&mut self, flow: &mut Flow, event: Event, next: FlowState) {
        let transition = Transition {
            from: flow.state.kind(),
            event,
            next: next.kind(),
        };
        // PANIC: where debug assertions are compiled, as in the host's tests.
        debug_assert!(
            TRANSITIONS.contains(&transition),
            "this is not in the table of transitions: {transition:?}"
        );
        self.host.note_transition(flow.place, transition);
        flow.state = next;
    }

    /// Passes a packet on; if the flow is fast, with a probe's tag.
    fn on_counting(&mut self, flow: &mut Flow, mut packet: P) -> Dispatched<P> {
        if flow.pkts == self.wire_pkts {
            // The first of a window: a flow may have another class by now.
            flow.hint = packet.hint();
        }
        self.count_unseen(flow);
        if self.seems_fast(flow) && self.rest.wake(self.now_ms) {
            flow.count_again(self.now_ms, self.wire_pkts);
        }
        let fast = flow.is_fast(flow.pkts, self.config.min_window_pkts);
        if !fast || flow.is_held(self.now_ms) {
            return Dispatched::Ordinary(packet);
        }
        if let Some(reason) = self.cause_to_wait(flow, &packet) {
            // Reported at the end of the window, if the reason still holds then.
            flow.reason = reason;
            return Dispatched::Ordinary(packet);
        }
        if self.host.orders().refuses() {
            self.keep_whole(flow, Reason::CpusBusy);
            self.report_fast(flow, &packet);
            return Dispatched::Ordinary(packet);
        }
        let Some(slot) = self.host.slots().claim() else {
            self.keep_whole(flow, Reason::NoSlot);
            self.report_fast(flow, &packet);
            return Dispatched::Ordinary(packet);
        };
        self.host.note_active(true);
        // Drops what was noted for the slot's last flow.
        self.host.slots().slot(slot).take_path_fault();
        self.host.slots().slot(slot).note_watched_device(0);
        let probe = self.host.slots().next_probe();
        let probing = Probing {
            // CAST: a slot index is below 64.
            slot: slot as u8,
            probe,
            nr_sources: self.host.slots().nr_sources(),
            since_ms: self.now_ms,
        };
        self.enter(flow, Event::Probe, FlowState::Probing(probing));
        flow.reason = Reason::Asked;
        self.report_fast(flow, &packet);
        self.counters.add_owned(Counter::ProbesSent, 1);
        packet.set_tag(Tag::new(TagKind::Probe, slot, probe));
        Dispatched::Ordinary(packet)
    }

    /// Counts the flow's packets that have passed unseen, for which this packet stands.
    fn count_unseen(&self, flow: &mut Flow) {
        let unseen = self.wire_pkts.saturating_mul(self.rest.stands_for() - 1);
        flow.pkts = flow.pkts.saturating_add(unseen);
    }

    /// Returns whether the flow may soon have to be split, so that the source must look at all packets.
    fn seems_fast(&self, flow: &mut Flow) -> bool {
        flow.is_fast(flow.pkts, self.config.min_window_pkts / 2)
            && flow.hint != Hint::Never
            && !flow.is_held(self.now_ms)
            && !self.host.orders().refuses()
    }

    /// Returns the reason why this packet of a fast flow cannot be its probe, if there is one. The next packet may be.
    fn cause_to_wait(&mut self, flow: &mut Flow, packet: &P) -> Option<Reason> {
        if self.config.stopping {
            Some(Reason::SwitchedOff)
        } else if self.lanes.is_empty() {
            Some(Reason::NoLanes)
        } else if flow.hint == Hint::Never {
            Some(Reason::HintNever)
        } else if !flow.suits(packet) {
            Some(Reason::NoData)
        } else if !self.settles() || !self.host.is_clear() {
            Some(Reason::OtherStarts)
        } else {
            None
        }
    }

    /// Returns whether flows of this source may be split. All fences that other sources had sent before this source began must
    /// have passed it. Later fences do not pass it, as their probes have not.
    fn settles(&mut self) -> bool {
        *self.settled = *self.settled || !self.host.slots().awaits_fence();
        *self.settled
    }

    /// Passes a packet on; if the probe has been seen, with a fence's tag.
    fn on_probing(&mut self, flow: &mut Flow, probing: Probing, mut packet: P) -> Dispatched<P> {
        let slot = probing.slot;
        // A source that has begun since may not have seen the probe. If that source is on the flow's path, it splits the flow,
        // too.
        let is_void = probing.nr_sources != self.host.slots().nr_sources();
        if self.config.stopping || is_void {
            let reason = if self.config.stopping {
                Reason::SwitchedOff
            } else {
                Reason::New
            };
            self.end_probing(flow, slot, reason);
            return Dispatched::Ordinary(packet);
        }
        if let Some(fault) = self.slot(slot).take_path_fault() {
            self.end_probing(flow, slot, fault.into());
            return Dispatched::Ordinary(packet);
        }
        let tag = Tag::new(TagKind::Probe, usize::from(slot), probing.probe);
        if self.slot(slot).has_seen_probe(tag.batch_bits()) {
            if self.host.is_clear() && self.may_begin(slot) && flow.suits(&packet) {
                let split = self.begin_split(slot);
                if self.host.fences_inner_flows() {
                    self.fenced(slot).add(packet.inner_flow());
                    self.enter(flow, Event::FirstFence, FlowState::Starting(split));
                } else {
                    self.enter(flow, Event::Fence, FlowState::Split(split));
                }
                self.report_change(flow);
                packet.set_tag(Tag::new(TagKind::Fence, usize::from(slot), split.batch));
            }
        } else if self.now_ms.wrapping_sub(probing.since_ms) >= H::PROBE_TIMEOUT_MS {
            self.end_probing(flow, slot, Reason::ProbeUnseen);
        }
        Dispatched::Ordinary(packet)
    }

    /// Ends the probing of a flow, which stays whole.
    fn end_probing(&mut self, flow: &mut Flow, slot: u8, reason: Reason) {
        self.keep_whole(flow, reason);
        self.release(flow, Event::Cause(reason), slot);
    }

    /// Returns whether a slot has room for a start: for the fence, for a lane's batch, and for the inline batch that may have to
    /// follow. There is no room while a core still parks packets of an earlier flow.
    fn may_begin(&self, slot: u8) -> bool {
        const NR_BATCHES: u32 = 3;
        let merge_point = self.slot(slot);
        merge_point.room(merge_point.next(), NR_BATCHES) == NR_BATCHES
    }

    /// Starts splitting behind a fence, which is the packet that is being carried.
    fn begin_split(&mut self, slot: u8) -> Split {
        let merge_point = self.slot(slot);
        let fence = merge_point.next();
        merge_point.begin_start();
        merge_point.open_fence(fence);
        let seen = SlotCounts::of(merge_point);
        let (now_ms, nr_sources) = (self.now_ms, self.host.slots().nr_sources());
        self.work_counts(slot).start(now_ms);
        *self.fenced(slot) = Fenced::NONE;
        if self.host.fences_inner_flows() {
            self.fenced(slot).start(now_ms, nr_sources);
        }
        self.host.orders().begin_flow(usize::from(slot));
        self.counters.add_owned(Counter::FlowsSplit, 1);
        Split {
            slot,
            carrier: None,
            batch: fence,
            left_pkts: 0,
            tail_pkts: 0,
            is_single: false,
            arrived_ms: self.now_ms,
            seen,
        }
    }

    /// Splits a packet whose inner flow has had its fence. Passes any other packet on along the ordinary path, behind the earlier
    /// packets of its inner flow. If that packet suits, it is the fence.
    fn on_starting(&mut self, flow: &mut Flow, mut split: Split, mut packet: P) -> Dispatched<P> {
        // The last number of the window is an inline batch's.
        const NR_BATCHES: u32 = 2;
        let slot = split.slot;
        let (now_ms, nr_sources) = (self.now_ms, self.host.slots().nr_sources());
        if self.fenced(slot).is_void(nr_sources) {
            let stopping = self.begin_stop(flow, split, Reason::New);
            return self.on_stopping(flow, stopping, packet);
        }
        self.fenced(slot).pass_time(now_ms);
        let has_ended = self.fenced(slot).has_ended();
        let inner_flow = packet.inner_flow();
        if !self.fenced(slot).lacks(|| inner_flow) {
            let dispatched = self.on_split(&mut split, packet);
            if has_ended {
                self.enter(flow, Event::Fenced, FlowState::Split(split));
            } else {
                flow.state.renew_starting(split);
            }
            return dispatched;
        }
        if !flow.suits(&packet) {
            return Dispatched::Ordinary(packet);
        }
        if self.window_left(&split) == NR_BATCHES {
            self.end_batch(&mut split);
            split.batch = split.batch.wrapping_add(1);
            self.slot(slot).open_fence(split.batch);
            self.fenced(slot).add(inner_flow);
            flow.state.renew_starting(split);
            packet.set_tag(Tag::new(TagKind::Fence, usize::from(slot), split.batch));
        } else {
            // Later packets must not overtake this one. The window has room again when the oldest batch has come, or is given up.
            self.fenced(slot).extend();
        }
        Dispatched::Ordinary(packet)
    }

    /// Returns why the flow is not to be split any more, before its next packet is carried.
    fn cause_to_stop(&self, split: &Split) -> Option<Reason> {
        if self.config.stopping {
            return Some(Reason::SwitchedOff);
        }
        // Looks between two batches only: most packets of a batch do not come here.
        let looks = split.left_pkts == 0;
        if !looks {
            return None;
        }
        let fault = self.slot(split.slot).take_path_fault();
        let order = self.host.orders().order(usize::from(split.slot));
        fault
            .map(Reason::from)
            .or_else(|| order.stops.then_some(Reason::CpusBusy))
    }

    fn judge_window(&mut self, split: &mut Split, window_pkts: u32, hint: Hint) -> Option<Reason> {
        let counts = SlotCounts::of(self.slot(split.slot));
        let added = counts.since(split.seen);
        split.seen = counts;
        self.work_counts(split.slot).add_window(added);
        if added.arrived_pkts != 0 {
            split.arrived_ms = self.now_ms;
        }
        let is_slow = window_pkts < self.config.min_window_pkts / 2 && hint != Hint::Split;
        if self.now_ms.wrapping_sub(split.arrived_ms) >= PATH_LOST_MS {
            Some(Reason::PathLost)
        } else if added.given_up_batches == 0 && added.late_pkts > window_pkts / 2 {
            // Lanes completed batches before all of their packets came: the path holds packets where no hook sees it.
            Some(PathFault::Queues.into())
        } else if hint == Hint::Never {
            Some(Reason::HintNever)
        } else if is_slow {
            Some(Reason::Slow)
        } else {
            None
        }
    }

    /// Notes and counts the reason why a flow is not split. Keeps the flow on the ordinary path for as long as the reason says.
    fn keep_whole(&mut self, flow: &mut Flow, reason: Reason) {
        if let Some(counter) = reason.counter() {
            self.counters.add_owned(counter, 1);
        }
        flow.hold_for(reason, self.now_ms);
        flow.reason = reason;
    }

    fn begin_stop(&mut self, flow: &mut Flow, mut split: Split, reason: Reason) -> Stopping {
        self.counters.add_owned(Counter::FlowsStopped, 1);
        if reason.hold() == Hold::No {
            // The path has proved itself.
            flow.path_faults = 0;
        }
        self.keep_whole(flow, reason);
        let is_inline = split.carrier == Some(Carrier::Inline);
        if !is_inline {
            self.end_batch(&mut split);
        }
        let stopping = Stopping {
            slot: split.slot,
            is_open: is_inline,
            batch: split.batch,
            since_ms: self.now_ms,
        };
        self.enter(flow, Event::Cause(reason), FlowState::Stopping(stopping));
        self.report_change(flow);
        stopping
    }

    /// Carries a packet inline until all earlier packets have been delivered. A packet whose inner flow was never split takes the
    /// ordinary path.
    fn on_stopping(
        &mut self,
        flow: &mut Flow,
        mut stopping: Stopping,
        mut packet: P,
    ) -> Dispatched<P> {
        let slot = stopping.slot;
        if self.now_ms.wrapping_sub(stopping.since_ms) >= IDLE_MS {
            // Perhaps no packet of the flow reaches the merge point any more, and then nothing starts the deadline.
            self.give_up_missing(stopping);
        }
        if stopping.is_open && self.slot(slot).next() == stopping.batch {
            self.host.flush_inline();
            if self.slot(slot).is_drained_up_to(stopping.batch) {
                // Packets that are still under way were queued on the ordinary path, which this packet takes, too.
                self.end_inline_batch(slot, stopping.batch);
                self.host.keep_behind_inline();
                let draining = Draining {
                    slot,
                    batch: stopping.batch,
                    since_ms: self.now_ms,
                };
                self.enter(flow, Event::Delivered, FlowState::Draining(draining));
                self.report_change(flow);
                return self.on_draining(flow, draining, packet);
            }
        }
        if self.fenced(slot).lacks(|| packet.inner_flow()) {
            // Earlier packets of its inner flow wait on the ordinary path. If this packet went inline, it would overtake them.
            if !stopping.is_open {
                self.release_if_drained(flow, slot, stopping.batch);
            }
            return Dispatched::Ordinary(packet);
        }
        if !stopping.is_open {
            // There is a number left: lanes never get the last one.
            stopping.batch = self.open_batch(slot, stopping.batch, INLINE, None);
            stopping.is_open = true;
            flow.state.renew_stopping(stopping);
        }
        packet.set_tag(Tag::new(TagKind::Split, usize::from(slot), stopping.batch));
        self.inline(packet)
    }

    fn on_silent_stopping(&mut self, flow: &mut Flow, mut stopping: Stopping) {
        let Stopping { slot, batch, .. } = stopping;
        let merge_point = self.slot(slot);
        // The inline batch ends only in its turn, and only if the window has room for the batch that the next packet would open.
        let may_end =
            merge_point.next() == batch && merge_point.room(batch.wrapping_add(1), 1) == 1;
        if stopping.is_open && may_end {
            self.end_inline_batch(slot, batch);
            stopping.is_open = false;
            flow.state.renew_stopping(stopping);
        }
        self.give_up_missing(stopping);
        self.release_if_drained(flow, slot, batch);
    }

    /// Passes a packet on, and gives the slot back once nothing is missing.
    fn on_draining(&mut self, flow: &mut Flow, draining: Draining, packet: P) -> Dispatched<P> {
        if self.now_ms.wrapping_sub(draining.since_ms) >= IDLE_MS {
            self.forget_queued(draining.slot, draining.batch);
        }
        self.release_if_drained(flow, draining.slot, draining.batch);
        Dispatched::Ordinary(packet)
    }

    /// Gives up packets that were sent towards the merge point long ago and have not come.
    fn give_up_missing(&mut self, stopping: Stopping) {
        let Stopping { slot, batch, .. } = stopping;
        // Fences may have been dropped, with nothing behind them to start the deadline.
        for _ in 0..WINDOW_BATCHES {
            let Some(fence) = self.slot(slot).lonely_fence() else {
                break;
            };
            self.complete(slot, fence);
        }
        self.forget_queued(slot, batch);
    }

    /// Gives up all queued packets of the batches up to `last`. At most one window of batches is open.
    fn forget_queued(&mut self, slot: u8, last: u32) {
        let next = self.slot(slot).next();
        let batches = (0..WINDOW_BATCHES).map(|ahead| next.wrapping_add(ahead));
        for batch in batches.take_while(|batch| !is_before(last, *batch)) {
            if self.slot(slot).forget_queued(batch) {
                self.host.merge(usize::from(slot));
            }
        }
    }

    fn release_if_drained(&mut self, flow: &mut Flow, slot: u8, last: u32) {
        if self.slot(slot).is_drained_up_to(last.wrapping_add(1)) {
            self.release(flow, Event::Drained, slot);
        }
    }

    fn release(&mut self, flow: &mut Flow, event: Event, slot: u8) {
        self.enter(flow, event, FlowState::Counting);
        // This comes first: the slot may be another flow's at once.
        self.report_change(flow);
        self.host.orders().end_flow(usize::from(slot));
        self.host.slots().release(usize::from(slot));
        self.host.note_active(false);
    }
}
