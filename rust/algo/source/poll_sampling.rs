// SPDX-License-Identifier: GPL-2.0

//! The polls of a source that rests. While no flow of the source is to be split, only packet rates matter. One poll in a few is enough
//! to tell packet rates, so the packets of the other polls pass unseen: they skip the dispatcher.
//!
//! A source rests while the load controller refuses flows, and after three windows in which no flow seemed fast. As soon as a flow seems
//! fast the source wakes, and the flow is counted packet by packet before anything is decided.

use crate::algo::limits::RATE_WINDOW_MS;
use crate::algo::report::reason::HOLD_MS;

/// The number of polls of which one is looked at. It is a prime: flows that take turns mostly do so in powers of two.
const POLLS: u8 = 13;

/// The time without a fast flow after which a source rests, in milliseconds.
const CALM_MS: u32 = 3 * RATE_WINDOW_MS;

// A flow whose probe was not seen is kept whole for longer than this, so the source rests between two probes.
const _: () = assert!(CALM_MS < HOLD_MS);

/// The position of a source in these polls. If all bytes of this type are zero, every poll is looked at.
#[derive(Debug, Default)]
pub struct Rest {
    is_resting: bool,
    place: u8,
    has_begun: bool,
    // The time of the last reason to be awake; the first poll is one.
    awake_ms: u32,
}

impl Rest {
    /// Ends a poll. `has_flows` says whether flows of this source have a slot, and `refuses` whether the load controller refuses
    /// flows. Returns whether the packets of the next poll are to pass unseen.
    #[inline]
    pub fn end_poll(&mut self, now_ms: u32, has_flows: bool, refuses: bool) -> bool {
        if has_flows || !self.has_begun {
            self.wake(now_ms);
            self.has_begun = true;
        }
        let is_calm = now_ms.wrapping_sub(self.awake_ms) >= CALM_MS;
        if has_flows || !(refuses || is_calm) {
            (self.is_resting, self.place) = (false, 0);
            return false;
        }
        self.is_resting = true;
        self.place += 1;
        if self.place == POLLS {
            self.place = 0;
        }
        self.place != 0
    }

    /// Keeps the source awake for a while, because a flow seems fast. Returns whether the source rested.
    #[inline]
    pub fn wake(&mut self, now_ms: u32) -> bool {
        let rested = self.is_resting;
        self.awake_ms = now_ms;
        (self.is_resting, self.place) = (false, 0);
        rested
    }

    /// Returns how many packets each packet that is looked at stands for.
    #[inline]
    pub fn stands_for(&self) -> u32 {
        if self.is_resting {
            u32::from(POLLS)
        } else {
            1
        }
    }
}
