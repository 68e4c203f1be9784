// SPDX-License-Identifier: GPL-2.0

//! The NIC core's choice for each packet: which batch, and who carries it.

use super::merge::{Carrier, Merger, WINDOW_BATCHES};
use super::model::{Knobs, WhenFull};

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum To {
    /// Along the ordinary path.
    Next,
    Lane(usize),
    Inline,
    /// The lane's ring is full.
    Lost,
}

/// Cuts a stream into batches: lanes in turn.
#[derive(Debug)]
pub(super) struct Dispatcher {
    // What is taken of each lane's ring: packets in it, and the rest of its open batch.
    used: Vec<u32>,
    last: usize,
    open: Option<Carrier>,
    batch: u64,
    left: u32,
}

impl Dispatcher {
    /// Returns a dispatcher to `lanes` lanes.
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            used: vec![0; lanes],
            last: lanes.saturating_sub(1),
            open: None,
            batch: 0,
            left: 0,
        }
    }

    /// Decides where the next packet goes; returns its batch, too.
    pub(super) fn next(&mut self, merger: &mut Merger, knobs: &Knobs) -> (To, u64) {
        if self.used.is_empty() {
            return (To::Next, 0);
        }
        if self.left == 0 {
            self.next_batch(merger, knobs);
        }
        self.left -= 1;
        let to = match self.open {
            Some(Carrier::Lane(lane)) => self.push(lane, knobs),
            _ => To::Inline,
        };
        if to != To::Lost {
            merger.send();
        }
        (to, self.batch)
    }

    /// A lane has taken a packet from its ring.
    pub(super) fn taken(&mut self, lane: usize) {
        self.used[lane] -= 1;
    }

    fn push(&mut self, lane: usize, knobs: &Knobs) -> To {
        if knobs.when_full == WhenFull::Lose {
            if self.used[lane] >= knobs.lane_ring_pkts {
                return To::Lost;
            }
            self.used[lane] += 1;
        }
        To::Lane(lane)
    }

    fn next_batch(&mut self, merger: &mut Merger, knobs: &Knobs) {
        self.left = knobs.batch_pkts;
        // As in the module: the last number of the window is an inline batch, which grows while the window is full.
        let room = (WINDOW_BATCHES - 1).saturating_sub(merger.batches());
        if room == 0 && self.open == Some(Carrier::NicCore) {
            return;
        }
        merger.close();
        let lane = if room > 1 { self.choose(knobs) } else { None };
        let carrier = lane.map_or(Carrier::NicCore, Carrier::Lane);
        self.open = Some(carrier);
        self.batch = merger.open(carrier);
    }

    fn choose(&mut self, knobs: &Knobs) -> Option<usize> {
        let lanes = self.used.len();
        let mut in_turn = (1..=lanes).map(|step| (self.last + step) % lanes);
        let lane = match knobs.when_full {
            WhenFull::Lose => in_turn.next(),
            // One more for the end of the batch.
            WhenFull::Inline => {
                in_turn.find(|lane| self.used[*lane] + knobs.batch_pkts < knobs.lane_ring_pkts)
            }
        }?;
        self.last = lane;
        if knobs.when_full == WhenFull::Inline {
            self.used[lane] += knobs.batch_pkts;
        }
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::knobs;
    use super::*;

    fn take(dispatcher: &mut Dispatcher, knobs: &Knobs, packets: usize) -> Vec<To> {
        let mut merger = Merger::default();
        (0..packets)
            .map(|_| dispatcher.next(&mut merger, knobs).0)
            .collect()
    }

    #[test]
    fn lanes_take_turns() {
        let knobs = Knobs {
            batch_pkts: 2,
            ..knobs()
        };
        let to = take(&mut Dispatcher::new(2), &knobs, 5);
        let expected = [0, 0, 1, 1, 0].map(To::Lane);
        assert_eq!(to, expected);
        assert_eq!(take(&mut Dispatcher::new(0), &knobs, 1), [To::Next]);
    }

    #[test]
    fn full_lanes_leave_a_batch_to_the_nic_core() {
        let mut knobs = Knobs {
            batch_pkts: 2,
            lane_ring_pkts: 4,
            when_full: WhenFull::Inline,
            ..knobs()
        };
        let mut dispatcher = Dispatcher::new(1);
        let to = take(&mut dispatcher, &knobs, 4);
        assert_eq!(to, [To::Lane(0), To::Lane(0), To::Inline, To::Inline]);
        dispatcher.taken(0);
        assert_eq!(take(&mut dispatcher, &knobs, 1), [To::Lane(0)]);

        knobs.when_full = WhenFull::Lose;
        let to = take(&mut Dispatcher::new(1), &knobs, 5);
        assert_eq!(to[3..], [To::Lane(0), To::Lost]);
    }

    #[test]
    fn a_full_window_ends_in_one_growing_batch() {
        let knobs = Knobs {
            batch_pkts: 1,
            ..knobs()
        };
        let (mut merger, mut dispatcher) = (Merger::default(), Dispatcher::new(2));
        let last = (0..3_000)
            .map(|_| dispatcher.next(&mut merger, &knobs))
            .last();
        assert_eq!(merger.batches(), WINDOW_BATCHES - 1);
        assert_eq!(last, Some((To::Inline, WINDOW_BATCHES as u64 - 2)));
    }
}
