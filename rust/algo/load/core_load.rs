// SPDX-License-Identifier: GPL-2.0

//! The load of a core, and whose work causes it.

use super::trial_backoff::TrialBackoff;
use super::FULL;

/// The time that a CPU has spent on each kind of work since some moment in the past, in microseconds. Each sum only grows, except
/// that a clock may step back a little: that counts as nothing done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// The number of the CPU. If another CPU takes its place, the knowledge of the former one is dropped.
    pub cpu: u32,
    /// In softirqs, lanes' work included.
    pub softirq_us: u64,
    /// Of that, in the polls of lanes. A caller that cannot tell gives all of `softirq_us`.
    pub lanes_us: u64,
    /// In hard interrupts.
    pub interrupt_us: u64,
    /// In guests of a hypervisor.
    pub guest_us: u64,
    /// In tasks, of users and of the kernel, guests not included.
    pub task_us: u64,
    /// Tasks that are running or ready to run now; the one that takes the sample is not counted.
    pub runnable_tasks: u32,
}

/// The load of other work, over two samples, above which a core is left to that work.
const TAKEN: u32 = FULL / 2;
/// The load of other work below which the core may be used again.
const FREE: u32 = FULL / 4;
/// The number of samples in a row for which the load of other work has to be below that.
const FREE_SAMPLES: u16 = 8;

/// The load from which a core has no time to spare. What is missing to a full load are gaps between two samples' clocks.
const NO_TIME_LEFT: u32 = 950;
/// The load of tasks on such a core from which the tasks want more than they get.
const CROWDED_OUT: u32 = 100;

/// Samples over which a calm load is averaged: a power of two.
const CALM_SAMPLES: u32 = 4;

/// The load of one core.
#[derive(Clone, Copy, Debug)]
pub struct CoreLoad {
    times: CpuTimes,
    // The number of samples of this CPU in a row, up to 3. The second shows a load, and the third the load before it, too.
    samples: u8,
    // Each has the load of the last sample first, and then that of the sample before.
    busy: [u32; 2],
    own: [u32; 2],
    other: [u32; 2],
    // Smoothed, times CALM_SAMPLES.
    calm: u32,
    taken: bool,
    free_samples: u16,
    backoff: TrialBackoff,
}

impl CpuTimes {
    pub(super) const ZERO: Self = Self {
        cpu: 0,
        softirq_us: 0,
        lanes_us: 0,
        interrupt_us: 0,
        guest_us: 0,
        task_us: 0,
        runnable_tasks: 0,
    };
}

impl CoreLoad {
    /// The load of a core of which nothing is known.
    pub const UNKNOWN: Self = Self {
        times: CpuTimes::ZERO,
        samples: 0,
        busy: [0; 2],
        own: [0; 2],
        other: [0; 2],
        calm: 0,
        taken: false,
        free_samples: 0,
        backoff: TrialBackoff::NONE,
    };

    /// Takes a sample, `elapsed_us` after the one before.
    pub(super) fn sample(&mut self, times: CpuTimes, elapsed_us: u64) {
        let before = core::mem::replace(&mut self.times, times);
        if self.samples == 0 || before.cpu != times.cpu {
            *self = Self {
                times,
                samples: 1,
                ..Self::UNKNOWN
            };
            return;
        }
        let share = |now: u64, then: u64| {
            let share =
                now.saturating_sub(then).saturating_mul(u64::from(FULL)) / elapsed_us.max(1);
            // CAST: at most FULL.
            share.min(u64::from(FULL)) as u32
        };
        let softirq = share(times.softirq_us, before.softirq_us);
        let own = share(times.lanes_us, before.lanes_us).min(softirq);
        let tasks = share(
            times.task_us.saturating_add(times.guest_us),
            before.task_us.saturating_add(before.guest_us),
        );
        let other = softirq - own + share(times.interrupt_us, before.interrupt_us) + tasks;
        let busy = (own + other).min(FULL);
        // Softirqs come first, so a task gets what lanes leave: on a full core that is less than it wants.
        let is_crowded = busy >= NO_TIME_LEFT && tasks >= CROWDED_OUT && times.runnable_tasks > 0;
        let other = if is_crowded { FULL } else { other.min(FULL) };

        let first = self.samples == 1;
        self.samples = self.samples.saturating_add(1).min(3);
        push(&mut self.busy, busy, first);
        push(&mut self.own, own, first);
        // Other work counts as 0 before the first load.
        push(&mut self.other, other, false);
        self.calm = if first {
            busy * CALM_SAMPLES
        } else {
            self.calm - self.calm / CALM_SAMPLES + busy
        };
        self.judge();
    }

    /// Decides whether something else has the core.
    fn judge(&mut self) {
        self.backoff.tick();
        let [now, before] = self.other;
        if !self.taken {
            if (now + before) / 2 > TAKEN {
                self.taken = true;
                self.free_samples = 0;
            }
        } else if now >= FREE {
            self.free_samples = 0;
        } else {
            self.free_samples += 1;
            if self.free_samples >= self.backoff.samples(FREE_SAMPLES) {
                self.taken = false;
                // If the other work comes back, it has to be away for longer next time.
                self.backoff.note_failure();
            }
        }
    }

    /// Returns whether a load is known.
    pub fn is_known(&self) -> bool {
        self.samples > 1
    }

    /// Returns whether something else has the core: no lane is to be used here.
    pub fn is_taken(&self) -> bool {
        self.taken
    }

    /// Returns the load of the last sample.
    pub fn last(&self) -> u32 {
        self.busy[0]
    }

    /// Returns the load of the last two samples.
    pub fn recent(&self) -> u32 {
        mean(self.busy)
    }

    /// Returns a load that follows the samples slowly.
    pub fn smoothed(&self) -> u32 {
        self.calm / CALM_SAMPLES
    }

    /// Returns a load that does not fall because of one sample.
    pub fn calm(&self) -> u32 {
        self.smoothed().max(self.recent())
    }

    /// Returns the load of lanes' work in the last two samples.
    pub(super) fn own(&self) -> u32 {
        mean(self.own)
    }

    /// Returns the load of other work in the last two samples.
    pub(super) fn other(&self) -> u32 {
        self.recent().saturating_sub(self.own())
    }
}

fn push(samples: &mut [u32; 2], sample: u32, first: bool) {
    *samples = [sample, if first { sample } else { samples[0] }];
}

fn mean([now, before]: [u32; 2]) -> u32 {
    (now + before) / 2
}
