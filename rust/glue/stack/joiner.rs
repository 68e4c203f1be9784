// SPDX-License-Identifier: GPL-2.0

//! The joiner of a lane: it adds the frames of requests to the packets that the lane's GRO holds.

use super::request::Request;
use super::skb::SkBuff;
use super::worker::Polling;
use super::{ffi, way};
use crate::algo::join::{Held, Identifiers, Joined, Layout, Template};
use crate::algo::tag::Tag;
use core::{mem, slice};
use kernel::init::Zeroable;

/// The number of packets that a joiner knows. Flows that share a lane take turns there, frame by frame.
const KNOWN_PACKETS: usize = 8;

/// The knowledge of the packet that GRO holds with a tag.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
enum Knowledge {
    /// GRO holds no packet of any tag that has this place.
    #[default]
    Nothing = 0,
    /// GRO has got a packet of such a tag since it was asked.
    Stale = 1,
    /// The template is that of the packet, as long as GRO holds it.
    Template = 2,
    /// GRO holds no packet with the tag that a frame can join.
    Unsuited = 3,
}

/// The result of the attempt to join a request with the packet that GRO holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JoinResult {
    /// The frame does not join: the driver builds a packet of it, for GRO.
    Alone,
    /// The frame is a fragment of that packet, and the request is used up.
    Fragment,
    /// The frame goes behind that packet, once it is built.
    Member(Joined),
}

/// A packet of a lane that GRO holds, with the template of its next frame. Zeros are none.
///
/// INVARIANT: with [`Knowledge::Template`], GRO held `held` with the tag `tag` when it had got `received` packets, and has got none with that tag
/// since.
struct HeldPacket {
    knowledge: Knowledge,
    tag: Tag,
    held: *mut ffi::sk_buff,
    received: u32,
    template: Template,
}

/// The packets of a lane that GRO holds, each at the place that its flow's slot has. Zeros are a joiner that knows of none.
pub(crate) struct Joiner {
    packets: [HeldPacket; KNOWN_PACKETS],
    /// The number of packets that GRO has got; wraps. With each it may have let go any that it held.
    received: u32,
}

// SAFETY: Zeros are `Knowledge::Nothing`, no tag, null pointers, numbers, and templates of numbers and `false`.
unsafe impl Zeroable for Joiner {}

impl Joiner {
    /// Returns the place of a tag's packet.
    #[inline]
    fn packet(&mut self, tag: Tag) -> &mut HeldPacket {
        // PANIC: the remainder is below the length.
        &mut self.packets[tag.slot() % KNOWN_PACKETS]
    }

    /// Notes that GRO has got a packet with this tag.
    #[inline]
    pub(crate) fn note_received(&mut self, tag: Tag) {
        self.received = self.received.wrapping_add(1);
        self.packet(tag).knowledge = Knowledge::Stale;
    }

    /// Notes that GRO holds nothing any more.
    #[inline]
    pub(crate) fn note_flushed(&mut self) {
        for packet in &mut self.packets {
            packet.knowledge = Knowledge::Nothing;
        }
    }

    /// Joins the frame of a request with this tag with the packet that GRO holds, if the frame continues that packet. A packet of a
    /// [member](JoinResult::Member) has to be built, and then [appended](Self::append). With `is_on` false no frame joins.
    ///
    /// # Safety: in the poll, whose GRO has got and let go no packet that was not noted; the request was filled, and is the caller's.
    #[inline]
    pub(crate) unsafe fn join(
        &mut self,
        worker: Polling<'_>,
        tag: Tag,
        request: &Request,
        is_on: bool,
    ) -> JoinResult {
        if !way::JOINS || !is_on {
            return JoinResult::Alone;
        }
        let received = self.received;
        let packet = self.packet(tag);
        let is_known = match packet.knowledge {
            Knowledge::Nothing => return JoinResult::Alone,
            Knowledge::Unsuited if packet.tag == tag => return JoinResult::Alone,
            // SAFETY: By the contract.
            Knowledge::Template if packet.tag == tag => unsafe {
                packet.is_still_held(worker, received)
            },
            Knowledge::Stale | Knowledge::Template | Knowledge::Unsuited => false,
        };
        // SAFETY: By the contract.
        unsafe {
            if !is_known && !packet.look_up(worker, tag, received) {
                return JoinResult::Alone;
            }
            packet.join(request)
        }
    }

    /// Puts the packet of a request behind the one that it continues; gives the packet back if it cannot be there.
    ///
    /// # Safety: in the poll; the packet was built of the request for which [`join`](Self::join) has just returned `joined`.
    #[inline]
    pub(crate) unsafe fn append(
        &mut self,
        packet: SkBuff,
        tag: Tag,
        joined: Joined,
    ) -> Result<(), SkBuff> {
        let held = self.packet(tag);
        let (network_at, transport_at) = held.template.inner_at();
        // SAFETY: By the contract and the invariant GRO holds the packet, and we are in the poll that alone uses it. CAST: within a frame.
        let room_fragments = unsafe {
            packet.append_to(
                held.held,
                network_at as u32,
                transport_at as u32,
                joined.payload_at as u32,
                joined.identifiers.is_fixed,
            )
        };
        match u16::try_from(room_fragments) {
            Ok(room_fragments) => {
                core::mem::forget(packet);
                held.template.note_member(room_fragments);
                Ok(())
            }
            Err(_) => {
                // The template has gone on.
                held.knowledge = Knowledge::Stale;
                Err(packet)
            }
        }
    }
}

impl HeldPacket {
    /// Returns whether GRO holds the packet still, after it has got this many, and notes it.
    ///
    /// # Safety: as for [`Joiner::join`]; the template is known.
    #[inline]
    unsafe fn is_still_held(&mut self, worker: Polling<'_>, received: u32) -> bool {
        let is_held = self.received == received || worker.holds(self.held, self.tag);
        self.received = received;
        is_held
    }

    /// Joins the frame of a request with the packet, if the frame continues it.
    ///
    /// # Safety: as for [`Joiner::join`], with the packet's tag; GRO holds the packet.
    #[inline]
    unsafe fn join(&mut self, request: &Request) -> JoinResult {
        // SAFETY: Zeros are a valid value of numbers and pointers.
        let mut frag: ffi::mflow_frag = unsafe { mem::zeroed() };
        // SAFETY: By the contract the request was filled.
        let is_there = unsafe { ffi::mflow_request_frag(request.as_raw(), &mut frag) };
        if !is_there || (frag.copies != 0 && !self.template.takes_copies()) {
            return JoinResult::Alone;
        }
        // SAFETY: By the contract of `frag` in `struct mflow_request_ops` these bytes are the frame's, and the request keeps them. Nobody
        // writes them: the device is done with the buffer. CAST: 32 bits into a usize.
        let frame = unsafe { slice::from_raw_parts(frag.data.cast::<u8>(), frag.bytes as usize) };
        let good = match u32::from(frag.sums) {
            kernel::bindings::MFLOW_SUMS_VERIFIED => frag.sum,
            _ => 0,
        };
        let joined = self.template.join(frame, good, |bytes| {
            // CAST: within the frame.
            let at = (frame.len() - bytes.len()) as u32;
            // SAFETY: The frame has these bytes, which are all behind the first of its network header.
            unsafe { ffi::mflow_frag_sum(&frag, at) }
        });
        let Some(joined) = joined else {
            return JoinResult::Alone;
        };
        // The page of a small frame costs more than a copy.
        if frag.copies != 0 || !self.template.takes_fragments() {
            return JoinResult::Member(joined);
        }
        // CAST: within the frame.
        let payload_at = joined.payload_at as u32;
        // SAFETY: By the contract GRO holds the packet, and we are in the poll that alone uses it.
        let is_hung = unsafe {
            ffi::mflow_held_join(
                self.held,
                request.as_raw(),
                &frag,
                payload_at,
                joined.identifiers.is_fixed,
            )
        };
        if is_hung {
            self.template.note_fragment();
            JoinResult::Fragment
        } else {
            // The template has gone on.
            self.knowledge = Knowledge::Stale;
            JoinResult::Alone
        }
    }

    /// Finds the packet with a tag that GRO holds, and reads its template; returns whether frames can join it.
    ///
    /// # Safety: as for [`Joiner::join`].
    #[inline(never)]
    unsafe fn look_up(&mut self, worker: Polling<'_>, tag: Tag, received: u32) -> bool {
        (self.knowledge, self.tag, self.received) = (Knowledge::Unsuited, tag, received);
        let Some(held) = worker.held(tag) else {
            return false;
        };
        // SAFETY: The packet has these bytes in front, and nobody writes them while GRO holds it. CAST: 32 bits into a usize.
        let headers =
            unsafe { slice::from_raw_parts(held.headers.cast(), held.linear_bytes as usize) };
        // CAST: 32 bits into a usize.
        let outer_at = (held.outer_at != 0).then_some(held.outer_at as usize);
        let is_read = self.template.read(&Held {
            headers,
            layout: Layout {
                outer_at,
                network_at: held.network_at as usize,
                transport_at: held.transport_at as usize,
            },
            frames: held.frames,
            room_frames: held.room_frames,
            room_fragments: held.room_fragments,
            bytes: held.bytes,
            limit_bytes: held.limit_bytes,
            frame_payload_bytes: held.frame_payload_bytes,
            is_list: held.list,
            identifiers: Identifiers {
                is_fixed: held.fixed_id,
            },
        });
        if !is_read {
            return false;
        }
        // INVARIANT: GRO holds the packet, and what it gets or lets go is noted.
        self.held = held.skb;
        self.knowledge = Knowledge::Template;
        true
    }
}
