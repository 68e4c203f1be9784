// SPDX-License-Identifier: GPL-2.0

//! The wait before something that had to be undone is tried again: twice as long each time.

/// Doublings at most.
const MOST_DOUBLINGS: u8 = 6;

/// Samples without a failure after which it is trusted a little more.
const FORGIVEN_SAMPLES: u16 = 256;

/// The memory of trials that failed.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct TrialBackoff {
    failures: u8,
    quiet_samples: u16,
}

impl TrialBackoff {
    /// The memory of no failures.
    pub(in super::super) const NONE: Self = Self {
        failures: 0,
        quiet_samples: 0,
    };

    /// Returns for how many samples conditions must hold before the next trial, `first` of them before the first.
    pub(in super::super) fn samples(self, first: u16) -> u16 {
        first << self.failures
    }

    /// A trial had to be undone.
    pub(in super::super) fn note_failure(&mut self) {
        self.failures = (self.failures + 1).min(MOST_DOUBLINGS);
        self.quiet_samples = 0;
    }

    /// A sample has gone by.
    pub(in super::super) fn tick(&mut self) {
        self.quiet_samples += 1;
        if self.quiet_samples == FORGIVEN_SAMPLES {
            self.quiet_samples = 0;
            self.failures = self.failures.saturating_sub(1);
        }
    }
}
