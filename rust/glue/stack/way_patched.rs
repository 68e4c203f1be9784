// SPDX-License-Identifier: GPL-2.0

//! The way through the hooks of `c-shims/patches`: what the rest of the boundary has to know of it. `way_stock.rs` has the same
//! names for kernels without the hooks; the build chooses.
//!
//! Tag and links have fields of `struct sk_buff`, which bindgen knows.

use super::device::Watch;
use super::ffi::{mflow_worker, net_device, sk_buff, sock};
use super::optional_calls::{NapiNumbers, ProbeNotes, Redirection};
use crate::algo::headers::hint::HINT_BYTES;
use crate::algo::knobs::Knobs;
use crate::algo::tag::Tag;
use core::ffi::c_void;
use core::ptr::NonNull;
use kernel::bindings::{
    bpf_xdp_mode_XDP_MODE_DRV, mflow_device_watch, mflow_flow_is_tapped, mflow_list_at_begin,
    mflow_list_at_end, mflow_list_at_socket, mflow_look_at_gro_lists, mflow_probe_note,
    mflow_probe_suits_lists, mflow_set_enabled, skb_shared_info, MFLOW_WATCH_FILTERED,
    MFLOW_WATCH_NOTHING,
};
use kernel::error::Result;

/// The name of this way into the stack in the file `version`.
pub(crate) const NAME: &str = "patched";
/// The list of what is missing, for the file `version`.
pub(crate) const MISSING: &str = "";
/// True if all packets that a lane or [`carry`](super::deliver::carry) gives to the stack have reached their end when the call
/// returns.
pub(crate) const RUNS_TO_COMPLETION: bool = true;
/// True if packets come to a device's ingress through GRO, which has verified their checksums.
pub(crate) const GRO_PRECEDES_INGRESS: bool = true;
/// True if a flow's slot says in which form its datagrams go on; else it is seen to where they are shown to GRO.
pub(crate) const SLOTS_SAY_FORMS: bool = true;
/// True if sources of NAPIs that split flows are found by the number in a packet. Here the NAPIs have them.
pub(crate) const FINDS_SOURCES_BY_NUMBER: bool = NAPI_NUMBERS.is_some();
/// There is none: NAPIs are found by the device's list, and say when they go.
pub(super) const NAPI_NUMBERS: Option<NapiNumbers> = None;
/// The promise that a fence waits until all queues of its CPU are through, and that a path with queues on other CPUs has no fence.
pub(crate) const FENCES_WAIT: bool = false;

/// The time that a probe may take, in milliseconds: it passes the packets that are queued on one CPU.
pub(crate) const PROBE_TIMEOUT_MS: u32 = 200;

/// Returns whether a probe or a fence goes on at once. It always does.
#[inline]
pub(crate) unsafe fn is_clear() -> bool {
    true
}

/// Keeps packets that take the ordinary path of this CPU behind the inline packets, which have come through already.
#[inline]
pub(crate) unsafe fn keep_behind_inline() {}

/// Switches the hooks on, which are in the kernel, to begin to split. That cannot fail.
///
/// # Safety: process context.
pub(super) unsafe fn switch_on() -> Result {
    // SAFETY: By the contract.
    unsafe { mflow_set_enabled(true) };
    Ok(())
}

/// Switches the hooks off, whether or not flows are drained.
///
/// # Safety: process context.
pub(super) unsafe fn switch_off(_is_drained: bool) {
    // SAFETY: By the contract.
    unsafe { mflow_set_enabled(false) };
}

/// Lets the hook behind GRO see the packets that have come through GRO, or does not. Any context.
pub(crate) fn look_behind_gro(look: bool) {
    // SAFETY: It may be called in any context.
    unsafe { mflow_look_at_gro_lists(look) };
}

/// The function that is called where a list of datagrams begins.
pub(super) const LIST_BEGINS: Option<unsafe extern "C" fn(*mut sk_buff)> =
    Some(mflow_list_at_begin);

/// The function that is called where a list of packets is taken apart.
pub(super) const LIST_ENDS: Option<unsafe extern "C" fn(*mut sk_buff)> = Some(mflow_list_at_end);

/// The function that is called where a list of datagrams has come to its socket.
pub(super) const LIST_ARRIVES: Option<unsafe extern "C" fn(*const sock, *mut sk_buff)> =
    Some(mflow_list_at_socket);

/// Does nothing: lanes have the device's own GRO.
#[inline]
pub(super) unsafe fn lend_gro(_dev: *const net_device) {}

/// Returns what is watched of the packets that a device receives. Any context.
///
/// # Safety: the device is there.
#[inline]
pub(super) unsafe fn watch(dev: *const net_device) -> Watch {
    // SAFETY: By the contract.
    match unsafe { mflow_device_watch(dev) } {
        MFLOW_WATCH_NOTHING => Watch::Nothing,
        MFLOW_WATCH_FILTERED => Watch::Filtered,
        _ => Watch::All,
    }
}

/// Returns whether a packet socket may take datagrams of the flow of a packet that is about to be received.
///
/// # Safety: softirqs are disabled, and the packet is the caller's.
pub(super) unsafe fn may_be_tapped(skb: NonNull<sk_buff>) -> bool {
    // SAFETY: By the contract.
    unsafe { mflow_flow_is_tapped(skb.as_ptr()) }
}

/// The calls that tell whether probes have come through as they were.
pub(super) const PROBE_NOTES: Option<ProbeNotes> = Some(ProbeNotes {
    note: note_probe,
    suits_lists,
});

/// # Safety: see [`ProbeNotes`].
unsafe fn note_probe(skb: NonNull<sk_buff>, slot: u32) {
    // SAFETY: By the contract.
    unsafe { mflow_probe_note(skb.as_ptr(), slot) };
}

/// # Safety: see [`ProbeNotes`].
unsafe fn suits_lists(skb: NonNull<sk_buff>, socket: *mut sock, slot: u32) -> bool {
    // SAFETY: By the contract.
    unsafe { mflow_probe_suits_lists(skb.as_ptr(), socket, slot) }
}

/// Returns why knobs cannot be had on this kernel, if they cannot.
#[inline]
pub(crate) fn refusal(_knobs: &Knobs) -> Option<&'static str> {
    None
}

/// There is none: drivers ask by themselves who builds their packets.
pub(super) const REDIRECTION: Option<Redirection> = None;

/// Returns whether packets are redirected before they are built.
pub(crate) fn redirects(_knobs: &Knobs) -> bool {
    false
}

/// Nothing is collected by CPU: all is in the poll of a lane, which collects.
pub(crate) const COLLECTOR_BYTES: usize = usize::MAX;

/// Returns nothing: see above.
#[inline]
pub(crate) unsafe fn collector_here() -> Option<NonNull<c_void>> {
    None
}

/// Leaves it to the caller to flush a source: few packets come without a NAPI, or behind its GRO, that has a source of its own.
#[inline]
pub(crate) unsafe fn flush_later<S>(_source: &S) -> bool {
    false
}

/// Does nothing: there are none.
#[inline]
pub(crate) fn forget_flushes<S>(_source: &S) {}

/// Returns false: no packet waits on another CPU.
#[inline]
pub(super) unsafe fn keep_behind(_skb: NonNull<sk_buff>, _cpu: u32) -> bool {
    false
}

/// Begins to wait until the queues of this CPU are through with what the worker has received. It is in no queue here.
#[inline]
pub(super) unsafe fn settle(_worker: *mut mflow_worker, _tag: Tag) {}

/// Returns whether the queues are through. They always are.
#[inline]
pub(super) unsafe fn has_settled(_worker: *mut mflow_worker) -> bool {
    true
}

/// Returns whether the worker is to wait for what it has given to the stack on another CPU: nothing stays there.
#[inline]
pub(super) unsafe fn follows(_worker: *mut mflow_worker) -> bool {
    false
}

/// # Safety: the packet is valid, and the caller's; so for all functions here.
#[inline]
pub(super) unsafe fn tag(skb: NonNull<sk_buff>) -> Tag {
    // SAFETY: By the contract.
    Tag::from_word(unsafe { skb.as_ref().__bindgen_anon_4.headers.as_ref().mflow })
}

#[inline]
pub(super) unsafe fn set_tag(mut skb: NonNull<sk_buff>, tag: Tag) {
    // SAFETY: By the contract.
    unsafe { skb.as_mut().__bindgen_anon_4.headers.as_mut().mflow = tag.word() };
}

/// Notes socket and amount of a packet that is parked, the latter in the place of the tag.
#[inline]
pub(super) unsafe fn set_parked(skb: NonNull<sk_buff>, socket: *mut sock, amount: u32) {
    let skb = skb.as_ptr();
    // SAFETY: By the contract.
    unsafe {
        (*skb).sk = socket;
        (*skb).__bindgen_anon_4.headers.as_mut().mflow = amount;
    }
}

/// Returns the part of the packet that its clones share, which begins where its buffer ends.
#[inline]
unsafe fn shared(skb: NonNull<sk_buff>) -> *mut skb_shared_info {
    // SAFETY: By the contract.
    unsafe {
        let skb = skb.as_ref();
        // CAST: 32 bits into a usize.
        skb.head.add(skb.end as usize).cast()
    }
}

/// Returns how many packets it was on the wire, if that is known, and more than one or known to be one; else 0.
#[inline]
pub(super) unsafe fn segments(skb: NonNull<sk_buff>) -> u16 {
    // SAFETY: By the contract.
    unsafe { (*shared(skb)).gso_segs }
}

/// Returns whether it was several packets on the wire, and nobody has counted them.
#[inline]
pub(super) unsafe fn lacks_segments(skb: NonNull<sk_buff>) -> bool {
    // SAFETY: By the contract.
    unsafe {
        let shared = shared(skb);
        (*shared).gso_size != 0 && (*shared).gso_segs == 0
    }
}

/// Returns the Ethernet protocol, in host order.
#[inline]
pub(super) unsafe fn protocol(skb: NonNull<sk_buff>) -> u16 {
    // SAFETY: By the contract.
    u16::from_be(unsafe { skb.as_ref().__bindgen_anon_4.headers.as_ref().protocol })
}

#[inline]
pub(super) unsafe fn len(skb: NonNull<sk_buff>) -> u32 {
    // SAFETY: By the contract.
    unsafe { skb.as_ref().len }
}

/// Returns the start of the packet, and the number of its bytes that are there in one piece.
#[inline]
pub(super) unsafe fn linear(skb: NonNull<sk_buff>) -> (*const u8, u32) {
    // SAFETY: By the contract.
    let skb = unsafe { skb.as_ref() };
    (skb.data, skb.len.wrapping_sub(skb.data_len))
}

/// Returns how much memory it holds.
#[inline]
pub(super) unsafe fn truesize(skb: NonNull<sk_buff>) -> u32 {
    // SAFETY: By the contract.
    unsafe { skb.as_ref().truesize }
}

/// Returns the number of its receive queue, counted from 1; 0 if the driver has noted none.
#[inline]
pub(super) unsafe fn rx_queue(skb: NonNull<sk_buff>) -> u16 {
    // SAFETY: By the contract.
    unsafe { skb.as_ref().queue_mapping }
}

/// Returns the first bytes of what an XDP program of the device's driver has left in front of the packet, if that is so much.
///
/// Behind a tunnel the kernel still counts such bytes, though others are there now: the device tells.
pub(super) unsafe fn metadata(skb: NonNull<sk_buff>) -> Option<[u8; HINT_BYTES]> {
    // SAFETY: By the contract the packet is valid, and on its way up it has a device. A program that comes or goes is only
    // compared with none. The kernel keeps metadata right in front of the Ethernet header, within the packet's buffer.
    unsafe {
        let fields = skb.as_ref();
        let bytes = usize::from((*shared(skb)).meta_len);
        let end = usize::from(fields.__bindgen_anon_4.headers.as_ref().mac_header);
        let device = fields
            .__bindgen_anon_1
            .__bindgen_anon_1
            .__bindgen_anon_1
            .dev;
        // CAST: a small constant.
        let programs = &raw const (*device).xdp_state[bpf_xdp_mode_XDP_MODE_DRV as usize];
        let has_program = !(&raw const (*programs).prog).read_volatile().is_null()
            || !(&raw const (*programs).link).read_volatile().is_null();
        // Where there is no Ethernet header yet, `end` is the largest number of 16 bits.
        if bytes < HINT_BYTES || bytes > end || end >= usize::from(u16::MAX) || !has_program {
            return None;
        }
        Some(
            fields
                .head
                .add(end - bytes)
                .cast::<[u8; HINT_BYTES]>()
                .read(),
        )
    }
}

/// Returns the place of the first link of a queued packet.
#[inline]
pub(super) unsafe fn next(skb: NonNull<sk_buff>) -> *mut *mut sk_buff {
    // SAFETY: By the contract.
    unsafe { &raw mut (*skb.as_ptr()).__bindgen_anon_1.__bindgen_anon_1.next }
}

/// Returns the place of the second link.
#[inline]
pub(super) unsafe fn prev(skb: NonNull<sk_buff>) -> *mut *mut sk_buff {
    // SAFETY: By the contract.
    unsafe { &raw mut (*skb.as_ptr()).__bindgen_anon_1.__bindgen_anon_1.prev }
}

/// Returns the place of the device, which is a third link while the packet is parked.
#[inline]
pub(super) unsafe fn device_link(skb: NonNull<sk_buff>) -> *mut *mut sk_buff {
    // SAFETY: By the contract; the field is a union of a pointer and a word of the same size.
    unsafe {
        (&raw mut (*skb.as_ptr())
            .__bindgen_anon_1
            .__bindgen_anon_1
            .__bindgen_anon_1
            .dev_scratch)
            .cast()
    }
}
