// SPDX-License-Identifier: GPL-2.0

//! How far each lane has come. Apart from the lanes, because the merger may ask for one that is gone.

use crate::algo::slot::LaneId;
use core::sync::atomic::{AtomicU32, Ordering};

/// Lanes whose progress is told apart; more share words, which only makes the deadline more patient.
const NR_WORDS: usize = 256;

/// A lane's word, on cache lines of its own.
#[repr(align(128))]
pub(super) struct LaneProgress(AtomicU32);

static WORDS: [LaneProgress; NR_WORDS] = [const { LaneProgress(AtomicU32::new(0)) }; NR_WORDS];

impl LaneProgress {
    pub(super) fn of(lane: LaneId) -> &'static Self {
        // PANIC: the remainder is below the length.
        &WORDS[lane as usize % NR_WORDS]
    }

    /// Returns a number that changes whenever the lane takes something from its ring.
    pub(super) fn get(&self) -> u32 {
        // ORDERING: Relaxed: only compared with an earlier value.
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that the lane has taken something from its ring.
    #[inline]
    pub(super) fn advance(&self) {
        // ORDERING: Relaxed, both: only this lane writes it.
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }
}
