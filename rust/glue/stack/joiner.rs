// SPDX-License-Identifier: GPL-2.0

//! The joiner of a lane: it adds the frames of requests to the packet that the lane's GRO holds.

use super::request::Request;
use super::skb::SkBuff;
use super::worker::Polling;
use super::{ffi, way};
use crate::algo::join::{Held, Identifiers, Joined, Layout, Template};
use crate::algo::tag::Tag;
use core::{mem, slice};
use kernel::init::Zeroable;

/// The knowledge of what GRO holds.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
enum Knowledge {
    /// No packet.
    #[default]
    Nothing = 0,
    /// It has got a packet since it was asked.
    Stale = 1,
    /// The packet that the template is of.
    Template = 2,
    /// No packet with the joiner's tag that a frame can join.
    Unsuited = 3,
}

/// The result of the attempt to join a request with the packet that GRO holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JoinResult {
    /// The frame does not join: the driver builds a packet of it, for GRO.
    Alone,
    /// The frame is a fragment of that packet, and the request is used up.
    Fragment,
    /// The frame is a datagram that goes behind that packet, once it is built.
    Member(Joined),
}

/// The last packet of a lane that GRO holds, with the template of its next frame. Zeros are a joiner that knows of none.
///
/// INVARIANT: with [`Knowledge::Template`], GRO still holds `held`, whose tag is `tag`.
pub(crate) struct Joiner {
    knowledge: Knowledge,
    tag: Tag,
    held: *mut ffi::sk_buff,
    template: Template,
}

// SAFETY: Zeros are `Knowledge::Nothing`, no tag, a null pointer, and a template of numbers and `false`.
unsafe impl Zeroable for Joiner {}

impl Joiner {
    /// Notes that GRO has got a packet.
    #[inline]
    pub(crate) fn note_received(&mut self) {
        self.knowledge = Knowledge::Stale;
    }

    /// Notes that GRO holds nothing any more.
    #[inline]
    pub(crate) fn note_flushed(&mut self) {
        self.knowledge = Knowledge::Nothing;
    }

    /// Joins the frame of a request with this tag with the packet that GRO holds, if the frame continues that packet. A datagram has to be
    /// built, and then [appended](Self::append). With `is_on` false no frame joins.
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
        match self.knowledge {
            Knowledge::Nothing => return JoinResult::Alone,
            Knowledge::Unsuited if self.tag == tag => return JoinResult::Alone,
            Knowledge::Template if self.tag == tag => {}
            // SAFETY: By the contract.
            Knowledge::Stale | Knowledge::Template | Knowledge::Unsuited => unsafe {
                if !self.look_up(worker, tag) {
                    return JoinResult::Alone;
                }
            },
        }
        // SAFETY: By the contract.
        unsafe { self.join_held(request) }
    }

    /// Puts the packet of a request behind the datagrams that the packet continues; gives the packet back if it cannot be there.
    ///
    /// # Safety: in the poll; the packet was built of the request for which [`join`](Self::join) has just returned `joined`.
    #[inline]
    pub(crate) unsafe fn append(&mut self, packet: SkBuff, joined: Joined) -> Result<(), SkBuff> {
        let (network_at, transport_at) = self.template.inner_at();
        // SAFETY: By the invariant GRO holds the list, and by the contract we are in the poll that alone uses it. CAST: within a frame.
        let is_appended = unsafe {
            packet.append_to(
                self.held,
                network_at as u32,
                transport_at as u32,
                joined.payload_at as u32,
                joined.identifiers.is_fixed,
            )
        };
        if is_appended {
            core::mem::forget(packet);
            return Ok(());
        }
        // The template has gone on.
        self.knowledge = Knowledge::Stale;
        Err(packet)
    }

    /// Joins the frame of a request with the packet that the template is of, if the frame continues that packet.
    ///
    /// # Safety: as for [`join`](Self::join), with the tag of the template.
    #[inline]
    unsafe fn join_held(&mut self, request: &Request) -> JoinResult {
        // SAFETY: Zeros are a valid value of numbers and pointers.
        let mut frag: ffi::mflow_frag = unsafe { mem::zeroed() };
        // SAFETY: By the contract the request was filled.
        let is_there = unsafe { ffi::mflow_request_frag(request.as_raw(), &mut frag) };
        // A packet is built if each datagram is to be one, or if the page costs more than a copy.
        let builds = self.template.is_list() || frag.copies != 0;
        if !is_there || (builds && !self.template.takes_members()) {
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
        if builds {
            return JoinResult::Member(joined);
        }
        // CAST: within the frame.
        let payload_at = joined.payload_at as u32;
        // SAFETY: By the invariant GRO holds the packet, and by the contract we are in the poll that alone uses it.
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
            JoinResult::Fragment
        } else {
            // The template has gone on.
            self.knowledge = Knowledge::Stale;
            JoinResult::Alone
        }
    }

    /// Finds the packet with a tag that GRO holds, and reads its template; returns whether frames can join it.
    ///
    /// # Safety: as for [`join`](Self::join).
    #[inline(never)]
    unsafe fn look_up(&mut self, worker: Polling<'_>, tag: Tag) -> bool {
        (self.knowledge, self.tag) = (Knowledge::Unsuited, tag);
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
