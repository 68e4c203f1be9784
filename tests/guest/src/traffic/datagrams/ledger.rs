// SPDX-License-Identifier: GPL-2.0

//! The record of one flow: which numbers arrived, how often, and in what order.

use std::ops::Range;

/// The record of the datagrams of one flow that have arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// One bit per sequence number that has arrived.
    seen: Vec<u64>,
    /// One more than the highest number that has arrived.
    end: u64,
    delivered: u64,
    reordered: u64,
    duplicate: u64,
}

impl Ledger {
    pub(crate) fn record(&mut self, sequence: u64) {
        // CAST: the bitmap of every number ever sent fits in memory, so does its index.
        let (word, bit) = ((sequence / 64) as usize, 1 << (sequence % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.duplicate += 1;
            return;
        }
        self.seen[word] |= bit;
        self.delivered += 1;
        if sequence < self.end {
            self.reordered += 1;
        } else {
            self.end = sequence + 1;
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the first runs of numbers that are missing, as `from..to`, and at most `most` of them.
    pub(crate) fn gaps(&self, most: usize) -> Vec<Range<u64>> {
        let arrived = |sequence: &u64| self.has(*sequence);
        let mut gaps = Vec::new();
        let mut at = 0;
        while gaps.len() < most {
            let Some(from) = (at..self.end).find(|sequence| !arrived(sequence)) else {
                break;
            };
            at = (from..self.end).find(arrived).unwrap_or(self.end);
            gaps.push(from..at);
        }
        gaps
    }

    pub(crate) fn has(&self, sequence: u64) -> bool {
        // CAST: as in `record()`.
        let word = self.seen.get((sequence / 64) as usize).copied();
        word.is_some_and(|word| word & 1 << (sequence % 64) != 0)
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(crate) fn reordered(&self) -> u64 {
        self.reordered
    }

    pub(crate) fn duplicate(&self) -> u64 {
        self.duplicate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(arrivals: &[u64]) -> (u64, u64, u64) {
        let mut ledger = Ledger::default();
        for &sequence in arrivals {
            ledger.record(sequence);
        }
        (ledger.delivered(), ledger.reordered(), ledger.duplicate())
    }

    #[test]
    fn gaps_are_runs_of_missing_numbers() {
        let mut ledger = Ledger::default();
        for sequence in [2, 3, 5, 200] {
            ledger.record(sequence);
        }
        assert_eq!(ledger.gaps(8), [0..2, 4..5, 6..200]);
        assert_eq!(ledger.gaps(2), [0..2, 4..5]);
    }

    #[test]
    fn order_loss_and_duplicates() {
        assert_eq!(counts(&[0, 1, 2, 3]), (4, 0, 0));
        assert_eq!(counts(&[0, 3, 4]), (3, 0, 0), "a loss is no reordering");
        assert_eq!(counts(&[0, 2, 1, 3]), (4, 1, 0));
        assert_eq!(counts(&[4, 3, 2, 1, 0]), (5, 4, 0));
        assert_eq!(counts(&[0, 1, 1, 2, 0]), (3, 0, 2));
        assert_eq!(counts(&[200, 64, 63]), (3, 2, 0));
    }
}
