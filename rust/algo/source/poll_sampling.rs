// SPDX-License-Identifier: GPL-2.0

//! The polls of a source that rests. While the load controller refuses flows and none of the source's flows is split, only packet
//! rates matter. One poll in a few tells these, so the packets of the other polls pass unseen: they skip the dispatcher.

/// The number of polls of which one is looked at. It is a prime: flows that take turns mostly do so in powers of two.
const POLLS: u8 = 13;

/// The position of a source in these polls. Memory of zeros looks at every poll.
#[derive(Debug, Default)]
pub struct Rest {
    is_resting: bool,
    place: u8,
}

impl Rest {
    /// Ends a poll. Returns whether the packets of the next poll are to pass unseen.
    #[inline]
    pub fn end_poll(&mut self, may_rest: bool) -> bool {
        if !may_rest {
            *self = Self::default();
            return false;
        }
        self.is_resting = true;
        self.place += 1;
        if self.place == POLLS {
            self.place = 0;
        }
        self.place != 0
    }

    /// Returns the number of packets for which one packet stands that is looked at.
    #[inline]
    pub fn stands_for(&self) -> u32 {
        if self.is_resting {
            u32::from(POLLS)
        } else {
            1
        }
    }
}
