// SPDX-License-Identifier: GPL-2.0

//! The results of a search.

use std::fmt;
use std::time::Duration;

use crate::algo::counters::Counter;
use crate::books::Broken;
use crate::event::{Bounds, Event, Scenario};

/// A sequence of events that breaks a property.
pub struct Sequence {
    /// The scenario in which it happens.
    pub scenario: Scenario,
    /// The events.
    pub events: Vec<Event>,
    /// True if the property is broken after them, where nothing happens any more but what must.
    pub at_end: bool,
    /// The property.
    pub broken: Broken,
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} in {:?} by", self.broken, self.scenario)?;
        for (place, event) in (1..).zip(&self.events) {
            writeln!(f, "{place:3} {event:?}")?;
        }
        if self.at_end {
            writeln!(f, "  - and nothing else but what must happen")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The counters that show whether searches have seen enough: each is to grow in some state.
pub(crate) const SIGNS: [Counter; 10] = [
    Counter::FlowsStopped,
    Counter::LanePkts,
    Counter::RequestPkts,
    Counter::InlinePkts,
    Counter::BatchesGrown,
    Counter::EarlyPkts,
    Counter::LatePkts,
    Counter::DeadlineBatches,
    Counter::OverflowBatches,
    Counter::PathsAsync,
];

/// Returns the names of counters that have grown in no state of these searches, though there is nothing that they count which these
/// should not meet.
pub fn unseen(reports: &[Report]) -> Vec<&'static str> {
    let is_seen = |place: usize| reports.iter().any(|report| report.seen[place]);
    let unseen = (0..SIGNS.len()).filter(|place| !is_seen(*place));
    unseen.map(|place| SIGNS[place].name()).collect()
}

/// The result of a search that has found no property broken.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The scenario's name.
    pub scenario: &'static str,
    /// The bounds.
    pub bounds: Bounds,
    /// The states that were found.
    pub states: usize,
    /// The events that lead from one to another.
    pub transitions: u64,
    /// The events of the longest of the shortest sequences.
    pub deepest: usize,
    /// True if no state within the bounds was left out.
    pub is_complete: bool,
    /// The steps of the longest event.
    pub longest_event: u32,
    /// The most packets that were parked in one slot.
    pub most_parked: u32,
    /// The longest time for which packets were parked, where nothing happened any more but what must; in microseconds.
    pub longest_wait_us: u64,
    /// The states that were found in two ways, and compared.
    pub compared: usize,
    /// True if a flow was split for the second time.
    pub has_split_again: bool,
    /// The signs that were seen.
    pub(crate) seen: [bool; SIGNS.len()],
    /// The time that it took.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bounds {
            pkts, incidents, ..
        } = self.bounds;
        write!(
            f,
            "{}: {pkts} packets, {incidents} incidents of {} kinds: {} states ({}), {} transitions, {} events deep, {} steps in the \
            longest event, {} packets parked, {} us waited, {} states compared, {:.1} s",
            self.scenario,
            self.bounds.kinds.len(),
            self.states,
            if self.is_complete { "all" } else { "a part" },
            self.transitions,
            self.deepest,
            self.longest_event,
            self.most_parked,
            self.longest_wait_us,
            self.compared,
            self.took.as_secs_f64()
        )
    }
}
