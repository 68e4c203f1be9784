// SPDX-License-Identifier: GPL-2.0

//! Detection of the state in which all lanes' cores are busy, so that splitting gains nothing.

use super::trial_backoff::TrialBackoff;

/// Saturated cores count as calm again with less than this share of the threshold, in per cent: split flows cost all cores
/// together more than whole ones (`DECISIONS.md`), and that alone must not saturate them again.
const CALM_PERCENT: u32 = 80;

/// The number of samples in a row for which they have to be calm.
const CALM_SAMPLES: u16 = 8;

/// The state of all lanes' cores together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saturation {
    is_saturated: bool,
    calm_samples: u16,
    backoff: TrialBackoff,
}

impl Saturation {
    /// Cores with time to spare.
    pub(super) const CALM: Self = Self {
        is_saturated: false,
        calm_samples: 0,
        backoff: TrialBackoff::NONE,
    };

    /// Takes the mean load of all lanes' cores in the last two samples; returns whether they are saturated.
    pub(super) fn judge(&mut self, mean: u32, threshold: u32) -> bool {
        self.backoff.tick();
        if !self.is_saturated {
            self.is_saturated = mean >= threshold;
            self.calm_samples = 0;
        } else if mean > threshold * CALM_PERCENT / 100 {
            self.calm_samples = 0;
        } else {
            self.calm_samples += 1;
            if self.calm_samples >= self.backoff.samples(CALM_SAMPLES) {
                self.is_saturated = false;
                // If that was too early, it is later next time.
                self.backoff.note_failure();
            }
        }
        self.is_saturated
    }
}
