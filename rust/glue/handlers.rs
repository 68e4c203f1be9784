// SPDX-License-Identifier: GPL-2.0

//! The work of the module at the hooks.

use super::runtime;
use super::stack::deliver;
use super::stack::device::Napi;
use super::stack::hooks::{Handlers, Registration};
use super::stack::request::Request;
use super::stack::skb::{BorrowedSkb, SkBuff};
use super::stack::socket::Socket;
use super::stack::way;
use crate::algo::counters::Counter;
use crate::algo::flow::dispatcher::Dispatched;
#[cfg(not(mflow_stock))]
use crate::algo::headers::classic_filter::{self, Step};
use crate::algo::lanes::queue::Packet;
use crate::algo::merge::slot::PathFault;
use crate::algo::source::queue_builder::QueueBuilder;
use crate::algo::stage::Stage;
use crate::algo::tag::{Tag, TagKind};
use crate::glue::control::switch;
use crate::glue::packet::lane::{Carries, Lane};
use crate::glue::packet::pool::{self, Slots};
use crate::glue::packet::port::Port;
use crate::glue::packet::source::Source;
use crate::glue::packet::{merge_sink, runs};
#[cfg(mflow_stock)]
use core::ptr;
#[cfg(not(mflow_stock))]
use core::slice;
use kernel::prelude::*;

/// The registration of the handlers, which the hooks call while it lives. Its drop stops all flows, and then removes the hooks.
pub(crate) struct PacketPath {
    _hooks: Registration<Self>,
}

impl PacketPath {
    pub(crate) fn new() -> Result<Self> {
        runtime::seed_flow_keys();
        // CAST: any half of it will do.
        pool::slots().start(|| runtime::random() as u32);
        Ok(Self {
            _hooks: Registration::new()?,
        })
    }
}

impl Drop for PacketPath {
    fn drop(&mut self) {
        switch::stop_all();
    }
}

impl Handlers for PacketPath {
    type Source = Source;
    type Port = Port;
    type Lane = Lane;

    #[inline]
    unsafe fn split_napi(source: &Source, packet: SkBuff) -> Option<SkBuff> {
        if !source.only_dispatches() {
            source.note_gro();
            if source.hands_on() {
                if !source.hands_on_at(Stage::Gro) {
                    return Some(packet);
                }
                // SAFETY: By the contract we are in the poll of the source's NAPI.
                return unsafe { source.hand_on(Stage::Gro, source.device(), packet) };
            }
        }
        // SAFETY: By the contract we are in the poll of the source's NAPI.
        match unsafe { source.dispatch(pool::slots(), packet) } {
            Dispatched::ToLane => None,
            Dispatched::Ordinary(mut packet) => {
                // GRO lets probes and fences pass as they are.
                if packet.tag() != Tag::NONE {
                    // SAFETY: By the contract we are in the poll of the source's NAPI, before GRO.
                    unsafe { packet.note_if_probe() };
                    packet.verify();
                }
                Some(packet)
            }
            Dispatched::Inline(packet) => Some(packet),
            Dispatched::InlineAlone(mut packet) => {
                if !packet.verify() {
                    source.note_in_gro();
                    return Some(packet);
                }
                packet.pull_overlay_headers();
                // SAFETY: By the contract we are in the poll of the source's NAPI, a softirq.
                unsafe {
                    source.flush_noted();
                    deliver::carry(packet);
                }
                None
            }
        }
    }

    unsafe fn builder(source: &Source, builder: QueueBuilder) {
        source.note_builder(builder);
    }

    #[inline]
    unsafe fn take_request<'a>(
        source: &'a Source,
        protocol: u16,
        header: &[u8],
        bytes: u32,
    ) -> Option<&'a Request> {
        // CAST: a small constant.
        let bytes = bytes.wrapping_add(size_of::<Request>() as u32);
        // SAFETY: By the contract we are in the poll of the source's NAPI.
        let request = unsafe { source.take_requests(protocol, header, bytes, 1) }.first()?;
        // SAFETY: The place has just been given to us.
        unsafe { request.set_memory_bytes(bytes) };
        Some(request)
    }

    #[inline]
    unsafe fn split_ingress(port: &Port, mut packet: SkBuff) -> Option<SkBuff> {
        let Some(source) = port.split_source(&packet) else {
            let Some(source) = port.stage_source(&packet) else {
                return Some(packet);
            };
            let Some(_in_use) = source.enter() else {
                return Some(packet);
            };
            // SAFETY: By the contract softirqs are disabled, and the source is this CPU's, or in use by us alone. No later call
            // wakes lanes for it.
            return unsafe {
                let goes_on = source.hand_on(Stage::Nic, source.device(), packet);
                source.wake_next();
                goes_on
            };
        };
        // It may be the probe of a device before this one. If the probe were answered, that device would begin to split, and its
        // fence would overtake the packets in our lanes.
        packet.set_tag(Tag::NONE);
        let slots = pool::slots();
        let dispatched = {
            let Some(_in_use) = source.enter_in_turn() else {
                return Some(packet);
            };
            // SAFETY: By the contract softirqs are disabled, and the source is this CPU's, or in use by us alone.
            unsafe { source.dispatch(slots, packet) }
        };
        let goes_on = match dispatched {
            Dispatched::ToLane => None,
            Dispatched::Inline(mut packet) | Dispatched::InlineAlone(mut packet) => {
                if !way::RUNS_TO_COMPLETION && packet.may_reach_socket() {
                    // It goes through queues, so the batch waits for it.
                    expect(slots, packet.borrow());
                }
                if !way::GRO_PRECEDES_INGRESS {
                    packet.verify();
                }
                // Else it must not go through a queue: the batch ends when this call does.
                // SAFETY: By the contract softirqs are disabled.
                unsafe { deliver::carry(packet) };
                None
            }
            // SAFETY: By the contract softirqs are disabled, and this is where the source's packets come.
            Dispatched::Ordinary(packet) => unsafe {
                packet.note_if_probe();
                source.pass_on(packet)
            },
        };
        // SAFETY: By the contract softirqs are disabled, and the source has just dispatched a packet. No later call ends these packets.
        // If it is flushed here, it is this CPU's.
        unsafe {
            if !way::flush_later(source) {
                source.flush(slots);
            }
        }
        goes_on
    }

    #[inline]
    unsafe fn napi_flush(source: &Source, ended: bool) {
        if source.hands_on_at(Stage::Gro) {
            source.note_cpu();
            // SAFETY: By the contract we are in the poll of the source's NAPI.
            return unsafe { source.wake_next() };
        }
        if source.hands_on() {
            // Behind GRO, lanes are woken with each packet.
            return;
        }
        // SAFETY: By the contract we are in the poll of the source's NAPI.
        unsafe { source.flush(pool::slots()) };
        if ended {
            source.help_readers();
        }
    }

    fn napi_gone(napi: Napi) {
        switch::napi_gone(napi);
    }

    fn want_source(port: &Port) {
        port.want_napi();
    }

    #[inline]
    unsafe fn arrived(
        socket: Socket,
        packet: SkBuff,
        lane: Option<&Lane>,
        pkts: u32,
    ) -> Option<SkBuff> {
        let slots = pool::slots();
        let tag = packet.tag();
        match tag.kind() {
            TagKind::Split => {
                match lane {
                    // SAFETY: By the contract we are in the lane's poll.
                    Some(lane) => unsafe { lane.collect(slots, tag, socket, packet, pkts) },
                    // SAFETY: By the contract softirqs are disabled.
                    None => unsafe { runs::collect(slots, packet, socket, pkts) },
                }
                None
            }
            TagKind::Queued | TagKind::Fence => {
                merge_sink::park_one(slots, packet, socket, pkts);
                note_arrived(slots, tag, pkts);
                None
            }
            TagKind::Probe => {
                let slot = slots.slot(tag.slot());
                slot.note_probe(tag.batch_bits());
                // SAFETY: By the contract it comes from the hook of this socket.
                slot.note_takes_lists(unsafe { packet.suits_lists(socket, tag.slot()) });
                // The first list shows it.
                slot.forget_takes_aggregates();
                Some(packet)
            }
            TagKind::None => Some(packet),
        }
    }

    #[inline]
    fn passed(packet: BorrowedSkb<'_>) {
        let (slots, tag, pkts) = (pool::slots(), packet.tag(), packet.wire_pkts());
        if !way::RUNS_TO_COMPLETION {
            // Data that others may be in front of.
            let late = &slots.slot(tag.slot()).counters;
            late.add_shared(Counter::LatePkts, u64::from(pkts));
        }
        note_arrived(slots, tag, pkts);
    }

    #[inline]
    unsafe fn unsuited(mut packet: BorrowedSkb<'_>, lane: Option<&Lane>, fault: PathFault) {
        let slots = pool::slots();
        let tag = packet.tag();
        slots.slot(tag.slot()).note_path_fault(fault);
        if tag.kind() == TagKind::Probe {
            // It has its answer: the merge point must not give another.
            packet.set_tag(Tag::NONE);
            return;
        }
        // Packets that were collected before this one must not be parked after it. (Where each CPU collects them, the caller
        // holds no locks, so they may be merged here.) Packets of the same call of the stack may still wait to go on. A step that
        // queues only some of these changes their order without mflow, too.
        match lane {
            // SAFETY: By the contract we are in the lane's poll.
            Some(lane) => unsafe { lane.park_collected_without_merging(slots) },
            // SAFETY: By the contract softirqs are disabled.
            None => unsafe { runs::park_here(slots) },
        }
        expect(slots, packet);
    }

    fn copied(packet: BorrowedSkb<'_>) {
        expect(pool::slots(), packet);
    }

    #[inline]
    fn drain(socket: Socket) -> bool {
        let slots = pool::slots();
        let mut drained = 0;
        for index in slots.taken() {
            let slot = slots.slot(index);
            if !slot.is_for(socket.number() as u64) || !slot.is_ready() {
                continue;
            }
            let before = slot.parked_pkts();
            merge_sink::merge(slots, index);
            let pkts = before.saturating_sub(slot.parked_pkts());
            slot.counters
                .add_shared(Counter::ReaderPkts, u64::from(pkts));
            drained += pkts;
        }
        drained > 0
    }

    #[inline]
    unsafe fn hand_on(
        stages: &Source,
        lane: &Lane,
        packet: SkBuff,
        stage: Stage,
    ) -> Option<SkBuff> {
        // All packets that were held take the ordinary path.
        if lane.carries() != Carries::Stage || !stages.hands_on_at(stage) {
            return Some(packet);
        }
        // The end of the lane's poll wakes the next lanes.
        // SAFETY: By the contract the source is this CPU's, and the hook is behind a device.
        unsafe { stages.hand_on(stage, packet.device_index(), packet) }
    }

    fn is_merged(socket: Socket) -> bool {
        let (slots, number) = (pool::slots(), socket.number() as u64);
        slots.taken().any(|slot| slots.slot(slot).is_for(number)) || socket.is_staged()
    }
}

/// Makes the merger wait for a packet that arrives by itself.
fn expect(slots: &Slots, mut packet: BorrowedSkb<'_>) {
    let tag = packet.tag();
    let slot = slots.slot(tag.slot());
    slot.note_queued(tag.batch_near(slot.next()), packet.wire_pkts());
    packet.set_tag(Tag::new(TagKind::Queued, tag.slot(), tag.batch_bits()));
}

/// Notes that a packet, `pkts` on the wire, has arrived for which others may wait. It is rare, so out of line: `arrived`
/// stays short.
#[inline(never)]
fn note_arrived(slots: &Slots, tag: Tag, pkts: u32) {
    let slot = slots.slot(tag.slot());
    let batch = tag.batch_near(slot.next());
    let its_turn = match tag.kind() {
        TagKind::Queued => slot.note_arrived(batch, pkts),
        TagKind::Fence => slot.complete(batch),
        TagKind::Split | TagKind::Probe | TagKind::None => false,
    };
    if its_turn {
        merge_sink::merge(slots, tag.slot());
    }
}

/// Wakes the lanes of a source.
///
/// # Safety: called by C with a source that [`way::flush_later`] was given on the same CPU, or on one that is gone; softirqs are disabled.
#[cfg(mflow_stock)]
#[no_mangle]
unsafe extern "C" fn mflow_run_flush(source: *mut kernel::bindings::mflow_source) {
    // SAFETY: By the contract the source is valid: it does not end before C has forgotten it.
    let source = unsafe { &*source.cast::<Source>() };
    // A user that has the source now has it flushed afterwards.
    if let Some(_in_use) = source.enter() {
        // SAFETY: It is in use by us alone, or it is that of the CPU, where no packets come meanwhile.
        unsafe { source.flush(pool::slots()) };
    }
}

/// Returns the source that takes the packets of a port on this CPU alone, or null: there is none, or other CPUs may use it, too.
///
/// # Safety: called by C with the port of a device that is opted in; softirqs are disabled.
#[cfg(mflow_stock)]
#[no_mangle]
unsafe extern "C" fn mflow_port_source(
    port: *mut kernel::ffi::c_void,
) -> *mut kernel::bindings::mflow_source {
    // SAFETY: By the contract the port is valid.
    let port = unsafe { &*port.cast::<Port>() };
    // A source begins with the fields that C sees.
    let source = port
        .source_of_this_cpu()
        .filter(|source| !source.is_shared());
    source.map_or(ptr::null_mut(), |source| {
        ptr::from_ref(source).cast_mut().cast()
    })
}

/// Reserves places for the next `pkts` packets of the source's NAPI, which are of one flow and not built. `header` is the header
/// of one of them, as for `take_request` in `struct mflow_ops`, and `memory_bytes` the memory of one packet and its place.
/// Returns the first place, and writes the number of consecutive places to `pkts`. The caller fills all of them, with their
/// `memory_bytes`, before its next call for the source. Returns null if the caller has to build the next packet.
///
/// # Safety: called by C in the poll of the source's NAPI, with a valid source; `header_bytes` of the header can be read, and
/// `pkts` is the caller's own variable.
#[cfg(mflow_stock)]
#[no_mangle]
unsafe extern "C" fn mflow_take_requests(
    source: *mut kernel::bindings::mflow_source,
    protocol: u16,
    header: *const kernel::ffi::c_void,
    header_bytes: kernel::ffi::c_uint,
    memory_bytes: kernel::ffi::c_uint,
    pkts: *mut kernel::ffi::c_uint,
) -> *mut kernel::bindings::mflow_request {
    // SAFETY: By the contract the header can be read, the source is valid, and this is its context.
    // CAST: 32 bits into a usize.
    let requests = unsafe {
        let header = core::slice::from_raw_parts(header.cast(), header_bytes as usize);
        let source = &*source.cast::<Source>();
        source.take_requests(protocol, header, memory_bytes, *pkts)
    };
    // SAFETY: By the contract nobody else uses the variable. CAST: no more than was asked for.
    unsafe { *pkts = requests.len() as kernel::ffi::c_uint };
    requests.first().map_or(ptr::null_mut(), Request::as_raw)
}

/// Returns whether a packet socket's filter may take datagrams of a flow, of which this is a frame. The socket shows the filter
/// those bytes that begin at `shown_from`.
///
/// # Safety: called by C, in any context; there are as many steps, and bytes of the frame.
#[cfg(not(mflow_stock))]
#[no_mangle]
unsafe extern "C" fn mflow_filter_may_take(
    steps: *const kernel::bindings::sock_filter,
    nr_steps: kernel::ffi::c_uint,
    frame: *const kernel::ffi::c_void,
    bytes: kernel::ffi::c_uint,
    shown_from: kernel::ffi::c_uint,
) -> bool {
    // SAFETY: By the contract, and `Step` has the fields of `struct sock_filter`. CAST: 32 bits into a usize, both.
    let (steps, frame) = unsafe {
        (
            slice::from_raw_parts(steps.cast::<Step>(), nr_steps as usize),
            slice::from_raw_parts(frame.cast::<u8>(), bytes as usize),
        )
    };
    // CAST: 32 bits into a usize.
    classic_filter::may_take(steps, frame, shown_from as usize)
}

/// Notes whether datagrams of a slot may pass the stack in lists.
///
/// # Safety: called by C, in any context.
#[cfg(not(mflow_stock))]
#[no_mangle]
unsafe extern "C" fn mflow_slot_takes_lists(slot: kernel::ffi::c_uint, takes: bool) {
    // CAST: 32 bits into a usize.
    pool::slots().slot(slot as usize).note_takes_lists(takes);
}

/// Notes whether the socket of a slot's datagrams takes aggregates of them. If one was taken apart on its way, `takes` is false, too.
///
/// # Safety: called by C, in any context.
#[cfg(not(mflow_stock))]
#[no_mangle]
unsafe extern "C" fn mflow_slot_takes_aggregates(slot: kernel::ffi::c_uint, takes: bool) {
    // CAST: 32 bits into a usize.
    pool::slots()
        .slot(slot as usize)
        .note_takes_aggregates(takes);
}

/// Notes that the path of a slot's packets does not suit: `fault` is one of `MFLOW_PATH_*`. No batch waits for a packet because
/// of it.
///
/// # Safety: called by C, in any context.
#[cfg(mflow_stock)]
#[no_mangle]
unsafe extern "C" fn mflow_note_path_fault(slot: kernel::ffi::c_uint, fault: kernel::ffi::c_uint) {
    // CAST: 32 bits into a usize.
    let slot = pool::slots().slot(slot as usize);
    slot.note_path_fault(PathFault::of_number(fault));
}

/// Returns whether a packet with this tag may come: a batch of it is, or was, under way. Counts the packet if not.
///
/// # Safety: called by C, in any context.
#[cfg(mflow_stock)]
#[no_mangle]
unsafe extern "C" fn mflow_tag_may_come(tag: u32) -> bool {
    let tag = Tag::from_word(tag);
    let slot = pool::slots().slot(tag.slot());
    let may = slot.may_come(tag.kind(), tag.batch_near(slot.next()));
    if !may {
        slot.counters.add_shared(Counter::UnknownTags, 1);
    }
    may
}

/// Notes the number of packets that fit into the buffer of the socket to which a slot's packets go; 0 if it is not known.
///
/// # Safety: called by C, in any context.
#[cfg(mflow_stock)]
#[no_mangle]
unsafe extern "C" fn mflow_note_receive_pkts(slot: kernel::ffi::c_uint, pkts: kernel::ffi::c_uint) {
    // CAST: 32 bits into a usize.
    pool::slots().slot(slot as usize).note_receive_pkts(pkts);
}

/// Verifies the checksums of a packet that GRO would have verified.
///
/// # Safety: called by C with a valid packet that is the caller's alone, and begins at its network header.
#[cfg(mflow_stock)]
#[no_mangle]
unsafe extern "C" fn mflow_packet_verify(skb: *mut kernel::bindings::sk_buff) {
    // SAFETY: By the contract.
    unsafe { BorrowedSkb::from_raw(skb) }.verify();
}

#[cfg(not(mflow_stock))]
super::ffi::check_export!(mflow_filter_may_take);
#[cfg(not(mflow_stock))]
super::ffi::check_export!(mflow_slot_takes_lists);
#[cfg(not(mflow_stock))]
super::ffi::check_export!(mflow_slot_takes_aggregates);
#[cfg(mflow_stock)]
super::ffi::check_export!(
    mflow_packet_verify,
    mflow_run_flush,
    mflow_port_source,
    mflow_take_requests,
    mflow_note_path_fault,
    mflow_tag_may_come,
    mflow_note_receive_pkts
);
