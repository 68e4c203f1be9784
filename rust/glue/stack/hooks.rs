// SPDX-License-Identifier: GPL-2.0

//! The calls from the stack: each hook becomes a call of [`Handlers`], compiled into the hook.

use super::device::Napi;
use super::hook_heads::{BeginsWithHead, BeginsWithPortHead};
use super::request::Request;
use super::skb::{BorrowedSkb, SkBuff};
use super::socket::Socket;
use super::{ffi, way};
use crate::algo::merge::slot::PathFault;
use crate::algo::source::queue_builder::QueueBuilder;
use crate::algo::stage::Stage;
use crate::glue::locks::Rtnl;
use core::ffi::{c_uint, c_void};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use kernel::prelude::*;

/// The work of the module at the hooks. Contract: `struct mflow_ops` in `include/net/mflow.h`.
///
/// A packet that a handler returns goes on in the stack. All but [`napi_gone`](Self::napi_gone) run with softirqs
/// disabled; those that are unsafe rely on more than that:
///
/// 1. With a source: in the poll of its NAPI. With a port: not in a hard interrupt.
/// 2. With a lane: in its poll, on this CPU.
/// 3. With a socket: it is the one that the packet's look-up has found, or the reader's.
pub(crate) trait Handlers {
    /// The type that [`Napi::set_source`] was given.
    type Source: Sync + BeginsWithHead;
    /// The type that [`Device::opt_in`](super::device::Device::opt_in) was given.
    type Port: Sync + BeginsWithPortHead;
    /// The type that [`Worker::start`](super::worker::Worker::start) was given.
    type Lane: Sync;

    /// Takes a packet that comes from a NAPI of an opted-in device, before GRO.
    ///
    /// # Safety: see the trait, 1.
    unsafe fn split_napi(source: &Self::Source, packet: SkBuff) -> Option<SkBuff>;

    /// Notes which core may build the packets of a source's NAPI, as its driver says, which is polling it.
    ///
    /// # Safety: see the trait, 1.
    unsafe fn builder(source: &Self::Source, builder: QueueBuilder);

    /// Returns the place in which a driver describes a packet that it has received, has not built, and could leave to a lane;
    /// nothing if it has to be built here. The place is filled before the source is used again. `header` is what is contiguous
    /// of the packet, from the network header on, and `bytes` the memory that it will hold.
    ///
    /// # Safety: see the trait, 1.
    unsafe fn take_request<'a>(
        source: &'a Self::Source,
        protocol: u16,
        header: &[u8],
        bytes: u32,
    ) -> Option<&'a Request>;

    /// Takes a packet of an opted-in device that enters the stack, without GRO or behind it.
    ///
    /// # Safety: see the trait, 1.
    unsafe fn split_ingress(port: &Self::Port, packet: SkBuff) -> Option<SkBuff>;

    /// Wakes the lanes that got packets, as the source's NAPI pauses.
    ///
    /// # Safety: see the trait, 1.
    unsafe fn napi_flush(source: &Self::Source, ended: bool);

    /// Ends the source of a NAPI that goes, and is disabled. Process context, perhaps under rtnl.
    fn napi_gone(napi: Napi);

    /// Asks for a source for a NAPI of an opted-in device through which a packet came.
    fn want_source(port: &Self::Port);

    /// Takes a tagged packet, `pkts` on the wire, that has reached its socket; `lane` is the one that is polling here, if any.
    ///
    /// # Safety: see the trait, 2 and 3.
    unsafe fn arrived(
        socket: Socket,
        packet: SkBuff,
        lane: Option<&Self::Lane>,
        pkts: u32,
    ) -> Option<SkBuff>;

    /// Notes that a socket takes a tagged packet out of turn.
    fn passed(packet: BorrowedSkb<'_>);

    /// Notes that the path of a split packet, which is queued from here on, or of a probe does not suit; `lane` is the one that
    /// is polling here, if any. The caller may hold locks: nothing may be delivered before it returns.
    ///
    /// # Safety: see the trait, 2.
    unsafe fn unsuited(packet: BorrowedSkb<'_>, lane: Option<&Self::Lane>, fault: PathFault);

    /// Notes that a copy of a fence or of a queued packet goes its own way.
    fn copied(packet: BorrowedSkb<'_>);

    /// Merges for a reader of a socket that is about to wait. Returns whether the reader got something.
    fn drain(socket: Socket) -> bool;

    /// Takes a packet that is not split, and has come to the end of a stage in a lane's poll. `stages` is what takes it on this
    /// CPU.
    ///
    /// # Safety: see the trait, 2. The source is this CPU's, and not in use.
    unsafe fn hand_on(
        stages: &Self::Source,
        lane: &Self::Lane,
        packet: SkBuff,
        stage: Stage,
    ) -> Option<SkBuff>;

    /// Returns whether packets of a split flow are merged for this socket, which is being read, or come to it from a stage.
    fn is_merged(socket: Socket) -> bool;
}

/// The hooks lead to `H` as long as it lives.
pub(crate) struct Registration<H: Handlers>(PhantomData<H>);

impl<H: Handlers> Registration<H> {
    /// Registers the hooks; EBUSY if another module has.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The operations are static, and `drop` unregisters them.
        kernel::error::to_result(unsafe { ffi::mflow_register(Hooks::<H>::OPS) })?;
        Ok(Self(PhantomData))
    }
}

impl<H: Handlers> Drop for Registration<H> {
    fn drop(&mut self) {
        // SAFETY: Process context, no locks held.
        unsafe { ffi::mflow_unregister() };
    }
}

/// Switches the hooks on, where there are no sources; harmless if they are. While they are on, packets have tags only where there are
/// sources. On an error they are off.
pub(crate) fn switch_on(_rtnl: &Rtnl) -> Result {
    // SAFETY: Process context, under rtnl.
    unsafe { way::switch_on() }
}

/// Switches them off, where there are no sources any more; harmless if they are. If flows are not drained, what is left of them may
/// still come to the merge point.
pub(crate) fn switch_off(_rtnl: &Rtnl, are_drained: bool) {
    // SAFETY: Process context, under rtnl.
    unsafe { way::switch_off(are_drained) };
}

/// Starts or ends counting on which CPUs the readers of split flows run. Any context.
pub(crate) fn watch_readers(on: bool) {
    // SAFETY: May be called in any context.
    unsafe { ffi::mflow_watch_readers(on) };
}

/// Returns whether the module has kept the packet, as C wants to know it.
#[inline]
fn is_taken(goes_on: Option<SkBuff>) -> bool {
    match goes_on {
        Some(packet) => {
            // The caller carries it on.
            packet.into_raw();
            false
        }
        None => true,
    }
}

/// The hooks themselves. Each packet that C gives is valid, and ours unless it is returned.
///
/// A source is freed only after it was taken from its NAPI and all polls have ended, a port only after it was taken from
/// its device and all softirqs have ended, a lane only after its worker has stopped: what C passes here is valid.
struct Hooks<H>(PhantomData<H>);

impl<H: Handlers> Hooks<H> {
    const OPS: &'static ffi::mflow_ops = &ffi::mflow_ops {
        split_napi: Some(Self::split_napi),
        builder: Some(Self::builder),
        take_request: Some(Self::take_request),
        split_ingress: Some(Self::split_ingress),
        napi_flush: Some(Self::napi_flush),
        napi_del: Some(Self::napi_del),
        want_source: Some(Self::want_source),
        arrived: Some(Self::arrived),
        passed: Some(Self::passed),
        unsuited: Some(Self::unsuited),
        copied: Some(Self::copied),
        drain: Some(Self::drain),
        hand_on: Some(Self::hand_on),
        list_begins: way::LIST_BEGINS,
        list_ends: way::LIST_ENDS,
        list_arrives: way::LIST_ARRIVES,
        is_merged: Some(Self::is_merged),
    };

    unsafe extern "C" fn split_napi(
        source: *mut c_void,
        _napi: *mut ffi::napi_struct,
        skb: *mut ffi::sk_buff,
    ) -> bool {
        // SAFETY: C calls in the poll of the source's NAPI, with a valid source, and gives us the packet.
        is_taken(unsafe { H::split_napi(&*source.cast(), SkBuff::from_raw(skb)) })
    }

    unsafe extern "C" fn builder(source: *mut c_void, builder: c_uint) {
        let builder = QueueBuilder::of_number(u8::try_from(builder).unwrap_or(0));
        // SAFETY: C calls in the poll of the source's NAPI, with a valid source.
        unsafe { H::builder(&*source.cast(), builder) };
    }

    unsafe extern "C" fn take_request(
        source: *mut c_void,
        protocol: u16,
        header: *const c_void,
        header_bytes: c_uint,
        memory_bytes: c_uint,
    ) -> *mut ffi::mflow_request {
        // SAFETY: C calls in the poll of the source's NAPI, with a valid source, and shows us so much of the packet.
        // CAST: 32 bits into a usize.
        let request = unsafe {
            let header = core::slice::from_raw_parts(header.cast(), header_bytes as usize);
            H::take_request(&*source.cast(), protocol, header, memory_bytes)
        };
        request.map_or(ptr::null_mut(), Request::as_raw)
    }

    unsafe extern "C" fn split_ingress(port: *mut c_void, skb: *mut ffi::sk_buff) -> bool {
        // SAFETY: C calls in softirq context, with a valid port, and gives us the packet.
        is_taken(unsafe { H::split_ingress(&*port.cast(), SkBuff::from_raw(skb)) })
    }

    unsafe extern "C" fn napi_flush(source: *mut c_void, ended: bool) {
        // SAFETY: C calls in the poll of the source's NAPI, with a valid source.
        unsafe { H::napi_flush(&*source.cast(), ended) };
    }

    unsafe extern "C" fn napi_del(napi: *mut ffi::napi_struct) {
        if let Some(napi) = NonNull::new(napi) {
            H::napi_gone(Napi(napi));
        }
    }

    unsafe extern "C" fn want_source(port: *mut c_void) {
        // SAFETY: The port is valid.
        H::want_source(unsafe { &*port.cast() });
    }

    unsafe extern "C" fn arrived(
        sk: *mut ffi::sock,
        skb: *mut ffi::sk_buff,
        lane: *mut c_void,
        pkts: c_uint,
    ) -> bool {
        // SAFETY: C gives us the packet with its socket, and a lane only in that lane's poll.
        is_taken(unsafe {
            H::arrived(
                Socket(sk),
                SkBuff::from_raw(skb),
                lane.cast::<H::Lane>().as_ref(),
                pkts,
            )
        })
    }

    unsafe extern "C" fn passed(skb: *mut ffi::sk_buff) {
        // SAFETY: C lends us the packet for this call.
        H::passed(unsafe { BorrowedSkb::from_raw(skb) });
    }

    unsafe extern "C" fn unsuited(skb: *mut ffi::sk_buff, lane: *mut c_void, path: c_uint) {
        let fault = PathFault::of_number(path);
        // SAFETY: C lends us the packet for this call, and gives a lane only in that lane's poll.
        unsafe {
            H::unsuited(
                BorrowedSkb::from_raw(skb),
                lane.cast::<H::Lane>().as_ref(),
                fault,
            )
        };
    }

    unsafe extern "C" fn copied(skb: *mut ffi::sk_buff) {
        // SAFETY: C lends us the packet for this call.
        H::copied(unsafe { BorrowedSkb::from_raw(skb) });
    }

    unsafe extern "C" fn drain(sk: *mut ffi::sock) -> bool {
        H::drain(Socket(sk))
    }

    unsafe extern "C" fn hand_on(
        stages: *mut c_void,
        lane: *mut c_void,
        skb: *mut ffi::sk_buff,
        stage: c_uint,
    ) -> bool {
        let Some(stage) = Stage::of_number(stage) else {
            return false;
        };
        // SAFETY: C calls in the lane's poll, with what this CPU's stages are, and gives us the packet. Sources call nothing
        // that could come back here.
        is_taken(unsafe {
            H::hand_on(&*stages.cast(), &*lane.cast(), SkBuff::from_raw(skb), stage)
        })
    }
    unsafe extern "C" fn is_merged(sk: *mut ffi::sock) -> bool {
        H::is_merged(Socket(sk))
    }
}
