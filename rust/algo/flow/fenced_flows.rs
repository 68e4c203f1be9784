// SPDX-License-Identifier: GPL-2.0

//! The inner flows of an outer flow that have had their fence.
//!
//! On the ordinary path, inner flows of one outer flow may wait in queues of their own: RPS on the overlay's device spreads them
//! over CPUs, and each network of a tunnel has a queue of its own. A fence covers only the packets before it in its own queue. So
//! while an outer flow begins to be split, the first packet of each inner flow is a fence, too, and the packets behind it of the
//! same inner flow are split. An inner flow that sends nothing for [`START_MS`] has nothing in such a queue any more.
//!
//! A CPU that is away, as the CPUs of virtual machines may be, empties no queue meanwhile. So a gap between two packets counts
//! for at most [`MOST_GAP_MS`]. A CPU that has come back to its poll as often as the time needs has emptied its own queues, too.

use crate::algo::headers::flow_key::{fold, MIX_A};
use crate::algo::merge::slot::FENCE_TIMEOUT_US;

/// The time for which a flow starts: the longest time that a packet may wait on the ordinary path.
pub(super) const START_MS: u32 = FENCE_TIMEOUT_US / 1_000;

/// The most of the time between two packets that counts.
pub(super) const MOST_GAP_MS: u32 = 2;

const WORDS: usize = 8;
const BUCKET_BITS: u32 = 9;

/// A set of inner flows, by their hash. Two inner flows in the same bucket share one fence. Memory of zeros is a set that has to
/// be started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fenced {
    buckets: [u64; WORDS],
    // The time of the last packet, and the part of the start that was left at that time.
    last_ms: u32,
    left_ms: u32,
    // The number of sources at the start. A source that begins later takes the fences for packets of its own.
    nr_sources: u32,
}

impl Fenced {
    pub(super) const NONE: Self = Self {
        buckets: [0; WORDS],
        last_ms: 0,
        left_ms: 0,
        nr_sources: 0,
    };

    /// Starts the set for a flow that begins to be split.
    pub(super) fn start(&mut self, now_ms: u32, nr_sources: u32) {
        *self = Self {
            last_ms: now_ms,
            left_ms: START_MS,
            nr_sources,
            ..Self::NONE
        };
    }

    /// Counts the time between the last packet and this one.
    pub(super) fn pass_time(&mut self, now_ms: u32) {
        let gap_ms = now_ms.wrapping_sub(self.last_ms).min(MOST_GAP_MS);
        self.left_ms = self.left_ms.saturating_sub(gap_ms);
        self.last_ms = now_ms;
    }

    /// Returns whether no inner flow needs a fence any more.
    pub(super) fn has_ended(&self) -> bool {
        self.left_ms == 0
    }

    /// Returns whether no inner flow may have a fence any more, because a source has begun.
    pub(super) fn is_void(&self, nr_sources: u32) -> bool {
        self.left_ms != 0 && self.nr_sources != nr_sources
    }

    /// Returns whether this inner flow is still on the ordinary path while others are split. Calls `inner_flow` only if an inner
    /// flow can be.
    pub(super) fn lacks(&self, inner_flow: impl FnOnce() -> u64) -> bool {
        self.left_ms != 0 && !self.has(inner_flow())
    }

    /// Restarts the time, because a packet takes the ordinary path before its inner flow has had a fence.
    pub(super) fn extend(&mut self) {
        self.left_ms = START_MS;
    }

    /// Returns whether this inner flow has had its fence.
    fn has(&self, inner_flow: u64) -> bool {
        let (word, bit) = place(inner_flow);
        // PANIC: the place is in the array.
        self.buckets[word] & bit != 0
    }

    /// Notes that a packet of this inner flow is a fence.
    pub(super) fn add(&mut self, inner_flow: u64) {
        let (word, bit) = place(inner_flow);
        // PANIC: the place is in the array.
        self.buckets[word] |= bit;
    }
}

/// Returns the word and the bit in that word of an inner flow's bucket.
fn place(inner_flow: u64) -> (usize, u64) {
    // CAST: nine bits.
    let bucket = (fold(inner_flow, MIX_A) >> (u64::BITS - BUCKET_BITS)) as usize;
    (bucket / 64 % WORDS, 1 << (bucket % 64))
}
