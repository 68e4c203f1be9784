// SPDX-License-Identifier: GPL-2.0

//! The 32-bit tag that a packet of a split flow carries through the stack.
//!
//! The layout is that of `include/net/mflow.h`: kind (3 bits), slot of the flow (6 bits), micro-flow number (23 bits). Inside
//! the algorithm batch numbers are 32 bits wide; a tag keeps the low 23, enough to tell batches of one window apart. A packet may be
//! held for so long that its number has come round: a slot takes it for late unless a batch of that number is open.

use super::limits::MAX_SLOTS;

const SLOT_BITS: u32 = MAX_SLOTS.ilog2();

const _: () = assert!(MAX_SLOTS.is_power_of_two());

/// Number of bits of a batch number that a tag carries.
pub const BATCH_BITS: u32 = SLOT_SHIFT;

const SLOT_SHIFT: u32 = 23;
const KIND_SHIFT: u32 = 29;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const BATCH_MASK: u32 = (1 << BATCH_BITS) - 1;

/// The kind of a tag, which tells the merge point how to treat the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagKind {
    /// Belongs to no split flow.
    None,
    /// A packet of a micro-flow; it runs to completion on its lane.
    Split,
    /// The last packet on the ordinary path before a split; its arrival completes a micro-flow of its own.
    Fence,
    /// Asks whether the flow ends at a merge point of this host.
    Probe,
    /// A packet of a micro-flow that something on the path has queued: it arrives by itself, after its lane is done.
    Queued,
}

/// Kind, slot and batch number of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Tag(u32);

impl Tag {
    /// The tag of a packet that belongs to no split flow.
    pub const NONE: Tag = Tag(0);

    /// Returns the tag with these parts; the high bits of `batch` are left out.
    #[inline]
    pub const fn new(kind: TagKind, slot: usize, batch: u32) -> Self {
        let kind = match kind {
            TagKind::None => 0,
            TagKind::Split => 1,
            TagKind::Fence => 2,
            TagKind::Probe => 3,
            TagKind::Queued => 4,
        };
        // CAST: a slot index is below 64.
        Tag(kind << KIND_SHIFT | (slot as u32 & SLOT_MASK) << SLOT_SHIFT | batch & BATCH_MASK)
    }

    /// Returns the tag that `word` holds, as read from a packet.
    #[inline]
    pub const fn from_word(word: u32) -> Self {
        Tag(word)
    }

    /// Returns the word to store in a packet.
    #[inline]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// Returns the kind of the tag.
    #[inline]
    pub const fn kind(self) -> TagKind {
        match self.0 >> KIND_SHIFT {
            0 => TagKind::None,
            1 => TagKind::Split,
            2 => TagKind::Fence,
            3 => TagKind::Probe,
            4 => TagKind::Queued,
            // `new` makes no others.
            _ => TagKind::None,
        }
    }

    /// Returns the slot index, below [`MAX_SLOTS`].
    #[inline]
    pub const fn slot(self) -> usize {
        (self.0 >> SLOT_SHIFT & SLOT_MASK) as usize
    }

    /// Returns the low bits of the batch number.
    #[inline]
    pub const fn batch_bits(self) -> u32 {
        self.0 & BATCH_MASK
    }

    /// Returns the full batch number, taking the one nearest to `near`.
    #[inline]
    pub const fn batch_near(self, near: u32) -> u32 {
        let ahead = self.0.wrapping_sub(near) << (32 - BATCH_BITS);
        // CAST: the shift back is meant to extend the sign.
        near.wrapping_add((ahead as i32 >> (32 - BATCH_BITS)) as u32)
    }
}

/// Returns whether batch `a` comes before batch `b`, across the wrap of the counter.
#[inline]
pub const fn is_before(a: u32, b: u32) -> bool {
    // CAST: the sign of the difference says which comes first.
    (a.wrapping_sub(b) as i32) < 0
}
