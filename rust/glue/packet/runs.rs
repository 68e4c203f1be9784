// SPDX-License-Identifier: GPL-2.0

//! The packets that lanes have brought to the merge point of a CPU, where the stack does not [run to
//! completion](way::RUNS_TO_COMPLETION): they arrive in polls of the stack's queues, between the polls of the lane. Each CPU
//! collects them. It parks them together a turn of polls later, or when their lane ends the batch.

use super::merge_sink;
use super::pool::Slots;
use crate::algo::merge::lane_run::Collector;
use crate::glue::stack::skb::SkBuff;
use crate::glue::stack::socket::Socket;
use crate::glue::stack::way;
use core::ptr::NonNull;

const _: () = assert!(size_of::<Collector<SkBuff>>() <= way::COLLECTOR_BYTES);

/// Takes a packet, `pkts` on the wire, that a lane has sent to the merge point.
///
/// # Safety: softirqs are disabled.
#[inline]
pub(crate) unsafe fn collect(slots: &Slots, mut packet: SkBuff, socket: Socket, pkts: u32) {
    // SAFETY: By the contract.
    let Some(collector) = (unsafe { way::collector_here() }) else {
        return merge_sink::park_one(slots, packet, socket, pkts);
    };
    let tag = packet.tag();
    let amount = packet.set_parked(socket, pkts);
    let mut collector: NonNull<Collector<SkBuff>> = collector.cast();
    // SAFETY: There is room for one, and zeros are an empty one. It is this CPU's, and softirqs are disabled.
    let before = unsafe { collector.as_mut() }.add(tag, socket.number(), packet, amount);
    if let Some(run) = before {
        merge_sink::park(slots, run);
    }
}

/// Parks what has been collected on this CPU.
///
/// # Safety: softirqs are disabled.
#[inline]
pub(crate) unsafe fn park_here(slots: &Slots) {
    // SAFETY: By the contract.
    if let Some(collector) = unsafe { way::collector_here() } {
        // SAFETY: It is this CPU's, and softirqs are disabled.
        unsafe { park(slots, collector.cast()) };
    }
}

/// # Safety: the collector is nobody else's meanwhile; softirqs are disabled.
unsafe fn park(slots: &Slots, mut collector: NonNull<Collector<SkBuff>>) {
    // SAFETY: By the contract. The borrow ends before packets are merged, which may collect others.
    let run = unsafe { collector.as_mut() }.take();
    if let Some(run) = run {
        merge_sink::park(slots, run);
    }
}

/// Parks what has been collected.
///
/// # Safety: called by C with a collector that is nobody else's meanwhile; softirqs are disabled.
#[cfg(mflow_stock)]
#[no_mangle]
unsafe extern "C" fn mflow_run_park(collector: *mut kernel::ffi::c_void) {
    if let Some(collector) = NonNull::new(collector) {
        // SAFETY: By the contract.
        unsafe { park(super::pool::slots(), collector.cast()) };
    }
}

#[cfg(mflow_stock)]
crate::glue::ffi::check_export!(mflow_run_park);
