// SPDX-License-Identifier: GPL-2.0

//! The places of the stages in FALCON's modes: FALCON's dynamic balancing (section 4.3, Algorithm 1), decided once per sample.
//!
//! The algorithm asks for loads with each packet. Here they become three orders ([`StageOrders`]), which change seldom, so that a
//! change can wait until all packets have left the stages. Each order is given at one load and taken back at a lower one, so a
//! load near the threshold changes nothing. A change that had to be undone is made again only after twice as long. All changes
//! together are a second apart, or more where they undo each other.

use super::core_load::{CoreLoad, CpuTimes};
use super::saturation::Saturation;
use super::trial_backoff::TrialBackoff;
use crate::algo::limits::{MAX_LANES, MAX_SAMPLED};

/// A core is loaded when it has reached the threshold for this many samples in a row.
const LOADED_SAMPLES: u16 = 3;
/// The distance below the threshold, in thousandths, at which a core is calm again. It is never more than half of the threshold.
const CALM_BELOW: u32 = 200;
/// The number of samples in a row for which a core has to be calm.
const CALM_SAMPLES: u16 = 8;
/// The number of samples between two changes: those of a second.
const CHANGE_SAMPLES: u16 = 20;
/// The number of samples for which a change is remembered. If it comes again within them, the next change takes twice as long.
const REMEMBERED_SAMPLES: u16 = 256;

/// The decisions for all flows in stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageOrders {
    /// The CPUs (bit mask, by their place) that are too loaded to be a first choice.
    pub loaded: u16,
    /// True if the NIC's core does GRO in `falcon-func`, too.
    pub gro_on_nic: bool,
    /// True if flows go through stages. Otherwise they take the ordinary path.
    pub onward: bool,
}

impl StageOrders {
    /// The orders without a controller: all is as the knobs say.
    pub const FORCED: Self = Self {
        loaded: 0,
        gro_on_nic: false,
        onward: true,
    };
    /// The orders of a controller that has seen no load.
    pub const CALM: Self = Self {
        gro_on_nic: true,
        ..Self::FORCED
    };

    const GRO_ON_NIC: u32 = 1 << 16;
    const ENDED: u32 = 1 << 17;

    /// Returns the orders as one word; zero is [`FORCED`](Self::FORCED).
    #[inline]
    pub const fn word(self) -> u32 {
        // CAST: widened.
        self.loaded as u32
            | if self.gro_on_nic { Self::GRO_ON_NIC } else { 0 }
            | if self.onward { 0 } else { Self::ENDED }
    }

    /// Returns the orders of a [`word`](Self::word).
    #[inline]
    pub const fn of_word(word: u32) -> Self {
        Self {
            // CAST: the lower half.
            loaded: word as u16,
            gro_on_nic: word & Self::GRO_ON_NIC != 0,
            onward: word & Self::ENDED == 0,
        }
    }
}

const _: () = assert!(MAX_LANES <= u16::BITS as usize);

/// A switch that goes on at one load, and off at a lower one.
#[derive(Clone, Copy, Debug)]
struct Hysteresis {
    is_over: bool,
    // The number of samples in a row that ask for the other state.
    samples: u16,
    backoff: TrialBackoff,
}

impl Hysteresis {
    const CALM: Self = Self {
        is_over: false,
        samples: 0,
        backoff: TrialBackoff::NONE,
    };

    fn judge(&mut self, load: u32, threshold: u32) -> bool {
        self.backoff.tick();
        let calm = threshold.saturating_sub(CALM_BELOW).max(threshold / 2);
        let (speaks, needed) = if self.is_over {
            (load <= calm, self.backoff.samples(CALM_SAMPLES))
        } else {
            (load >= threshold, LOADED_SAMPLES)
        };
        self.samples = if speaks { self.samples + 1 } else { 0 };
        if self.samples >= needed {
            self.is_over = !self.is_over;
            self.samples = 0;
            if !self.is_over {
                // If this is too early, the next time takes longer.
                self.backoff.note_failure();
            }
        }
        self.is_over
    }
}

/// The plan of stages, and what it has seen of each core. Its owner calls it from one context at a time.
#[derive(Debug)]
pub struct StagePlan {
    cores: [CoreLoad; MAX_SAMPLED],
    lanes: [Hysteresis; MAX_LANES],
    nics: Hysteresis,
    saturation: Saturation,
    orders: StageOrders,
    // Since the last change.
    samples: u16,
    // What has changed lately, as a word of orders.
    changed: u32,
    backoff: TrialBackoff,
}

impl StagePlan {
    /// Returns a plan that has seen nothing.
    pub const fn new() -> Self {
        Self {
            cores: [CoreLoad::UNKNOWN; MAX_SAMPLED],
            lanes: [Hysteresis::CALM; MAX_LANES],
            nics: Hysteresis::CALM,
            saturation: Saturation::CALM,
            orders: StageOrders::CALM,
            // The first change need not wait.
            samples: u16::MAX,
            changed: 0,
            backoff: TrialBackoff::NONE,
        }
    }

    /// Takes a sample, `elapsed_us` after the one before, and returns the orders. The first `nr_lanes` of `cpus` are the CPUs of
    /// the stages, in the order of the lanes. `nics` is a bit mask of places in `cpus`: the CPUs whose GRO may go elsewhere. The
    /// threshold is in thousandths of a core.
    pub fn step(
        &mut self,
        threshold: u32,
        elapsed_us: u64,
        cpus: &[CpuTimes],
        nr_lanes: usize,
        nics: u64,
    ) -> StageOrders {
        for (core, times) in self.cores.iter_mut().zip(cpus) {
            core.sample(*times, elapsed_us);
        }
        let nr_lanes = nr_lanes.min(MAX_LANES).min(cpus.len());
        let wanted = self.wanted(threshold, nr_lanes, nics);
        self.change_to(wanted);
        self.orders
    }

    /// Returns the orders that the loads ask for.
    fn wanted(&mut self, threshold: u32, nr_lanes: usize, nics: u64) -> StageOrders {
        let (mut loaded, mut sum) = (0, 0);
        let lanes = self.lanes.iter_mut().zip(&self.cores).take(nr_lanes);
        for (place, (lane, core)) in lanes.enumerate() {
            sum += core.recent();
            loaded |= u16::from(lane.judge(core.recent(), threshold)) << place;
        }
        let cores = self.cores.iter().enumerate();
        let nic_loads = cores.filter(|(place, _)| nics >> place & 1 == 1);
        let nic_load = nic_loads.map(|(_, core)| core.recent()).max().unwrap_or(0);
        let is_nic_loaded = self.nics.judge(nic_load, threshold);
        // CAST: at most MAX_LANES.
        let mean = sum / (nr_lanes as u32).max(1);
        if self.saturation.judge(mean, threshold) {
            // If no flow goes through stages, the other orders make no difference.
            return StageOrders {
                onward: false,
                ..self.orders
            };
        }
        StageOrders {
            loaded,
            gro_on_nic: !is_nic_loaded,
            onward: true,
        }
    }

    fn change_to(&mut self, wanted: StageOrders) {
        self.backoff.tick();
        self.samples = self.samples.saturating_add(1);
        if self.samples == REMEMBERED_SAMPLES {
            self.changed = 0;
        }
        let changes = wanted.word() ^ self.orders.word();
        if changes == 0 || self.samples < self.backoff.samples(CHANGE_SAMPLES) {
            return;
        }
        // Only orders that leave the calm state count, not those that return to it.
        let coming = changes & (wanted.word() ^ StageOrders::CALM.word());
        if coming & self.changed != 0 {
            self.backoff.note_failure();
        }
        self.changed |= changes;
        self.orders = wanted;
        self.samples = 0;
    }
}

impl Default for StagePlan {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(MAX_SAMPLED <= u64::BITS as usize);
