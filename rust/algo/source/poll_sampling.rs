// SPDX-License-Identifier: GPL-2.0

//! The rest of a source, during which packets pass unseen. While the load controller refuses flows and none of the source's flows
//! is split, only their packet rates matter, and one poll in a few tells these.

/// The number of polls of which one is looked at. Flows that take turns do so in other numbers, powers of two mostly.
const POLLS: u8 = 13;

/// The position of a source in these polls. Memory of zeros looks at every poll.
#[derive(Debug, Default)]
pub struct Rest {
    is_resting: bool,
    place: u8,
}

impl Rest {
    /// A poll ends. Returns whether the packets of the next one are to pass unseen.
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

    /// Returns for how many packets one stands that is looked at.
    #[inline]
    pub fn stands_for(&self) -> u32 {
        if self.is_resting {
            u32::from(POLLS)
        } else {
            1
        }
    }
}
