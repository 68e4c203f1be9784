// SPDX-License-Identifier: GPL-2.0

//! Limits on how often something that was not found is searched for again: at once the first time, and then ever more rarely.
//!
//! A packet on any CPU may ask for a search. A search takes locks, so it runs elsewhere and reports its result. A remote peer may
//! be the cause of the packets: however many there are, there is one search a minute at most.

use crate::algo::sync::{AtomicBool, AtomicU32, Ordering};

/// The wait after the first search in vain, and the longest wait. Each wait is twice as long as the one before.
const LEAST_WAIT_MS: u32 = 100;
const MOST_WAIT_MS: u32 = 60_000;

/// The state that decides whether a search is due. Memory of zeros is a state in which nobody has asked yet. Cost: two loads for
/// a packet that asks in vain; no lock.
pub struct SearchBackoff {
    // A search has been asked for and has not ended.
    asked: AtomicBool,
    wait_ms: AtomicU32,
    ended_ms: AtomicU32,
}

impl SearchBackoff {
    /// Returns a state in which nobody has asked yet.
    pub fn new() -> Self {
        Self {
            asked: AtomicBool::new(false),
            wait_ms: AtomicU32::new(0),
            ended_ms: AtomicU32::new(0),
        }
    }

    /// Asks for a search; true if the caller has to start it.
    #[must_use]
    pub fn ask(&self, now_ms: u32) -> bool {
        // ORDERING: Relaxed, all: hints; the search takes the locks that order what it finds.
        let waited_ms = now_ms.wrapping_sub(self.ended_ms.load(Ordering::Relaxed));
        waited_ms >= self.wait_ms.load(Ordering::Relaxed)
            && !self.asked.load(Ordering::Relaxed)
            && !self.asked.swap(true, Ordering::Relaxed)
    }

    /// Returns whether a search has been asked for and has not ended.
    pub fn is_asked(&self) -> bool {
        // ORDERING: Relaxed: a hint, as in `ask`.
        self.asked.load(Ordering::Relaxed)
    }

    /// Notes that a search has ended, asked for or not, and whether it was of any use.
    pub fn end(&self, now_ms: u32, has_found: bool) {
        // ORDERING: Relaxed, all: hints; only one search runs at a time.
        let wait_ms = match self.wait_ms.load(Ordering::Relaxed) {
            _ if has_found => 0,
            // A search that was not asked for says nothing about the requests for one.
            wait_ms if !self.asked.load(Ordering::Relaxed) => wait_ms,
            wait_ms => (wait_ms * 2).clamp(LEAST_WAIT_MS, MOST_WAIT_MS),
        };
        self.wait_ms.store(wait_ms, Ordering::Relaxed);
        self.ended_ms.store(now_ms, Ordering::Relaxed);
        self.asked.store(false, Ordering::Relaxed);
    }

    /// Lets the next one that asks have its search at once: what there is to find has changed.
    pub fn reset(&self) {
        // ORDERING: Relaxed: a hint.
        self.wait_ms.store(0, Ordering::Relaxed);
    }
}

impl Default for SearchBackoff {
    fn default() -> Self {
        Self::new()
    }
}
