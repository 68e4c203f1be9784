// SPDX-License-Identifier: GPL-2.0

//! The arrival of packets at the NIC.

use std::collections::VecDeque;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

/// The way a stream is sent.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// The NIC's ring always holds packets.
    Endless,
    /// As fast as the link carries them.
    BackToBack { packet_ps: u64 },
    /// Messages of several packets; those of one message arrive back to back.
    Messages {
        packets: u32,
        packet_ps: u64,
        /// The mean time between the beginnings of two messages.
        gap_ps: f64,
        /// At random (Poisson) or evenly.
        random: bool,
    },
    /// As TCP sends: at most this many packets on their way.
    Window { packets: u32, packet_ps: u64 },
}

/// The packets of one stream that are still to come.
#[derive(Debug)]
pub(crate) struct Arrivals {
    load: Load,
    next_ps: u64,
    // Of the message that is arriving.
    left: u32,
    // When the message after this one is sent.
    message_ps: f64,
    // Packets that the window allows.
    credit: u32,
    limit_pkts: u64,
    arrived: u64,
    rng: Xoshiro256PlusPlus,
}

impl Arrivals {
    /// Returns a stream that ends after `limit_pkts`.
    pub(crate) fn new(load: Load, limit_pkts: u64, seed: u64) -> Self {
        let mut arrivals = Self {
            next_ps: 0,
            left: 0,
            message_ps: 0.0,
            credit: match load {
                Load::Window { packets, .. } => packets,
                _ => u32::MAX,
            },
            load,
            limit_pkts,
            arrived: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        };
        if matches!(arrivals.load, Load::Messages { .. }) {
            arrivals.next_message();
        }
        arrivals
    }

    /// Returns when the next packet arrives; `None`: not before [`credit`](Self::credit), or never.
    pub(crate) fn next_ps(&self) -> Option<u64> {
        (self.arrived < self.limit_pkts && self.credit > 0).then_some(self.next_ps)
    }

    pub(crate) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Notes that `packets` have left the system at `now_ps`: a window lets as many more in.
    pub(crate) fn credit(&mut self, packets: u32, now_ps: u64) {
        if matches!(self.load, Load::Window { .. }) {
            if self.credit == 0 {
                self.next_ps = self.next_ps.max(now_ps);
            }
            self.credit += packets;
        }
    }

    /// Moves what has arrived by `now_ps` into a ring of `size` arrival times; returns how many did not fit.
    pub(crate) fn pull(&mut self, now_ps: u64, ring: &mut VecDeque<u64>, size: usize) -> u64 {
        let mut lost = 0;
        while let Some(next_ps) = self.next_ps() {
            if matches!(self.load, Load::Endless) {
                if ring.len() >= size {
                    break;
                }
                ring.push_back(now_ps);
                self.arrived += 1;
                continue;
            }
            if next_ps > now_ps {
                break;
            }
            if ring.len() < size {
                ring.push_back(next_ps);
                self.step(1);
            } else {
                let skipped = self.in_a_row(now_ps);
                lost += skipped;
                self.step(skipped);
            }
        }
        lost
    }

    /// Returns how many packets can be skipped at once without passing `now_ps`: a fast link loses far more than it
    /// delivers.
    fn in_a_row(&self, now_ps: u64) -> u64 {
        match self.load {
            Load::BackToBack { packet_ps } => {
                let due = (now_ps - self.next_ps) / packet_ps.max(1) + 1;
                due.min(self.limit_pkts - self.arrived)
            }
            _ => 1,
        }
    }

    /// Goes on by `packets`; more than one only if they come evenly.
    fn step(&mut self, packets: u64) {
        self.arrived += packets;
        match self.load {
            Load::Endless => {}
            Load::BackToBack { packet_ps } => self.next_ps += packets * packet_ps.max(1),
            Load::Window { packet_ps, .. } => {
                self.credit -= 1;
                self.next_ps += packet_ps.max(1);
            }
            Load::Messages { packet_ps, .. } => {
                self.left -= 1;
                self.next_ps += packet_ps.max(1);
                if self.left == 0 {
                    self.next_message();
                }
            }
        }
    }

    fn next_message(&mut self) {
        let Load::Messages {
            packets,
            gap_ps,
            random,
            ..
        } = self.load
        else {
            return;
        };
        self.left = packets.max(1);
        let gap_ps = if random {
            // The logarithm of 0 is never asked for: `random` is below 1.
            -(1.0 - self.rng.random::<f64>()).ln() * gap_ps
        } else {
            gap_ps
        };
        self.message_ps += gap_ps;
        // CAST: times are far below 2^63. A message waits until the link has sent the one before.
        self.next_ps = self.next_ps.max(self.message_ps as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(load: Load, limit_pkts: u64, until_ps: u64) -> (Vec<u64>, u64) {
        let mut ring = VecDeque::new();
        let mut arrivals = Arrivals::new(load, limit_pkts, 7);
        let lost = arrivals.pull(until_ps, &mut ring, 1_000_000);
        assert_eq!(arrivals.arrived(), ring.len() as u64 + lost);
        (ring.into(), lost)
    }

    #[test]
    fn messages_arrive_in_one_piece() {
        let load = Load::Messages {
            packets: 2,
            packet_ps: 3,
            gap_ps: 100.0,
            random: false,
        };
        let (times, lost) = all(load, u64::MAX, 299);
        assert_eq!((times, lost), (vec![100, 103, 200, 203], 0));
    }

    #[test]
    fn random_messages_keep_their_mean() {
        let load = Load::Messages {
            packets: 1,
            packet_ps: 1,
            gap_ps: 1_000.0,
            random: true,
        };
        let (times, _) = all(load, 50_000, u64::MAX);
        let mean = *times.last().expect("packets") as f64 / times.len() as f64;
        assert!((mean - 1_000.0).abs() < 20.0, "{mean}");
        assert!(times.windows(2).all(|two| two[0] < two[1]));
    }

    #[test]
    fn a_full_ring_loses_what_comes() {
        let mut ring = VecDeque::new();
        let mut arrivals = Arrivals::new(Load::BackToBack { packet_ps: 10 }, 1_000, 1);
        assert_eq!(arrivals.pull(95, &mut ring, 4), 6);
        assert_eq!(ring, [0, 10, 20, 30]);
        ring.clear();
        assert_eq!(arrivals.pull(100, &mut ring, 4), 0);
        assert_eq!(ring, [100]);
        assert_eq!(arrivals.pull(u64::MAX / 2, &mut ring, 4), 1_000 - 10 - 4);
        assert_eq!(arrivals.next_ps(), None);
    }

    #[test]
    fn a_window_waits_for_what_is_on_its_way() {
        let load = Load::Window {
            packets: 2,
            packet_ps: 5,
        };
        let mut ring = VecDeque::new();
        let mut arrivals = Arrivals::new(load, u64::MAX, 1);
        arrivals.pull(1_000, &mut ring, 64);
        assert_eq!((ring.len(), arrivals.next_ps()), (2, None));
        arrivals.credit(1, 2_000);
        assert_eq!(arrivals.next_ps(), Some(2_000));
    }
}
