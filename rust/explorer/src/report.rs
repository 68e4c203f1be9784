// SPDX-License-Identifier: GPL-2.0

//! The results of a search.

use std::fmt;
use std::time::Duration;

use crate::algo::counters::Counter;
use crate::books::Broken;
use crate::event::{Bounds, Scenario, Step};

/// A sequence of steps that breaks a property.
pub struct Sequence {
    /// The scenario in which it happens.
    pub scenario: Scenario,
    /// The steps.
    pub steps: Vec<Step>,
    /// Their text.
    pub lines: Vec<String>,
    /// The property.
    pub broken: Broken,
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} in scenario {}:", self.broken, self.scenario.name)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
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

/// The limit at which a search was cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many states.
    States(usize),
    /// So much memory, in bytes.
    Bytes(usize),
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
    /// The steps that lead from one to another.
    pub transitions: u64,
    /// The steps that were tried with another event in the middle.
    pub races: u64,
    /// The steps of the longest of the shortest sequences.
    pub deepest: usize,
    /// The limit at which the search was cut short, unless no state within the bounds was left out.
    pub cut_short_by: Option<Limit>,
    /// The uses of shared words in the longest event.
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
            "{}: {pkts} packets, {incidents} incidents of {}: ",
            self.scenario,
            match self.bounds.kinds {
                few @ ([] | [_] | [_, _]) => format!("{few:?}"),
                many => format!("{} kinds", many.len()),
            }
        )?;
        match self.cut_short_by {
            None => write!(f, "all {} states", self.states)?,
            Some(Limit::States(most)) => write!(f, "CUT SHORT at its limit of {most} states")?,
            Some(Limit::Bytes(most)) => write!(
                f,
                "CUT SHORT at its limit of {most} bytes, with {} states",
                self.states
            )?,
        }
        write!(
            f,
            ", {} transitions ({} races tried), {} steps deep, {} uses of shared words in the longest, {} packets parked, {} us waited, \
            {} states compared, {:.1} s",
            self.transitions,
            self.races,
            self.deepest,
            self.longest_event,
            self.most_parked,
            self.longest_wait_us,
            self.compared,
            self.took.as_secs_f64()
        )
    }
}
