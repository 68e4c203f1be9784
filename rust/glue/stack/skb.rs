// SPDX-License-Identifier: GPL-2.0

//! Packets: `struct sk_buff`, owned or borrowed.

use super::request::Request;
use super::socket::Socket;
use super::{ffi, way};
use crate::algo::headers::checksums::{good_checksums, CHECKSUM_HEADER_BYTES};
use crate::algo::headers::flow_name::{FlowName, WireName};
use crate::algo::headers::hint::Hint;
use crate::algo::headers::overlay::{
    fragment, inner_flow, may_be_data, may_reach_socket, overlay_header_bytes, Fragment,
    OVERLAY_HEADER_BYTES,
};
use crate::algo::lanes::queue::Packet;
use crate::algo::parked_amount::Amount;
use crate::algo::tag::{Tag, TagKind};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::num::NonZeroU32;
use core::ptr::NonNull;

/// An owned packet. Dropping it frees it, with a reason that drop monitors show.
#[repr(transparent)]
pub struct SkBuff {
    // INVARIANT: valid, and ours alone.
    skb: NonNull<ffi::sk_buff>,
}

// SAFETY: Packets move between CPUs.
unsafe impl Send for SkBuff {}

impl SkBuff {
    /// Takes ownership of a packet.
    ///
    /// # Safety: `skb` is valid and its ownership is the caller's to give.
    #[inline]
    pub(super) unsafe fn from_raw(skb: *mut ffi::sk_buff) -> Self {
        // INVARIANT: by the contract.
        // SAFETY: By the contract it is valid, so it is not null.
        let skb = unsafe { NonNull::new_unchecked(skb) };
        Self { skb }
    }

    #[inline]
    pub(super) fn into_raw(self) -> *mut ffi::sk_buff {
        let skb = self.skb.as_ptr();
        core::mem::forget(self);
        skb
    }

    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        // SAFETY: By the invariant the packet is valid and ours.
        unsafe { way::tag(self.skb) }
    }

    /// Lends the packet.
    #[inline]
    pub(crate) fn borrow(&mut self) -> BorrowedSkb<'_> {
        // SAFETY: By the invariant the packet is valid, and nobody else has it as long as `self` is borrowed.
        unsafe { BorrowedSkb::from_raw(self.skb.as_ptr()) }
    }

    /// Notes for which socket it is parked, and returns as how much it counts from now on. The packets on the wire stand in
    /// data that clones share, and may change; so the amount is kept, in the place of the tag, which is not needed any more.
    #[inline]
    pub(crate) fn set_parked(&mut self, socket: Socket, wire_pkts: u32) -> Amount {
        let amount = Amount::of(wire_pkts, self.memory_bytes());
        // SAFETY: By the invariant the packet is valid and ours.
        unsafe { way::set_parked(self.skb, socket.0, amount.word()) };
        amount
    }

    /// Notes how many packets one of a virtual NIC was on the wire: such a NIC leaves that to the first to ask.
    #[inline]
    pub(crate) fn count_segments(&mut self) {
        // SAFETY: By the invariant the packet is valid and ours.
        unsafe {
            if way::lacks_segments(self.skb) {
                ffi::mflow_skb_count_segments(self.skb.as_ptr());
            }
        }
    }

    /// Returns the number of the device that it is at.
    ///
    /// # Safety: it comes from a hook behind a device, and has been in no queue of ours since.
    #[inline]
    pub(crate) unsafe fn device_index(&self) -> u32 {
        // SAFETY: By the invariant the packet is valid, and by the contract its device is noted in it.
        unsafe { ffi::mflow_skb_device_index(self.skb.as_ptr()) }
    }

    /// Returns the [number](super::device::Napi::number) of the NAPI whose GRO it came through last.
    #[inline]
    pub(crate) fn napi_number(&self) -> Option<NonZeroU32> {
        // SAFETY: By the invariant the packet is valid.
        NonZeroU32::new(unsafe { ffi::mflow_skb_napi_id(self.skb.as_ptr()) })
    }

    /// Returns the Ethernet protocol, in host order.
    #[inline]
    pub(crate) fn protocol(&self) -> u16 {
        // SAFETY: By the invariant the packet is valid and ours.
        unsafe { way::protocol(self.skb) }
    }

    /// Calls `f` with the first bytes of the packet, from the network header on.
    #[inline]
    pub(crate) fn with_header<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        // IPv6 and the ports behind it, with room for extension headers.
        self.with_bytes::<64, R>(f)
    }

    /// Does the same with this many bytes, or all if there are fewer.
    #[inline]
    fn with_bytes<const BYTES: usize, R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: By the invariant the packet is valid.
        let (data, linear) = unsafe { way::linear(self.skb) };
        // CAST: 32 bits into a usize.
        let linear = linear as usize;
        if linear >= BYTES || linear == self.len() {
            // SAFETY: There are this many bytes, and nobody writes headers while the packet is ours.
            return f(unsafe { core::slice::from_raw_parts(data, linear.min(BYTES)) });
        }
        if let Some(paged) = self.paged() {
            return f(paged.get(..BYTES).unwrap_or(paged));
        }
        self.with_copy::<BYTES, R>(f)
    }

    /// Calls `f` with a copy of the first bytes of the packet, wherever they are.
    fn with_copy<const BYTES: usize, R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let mut copy = [0; BYTES];
        // SAFETY: By the invariant the packet is valid, and the copy has room for this many bytes.
        // CAST: a constant.
        unsafe {
            ffi::mflow_skb_copy_header(self.skb.as_ptr(), copy.as_mut_ptr().cast(), BYTES as u32)
        };
        // Shorter packets end where they end.
        f(copy.get(..self.len()).unwrap_or(&copy))
    }

    fn len(&self) -> usize {
        // SAFETY: By the invariant the packet is valid.
        // CAST: 32 bits into a usize.
        unsafe { way::len(self.skb) as usize }
    }

    /// Returns the first bytes, as far as they are contiguous, if the driver has left all of the packet in pages.
    #[inline]
    fn paged(&self) -> Option<&[u8]> {
        let mut bytes = 0;
        // SAFETY: By the invariant the packet is valid.
        let paged = unsafe { ffi::mflow_skb_frag_header(self.skb.as_ptr(), &mut bytes) };
        if paged.is_null() {
            return None;
        }
        // SAFETY: The fragment has this many bytes, is the packet's, and nobody writes it while the packet is ours.
        // CAST: 32 bits into a usize.
        Some(unsafe { core::slice::from_raw_parts(paged.cast(), bytes as usize) })
    }

    /// Returns whether the packet may come to a socket.
    pub(crate) fn may_reach_socket(&self) -> bool {
        self.with_copy::<OVERLAY_HEADER_BYTES, _>(|header| {
            may_reach_socket(self.protocol(), header)
        })
    }

    /// Verifies the checksums that GRO would verify, so that all behind it finds the packet as GRO would leave it. Returns false if GRO
    /// may find more of them.
    #[inline]
    pub(crate) fn verify(&mut self) -> bool {
        // SAFETY: By the invariant the packet is valid.
        let verified = unsafe { ffi::mflow_skb_verified(self.skb.as_ptr()) };
        let Ok(verified) = usize::try_from(verified) else {
            // A sum that somebody else has made, or is to make: GRO leaves it alone, too.
            return true;
        };
        let (eth_proto, len) = (self.protocol(), self.len());
        let good = self.with_bytes::<CHECKSUM_HEADER_BYTES, _>(|header| {
            good_checksums(eth_proto, header, len, verified, |covered| {
                // CAST: within the packet, whose length has 32 bits.
                let (at, bytes) = (covered.at as u32, covered.bytes as u32);
                // SAFETY: By the invariant the packet is valid, and these bytes are all behind a header of it.
                unsafe { ffi::mflow_skb_sums_up(self.skb.as_ptr(), at, bytes, covered.pseudo) }
            })
        });
        if good.count > verified {
            // SAFETY: By the invariant the packet is valid and ours. CAST: there are two at most.
            unsafe { ffi::mflow_skb_set_verified(self.skb.as_ptr(), good.count as u32) };
        }
        good.is_all
    }

    /// Puts it behind a packet that GRO holds. Returns the number of fragments for which it has room, and is no longer ours; a negative number
    /// if it cannot be there. The places are those of its headers that end at a socket, and of the payload behind them.
    ///
    /// # Safety: GRO holds the other packet, which nobody else uses; this one was built just now, its headers are like those of the other, and
    /// its checksums are good.
    #[inline]
    pub(super) unsafe fn append_to(
        &self,
        held: *mut ffi::sk_buff,
        network_at: u32,
        transport_at: u32,
        payload_at: u32,
        fixed_ids: u8,
    ) -> i32 {
        // SAFETY: By the invariant the packet is valid and ours; the rest is the contract.
        unsafe {
            ffi::mflow_held_append(
                held,
                self.skb.as_ptr(),
                network_at,
                transport_at,
                payload_at,
                fixed_ids,
            )
        }
    }

    /// Notes it where it begins its way, if it is a probe.
    ///
    /// # Safety: it comes from a hook in front of the stack; softirqs are disabled.
    #[inline]
    pub(crate) unsafe fn note_if_probe(&self) {
        let tag = self.tag();
        if let (Some(notes), TagKind::Probe) = (way::PROBE_NOTES, tag.kind()) {
            // SAFETY: By the invariant the packet is valid and ours, and by the contract it begins at its network header. CAST: below 64.
            unsafe { (notes.note)(self.skb, tag.slot() as u32) };
        }
    }

    /// Returns whether datagrams may come in lists where this probe of their slot has come.
    ///
    /// # Safety: it comes from the hook of this socket.
    pub(crate) unsafe fn suits_lists(&self, socket: Socket, slot: usize) -> bool {
        // SAFETY: By the invariant the packet is valid and ours, and by the contract it is at the hook. CAST: below 64.
        way::PROBE_NOTES
            .is_some_and(|notes| unsafe { (notes.suits_lists)(self.skb, socket.0, slot as u32) })
    }

    /// Returns whether a packet socket may take datagrams of its flow when they are received.
    ///
    /// # Safety: softirqs are disabled.
    #[cold]
    pub(crate) unsafe fn may_be_tapped(&self) -> bool {
        // SAFETY: By the invariant the packet is valid and ours; the rest is the contract.
        unsafe { way::may_be_tapped(self.skb) }
    }

    /// Pulls an overlay packet's headers out of its pages, all at once.
    #[inline]
    pub(crate) fn pull_overlay_headers(&mut self) {
        let bytes = self
            .paged()
            .and_then(|paged| overlay_header_bytes(self.protocol(), paged));
        if let Some(bytes) = bytes {
            // SAFETY: By the invariant the packet is valid and ours, and the headers are in its first fragment.
            // CAST: of a fragment, whose size has 32 bits.
            unsafe { ffi::mflow_skb_pull_headers(self.skb.as_ptr(), bytes as u32) };
        }
    }
}

impl SkBuff {
    /// Drops the packet because a ring has no room for it.
    #[cold]
    pub(crate) fn drop_queueless(self) {
        // SAFETY: By the invariant it is ours to give.
        unsafe { ffi::mflow_skb_drop_queueless(self.into_raw()) };
    }
}

impl Drop for SkBuff {
    fn drop(&mut self) {
        // SAFETY: By the invariant it is ours to free.
        unsafe { ffi::mflow_skb_drop(self.skb.as_ptr()) };
    }
}

// SAFETY: `next`, `prev` and `dev` are separate fields that belong to the queue a packet is in; in our queues a packet
// no longer needs its device. A `struct sk_buff` is aligned to eight bytes.
unsafe impl Packet for SkBuff {
    type Node = ffi::sk_buff;
    type Request = Request;

    #[inline]
    fn into_node(self) -> NonNull<ffi::sk_buff> {
        let skb = self.skb;
        core::mem::forget(self);
        skb
    }

    #[inline]
    unsafe fn from_node(skb: NonNull<ffi::sk_buff>) -> Self {
        // INVARIANT: by the contract of the trait.
        Self { skb }
    }

    #[inline]
    unsafe fn next(skb: NonNull<ffi::sk_buff>) -> *mut *mut ffi::sk_buff {
        // SAFETY: The caller has the packet.
        unsafe { way::next(skb) }
    }

    #[inline]
    unsafe fn last(skb: NonNull<ffi::sk_buff>) -> *mut *mut ffi::sk_buff {
        // SAFETY: The caller has the packet.
        unsafe { way::prev(skb) }
    }

    #[inline]
    unsafe fn older(skb: NonNull<ffi::sk_buff>) -> *mut *mut ffi::sk_buff {
        // SAFETY: The caller has the packet.
        unsafe { way::device_link(skb) }
    }

    #[cold]
    fn discard(request: &Request) {
        // SAFETY: The caller has the request, and does not use it any more.
        unsafe { ffi::mflow_request_drop(request.as_raw()) };
    }

    #[inline]
    fn set_tag(&mut self, tag: Tag) {
        // SAFETY: By the invariant the packet is valid and ours.
        unsafe { way::set_tag(self.skb, tag) };
    }

    #[inline]
    fn wire_pkts(&self) -> u32 {
        // SAFETY: By the invariant the packet is valid and ours.
        let segments = unsafe { way::segments(self.skb) };
        u32::from(segments.max(1))
    }

    #[inline]
    fn memory_bytes(&self) -> u32 {
        // SAFETY: By the invariant the packet is valid.
        unsafe { way::truesize(self.skb) }
    }

    #[cold]
    fn may_merge(&self) -> bool {
        self.with_copy::<OVERLAY_HEADER_BYTES, _>(|header| {
            may_be_data(self.protocol(), header, self.len())
        })
    }

    #[cold]
    fn inner_flow(&self) -> u64 {
        self.with_copy::<OVERLAY_HEADER_BYTES, _>(|header| inner_flow(self.protocol(), header))
    }

    #[cold]
    fn fragment(&self) -> Fragment {
        self.with_copy::<OVERLAY_HEADER_BYTES, _>(|header| fragment(self.protocol(), header))
    }

    #[cold]
    fn hint(&self) -> Hint {
        // SAFETY: By the invariant the packet is valid and ours.
        let metadata = unsafe { way::metadata(self.skb) };
        metadata.map_or(Hint::None, Hint::of_metadata)
    }

    #[cold]
    fn flow_name(&self) -> FlowName {
        // SAFETY: By the invariant the packet is valid and ours.
        let queue = unsafe { way::rx_queue(self.skb) };
        FlowName {
            wire: self.with_header(|header| WireName::of(self.protocol(), header)),
            // A driver that notes the queue counts from 1: zero is none.
            rx_queue: queue.checked_sub(1),
        }
    }
}

/// A packet that the stack shows us for the length of a call, and that stays the stack's.
pub(crate) struct BorrowedSkb<'a> {
    packet: ManuallyDrop<SkBuff>,
    _call: PhantomData<&'a mut ffi::sk_buff>,
}

impl BorrowedSkb<'_> {
    /// # Safety: `skb` is valid, and nobody else uses it as long as the value lives.
    #[inline]
    pub(crate) unsafe fn from_raw(skb: *mut ffi::sk_buff) -> Self {
        Self {
            // SAFETY: By the contract it is as good as ours, and it is never dropped.
            packet: ManuallyDrop::new(unsafe { SkBuff::from_raw(skb) }),
            _call: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        self.packet.tag()
    }

    /// Returns how many packets of the wire it is.
    #[inline]
    pub(crate) fn wire_pkts(&self) -> u32 {
        self.packet.wire_pkts()
    }

    #[inline]
    pub(crate) fn set_tag(&mut self, tag: Tag) {
        self.packet.set_tag(tag);
    }

    /// Verifies the checksums that GRO would verify. What only GRO can find stays unverified, as where the operator has switched GRO
    /// off.
    #[cfg(mflow_stock)]
    pub(crate) fn verify(&mut self) {
        self.packet.verify();
    }
}
