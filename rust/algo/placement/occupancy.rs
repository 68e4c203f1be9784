// SPDX-License-Identifier: GPL-2.0

//! The CPUs that are in use: looks, one after the other, show them, and use that lasts only for a moment changes nothing.
//!
//! An interrupt that irqbalance moves, or a reader that the scheduler moves, stays at its new place for long. So a CPU is taken
//! once two looks have shown its use, and free again after sixteen looks that have not. If it is taken again, it is free after
//! twice as many the next time, and so on. A reader that goes to and fro between some CPUs soon has all of them, and lanes stay
//! where they are.

use crate::algo::knobs::cpulist::CpuSet;
use crate::algo::limits::MAX_CPUS;
use crate::algo::load::trial_backoff::TrialBackoff;

/// Looks in a row that show a CPU's use before it counts.
pub const TAKEN_LOOKS: u16 = 2;
/// Looks in a row without it before the CPU is free, the first time.
pub const FREE_LOOKS: u16 = 16;

/// Returns whether a thread that was seen on a CPU in `seen` of `ticks` runs there: one that only passes by does not count.
pub fn is_at_home(seen: u32, ticks: u32) -> bool {
    seen > 0 && u64::from(seen) * 4 >= u64::from(ticks)
}

/// Returns the mean of how much of a CPU's time is used, as a part of 255: it has been `mean`, and in the last `ticks` there was some
/// use in `seen` of them.
pub fn mean_use(mean: u8, seen: u32, ticks: u32) -> u8 {
    const OLD: u64 = 7;
    let now = u64::from(seen.min(ticks)) * 255 / u64::from(ticks.max(1));
    // CAST: the mean of two parts of 255.
    ((u64::from(mean) * OLD + now) / (OLD + 1)) as u8
}

/// The CPUs that are taken by one kind of use.
pub struct Occupancy {
    cpus: [Cpu; MAX_CPUS as usize],
    taken: CpuSet,
}

#[derive(Clone, Copy)]
struct Cpu {
    /// Looks in a row that have shown the contrary of what counts.
    contrary_looks: u16,
    backoff: TrialBackoff,
}

impl Occupancy {
    /// All CPUs are free.
    pub const NONE: Self = Self {
        cpus: [Cpu {
            contrary_looks: 0,
            backoff: TrialBackoff::NONE,
        }; MAX_CPUS as usize],
        taken: CpuSet::EMPTY,
    };

    /// Takes a look, which has shown use of the CPUs in `seen`. Who sees nobody at all has seen nothing of those that have gone
    /// either: a look without use is not to be taken, unless nobody can be seen.
    pub fn look(&mut self, seen: &CpuSet) {
        for (number, cpu) in (0..MAX_CPUS).zip(&mut self.cpus) {
            cpu.backoff.tick();
            let (is_seen, is_taken) = (seen.contains(number), self.taken.contains(number));
            if is_seen == is_taken {
                cpu.contrary_looks = 0;
                continue;
            }
            cpu.contrary_looks = cpu.contrary_looks.saturating_add(1);
            let needed = match is_taken {
                true => cpu.backoff.samples(FREE_LOOKS),
                false => TAKEN_LOOKS,
            };
            if cpu.contrary_looks < needed {
                continue;
            }
            cpu.contrary_looks = 0;
            if is_taken {
                self.taken.remove(number);
                // A reader that comes again has to be away for longer the next time.
                cpu.backoff.note_failure();
            } else {
                self.taken.insert(number);
            }
        }
    }

    /// Returns the CPUs that are taken.
    pub fn taken(&self) -> &CpuSet {
        &self.taken
    }
}
