// SPDX-License-Identifier: GPL-2.0

//! The joiner of a lane: it adds the frames of requests to the packets that the lane's GRO holds.

use super::ffi;
use super::request::Request;
use super::skb::SkBuff;
use super::worker::Polling;
use crate::algo::join::known_packets::{Gro, KnownPackets};
use crate::algo::join::{Alone, Held, IdentifierRule, Identifiers, Joined, Layout, Template};
use crate::algo::tag::Tag;
use core::{mem, slice};
use kernel::init::Zeroable;

/// The result of the attempt to join a request with the packet that GRO holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JoinResult {
    /// The frame does not join for this reason: the driver builds a packet of it, for GRO.
    Alone(Alone),
    /// The frame is a fragment of that packet, and the request is used up.
    Fragment,
    /// The frame goes behind that packet, once it is built.
    Member(Joined),
}

/// The packets of a lane that GRO holds. Zeros are a joiner that knows of none.
pub(crate) struct Joiner {
    packets: KnownPackets<Template>,
}

// SAFETY: Zeros are a valid template, which is made of numbers and `false`, so by the contract of `KnownPackets` they are no packets.
unsafe impl Zeroable for Joiner {}

impl Joiner {
    /// Notes that GRO has got a packet with this tag.
    #[inline]
    pub(crate) fn note_received(&mut self, tag: Tag) {
        self.packets.note_received(tag);
    }

    /// Notes that GRO holds nothing any more.
    #[inline]
    pub(crate) fn note_flushed(&mut self) {
        self.packets.note_flushed();
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
        if !is_on {
            return JoinResult::Alone(Alone::Off);
        }
        let Some((held, template)) = self.packets.find(tag, &worker) else {
            return JoinResult::Alone(Alone::First);
        };
        // SAFETY: GRO holds the packet, as it has just been found; the rest is the contract.
        unsafe { join_held(held as *mut ffi::sk_buff, template, request) }
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
        let (held, template) = self.packets.found(tag);
        let (network_at, transport_at) = template.inner_at();
        // SAFETY: By the contract GRO holds the packet, as `join` has just found it, and we are in the poll that alone uses it. CAST: within a
        // frame.
        let room_fragments = unsafe {
            packet.append_to(
                held as *mut ffi::sk_buff,
                network_at as u32,
                transport_at as u32,
                joined.payload_at as u32,
                joined.identifiers.fixed,
            )
        };
        match u16::try_from(room_fragments) {
            Ok(room_fragments) => {
                mem::forget(packet);
                template.note_member(room_fragments);
                Ok(())
            }
            Err(_) => {
                template.close();
                Err(packet)
            }
        }
    }
}

/// Joins the frame of a request with a packet, if the frame continues it.
///
/// # Safety: as for [`Joiner::join`]; GRO holds the packet, of which the template is.
#[inline]
unsafe fn join_held(
    held: *mut ffi::sk_buff,
    template: &mut Template,
    request: &Request,
) -> JoinResult {
    // SAFETY: Zeros are a valid value of numbers and pointers.
    let mut frag: ffi::mflow_frag = unsafe { mem::zeroed() };
    // SAFETY: By the contract the request was filled.
    let is_there = unsafe { ffi::mflow_request_frag(request.as_raw(), &mut frag) };
    if !is_there || (frag.copies != 0 && !template.takes_copies()) {
        return JoinResult::Alone(Alone::Driver);
    }
    let is_summed = u32::from(frag.sums) == kernel::bindings::MFLOW_SUMS_COMPLETE;
    if !template.takes_sums(is_summed) {
        return JoinResult::Alone(Alone::Checksum);
    }
    // SAFETY: By the contract of `frag` in `struct mflow_request_ops` these bytes are the frame's, and the request keeps them. Nobody
    // writes them: the device is done with the buffer. CAST: 32 bits into a usize.
    let frame = unsafe { slice::from_raw_parts(frag.data.cast::<u8>(), frag.bytes as usize) };
    let good = match u32::from(frag.sums) {
        kernel::bindings::MFLOW_SUMS_VERIFIED => frag.sum,
        _ => 0,
    };
    let joined = template.join(frame, good, |bytes| {
        // CAST: within the frame.
        let at = (frame.len() - bytes.len()) as u32;
        // SAFETY: The frame has these bytes, which are all behind the first of its network header.
        unsafe { ffi::mflow_frag_sum(&frag, at) }
    });
    let joined = match joined {
        Ok(joined) => joined,
        Err(alone) => return JoinResult::Alone(alone),
    };
    // The page of a small frame costs more than a copy.
    if frag.copies != 0 || !template.takes_fragments() {
        return JoinResult::Member(joined);
    }
    // CAST: within the frame.
    let payload_at = joined.payload_at as u32;
    // SAFETY: By the contract GRO holds the packet, and we are in the poll that alone uses it.
    let is_hung = unsafe {
        ffi::mflow_held_join(
            held,
            request.as_raw(),
            &frag,
            payload_at,
            joined.identifiers.fixed,
        )
    };
    if is_hung {
        template.note_fragment();
        JoinResult::Fragment
    } else {
        template.close();
        JoinResult::Alone(Alone::Driver)
    }
}

impl Gro<Template> for Polling<'_> {
    #[inline]
    fn holds(&self, address: usize, tag: Tag) -> bool {
        self.holds_at(address, tag)
    }

    fn read(&self, tag: Tag, template: &mut Template) -> Option<usize> {
        let held = self.held(tag)?;
        // SAFETY: The packet has these bytes in front, and nobody writes them while GRO holds it. CAST: 32 bits into a usize.
        let headers =
            unsafe { slice::from_raw_parts(held.headers.cast(), held.linear_bytes as usize) };
        // CAST: 32 bits into a usize.
        let outer_at = (held.outer_at != 0).then_some(held.outer_at as usize);
        let is_read = template.read(&Held {
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
            is_summed: held.summed,
            is_list: held.list,
            identifiers: Identifiers {
                rule: IdentifierRule::of_number(held.id_rule)?,
                fixed: held.fixed_ids,
            },
        });
        is_read.then_some(held.skb as usize)
    }
}
