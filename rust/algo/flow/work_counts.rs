// SPDX-License-Identifier: GPL-2.0

//! The share of a split flow's packets that each core has carried, and the gain from splitting the flow.

use super::state::{Carrier, SlotCounts};
use crate::algo::limits::MAX_LANES;
use crate::algo::report::flow_report::Work;

/// The period over which work is counted before it is shown: many batches long, so that one whole batch more or less makes no
/// difference.
const PERIOD_MS: u32 = 1_000;

/// The count of the work that is done for one split flow, used in its source's context only. Memory of zeros is a count that has
/// to be started.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkCounts {
    lane_pkts: [u32; MAX_LANES],
    inline_pkts: u32,
    late_pkts: u32,
    given_up_batches: u32,
    since_ms: u32,
    // Whether the flow has been split for a whole period.
    has_period: bool,
}

impl WorkCounts {
    pub(super) const NONE: Self = Self {
        lane_pkts: [0; MAX_LANES],
        inline_pkts: 0,
        late_pkts: 0,
        given_up_batches: 0,
        since_ms: 0,
        has_period: false,
    };

    /// Resets all counts, for a flow that begins to be split.
    pub(super) fn start(&mut self, now_ms: u32) {
        *self = Self {
            since_ms: now_ms,
            ..Self::NONE
        };
    }

    /// Counts `pkts` packets for a batch that was opened, or goes on.
    #[inline]
    pub(super) fn add_batch(&mut self, carrier: Option<Carrier>, pkts: u32) {
        let sum = match carrier {
            Some(Carrier::Lane { lane, .. }) => self.lane_pkts.get_mut(usize::from(lane)),
            Some(Carrier::Inline) | None => None,
        };
        // The own lane's CPU is the one that dispatches.
        let sum = sum.unwrap_or(&mut self.inline_pkts);
        // No core carries so many in a period that this wraps.
        *sum = sum.wrapping_add(pkts);
    }

    /// Adds the counts of the merge point in a window.
    pub(super) fn add_window(&mut self, added: SlotCounts) {
        self.late_pkts = self.late_pkts.wrapping_add(added.late_pkts);
        self.given_up_batches = self.given_up_batches.wrapping_add(added.given_up_batches);
    }

    /// Returns the work of the period that ends now, or `None` if no period ends. In the flow's first period, returns the work so
    /// far. `lane_cpus` are the lanes' CPUs, and `inline_cpu` is the CPU that dispatches.
    pub(super) fn end_period(
        &mut self,
        now_ms: u32,
        lane_cpus: impl Iterator<Item = u32>,
        inline_cpu: u32,
    ) -> Option<Work> {
        let has_ended = now_ms.wrapping_sub(self.since_ms) >= PERIOD_MS;
        if !has_ended && self.has_period {
            return None;
        }
        let work = self.work(lane_cpus, inline_cpu);
        if has_ended {
            self.start(now_ms);
            self.has_period = true;
        }
        Some(work)
    }

    fn work(&self, lane_cpus: impl Iterator<Item = u32>, inline_cpu: u32) -> Work {
        let mut all_pkts = self.inline_pkts;
        let mut inline_core_pkts = self.inline_pkts;
        let mut busiest_pkts = 0;
        for (pkts, cpu) in self.lane_pkts.iter().zip(lane_cpus) {
            all_pkts = all_pkts.wrapping_add(*pkts);
            if cpu == inline_cpu {
                inline_core_pkts = inline_core_pkts.wrapping_add(*pkts);
            }
            busiest_pkts = busiest_pkts.max(*pkts);
        }
        Work {
            all_pkts,
            busiest_pkts: busiest_pkts.max(inline_core_pkts),
            late_pkts: self.late_pkts,
            given_up_batches: self.given_up_batches,
        }
    }
}
