// SPDX-License-Identifier: GPL-2.0

//! From the merge point to the socket.

use super::stack::skb::SkBuff;
use super::{ffi, pool, runtime};
use crate::algo::collector::Run;
use crate::algo::counters::Counter;
use crate::algo::queue::chain::Chain;
use crate::algo::slot::{LaneId, Merged, Sink};

/// Packets delivered in one go before the merging core looks after its own lane again.
pub(crate) const BUDGET_PKTS: u32 = 512;

/// Delivers to sockets and arms the slot's timer.
pub(crate) struct KernelSink {
    slot: usize,
}

impl KernelSink {
    /// Returns the sink of a slot.
    pub(crate) fn new(slot: usize) -> Self {
        Self { slot }
    }
}

impl Sink<SkBuff> for KernelSink {
    fn deliver(&mut self, chain: Chain<SkBuff>) -> u32 {
        // SAFETY: Softirqs are disabled wherever we merge. Packets are linked, and each run's last one holds its
        // socket; we give up ownership of all of them.
        unsafe { ffi::mflow_deliver(chain.into_first()) }
    }

    fn now_us(&mut self) -> u64 {
        runtime::now_us()
    }

    fn timeout_us(&mut self) -> u32 {
        runtime::merge_timeout_us()
    }

    fn lane_progress(&mut self, lane: LaneId) -> u32 {
        super::lane::progress(lane)
    }

    fn arm_deadline(&mut self, after_us: u32) {
        // CAST: a slot index is below 64.
        // SAFETY: May be called in softirq context.
        unsafe { ffi::mflow_deadline_start(self.slot as u32, after_us) };
    }
}

/// Merges a slot. Softirqs disabled.
pub(crate) fn merge(slot: usize) {
    let Some(slots) = pool::slots() else {
        return;
    };
    let mut sink = KernelSink::new(slot);
    if slots.slot(slot).merge(&mut sink, BUDGET_PKTS) == Merged::More {
        // Let others have this core; the timer comes back for the rest.
        sink.arm_deadline(1);
    }
}

/// Parks a run, and merges if that is needed. Softirqs disabled.
pub(crate) fn park(run: Run<SkBuff>) {
    let Some(slots) = pool::slots() else {
        return;
    };
    let Run {
        chain,
        pkts,
        tag,
        socket,
    } = run;
    let slot = slots.slot(tag.slot());
    let held = chain.last_node().is_some_and(|last| {
        // SAFETY: The packet is the chain's; the socket is the one its look-up has found, valid in this softirq.
        unsafe {
            ffi::mflow_skb_hold_socket(
                last.as_ptr(),
                core::ptr::with_exposed_provenance_mut(socket),
            )
        }
    });
    if !held {
        slot.counters
            .add_shared(Counter::DroppedDeadSocket, u64::from(pkts));
        return;
    }
    slot.note_socket(socket as u64);
    if slot.park(tag.batch_near(slot.next()), chain, pkts) {
        merge(tag.slot());
    }
}

/// Parks one packet, `pkts` on the wire, that is not on its lane, and merges as needed.
pub(crate) fn park_one(mut packet: SkBuff, sk: *mut ffi::sock, pkts: u32) {
    let tag = packet.tag();
    packet.set_socket(sk);
    let mut chain = Chain::new();
    chain.push(packet);
    park(Run {
        chain,
        pkts,
        tag,
        socket: sk.expose_provenance(),
    });
}

/// The slot's timer has fired. Softirq context.
#[no_mangle]
unsafe extern "C" fn mflow_deadline_expired(slot: kernel::ffi::c_uint) {
    let Some(slots) = pool::slots() else {
        return;
    };
    slots.slot(slot as usize).expire();
    merge(slot as usize);
}

ffi::check_export!(mflow_deadline_expired);
