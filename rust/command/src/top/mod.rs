// SPDX-License-Identifier: GPL-2.0

//! A look at cores, lanes and flows, again and again.
//!
//! [`sample`] makes rates of what was read at two moments, [`history`] keeps those of a minute, [`view`] sorts, [`draw`] puts all
//! into lines, for which [`rows`] has room, [`keys`] makes keys of bytes, and [`screen`] is the only one that knows of a terminal.

pub mod draw;
pub mod history;
pub mod keys;
pub mod rows;
pub mod sample;
pub mod screen;
pub mod view;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use self::history::History;
use self::sample::{Moment, Sample};

/// All that was seen so far, as much of it as is shown.
#[derive(Clone, Debug)]
pub struct Seen {
    last: Moment,
    /// The time between two looks.
    pub interval: Duration,
    /// The newest interval.
    pub sample: Sample,
    /// The packets per second that lanes, or stages, got.
    pub history: History,
}

impl Seen {
    /// Begins with one moment: there are no rates yet.
    pub fn begin(moment: Moment, interval: Duration) -> Self {
        Self {
            interval,
            sample: Sample::between(None, &moment),
            history: History::default(),
            last: moment,
        }
    }

    /// Returns whether there is no second moment yet.
    pub fn is_first(&self) -> bool {
        self.sample.seconds <= 0.0
    }

    /// Adds a moment that comes after the last one.
    pub fn add(&mut self, moment: Moment) {
        self.sample = Sample::between(Some(&self.last), &moment);
        self.history
            .add(self.last.at, moment.at, self.sample.spread_pps());
        self.last = moment;
    }
}

/// Looks that are an interval apart.
#[derive(Debug)]
pub struct Watch<'a> {
    root: &'a Path,
    interval: Duration,
    begin: Instant,
    next: Instant,
    /// All that was seen so far.
    pub seen: Seen,
}

impl<'a> Watch<'a> {
    /// Looks for the first time at the host below `root`.
    pub fn begin(root: &'a Path, interval: Duration) -> Result<Self> {
        let begin = Instant::now();
        Ok(Self {
            root,
            interval,
            begin,
            next: begin + interval,
            seen: Seen::begin(Moment::read(root, begin)?, interval),
        })
    }

    /// Returns the time until the next look.
    pub fn left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Looks. Looks that were missed are not made up for.
    pub fn look(&mut self) -> Result<()> {
        self.seen.add(Moment::read(self.root, self.begin)?);
        self.next += self.interval;
        if self.left().is_zero() {
            self.next = Instant::now() + self.interval;
        }
        Ok(())
    }
}
