// SPDX-License-Identifier: GPL-2.0

//! The progress of each lane. It is kept apart from the lanes, because the merger may ask for the progress of one that is gone.

use crate::algo::merge::slot::LaneId;
use core::sync::atomic::{AtomicU32, Ordering};

/// Lanes whose progress is told apart; more share words, which only makes the deadline more patient.
const NR_WORDS: usize = 256;

/// A word on cache lines of its own, which one CPU writes.
#[repr(align(128))]
struct Word(AtomicU32);

/// A lane's words: one for the CPU that carries, and one for the CPU that builds, if that is another.
pub(crate) struct LaneProgress {
    carried: Word,
    built: Word,
}

static WORDS: [LaneProgress; NR_WORDS] = [const {
    LaneProgress {
        carried: Word::ZERO,
        built: Word::ZERO,
    }
}; NR_WORDS];

impl Word {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "what a word begins as"
    )]
    const ZERO: Self = Self(AtomicU32::new(0));

    fn get(&self) -> u32 {
        // ORDERING: Relaxed: only compared with an earlier value.
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn advance(&self) {
        // ORDERING: Relaxed: one CPU writes it at a time.
        self.0.store(self.get().wrapping_add(1), Ordering::Relaxed);
    }
}

impl LaneProgress {
    pub(crate) fn of(lane: LaneId) -> &'static Self {
        // PANIC: the remainder is below the length.
        &WORDS[lane as usize % NR_WORDS]
    }

    /// Returns a number that changes whenever the lane takes something from its ring, or builds something in it.
    pub(crate) fn get(&self) -> u32 {
        self.carried.get().wrapping_add(self.built.get())
    }

    /// Notes that the lane has taken something from its ring.
    #[inline]
    pub(crate) fn advance(&self) {
        self.carried.advance();
    }

    /// Notes that something has been built for the lane.
    pub(crate) fn advance_building(&self) {
        self.built.advance();
    }
}
