// SPDX-License-Identifier: GPL-2.0

//! The pace at which polls bring packets. While each poll brings one, the core that dispatches waits for packets. A lane would only wake
//! another core for each of them, so the core that dispatches carries them itself.
//!
//! All flows of the source count together: a poll that brings one packet of each of many flows has work for lanes.

use crate::algo::counters::{Counter, Counters};

/// The level from which on the core that dispatches carries packets itself, and the highest one. A packet that comes alone adds 1 to it.
const SINGLE_LEVEL: u32 = 32;
const MAX_LEVEL: u32 = 48;

/// The levels that a packet takes away which comes with others: a burst finds its lanes soon, and a late interrupt now and then does not
/// matter.
const COMPANION_LEVELS: u32 = 4;

/// The most packets of a batch that this core carries because polls bring single packets. The next look is behind them.
const SINGLE_BATCH_PKTS: u32 = 4;

/// The most packets of a lane's batch behind single packets. A burst may be over within it, and each packet that comes alone wakes the lane.
const BURST_BATCH_PKTS: u32 = 32;

/// The number of packets behind single ones for which lanes have such batches.
const BURST_PKTS: u32 = 1_024;

/// The polls and packets of a source since the last look. Memory of zeros is a source that has had none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PollPace {
    // All modulo 2^32.
    polls: u32,
    polled_pkts: u32,
    ordinary_pkts: u32,
    seen_polls: u32,
    seen_pkts: u32,
    level: u32,
    // Packets for which lanes have small batches.
    burst_pkts: u32,
}

/// The result of a look at polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// True if packets have come one per poll for a while.
    pub(super) is_single: bool,
    /// The most packets of the next batch.
    pub(super) most_pkts: u32,
}

impl PollPace {
    /// Counts a poll, if it has brought a packet. `counters` are the source's, and no run is open.
    #[inline]
    pub(super) fn end_poll(&mut self, counters: &Counters) {
        let pkts = self.pkts(counters);
        if pkts != self.polled_pkts {
            self.polled_pkts = pkts;
            self.polls = self.polls.wrapping_add(1);
        }
    }

    /// Counts packets of flows that stay whole.
    #[inline]
    pub(super) fn add_ordinary(&mut self, pkts: u32) {
        self.ordinary_pkts = self.ordinary_pkts.wrapping_add(pkts);
    }

    /// Looks at the packets and polls since the last look. Called between two batches. `running_pkts` are the packets that the counters
    /// lack (`run.rs`). `has_time` says whether the core that dispatches may carry packets.
    #[inline]
    pub(super) fn look(&mut self, counters: &Counters, running_pkts: u32, has_time: bool) -> Pace {
        let pkts = self.pkts(counters).wrapping_add(running_pkts);
        let new_pkts = pkts.wrapping_sub(self.seen_pkts);
        let new_polls = self.polls.wrapping_sub(self.seen_polls);
        (self.seen_pkts, self.seen_polls) = (pkts, self.polls);
        let companions = new_pkts.saturating_sub(new_polls);
        self.level = self
            .level
            .saturating_add(new_pkts - companions)
            .saturating_sub(companions.saturating_mul(COMPANION_LEVELS))
            .min(MAX_LEVEL);
        self.burst_pkts = self.burst_pkts.saturating_sub(new_pkts);
        let is_single = self.level >= SINGLE_LEVEL && has_time;
        if is_single {
            self.burst_pkts = BURST_PKTS;
        }
        let most_pkts = match self.burst_pkts {
            _ if is_single => SINGLE_BATCH_PKTS,
            0 => u32::MAX,
            _ => BURST_BATCH_PKTS,
        };
        Pace {
            is_single,
            most_pkts,
        }
    }

    /// Returns the number of packets that the source has had, but for those without a flow.
    fn pkts(&self, counters: &Counters) -> u32 {
        let [lanes, inline] =
            [Counter::LanePkts, Counter::InlinePkts].map(|counter| counters.get(counter));
        // CAST: modulo 2^32.
        (lanes.wrapping_add(inline) as u32).wrapping_add(self.ordinary_pkts)
    }
}
