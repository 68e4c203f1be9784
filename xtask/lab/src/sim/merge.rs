// SPDX-License-Identifier: GPL-2.0

//! The merge point of a stream: batches wait here for their turn.

use std::collections::VecDeque;

use super::model::{Count, Counts};

/// As in the module: batches that may be open or wait at once.
pub(super) const WINDOW_BATCHES: usize = 1024;
/// As in the module: packets that may wait.
const MAX_PARKED_PKTS: usize = 16_384;

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// In the order of arrival, from 0.
    pub(super) number: u64,
    pub(super) arrived_ps: u64,
    /// Its batch; 0 without lanes.
    pub(super) batch: u64,
}

/// Who carries a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Carrier {
    Lane(usize),
    NicCore,
}

#[derive(Debug)]
struct Batch {
    carrier: Carrier,
    sent: u32,
    carried: u32,
    closed: bool,
    parked: Vec<Packet>,
}

/// Puts the batches of a stream back in order.
#[derive(Debug, Default)]
pub(super) struct Merger {
    // The number of the first batch in `batches`: whose turn it is.
    next: u64,
    batches: VecDeque<Batch>,
    parked: usize,
    // Since when it is this batch's turn and others wait.
    waiting_ps: u64,
}

impl Merger {
    /// Opens a batch behind all others; returns its number.
    pub(super) fn open(&mut self, carrier: Carrier) -> u64 {
        self.batches.push_back(Batch {
            carrier,
            sent: 0,
            carried: 0,
            closed: false,
            parked: Vec::new(),
        });
        self.next + self.batches.len() as u64 - 1
    }

    /// One more packet goes into the batch that was opened last.
    pub(super) fn send(&mut self) {
        if let Some(batch) = self.batches.back_mut() {
            batch.sent += 1;
        }
    }

    /// No more packets go into the batch that was opened last.
    pub(super) fn close(&mut self) {
        if let Some(batch) = self.batches.back_mut() {
            batch.closed = true;
        }
    }

    /// Returns how many batches are open or wait.
    pub(super) fn batches(&self) -> usize {
        self.batches.len()
    }

    /// Returns how many packets wait.
    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    /// Returns who carries the batch whose turn it is, and since when others wait for it.
    pub(super) fn turn(&self) -> Option<(Carrier, u64)> {
        let batch = self.batches.front()?;
        (self.parked > 0).then_some((batch.carrier, self.waiting_ps))
    }

    /// Takes a run of packets of one batch; appends to `out` what can be delivered.
    pub(super) fn park(
        &mut self,
        run: &[Packet],
        now_ps: u64,
        counts: &mut Counts,
        out: &mut Vec<Packet>,
    ) {
        let Some(first) = run.first() else {
            return;
        };
        counts.add(Count::Runs, 1);
        let Some(ahead) = first.batch.checked_sub(self.next) else {
            counts.add(Count::LatePkts, run.len() as u64);
            out.extend_from_slice(run);
            return;
        };
        // CAST: at most WINDOW_BATCHES.
        let Some(batch) = self.batches.get_mut(ahead as usize) else {
            return;
        };
        // CAST: a run is at most a poll.
        batch.carried += run.len() as u32;
        batch.parked.extend_from_slice(run);
        if ahead > 0 {
            counts.add(Count::EarlyRuns, 1);
            counts.add(Count::EarlyPkts, run.len() as u64);
            if self.parked == 0 {
                self.waiting_ps = now_ps;
            }
        }
        self.parked += run.len();
        self.merge(now_ps, out);
        while self.parked > MAX_PARKED_PKTS {
            counts.add(Count::OverflowBatches, 1);
            self.give_up(now_ps, out);
        }
    }

    /// Appends to `out` what can be delivered: all batches up to the first that is not complete.
    pub(super) fn merge(&mut self, now_ps: u64, out: &mut Vec<Packet>) {
        while let Some(batch) = self.batches.front_mut() {
            self.parked -= batch.parked.len();
            out.append(&mut batch.parked);
            if !batch.closed || batch.carried < batch.sent {
                break;
            }
            self.batches.pop_front();
            self.next += 1;
            self.waiting_ps = now_ps;
        }
    }

    /// Goes on without the rest of the batch whose turn it is.
    pub(super) fn give_up(&mut self, now_ps: u64, out: &mut Vec<Packet>) {
        // The last batch is still being filled: nothing waits behind it.
        if self.batches.len() > 1 {
            self.batches.pop_front();
            self.next += 1;
            self.waiting_ps = now_ps;
            self.merge(now_ps, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(batch: u64, numbers: std::ops::Range<u64>) -> Vec<Packet> {
        numbers
            .map(|number| Packet {
                number,
                arrived_ps: 0,
                batch,
            })
            .collect()
    }

    fn numbers(out: &[Packet]) -> Vec<u64> {
        out.iter().map(|packet| packet.number).collect()
    }

    /// Two batches of two packets, both sent and closed.
    fn two() -> Merger {
        let mut merger = Merger::default();
        for lane in 0..2 {
            assert_eq!(merger.open(Carrier::Lane(lane)), lane as u64);
            merger.send();
            merger.send();
            merger.close();
        }
        merger
    }

    #[test]
    fn early_batches_wait() {
        let (mut merger, mut counts, mut out) = (two(), Counts::default(), Vec::new());
        merger.park(&run(1, 2..4), 5, &mut counts, &mut out);
        assert!(out.is_empty());
        assert_eq!(merger.turn(), Some((Carrier::Lane(0), 5)));
        // A batch is delivered as it comes, complete or not.
        merger.park(&run(0, 0..1), 6, &mut counts, &mut out);
        assert_eq!(numbers(&out), [0]);
        merger.park(&run(0, 1..2), 7, &mut counts, &mut out);
        assert_eq!(numbers(&out), [0, 1, 2, 3]);
        assert_eq!((merger.parked(), merger.batches()), (0, 0));
        assert_eq!(
            (counts.get(Count::EarlyPkts), counts.get(Count::EarlyRuns)),
            (2, 1)
        );
    }

    #[test]
    fn what_was_given_up_comes_late() {
        let (mut merger, mut counts, mut out) = (two(), Counts::default(), Vec::new());
        merger.park(&run(1, 2..4), 5, &mut counts, &mut out);
        merger.give_up(9, &mut out);
        assert_eq!(numbers(&out), [2, 3]);
        merger.park(&run(0, 0..2), 10, &mut counts, &mut out);
        assert_eq!(numbers(&out), [2, 3, 0, 1]);
        assert_eq!(counts.get(Count::LatePkts), 2);
    }
}
