// SPDX-License-Identifier: GPL-2.0

//! The polls of a source that rests. While no flow of the source is to be split, only packet rates matter. One poll in a few is enough
//! to tell packet rates, so the packets of the other polls pass unseen: they skip the dispatcher.
//!
//! A source rests while the load controller refuses flows, and after three windows in which no flow seemed fast. As soon as a flow seems
//! fast the source wakes, and the flow is counted packet by packet before anything is decided.
//!
//! Where that has not happened for a second, fewer polls are looked at. Each of their packets stands for many, and a burst of a slow flow
//! seems fast then. So the source does not wake at once: it looks at more polls first.

use crate::algo::limits::RATE_WINDOW_MS;
use crate::algo::report::reason::HOLD_MS;

/// The number of polls of which one is looked at. It is a prime: flows that take turns mostly do so in powers of two. A flow does not
/// seem fast by the packets of one poll, of which there are 64 as a rule.
const POLLS: u8 = 13;

/// The same in a deep rest.
const POLLS_DEEP: u8 = 29;

/// The time without a fast flow after which a source rests, in milliseconds.
const CALM_MS: u32 = 3 * RATE_WINDOW_MS;

/// The time without a fast flow after which a source rests deeply, in milliseconds.
const DEEP_MS: u32 = 10 * RATE_WINDOW_MS;

// A flow whose probe was not seen is kept whole for longer than this, so the source rests between two probes.
const _: () = assert!(CALM_MS < HOLD_MS);

/// The position of a source in these polls. If all bytes of this type are zero, every poll is looked at.
#[derive(Debug, Default)]
pub struct Rest {
    // One poll of so many is looked at; 0: each.
    polls: u8,
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
            self.wake_fully(now_ms);
            self.has_begun = true;
        }
        let calm_ms = now_ms.wrapping_sub(self.awake_ms);
        if has_flows || !(refuses || calm_ms >= CALM_MS) {
            (self.polls, self.place) = (0, 0);
            return false;
        }
        if self.place == 0 {
            // While flows are refused, one that seems fast is reported.
            let is_deep = !refuses && calm_ms >= DEEP_MS;
            self.polls = if is_deep { POLLS_DEEP } else { POLLS };
        }
        self.place += 1;
        if self.place == self.polls {
            self.place = 0;
        }
        self.place != 0
    }

    /// Keeps the source awake for a while, because a flow seems fast; or ends its deep rest. Returns whether the source rested, so
    /// that the flow has to be counted from the start.
    #[inline]
    pub fn wake(&mut self, now_ms: u32) -> bool {
        if self.polls == POLLS_DEEP {
            self.awake_ms = now_ms.wrapping_sub(CALM_MS);
            return true;
        }
        let rested = self.polls != 0;
        self.wake_fully(now_ms);
        rested
    }

    fn wake_fully(&mut self, now_ms: u32) {
        self.awake_ms = now_ms;
        (self.polls, self.place) = (0, 0);
    }

    /// Returns how many packets each packet that is looked at stands for.
    #[inline]
    pub fn stands_for(&self) -> u32 {
        u32::from(self.polls).max(1)
    }
}
