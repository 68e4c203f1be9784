// SPDX-License-Identifier: GPL-2.0

//! The packets per second of the last minute, for a line of bars.

use std::collections::VecDeque;
use std::time::Duration;

/// The time that is remembered.
pub const SPAN: Duration = Duration::from_secs(60);
/// The intervals that are remembered at most: more than a minute has of the shortest ones.
const MOST: usize = 1_000;

/// An interval with its rate; nothing if the rate is not known.
#[derive(Clone, Copy, Debug)]
struct Interval {
    from: Duration,
    to: Duration,
    pps: Option<f64>,
}

impl Interval {
    /// Returns the seconds of this interval that are between two times.
    fn seconds_in(self, from: f64, to: f64) -> f64 {
        let (own_from, own_to) = (self.from.as_secs_f64(), self.to.as_secs_f64());
        (own_to.min(to) - own_from.max(from)).max(0.0)
    }
}

/// Intervals that follow each other.
#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<Interval>);

impl History {
    /// Adds the interval that has just ended, and forgets what is too old.
    pub fn add(&mut self, from: Duration, to: Duration, pps: Option<f64>) {
        self.0.push_back(Interval { from, to, pps });
        let is_old = |first: &Interval| first.to + SPAN <= to;
        while self.0.len() > MOST || self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
    }

    /// Returns the mean rate of each of `number` equal parts of the last minute, the newest last; nothing where no rate is known.
    pub fn parts(&self, number: usize) -> Vec<Option<u64>> {
        let end = self.0.back().map_or(0.0, |last| last.to.as_secs_f64());
        // CAST: a screen has few columns.
        let width = SPAN.as_secs_f64() / number as f64;
        let part = |place: usize| {
            // CAST: a screen has few columns.
            let to = end - (number - 1 - place) as f64 * width;
            self.mean(to - width, to)
        };
        (0..number).map(part).collect()
    }

    fn mean(&self, from: f64, to: f64) -> Option<u64> {
        let (mut pkts, mut seconds) = (0.0, 0.0);
        for interval in &self.0 {
            let here = interval.seconds_in(from, to);
            if let Some(pps) = interval.pps {
                pkts += pps * here;
                seconds += here;
            }
        }
        // CAST: a rate is not below 0, and what is too large becomes the largest.
        (seconds > 0.0).then(|| (pkts / seconds).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(rates: &[(u64, Option<f64>)]) -> History {
        let mut history = History::default();
        let mut from = Duration::ZERO;
        for (seconds, pps) in rates {
            let to = from + Duration::from_secs(*seconds);
            history.add(from, to, *pps);
            from = to;
        }
        history
    }

    #[test]
    fn the_newest_is_last_and_what_is_unknown_is_a_gap() {
        let parts = history(&[(10, Some(3.0)), (10, None), (20, Some(5.0))]).parts(6);
        let expected = [None, None, Some(3), None, Some(5), Some(5)];
        assert_eq!(parts, expected);
    }

    #[test]
    fn a_part_has_the_mean_of_what_is_known() {
        let parts = history(&[(15, Some(1.0)), (15, Some(4.0)), (30, None)]).parts(2);
        assert_eq!(parts, [Some(3), None]);
    }

    #[test]
    fn what_is_older_than_a_minute_is_forgotten() {
        let mut all = vec![(1, Some(9.0)); 100];
        all.extend(vec![(1, Some(1.0)); 60]);
        let history = history(&all);
        assert_eq!(history.0.len(), 60);
        assert_eq!(history.parts(60), [Some(1); 60]);
        assert_eq!(History::default().parts(3), [None; 3]);
    }
}
