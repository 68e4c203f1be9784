// SPDX-License-Identifier: GPL-2.0

//! The packets that a lane's GRO holds, as the lane knows them: a place for each of a few flows, which take turns on the lane frame by frame.
//!
//! To read a packet's template costs as much as to join five frames. With each packet that GRO gets, it may let go any that it holds, so the
//! lane asks for the address of a known packet then. That address may have become another packet's, but not one with the same tag: GRO holds
//! such a packet only if it has got one with that tag, and then the template is read again.

use crate::algo::tag::Tag;

/// The number of packets that are known, each at the place that its flow's slot has.
const PLACES: usize = 8;

/// The GRO of a lane.
pub trait Gro<T> {
    /// Returns whether GRO holds a packet with this tag at this address. The packet may be gone.
    fn holds(&self, address: usize, tag: Tag) -> bool;

    /// Reads the template of the packet with this tag that GRO holds; returns the packet's address, or nothing if no frame can join one.
    fn read(&self, tag: Tag, template: &mut T) -> Option<usize>;
}

/// The knowledge of the packet at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// A packet that GRO holds, with the template of its next frame. Zeros are none.
///
/// INVARIANT: with [`Knowledge::Template`], GRO held a packet with the tag at the address when it had got `received` packets, the template is
/// that packet's, and GRO has got no packet with that tag since.
#[derive(Debug, Default)]
struct KnownPacket<T> {
    knowledge: Knowledge,
    tag: Tag,
    address: usize,
    received: u32,
    template: T,
}

/// The packets that GRO holds. Zeros are none, if zeros are a valid template.
#[derive(Debug, Default)]
pub struct KnownPackets<T> {
    packets: [KnownPacket<T>; PLACES],
    /// The number of packets that GRO has got; wraps.
    received: u32,
}

impl<T> KnownPackets<T> {
    #[inline]
    fn place(&mut self, tag: Tag) -> &mut KnownPacket<T> {
        // PANIC: the remainder is below the length.
        &mut self.packets[tag.slot() % PLACES]
    }

    /// Notes that GRO has got a packet with this tag.
    #[inline]
    pub fn note_received(&mut self, tag: Tag) {
        self.received = self.received.wrapping_add(1);
        self.place(tag).knowledge = Knowledge::Stale;
    }

    /// Notes that GRO holds nothing any more.
    #[inline]
    pub fn note_flushed(&mut self) {
        for packet in &mut self.packets {
            packet.knowledge = Knowledge::Nothing;
        }
    }

    /// Returns the address and the template of the packet with this tag, which GRO holds now; nothing if no frame can join one.
    #[inline]
    pub fn find(&mut self, tag: Tag, gro: &impl Gro<T>) -> Option<(usize, &mut T)> {
        let received = self.received;
        let packet = self.place(tag);
        match packet.knowledge {
            Knowledge::Nothing => return None,
            Knowledge::Unsuited if packet.tag == tag => return None,
            Knowledge::Template if packet.tag == tag && packet.received == received => {}
            Knowledge::Template if packet.tag == tag && gro.holds(packet.address, tag) => {
                // INVARIANT: GRO has just said that it holds the packet.
                packet.received = received;
            }
            Knowledge::Stale | Knowledge::Template | Knowledge::Unsuited => {
                packet.read(tag, received, gro)?;
            }
        }
        Some((packet.address, &mut packet.template))
    }

    /// Returns the address and the template of the packet with this tag, which [`find`](Self::find) has just returned.
    #[inline]
    pub fn found(&mut self, tag: Tag) -> (usize, &mut T) {
        let packet = self.place(tag);
        (packet.address, &mut packet.template)
    }
}

impl<T> KnownPacket<T> {
    #[inline(never)]
    fn read(&mut self, tag: Tag, received: u32, gro: &impl Gro<T>) -> Option<()> {
        (self.knowledge, self.tag, self.received) = (Knowledge::Unsuited, tag, received);
        self.address = gro.read(tag, &mut self.template)?;
        // INVARIANT: GRO holds the packet now.
        self.knowledge = Knowledge::Template;
        Some(())
    }
}
