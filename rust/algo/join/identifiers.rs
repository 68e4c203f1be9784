// SPDX-License-Identifier: GPL-2.0

//! The identifiers of IPv4 headers, as GRO has them follow each other (`inet_gro_flush()` in Linux 6.12).

/// The rule by which the identifiers of a held packet go on. GRO has one bit of it for a packet, also if there are two headers of IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identifiers {
    /// True if all frames have the identifier of the first one; else each has one more than the frame before.
    pub is_fixed: bool,
}

impl Identifiers {
    /// Returns the rule behind a frame whose identifier is `step` behind that of the first frame, or nothing if GRO would let go what it
    /// holds. `frames` are held. `is_atomic` is true if the header has don't-fragment.
    #[inline]
    pub(super) fn follow(self, step: u16, frames: u16, is_atomic: bool) -> Option<Self> {
        // The second frame decides.
        let is_fixed = self.is_fixed || frames == 1 && is_atomic && step == 0;
        let expected = if is_fixed { 0 } else { frames };
        (step == expected).then_some(Self { is_fixed })
    }
}
