// SPDX-License-Identifier: GPL-2.0

//! The identifiers of IPv4 headers, as the kernel's GRO has them follow each other. Kernels have three rules for that.

/// The rule of a kernel: `MFLOW_ID_RULE_*` in `include/net/mflow_module.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum IdentifierRule {
    /// `inet_gro_flush()` in Linux 6.10 to 6.17: all headers of a packet go on alike. Identifiers stay the same only with don't-fragment. In
    /// an outer header with don't-fragment they may be any.
    #[default]
    Packet = 0,
    /// `inet_gro_receive()` before 6.10: as above, but the identifiers of an outer header never stay the same.
    Innermost = 1,
    /// `inet_gro_flush()` since 6.18: each header goes on by itself, whether or not it has don't-fragment.
    Each = 2,
}

impl IdentifierRule {
    /// Returns the rule of this number; nothing if there is none.
    pub fn of_number(number: u8) -> Option<Self> {
        [Self::Packet, Self::Innermost, Self::Each]
            .into_iter()
            .find(|rule| *rule as u8 == number)
    }
}

/// The place of a header of IPv4 in a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// The only network header.
    #[default]
    Only,
    /// In front of a tunnel's.
    Outer,
    /// Behind a tunnel's.
    Inner,
}

/// The ways in which the identifiers of a held packet's headers go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identifiers {
    /// The kernel's rule.
    pub rule: IdentifierRule,
    /// The headers in which all frames have the identifier of the first one, a bit for each that the rule tells apart. In another header each
    /// frame has one more than the frame before.
    pub fixed: u8,
}

impl Identifiers {
    /// Returns the bit of a header; 0 if its identifiers never stay the same.
    #[inline]
    fn bit(self, place: Place) -> u8 {
        match (self.rule, place) {
            (IdentifierRule::Packet, _) => 1,
            (IdentifierRule::Innermost, Place::Outer) => 0,
            (IdentifierRule::Innermost, _) => 1,
            (IdentifierRule::Each, Place::Inner) => 2,
            (IdentifierRule::Each, Place::Only | Place::Outer) => 1,
        }
    }

    /// Returns how identifiers go on behind a frame of which one is `step` behind that of the first frame, or nothing if GRO would let go what
    /// it holds. `frames` are held. `is_atomic` is true if the header has don't-fragment.
    #[inline]
    pub(super) fn follow(
        self,
        place: Place,
        step: u16,
        frames: u16,
        is_atomic: bool,
    ) -> Option<Self> {
        let is_each = self.rule == IdentifierRule::Each;
        if place == Place::Outer && is_atomic && !is_each {
            return Some(self);
        }
        let mut next = self;
        // The second frame decides.
        if frames == 1 && step == 0 && (is_atomic || is_each) {
            next.fixed |= self.bit(place);
        }
        let expected = match next.fixed & self.bit(place) {
            0 => frames,
            _ => 0,
        };
        (step == expected).then_some(next)
    }
}
