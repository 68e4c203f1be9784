// SPDX-License-Identifier: GPL-2.0

//! The way through what an unpatched kernel offers to modules (`c-shims/stock`): the same names as `way_patched.rs`.
//!
//! The tag travels in the packet's security mark. No bindgen knows here where a packet's fields are. C gives the places of the
//! fields that are read for each packet, and has functions that read the others.

use super::device::Watch;
use super::ffi::{mflow_worker, net_device, sk_buff, sock};
use super::hook_heads::BeginsWithHead;
use super::optional_calls::{NapiNumbers, ProbeNotes, Redirection};
use crate::algo::headers::hint::HINT_BYTES;
use crate::algo::knobs::{Build, Knobs, Mode, Scaling};
use crate::algo::tag::Tag;
use core::ffi::c_void;
use core::num::NonZeroU32;
use core::ptr::{self, NonNull};
use kernel::bindings as ffi;
use kernel::error::{to_result, Result};

/// The name of this way into the stack in the file `version`.
pub(crate) const NAME: &str = "stock";
/// The list of what is missing, for the file `version`.
pub(crate) const MISSING: &str =
    "without: mode falcon-dev and falcon-func; building of packets by lanes but with build lane; parallel work in UDP, TCP and sockets";
/// True if all packets that a lane or [`carry`](super::deliver::carry) gives to the stack have reached their end when the call
/// returns.
pub(crate) const RUNS_TO_COMPLETION: bool = false;
/// True if packets come to a device's ingress through GRO, which has verified their checksums. Lanes have GRO here, and it is off at
/// the device.
pub(crate) const GRO_PRECEDES_INGRESS: bool = false;
/// True if a flow's slot says in which form its datagrams go on; else it is seen to where they are shown to GRO.
pub(crate) const SLOTS_SAY_FORMS: bool = false;
/// True if sources of NAPIs are found by the number in a packet, behind GRO. The packet may have come by a roundabout way, so
/// sources are taken before they are used.
pub(crate) const FINDS_SOURCES_BY_NUMBER: bool = NAPI_NUMBERS.is_some();

/// True if a fence waits until all queues of its CPU are through, and no flow gets a fence if its path has queues on other CPUs.
pub(crate) const FENCES_WAIT: bool = true;

/// The time that a probe may take, in milliseconds: it waits until the CPU's queues are through, for as many polls as the longest
/// queue could take, and packets of a busy NIC are received in each of them.
pub(crate) const PROBE_TIMEOUT_MS: u32 = 1_000;

/// Returns whether no packets are held on this CPU's ordinary path, so that a probe or a fence would wait for nothing but the
/// queues.
///
/// # Safety: softirqs are disabled.
#[inline]
pub(crate) unsafe fn is_clear() -> bool {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_hold_is_clear() }
}

/// Makes packets that take the ordinary path of this CPU wait until the CPU's queues are through with the packets carried inline.
///
/// # Safety: softirqs are disabled.
#[inline]
pub(crate) unsafe fn keep_behind_inline() {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_hold_begin() };
}

/// Registers the hooks, which nobody but us has, to begin to split. On an error no hook is registered.
///
/// # Safety: rtnl is held, and there is no source.
pub(super) unsafe fn switch_on() -> Result {
    // SAFETY: By the contract.
    to_result(unsafe { ffi::mflow_switch_on() })
}

/// Unregisters the hooks. If flows are not drained, the hooks that merge stay.
///
/// # Safety: rtnl is held, and there is no source.
pub(super) unsafe fn switch_off(is_drained: bool) {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_switch_off(is_drained) };
}

/// Does nothing: each device has a hook of its own.
pub(crate) fn look_behind_gro(_look: bool) {}

/// There is none: lists begin at a receive handler of ours.
pub(super) const LIST_BEGINS: Option<unsafe extern "C" fn(*mut sk_buff)> = None;

/// There is none: lists end at our hook.
pub(super) const LIST_ENDS: Option<unsafe extern "C" fn(*mut sk_buff)> = None;

/// There is none: no socket sees a list.
pub(super) const LIST_ARRIVES: Option<unsafe extern "C" fn(*const sock, *mut sk_buff)> = None;

/// Lets the GRO that lanes have be as the operator wants that of the device.
///
/// # Safety: in a poll of a lane; the device is there.
#[inline]
pub(super) unsafe fn lend_gro(dev: *const net_device) {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_device_lend_gro(dev) };
}

/// Returns nothing: lists begin behind all that looks at a device's packets.
#[inline]
pub(super) unsafe fn watch(_dev: *const net_device) -> Watch {
    Watch::Nothing
}

/// Returns false: nothing is watched.
pub(super) unsafe fn may_be_tapped(_skb: NonNull<sk_buff>) -> bool {
    false
}

/// There is none: C notes probes where they have left the hold, and where they end.
pub(super) const PROBE_NOTES: Option<ProbeNotes> = None;

/// Returns why knobs cannot be had on this kernel, if they cannot.
pub(crate) fn refusal(knobs: &Knobs) -> Option<&'static str> {
    if knobs.mode != Mode::Mflow {
        Some("mode: allowed mflow, as this kernel is without the hooks that stages need")
    } else {
        None
    }
}

/// Returns whether packets are to be redirected to a device of ours before they are built, so that lanes can build them. It is not done
/// unasked: drivers do without some offloads then.
pub(crate) fn redirects(knobs: &Knobs) -> bool {
    knobs.build == Build::Lane && knobs.scaling == Scaling::Path
}

/// The calls that redirect packets to a device of ours before they are built.
pub(super) const REDIRECTION: Option<Redirection> = Some(Redirection {
    begin: redirect,
    dispatch_early,
    end: end_redirect,
    wait_ended: wait_redirects_ended,
});

/// # Safety: see [`Redirection`].
unsafe fn redirect(dev: *mut net_device) -> Result {
    // SAFETY: By the contract.
    to_result(unsafe { ffi::mflow_device_redirect(dev) })
}

/// # Safety: see [`Redirection`].
unsafe fn dispatch_early(dev: *mut net_device) {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_device_dispatch_early(dev) };
}

/// # Safety: see [`Redirection`].
unsafe fn end_redirect(dev: *mut net_device) {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_device_end_redirect(dev) };
}

fn wait_redirects_ended() {
    // SAFETY: It waits for work of the module's own queue, which is there as long as the module is; any process may.
    unsafe { ffi::mflow_xdp_wait() };
}

/// The size in bytes of the memory in which packets are collected. CAST: a small constant.
pub(crate) const COLLECTOR_BYTES: usize = 8 * ffi::MFLOW_COLLECTOR_WORDS as usize;

/// Returns the place in which packets are collected on this CPU before they are parked, if they are: memory that begins as zeros.
///
/// # Safety: softirqs are disabled.
#[inline]
pub(crate) unsafe fn collector_here() -> Option<NonNull<c_void>> {
    // SAFETY: By the contract.
    NonNull::new(unsafe { ffi::mflow_run_here() })
}

/// Schedules a source to be flushed a turn of polls later, so that lanes are woken once for many packets. Returns whether that will
/// be done; if not, the caller flushes.
///
/// # Safety: softirqs are disabled. The source has just dispatched a packet, and is not in use here.
#[inline]
pub(crate) unsafe fn flush_later<S: BeginsWithHead>(source: &S) -> bool {
    // SAFETY: By the contract softirqs are disabled, so the run is this CPU's. It forgets the source before that ends
    // (`forget_flushes`).
    unsafe { ffi::mflow_run_flush_later(ptr::from_ref(source).cast_mut().cast()) };
    true
}

/// Forgets a source that CPUs were to flush and have not begun to flush. Process context.
pub(crate) fn forget_flushes<S: BeginsWithHead>(source: &S) {
    // SAFETY: Its address is only compared.
    unsafe { ffi::mflow_run_forget(ptr::from_ref(source).cast_mut().cast()) };
}

/// Queues a packet behind those that wait on the ordinary path of another CPU. Returns whether the packet was queued, and so is
/// given away.
///
/// # Safety: softirqs are disabled, it is a possible CPU, and the packet comes from a hook at the device's ingress.
pub(super) unsafe fn keep_behind(skb: NonNull<sk_buff>, cpu: u32) -> bool {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_hold_back_on(cpu, skb.as_ptr()) }
}

/// The calls that tell which numbers packets can have of their NAPIs.
pub(super) const NAPI_NUMBERS: Option<NapiNumbers> = Some(NapiNumbers {
    is_there: napi_is_there,
    has_device: has_numbers,
});

fn napi_is_there(number: NonZeroU32) -> bool {
    // SAFETY: Process context.
    unsafe { ffi::mflow_napi_is_there(number.get()) }
}

/// # Safety: see [`NapiNumbers`].
unsafe fn has_numbers(dev: *const net_device) -> bool {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_device_has_napi_id(dev) }
}

/// Begins to wait until all packets have arrived that the worker has received of a batch. Its poll is called again and again until
/// [`has_settled`] says so.
///
/// # Safety: called in the worker's poll.
pub(super) unsafe fn settle(worker: *mut mflow_worker, tag: Tag) {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_worker_settle(worker, tag.word()) };
}

/// Returns whether the packets of the batch that [`settle`] was called with have arrived, or do not come any more.
///
/// # Safety: called in the worker's poll.
pub(super) unsafe fn has_settled(worker: *mut mflow_worker) -> bool {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_worker_has_settled(worker) }
}

/// Returns whether the worker is to wait for what it has given to the stack on another CPU, before it carries anything on this one.
/// Its poll is called again and again until this says no.
///
/// # Safety: called in the worker's poll.
pub(super) unsafe fn follows(worker: *mut mflow_worker) -> bool {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_worker_follows(worker) }
}

/// # Safety: the packet is valid, and the caller's; so for all functions here.
#[inline]
pub(super) unsafe fn tag(skb: NonNull<sk_buff>) -> Tag {
    // SAFETY: By the contract.
    Tag::from_word(unsafe { ffi::mflow_skb_tag(skb.as_ptr()) })
}

#[inline]
pub(super) unsafe fn set_tag(skb: NonNull<sk_buff>, tag: Tag) {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_skb_set_tag(skb.as_ptr(), tag.word()) };
}

/// Notes the amount of a packet that is parked, in the place of the tag. No socket is known yet.
#[inline]
pub(super) unsafe fn set_parked(skb: NonNull<sk_buff>, _socket: *mut sock, amount: u32) {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_skb_set_parked(skb.as_ptr(), amount) };
}

/// Returns the offsets of the fields that are read for each packet: a call of C for each would cost more than all else here.
#[inline]
fn layout() -> &'static ffi::mflow_skb_layout {
    // SAFETY: It is a constant of C's, of which all fields are numbers.
    unsafe { &ffi::mflow_skb_layout }
}

/// Returns a field of the packet.
///
/// # Safety: the packet is valid, and has a field of that type there.
#[inline]
unsafe fn field<T: Copy>(skb: NonNull<sk_buff>, offset: u16) -> T {
    // SAFETY: By the contract the field is within the packet and initialized; the compiler of C has aligned it.
    unsafe {
        skb.as_ptr()
            .byte_add(usize::from(offset))
            .cast::<T>()
            .read()
    }
}

/// Returns a field of what the packet shares with its clones: `struct skb_shared_info`, behind the packet's linear part.
///
/// # Safety: the packet is valid, and has a field of that type there.
#[inline]
unsafe fn shared_field<T: Copy>(skb: NonNull<sk_buff>, offset: u16) -> T {
    // SAFETY: The kernel keeps `struct skb_shared_info` at the end of the packet's linear part, which is counted from the head. CAST:
    // 32 bits into a usize.
    unsafe {
        let head: *const u8 = field(skb, layout().head);
        let end: u32 = field(skb, layout().end);
        head.add(end as usize + usize::from(offset))
            .cast::<T>()
            .read()
    }
}

/// Returns how many packets it was on the wire, if that is known; else 0.
#[inline]
pub(super) unsafe fn segments(skb: NonNull<sk_buff>) -> u16 {
    // SAFETY: By the contract the packet is valid, and C says where the field is.
    unsafe { shared_field(skb, layout().gso_segs) }
}

/// Returns whether it was several packets on the wire, and nobody has counted them.
#[inline]
pub(super) unsafe fn lacks_segments(skb: NonNull<sk_buff>) -> bool {
    // SAFETY: By the contract the packet is valid, and C says where the field is.
    unsafe { shared_field::<u16>(skb, layout().gso_size) != 0 && segments(skb) == 0 }
}

/// Returns the Ethernet protocol, in host order.
#[inline]
pub(super) unsafe fn protocol(skb: NonNull<sk_buff>) -> u16 {
    // SAFETY: By the contract the packet is valid, and C says where the field is.
    u16::from_be(unsafe { field(skb, layout().protocol) })
}

#[inline]
pub(super) unsafe fn len(skb: NonNull<sk_buff>) -> u32 {
    // SAFETY: By the contract the packet is valid, and C says where the field is.
    unsafe { field(skb, layout().len) }
}

/// Returns the start of the packet, and the number of its bytes that are there in one piece.
#[inline]
pub(super) unsafe fn linear(skb: NonNull<sk_buff>) -> (*const u8, u32) {
    // SAFETY: By the contract the packet is valid, and C says where the field is.
    unsafe {
        let paged: u32 = field(skb, layout().data_len);
        (field(skb, layout().data), len(skb).wrapping_sub(paged))
    }
}

/// Returns how much memory it holds.
#[inline]
pub(super) unsafe fn truesize(skb: NonNull<sk_buff>) -> u32 {
    // SAFETY: By the contract the packet is valid, and C says where the field is.
    unsafe { field(skb, layout().truesize) }
}

/// Returns the number of its receive queue, counted from 1; 0 if the driver has noted none.
#[inline]
pub(super) unsafe fn rx_queue(skb: NonNull<sk_buff>) -> u16 {
    // SAFETY: By the contract.
    unsafe { ffi::mflow_skb_rx_queue(skb.as_ptr()) }
}

/// Returns the first bytes of what an XDP program of the device's driver has left in front of the packet, if that is so much.
pub(super) unsafe fn metadata(skb: NonNull<sk_buff>) -> Option<[u8; HINT_BYTES]> {
    let mut metadata = [0; HINT_BYTES];
    // SAFETY: By the contract; there is room for this many bytes. CAST: a small constant.
    let has_so_much =
        unsafe { ffi::mflow_skb_metadata(skb.as_ptr(), metadata.as_mut_ptr(), HINT_BYTES as u32) };
    has_so_much.then_some(metadata)
}

/// Returns the place of the first link of a queued packet.
#[inline]
pub(super) unsafe fn next(skb: NonNull<sk_buff>) -> *mut *mut sk_buff {
    // SAFETY: By the contract.
    unsafe { &raw mut (*skb.as_ptr()).next }
}

/// Returns the place of the second link.
#[inline]
pub(super) unsafe fn prev(skb: NonNull<sk_buff>) -> *mut *mut sk_buff {
    // SAFETY: By the contract.
    unsafe { &raw mut (*skb.as_ptr()).prev }
}

/// Returns the place of the device, which is a third link while the packet is parked: C keeps the device elsewhere then.
#[inline]
pub(super) unsafe fn device_link(skb: NonNull<sk_buff>) -> *mut *mut sk_buff {
    // SAFETY: By the contract.
    unsafe { (&raw mut (*skb.as_ptr()).dev_scratch).cast() }
}
