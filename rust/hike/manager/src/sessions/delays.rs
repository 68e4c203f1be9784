// SPDX-License-Identifier: GPL-2.0

//! The delays of the last packets, and what is said of them: the exact least, greatest, mean, and percentiles.

use std::collections::VecDeque;

use crate::v1;

/// The packets of which delays are kept.
pub const KEPT: usize = 1_024;

/// The delays of one packet, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// There and back, without the time for which the reflector had the packet. No clock has to be right for it.
    pub two_way_ns: i64,
    /// From here to the reflector, as far as both clocks agree. It may be less than 0.
    pub forward_ns: i64,
    /// From the reflector to here; likewise.
    pub backward_ns: i64,
}

/// The delays of the last packets.
#[derive(Clone, Debug, Default)]
pub struct Delays(VecDeque<Sample>);

impl Delays {
    /// Adds those of one more; the oldest go.
    pub fn add(&mut self, sample: Sample) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns what is said of one of the delays of all; `None`: there is none yet.
    pub fn summary(&self, of: impl Fn(&Sample) -> i64) -> Option<v1::Delay> {
        let mut sorted: Vec<i64> = self.0.iter().map(of).collect();
        sorted.sort_unstable();
        let sum: i128 = sorted.iter().copied().map(i128::from).sum();
        // CAST: the mean of numbers of 64 bits.
        let mean_ns = (sum / i128::try_from(sorted.len()).ok()?.max(1)) as i64;
        Some(v1::Delay {
            min_ns: *sorted.first()?,
            mean_ns,
            median_ns: percentile(&sorted, 50)?,
            p90_ns: percentile(&sorted, 90)?,
            p99_ns: percentile(&sorted, 99)?,
            max_ns: *sorted.last()?,
        })
    }
}

/// Returns the least of sorted numbers that so many of a hundred are not above.
fn percentile(sorted: &[i64], percent: usize) -> Option<i64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(delays: impl IntoIterator<Item = i64>) -> Delays {
        let mut all = Delays::default();
        for two_way_ns in delays {
            all.add(Sample {
                two_way_ns,
                forward_ns: -two_way_ns,
                backward_ns: 0,
            });
        }
        all
    }

    #[test]
    fn percentiles_are_delays_that_there_were() {
        let hundred = of((1..=100).rev());
        let said = hundred.summary(|one| one.two_way_ns).expect("some");
        assert_eq!((said.min_ns, said.mean_ns, said.max_ns), (1, 50, 100));
        assert_eq!((said.median_ns, said.p90_ns, said.p99_ns), (50, 90, 99));
        let forward = hundred.summary(|one| one.forward_ns).expect("some");
        assert_eq!((forward.min_ns, forward.max_ns), (-100, -1));
        let one = of([7]).summary(|one| one.two_way_ns).expect("one");
        assert_eq!(
            (one.min_ns, one.median_ns, one.p99_ns, one.max_ns),
            (7, 7, 7, 7)
        );
        assert_eq!(of([]).summary(|one| one.two_way_ns), None);
    }

    proptest! {
        #[test]
        fn the_last_ones_are_kept(delays in prop::collection::vec(any::<i64>(), 1..3 * KEPT)) {
            let all = of(delays.iter().map(|one| one / 2));
            let kept = &delays[delays.len().saturating_sub(KEPT)..];
            prop_assert_eq!(all.count(), kept.len());
            let said = all.summary(|one| one.two_way_ns).expect("some");
            let halves = || kept.iter().map(|one| one / 2);
            prop_assert_eq!(Some(said.min_ns), halves().min());
            prop_assert_eq!(Some(said.max_ns), halves().max());
            prop_assert!(said.min_ns <= said.median_ns && said.median_ns <= said.p90_ns);
            prop_assert!(said.p90_ns <= said.p99_ns && said.p99_ns <= said.max_ns);
            prop_assert!((said.min_ns..=said.max_ns).contains(&said.mean_ns));
            let above = halves().filter(|one| *one > said.p90_ns).count();
            prop_assert!(above * 10 <= kept.len());
        }
    }
}
