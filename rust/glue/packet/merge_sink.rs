// SPDX-License-Identifier: GPL-2.0

//! The sink of the merge: from the merge point to the socket.

use super::lane_progress::LaneProgress;
use super::pool::{self, Slots};
use crate::algo::counters::Counter;
use crate::algo::lanes::queue::chain::Chain;
use crate::algo::limits::MAX_SLOTS;
use crate::algo::merge::lane_run::Run;
use crate::algo::merge::slot::{GivenUp, LaneId, Merged, PathFault, Sink};
use crate::algo::parked_amount::Amount;
use crate::glue::locks::SoftirqsOff;
use crate::glue::stack::skb::SkBuff;
use crate::glue::stack::socket::Socket;
use crate::glue::stack::{deliver, way};
use crate::glue::{ffi, runtime};
use core::sync::atomic::{AtomicU64, Ordering};

/// Packets delivered in one call, before the merging core goes back to its own lane.
const BUDGET_PKTS: u32 = 512;

/// The latest time stamp that each slot has delivered.
static LATEST_STAMPS_NS: [AtomicU64; MAX_SLOTS] = [const { AtomicU64::new(0) }; MAX_SLOTS];

/// Delivers to sockets and arms the slot's timer.
struct MergeSink {
    slot: usize,
}

impl Sink<SkBuff> for MergeSink {
    fn deliver(&mut self, chain: Chain<SkBuff>) -> Amount {
        // PANIC: the remainder is below the length.
        let latest = &LATEST_STAMPS_NS[self.slot % MAX_SLOTS];
        // ORDERING: Relaxed, both: only the holder of the slot's token delivers.
        let mut stamp_ns = latest.load(Ordering::Relaxed);
        // SAFETY: Softirqs are disabled wherever we merge, and `park` has had each run hold its socket.
        let delivered = unsafe { deliver::deliver(chain, &mut stamp_ns) };
        latest.store(stamp_ns, Ordering::Relaxed);
        delivered
    }

    fn now_us(&mut self) -> u64 {
        runtime::now_us()
    }

    fn timeout_us(&mut self) -> u32 {
        runtime::merge_timeout_us()
    }

    fn lane_progress(&mut self, lane: LaneId) -> u32 {
        LaneProgress::of(lane).get()
    }

    fn arm_deadline(&mut self, after_us: u32) {
        // CAST: a slot index is below 64.
        // SAFETY: May be called in softirq context.
        unsafe { ffi::mflow_deadline_start(self.slot as u32, after_us) };
    }

    fn is_traced(&self) -> bool {
        runtime::merges_are_traced()
    }

    #[cold]
    fn note_merged(&mut self, batch: u32, since_us: Option<u64>) {
        let waited_us = since_us.map_or(0, |since| runtime::now_us().wrapping_sub(since));
        // CAST: a slot index is below 64.
        // SAFETY: May be called in softirq context.
        unsafe { ffi::mflow_trace_merge(self.slot as u32, batch, waited_us) };
    }

    fn note_given_up(&mut self, given_up: GivenUp) {
        let GivenUp {
            batch,
            waited_us,
            parked_pkts,
            has_overflowed,
        } = given_up;
        // CAST: a slot index is below 64.
        let slot = self.slot as u32;
        // SAFETY: May be called in softirq context.
        unsafe { ffi::mflow_trace_given_up(slot, batch, waited_us, parked_pkts, has_overflowed) };
    }

    #[cold]
    fn note_late(&mut self, batch: u32, pkts: u32) {
        // CAST: a slot index is below 64.
        // SAFETY: May be called in softirq context.
        unsafe { ffi::mflow_trace_late(self.slot as u32, batch, pkts) };
    }
}

/// Merges a slot. Softirqs disabled.
pub(crate) fn merge(slots: &Slots, slot: usize) {
    let mut sink = MergeSink { slot };
    if slots.slot(slot).merge(&mut sink, BUDGET_PKTS) == Merged::More {
        // This core goes back to its own packets, and the timer delivers the rest.
        sink.arm_deadline(1);
    }
}

/// Parks a run, and merges if that is needed. Softirqs disabled.
pub(crate) fn park(slots: &Slots, run: Run<SkBuff>) {
    let slot = run.tag.slot();
    if park_without_merging(slots, run) {
        merge(slots, slot);
    }
}

/// Parks a run; true if the caller has to merge its slot soon. Softirqs disabled.
#[must_use]
pub(crate) fn park_without_merging(slots: &Slots, run: Run<SkBuff>) -> bool {
    let Run {
        chain,
        amount,
        tag,
        socket,
    } = run;
    let slot = slots.slot(tag.slot());
    // SAFETY: The socket is the one that the packets' look-up has found in this softirq.
    if !unsafe { deliver::hold_socket(&chain, socket) } {
        slot.counters
            .add_shared(Counter::DroppedDeadSocket, u64::from(amount.pkts()));
        return false;
    }
    // The probe has found that the socket is not chosen by CPU. The option for that (SO_INCOMING_CPU) may have been set since.
    // SAFETY: The socket is the one that the packets' look-up has found in this softirq.
    if unsafe { deliver::is_by_cpu(socket) } {
        slot.note_path_fault(PathFault::Ordered);
    }
    if way::RUNS_TO_COMPLETION {
        // SAFETY: The socket is the one that the packets' look-up has found in this softirq.
        let bytes = unsafe { deliver::receive_bytes(socket) };
        slot.note_receive_pkts(amount.fit_into(bytes));
    }
    slot.note_socket(socket as u64);
    slot.park(tag.batch_near(slot.next()), chain, amount)
}

/// Parks one packet, `pkts` on the wire, that arrives outside of its lane's poll. Merges as needed. Softirqs disabled.
pub(crate) fn park_one(slots: &Slots, mut packet: SkBuff, socket: Socket, pkts: u32) {
    let tag = packet.tag();
    let amount = packet.set_parked(socket, pkts);
    let mut chain = Chain::new();
    chain.push(packet);
    park(
        slots,
        Run {
            chain,
            amount,
            tag,
            socket: socket.number(),
        },
    );
}

/// The merge point. Packets may be parked while it lives.
pub(crate) struct MergePoint(());

impl MergePoint {
    pub(crate) fn new() -> Self {
        Self(())
    }
}

impl Drop for MergePoint {
    /// Delivers the packets that are left. Hooks and lanes are gone by now, but a timer may still be armed.
    fn drop(&mut self) {
        // SAFETY: Process context; nothing starts a timer any more.
        unsafe { ffi::mflow_deadlines_cancel() };
        let _softirqs_off = SoftirqsOff::new();
        for (index, slot) in pool::slots().iter().enumerate() {
            slot.deliver_all(&mut MergeSink { slot: index });
        }
    }
}

/// Merges a slot whose timer has fired. Softirq context.
#[no_mangle]
unsafe extern "C" fn mflow_deadline_expired(slot: kernel::ffi::c_uint) {
    let slots = pool::slots();
    slots.slot(slot as usize).expire();
    merge(slots, slot as usize);
}

ffi::check_export!(mflow_deadline_expired);
