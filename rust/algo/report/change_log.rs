// SPDX-License-Identifier: GPL-2.0

//! The changes of flows that somebody may have asked to be told of: a bounded ring of records, with one writer and one reader.
//!
//! | | |
//! |---|---|
//! | writer | the source's context, one at a time; wait-free, it may be the packet path |
//! | reader | one at a time, in process context, some moments later |
//! | full | the record is lost; the next one that is kept says how many were lost before it |
//!
//! `head` and `tail` count records, and wrap.

use crate::algo::limits::MAX_SLOTS;
use crate::algo::sync::{AtomicU32, AtomicU64, Ordering};

/// Records that wait to be read, at most; a power of two. All split flows of the host may begin and stop before the reader comes: a
/// source that ends stops its flows before anybody reads.
pub const LOG_RECORDS: usize = if cfg!(loom) { 2 } else { 2 * MAX_SLOTS };

/// A record as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged<const WORDS: usize> {
    /// The words that were written.
    pub words: [u64; WORDS],
    /// The number of records that were lost since the one before.
    pub lost: u32,
}

/// The ring. Memory of zeros is an empty one.
#[derive(Debug)]
pub struct ChangeLog<const WORDS: usize> {
    head: AtomicU32,
    tail: AtomicU32,
    // Records lost since the last one that was kept. Used by the writer alone.
    lost: AtomicU32,
    records: [Record<WORDS>; LOG_RECORDS],
}

#[derive(Debug)]
struct Record<const WORDS: usize> {
    words: [AtomicU64; WORDS],
    lost: AtomicU32,
}

impl<const WORDS: usize> ChangeLog<WORDS> {
    /// Returns an empty ring.
    pub fn new() -> Self {
        Self {
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            records: core::array::from_fn(|_| Record {
                words: core::array::from_fn(|_| AtomicU64::new(0)),
                lost: AtomicU32::new(0),
            }),
        }
    }

    /// Adds a record. Returns false if there was no room for it. One context at a time writes.
    pub fn push(&self, words: &[u64; WORDS]) -> bool {
        // ORDERING: Relaxed, both: only this context writes them.
        let head = self.head.load(Ordering::Relaxed);
        let lost = self.lost.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with the Release in `take`: the reader is done with the records before it.
        let tail = self.tail.load(Ordering::Acquire);
        // CAST: at most the number of records.
        if head.wrapping_sub(tail) as usize >= LOG_RECORDS {
            // ORDERING: Relaxed: only this context uses it.
            self.lost.store(lost.saturating_add(1), Ordering::Relaxed);
            return false;
        }
        let Some(record) = self.records.get(head as usize % LOG_RECORDS) else {
            return false;
        };
        // ORDERING: Relaxed, all three: the Release below orders what is read.
        for (place, word) in record.words.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
        record.lost.store(lost, Ordering::Relaxed);
        self.lost.store(0, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `take`: who sees this count sees the record.
        self.head.store(head.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest record. One context at a time reads.
    pub fn take(&self) -> Option<Logged<WORDS>> {
        // ORDERING: Relaxed: only this context writes it.
        let tail = self.tail.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with the Release in `push`.
        if self.head.load(Ordering::Acquire) == tail {
            return None;
        }
        let record = self.records.get(tail as usize % LOG_RECORDS)?;
        // ORDERING: Relaxed, both: ordered by `head`.
        let logged = Logged {
            words: core::array::from_fn(|at| {
                let word = record.words.get(at);
                word.map_or(0, |word| word.load(Ordering::Relaxed))
            }),
            lost: record.lost.load(Ordering::Relaxed),
        };
        // ORDERING: Release pairs with the Acquire in `push`: the record has been read when the writer has its place again.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        Some(logged)
    }
}

impl<const WORDS: usize> Default for ChangeLog<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}
