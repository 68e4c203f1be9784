// SPDX-License-Identifier: GPL-2.0

//! Where the stack calls us. Contract: `struct mflow_ops` in `include/net/mflow.h`.

use super::skb::SkBuff;
use crate::algo::counters::Counter;
use crate::algo::dispatcher::Dispatched;
use crate::algo::queue::Packet;
use crate::algo::tag::{Tag, TagKind};
use crate::glue::lane::Lane;
use crate::glue::port::Port;
use crate::glue::source::Source;
use crate::glue::{control, ffi, merge, pool};
use core::ffi::{c_uint, c_void};
use core::ptr::NonNull;
use kernel::prelude::*;

static OPS: ffi::mflow_ops = ffi::mflow_ops {
    split_napi: Some(split_napi),
    split_backlog: Some(split_backlog),
    napi_flush: Some(napi_flush),
    napi_del: Some(napi_del),
    want_source: Some(want_source),
    merge: Some(merge_packet),
    passed: Some(passed),
    queued: Some(queued),
    drain: Some(drain),
};

/// The hooks lead to us as long as it lives.
pub(crate) struct Registration(());

impl Registration {
    /// Registers the hooks; EBUSY if another module has.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The operations are static, and unregistered before the module goes.
        kernel::error::to_result(unsafe { ffi::mflow_register(&OPS) })?;
        Ok(Self(()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        control::stop_all();
        // SAFETY: Process context, no locks held.
        unsafe { ffi::mflow_unregister() };
    }
}

/// A packet comes from a NAPI of an opted-in device.
unsafe extern "C" fn split_napi(
    source: *mut c_void,
    _napi: *mut ffi::napi_struct,
    skb: *mut ffi::sk_buff,
) -> bool {
    let Some(skb) = NonNull::new(skb) else {
        return false;
    };
    // SAFETY: A NAPI's source is freed only after it was taken from the NAPI and all polls have ended; the packet is
    // valid, and ours until we say otherwise.
    let dispatched = unsafe {
        let source = &*source.cast::<Source>();
        source.note_gro();
        source.dispatch(SkBuff::from_raw(skb))
    };
    match dispatched {
        Dispatched::ToLane => true,
        Dispatched::Ordinary(packet) | Dispatched::Inline(packet) => {
            // The caller carries it on.
            packet.into_raw();
            false
        }
    }
}

/// A packet of an opted-in device enters the stack, without GRO or behind it.
unsafe extern "C" fn split_backlog(port: *mut c_void, skb: *mut ffi::sk_buff) -> bool {
    let Some(skb) = NonNull::new(skb) else {
        return false;
    };
    // SAFETY: A device's port is freed only after it was taken from the device and all softirqs have ended.
    let port = unsafe { &*port.cast::<Port>() };
    let Some(source) = port.source_of_this_cpu() else {
        return false;
    };
    // SAFETY: Softirqs are disabled and the source is this CPU's; the packet as above.
    let dispatched = unsafe { source.dispatch(SkBuff::from_raw(skb)) };
    let consumed = match dispatched {
        Dispatched::ToLane => true,
        Dispatched::Inline(packet) => {
            // Not through a queue: the batch ends when this call does.
            // SAFETY: Softirqs are disabled; the packet is ours to give.
            unsafe { ffi::mflow_receive_skb(packet.into_raw()) };
            true
        }
        Dispatched::Ordinary(packet) => {
            packet.into_raw();
            false
        }
    };
    // SAFETY: As above. There is no later call for these packets.
    unsafe { source.flush() };
    consumed
}

/// A source's NAPI pauses.
unsafe extern "C" fn napi_flush(source: *mut c_void) {
    // SAFETY: As in `split_napi`; the NAPI is still owned by its poll.
    unsafe { (*source.cast::<Source>()).flush() };
}

/// A NAPI goes away.
unsafe extern "C" fn napi_del(napi: *mut ffi::napi_struct) {
    control::napi_gone(napi);
}

/// A device has a NAPI that we have not seen yet.
unsafe extern "C" fn want_source(port: *mut c_void) {
    // SAFETY: As in `split_backlog`.
    unsafe { (*port.cast::<Port>()).want_napi() };
}

/// A tagged packet has reached its socket.
unsafe extern "C" fn merge_packet(
    sk: *mut ffi::sock,
    skb: *mut ffi::sk_buff,
    lane: *mut c_void,
    pkts: c_uint,
) -> bool {
    let (Some(raw), Some(slots)) = (NonNull::new(skb), pool::slots()) else {
        return false;
    };
    // SAFETY: The packet is valid, and ours until we say otherwise.
    let packet = unsafe { SkBuff::from_raw(raw) };
    let tag = packet.tag();
    match tag.kind() {
        TagKind::Split => {
            if lane.is_null() {
                merge::park_one(packet, sk, pkts);
            } else {
                // SAFETY: The lane is polling on this CPU, and we were called from its poll.
                unsafe { (*lane.cast::<Lane>()).collect(tag, sk, packet, pkts) };
            }
            true
        }
        TagKind::Queued | TagKind::Fence => {
            merge::park_one(packet, sk, pkts);
            arrived(tag);
            true
        }
        TagKind::Probe | TagKind::None => {
            if tag.kind() == TagKind::Probe {
                slots.slot(tag.slot()).note_probe(tag.batch_bits());
            }
            packet.into_raw();
            false
        }
    }
}

/// Notes that a packet which others may wait for is where it belongs.
fn arrived(tag: Tag) {
    let Some(slots) = pool::slots() else {
        return;
    };
    let slot = slots.slot(tag.slot());
    let batch = tag.batch_near(slot.next());
    let its_turn = match tag.kind() {
        TagKind::Queued => slot.note_arrived(batch),
        TagKind::Fence => slot.complete(batch),
        TagKind::Split | TagKind::Probe | TagKind::None => false,
    };
    if its_turn {
        merge::merge(tag.slot());
    }
}

/// A tagged packet has reached a socket that takes it out of turn; it stays the caller's. Softirqs disabled.
unsafe extern "C" fn passed(skb: *mut ffi::sk_buff) {
    let Some(raw) = NonNull::new(skb) else {
        return;
    };
    // SAFETY: The packet is valid, and given back at once.
    let packet = unsafe { SkBuff::from_raw(raw) };
    let tag = packet.tag();
    packet.into_raw();
    arrived(tag);
}

/// A split packet is about to be queued; it stays the caller's. Softirqs disabled.
unsafe extern "C" fn queued(skb: *mut ffi::sk_buff, lane: *mut c_void) {
    let (Some(raw), Some(slots)) = (NonNull::new(skb), pool::slots()) else {
        return;
    };
    // SAFETY: The packet is valid, and given back below.
    let mut packet = unsafe { SkBuff::from_raw(raw) };
    let tag = packet.tag();
    if !lane.is_null() {
        // What came before it in the batch must not be parked after it.
        // SAFETY: The lane is polling on this CPU, and we were called from its poll.
        unsafe { (*lane.cast::<Lane>()).park_collected() };
    }
    let slot = slots.slot(tag.slot());
    slot.note_queued(tag.batch_near(slot.next()));
    packet.set_tag(Tag::new(TagKind::Queued, tag.slot(), tag.batch_bits()));
    packet.into_raw();
}

/// A reader is about to wait. Softirqs disabled.
unsafe extern "C" fn drain(sk: *mut ffi::sock) -> bool {
    let Some(slots) = pool::slots() else {
        return false;
    };
    let mut drained = 0;
    for index in slots.taken() {
        let slot = slots.slot(index);
        if !slot.is_for(sk.addr() as u64) || !slot.is_ready() {
            continue;
        }
        let before = slot.parked_pkts();
        merge::merge(index);
        let pkts = before.saturating_sub(slot.parked_pkts());
        slot.counters
            .add_shared(Counter::ReaderPkts, u64::from(pkts));
        drained += pkts;
    }
    drained > 0
}
