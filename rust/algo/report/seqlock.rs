// SPDX-License-Identifier: GPL-2.0

//! Words that one context writes and anybody may read, all of one moment: a sequence lock, as the kernel's `seqcount_t`.
//!
//! The writer waits for nobody, so it may be the packet path. A reader takes what it has read only if the version was the
//! same even number before and after.

use crate::algo::sync::{fence, AtomicU32, AtomicU64, Ordering};
use core::hint;

/// The number of times that a reader tries. The writer needs some dozen instructions, unless its virtual CPU is taken away
/// meanwhile.
const TRIES: usize = if cfg!(loom) { 2 } else { 1_000 };

/// Words of which readers see one state. Memory of zeros is a new one.
#[derive(Debug)]
pub struct SeqLock<const WORDS: usize> {
    // Odd while the words are being written.
    version: AtomicU32,
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> SeqLock<WORDS> {
    /// Returns words that are all zero.
    pub fn new() -> Self {
        Self {
            version: AtomicU32::new(0),
            words: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Changes words. One context at a time writes.
    pub fn update(&self, change: impl FnOnce(&mut [u64; WORDS])) {
        // ORDERING: Relaxed: only this context writes.
        let mut words = self.load();
        change(&mut words);
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire fence in `read`: who sees one of the words sees the odd version, too.
        fence(Ordering::Release);
        for (place, word) in self.words.iter().zip(words) {
            // ORDERING: Relaxed: between the fence and the version.
            place.store(word, Ordering::Relaxed);
        }
        // ORDERING: Release pairs with the Acquire in `read`: who sees this version sees all words.
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }

    /// Returns the words as they were at one moment; nothing if they were being written whenever they were looked at.
    pub fn read(&self) -> Option<[u64; WORDS]> {
        for _ in 0..TRIES {
            // ORDERING: Acquire pairs with the Release in `update`.
            let version = self.version.load(Ordering::Acquire);
            if version & 1 == 0 {
                let words = self.load();
                // ORDERING: Acquire pairs with the Release fence in `update`.
                fence(Ordering::Acquire);
                // ORDERING: Relaxed: ordered by the fence.
                if self.version.load(Ordering::Relaxed) == version {
                    return Some(words);
                }
            }
            hint::spin_loop();
        }
        None
    }

    fn load(&self) -> [u64; WORDS] {
        // ORDERING: Relaxed: the callers order it.
        core::array::from_fn(|at| {
            self.words
                .get(at)
                .map_or(0, |word| word.load(Ordering::Relaxed))
        })
    }
}

impl<const WORDS: usize> Default for SeqLock<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}
