// SPDX-License-Identifier: GPL-2.0

//! The decision on the lanes and the batch size of one split flow, and the memory of the flow from sample to sample.

use super::core_load::CoreLoad;
use super::flow_orders::Order;
use super::trial_backoff::TrialBackoff;
use super::FULL;
use crate::algo::limits::{MAX_BATCH_PKTS, MAX_LANES};

/// The time that a lane shall work for one batch while cores have time to spare, in microseconds. The longer it works, the longer
/// later packets wait for their turn.
const SHORT_BATCH_US: u64 = 2;

/// The least packets in a batch of a flow whose packets GRO joins. GRO makes one packet of 46 at most (of 1,398 bytes), and
/// batches of 46 or 64 cost no less, but make packets wait longer.
const LEAST_JOINED_PKTS: u16 = 32;

/// The number of samples of which one has batches of two packets at least. With single packets, GRO cannot show that it would
/// join them.
const PAIRS_EVERY_SAMPLES: u16 = 16;
const PAIR_PKTS: u16 = 2;

/// A flow that takes a lane back within this many samples has given it up too early.
const NEEDED_BACK_SAMPLES: u16 = 32;

/// Samples in a row in which a flow would do with fewer lanes, before it has fewer.
const SPARE_SAMPLES: u16 = 4;

/// Samples in a row in which the core that dispatches has time to spare, before batches are halved.
const SHRINK_SAMPLES: u16 = 1;

/// The load, in thousandths, by which another lane, with its share of the flow, has to stay below the busiest one.
const LEAST_GAIN: u32 = 50;

/// The distance below the threshold, in thousandths, that the busiest core has to keep after the flow has given up a lane.
const LANE_MARGIN: u32 = 100;

/// The limits that the controller keeps to, and the time since its last sample.
#[derive(Clone, Copy, Debug)]
pub struct Targets {
    /// The load that no core is to reach, in per cent.
    pub load_threshold_pct: u32,
    /// Packets in a batch at most.
    pub batch_pkts: u32,
    /// Since the last sample, in microseconds.
    pub elapsed_us: u64,
}

impl Targets {
    /// Returns the threshold in thousandths.
    pub(super) fn threshold(self) -> u32 {
        self.load_threshold_pct.saturating_mul(FULL / 100)
    }

    fn most_batch_pkts(self) -> u16 {
        // CAST: MAX_BATCH_PKTS fits.
        self.batch_pkts.clamp(1, MAX_BATCH_PKTS) as u16
    }
}

/// The counts of one split flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowCount {
    /// Its slot.
    pub slot: usize,
    /// [`Orders::generation`](super::flow_orders::Orders::generation) of the slot, read before the packets.
    pub generation: u16,
    /// Packets that have reached its merge point, modulo 2^32.
    pub arrived_pkts: u32,
    /// True if GRO joins its packets.
    pub gro_joins: bool,
    /// The place in the sample of the CPU that dispatches it, if it is known.
    pub nic: Option<u8>,
}

/// The plan of one slot's flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowPlan {
    pub(super) is_live: bool,
    generation: u16,
    arrived_pkts: u32,
    // Of the last sample.
    pub(super) pkts: u32,
    // Whole samples for which the flow has had these lanes.
    settled_samples: u8,
    pub(super) lanes: u16,
    batch_pkts: u16,
    gro_joins: bool,
    // Samples since batches had two packets at least.
    since_pairs: u16,
    pub(super) stops: bool,
    pub(super) nic: Option<u8>,
    spare_samples: u16,
    since_shed: u16,
    lanes_backoff: TrialBackoff,
    shrink_samples: u16,
    since_shrink: u16,
    batch_backoff: TrialBackoff,
}

/// The loads of the lanes' cores during a step. Each decision moves load, and the next decision counts with that.
pub(super) struct Loads<'a> {
    pub(super) cores: &'a [CoreLoad],
    /// Packets that flows had on each lane in the last sample.
    pub(super) pkts: [u32; MAX_LANES],
    /// The load that has been moved in this step.
    pub(super) moved: [i32; MAX_LANES],
    /// Lanes that flows may have.
    pub(super) free: u16,
}

impl Loads<'_> {
    fn core(&self, lane: usize) -> CoreLoad {
        self.cores.get(lane).copied().unwrap_or(CoreLoad::UNKNOWN)
    }

    fn with_moved(&self, lane: usize, load: u32) -> u32 {
        let moved = self.moved.get(lane).copied().unwrap_or(0);
        load.saturating_add_signed(moved)
    }

    fn recent(&self, lane: usize, is_new: bool) -> u32 {
        let core = self.core(lane);
        let load = if is_new { core.last() } else { core.recent() };
        self.with_moved(lane, load)
    }

    fn calm(&self, lane: usize) -> u32 {
        self.with_moved(lane, self.core(lane).calm())
    }

    fn shift(&mut self, lane: usize, by: i32) {
        if let Some(moved) = self.moved.get_mut(lane) {
            *moved += by;
        }
    }

    /// Returns the free lane with the least load that is none of `lanes`.
    fn idlest_but(&self, lanes: u16) -> Option<usize> {
        of_mask(self.free & !lanes)
            .filter(|lane| self.core(*lane).is_known())
            .min_by_key(|lane| self.recent(*lane, false))
    }
}

/// Returns the numbers of a mask's bits.
pub(super) fn of_mask(mask: u16) -> impl Iterator<Item = usize> {
    (0..MAX_LANES).filter(move |lane| mask >> lane & 1 == 1)
}

// CAST, in this file: loads are at most a few thousand, lanes at most 16.
impl FlowPlan {
    /// A slot without a flow.
    pub(super) const NONE: Self = Self {
        is_live: false,
        generation: 0,
        arrived_pkts: 0,
        pkts: 0,
        settled_samples: 0,
        lanes: 0,
        batch_pkts: 0,
        gro_joins: false,
        since_pairs: 0,
        stops: false,
        nic: None,
        spare_samples: 0,
        since_shed: u16::MAX,
        lanes_backoff: TrialBackoff::NONE,
        shrink_samples: 0,
        since_shrink: u16::MAX,
        batch_backoff: TrialBackoff::NONE,
    };

    /// Counts the packets of the slot's flow in this sample. `free` are the lanes that a new flow gets.
    pub(super) fn count(&mut self, count: &FlowCount, free: u16, targets: Targets) {
        if !self.is_known() || self.generation != count.generation {
            *self = Self {
                generation: count.generation,
                arrived_pkts: count.arrived_pkts,
                lanes: free,
                batch_pkts: targets.most_batch_pkts(),
                ..Self::NONE
            };
        } else {
            self.pkts = count.arrived_pkts.wrapping_sub(self.arrived_pkts);
            self.arrived_pkts = count.arrived_pkts;
            self.settled_samples = self.settled_samples.saturating_add(1);
            self.since_shed = self.since_shed.saturating_add(1);
            self.since_shrink = self.since_shrink.saturating_add(1);
            self.since_pairs = (self.since_pairs + 1) % PAIRS_EVERY_SAMPLES;
            self.lanes_backoff.tick();
            self.batch_backoff.tick();
        }
        self.is_live = true;
        self.gro_joins = count.gro_joins;
        self.nic = count.nic;
    }

    fn is_known(&self) -> bool {
        self.batch_pkts != 0
    }

    pub(super) fn generation(&self) -> u16 {
        self.generation
    }

    pub(super) fn order(&self) -> Order {
        Order {
            lanes: self.lanes,
            batch_pkts: if self.since_pairs == 0 {
                self.batch_pkts.max(PAIR_PKTS)
            } else {
                self.batch_pkts
            },
            helps: true,
            stops: self.stops,
        }
    }

    fn nr_lanes(&self) -> u32 {
        self.lanes.count_ones()
    }

    /// Returns the load that the flow causes on the core of one of its lanes: the lane's work, shared out by packets.
    fn share(&self, lane: usize, loads: &Loads<'_>) -> u32 {
        if self.lanes >> lane & 1 == 0 {
            return 0;
        }
        let all = loads.pkts.get(lane).copied().unwrap_or(0).max(1);
        let own = u64::from(loads.core(lane).own());
        (own * u64::from(self.pkts) / u64::from(self.nr_lanes().max(1)) / u64::from(all)) as u32
    }

    /// Returns the work of the flow's lanes, in thousandths of a core.
    pub(super) fn work(&self, loads: &Loads<'_>) -> u32 {
        of_mask(self.lanes)
            .map(|lane| self.share(lane, loads))
            .sum()
    }

    /// Takes the flow off lanes whose cores other work has taken.
    pub(super) fn leave_taken(&mut self, loads: &mut Loads<'_>, targets: Targets) {
        let taken = self.lanes & !loads.free;
        // A flow that began while no lane was free has none.
        if taken == 0 && self.lanes != 0 {
            return;
        }
        let all_work = self.work(loads);
        let work: u32 = of_mask(taken).map(|lane| self.share(lane, loads)).sum();
        for lane in of_mask(taken) {
            let share = self.share(lane, loads) as i32;
            loads.shift(lane, -share);
        }
        self.lanes &= loads.free;
        if self.lanes == 0 {
            match loads.idlest_but(0) {
                Some(lane) => self.lanes = 1 << lane,
                // Nobody has a core for it.
                None => self.stops = true,
            }
        }
        for lane in of_mask(self.lanes) {
            loads.shift(lane, (work / self.nr_lanes()) as i32);
        }
        self.settled_samples = 0;
        // If that is too much for these lanes, the flow takes another lane at once.
        let busiest = of_mask(self.lanes)
            .map(|lane| loads.recent(lane, false))
            .max();
        if let Some(busiest) = busiest.filter(|busiest| *busiest >= targets.threshold()) {
            self.take_lane(all_work, loads, busiest);
        }
    }

    /// Takes the idlest lane, if that relieves the busiest, whose load is `busiest`.
    fn take_lane(&mut self, work: u32, loads: &mut Loads<'_>, busiest: u32) -> bool {
        let Some(lane) = loads.idlest_but(self.lanes) else {
            return false;
        };
        let nr_lanes = self.nr_lanes() + 1;
        let new_share = work / nr_lanes;
        if loads.recent(lane, false) + new_share + LEAST_GAIN > busiest {
            return false;
        }
        for old in of_mask(self.lanes) {
            loads.shift(old, -((new_share / (nr_lanes - 1).max(1)) as i32));
        }
        loads.shift(lane, new_share as i32);
        self.lanes |= 1 << lane;
        self.settled_samples = 0;
        true
    }

    /// Gives the flow a lane more, or fewer, and sets the size of its batches.
    pub(super) fn adjust(
        &mut self,
        loads: &mut Loads<'_>,
        targets: Targets,
        nic: Option<CoreLoad>,
    ) {
        if self.settled_samples == 0 {
            return;
        }
        let threshold = targets.threshold();
        let is_new = self.settled_samples == 1;
        let busiest = of_mask(self.lanes)
            .map(|lane| loads.recent(lane, is_new))
            .max()
            .unwrap_or(0);
        let shares = core::array::from_fn(|lane| self.share(lane, loads));
        let work = shares.iter().sum();
        if busiest >= threshold {
            self.spare_samples = 0;
            if self.take_lane(work, loads, busiest) && self.since_shed < NEEDED_BACK_SAMPLES {
                self.lanes_backoff.note_failure();
                self.since_shed = u16::MAX;
            }
        } else if self.spare_lane(&shares, loads, threshold).is_some() {
            self.spare_samples += 1;
            if self.spare_samples >= self.lanes_backoff.samples(SPARE_SAMPLES) {
                self.spare_samples = 0;
                self.shed(shares, loads, threshold);
            }
        } else {
            self.spare_samples = 0;
        }
        // Lanes that are busy are helped by the core that dispatches. So the load of that core decides on the size of batches.
        let nic = nic.filter(CoreLoad::is_known);
        let load = nic.map_or(
            busiest,
            |nic| if is_new { nic.last() } else { nic.recent() },
        );
        self.size_batches(load, work, targets);
    }

    /// Returns the lane that the flow would leave next, if the busiest core then stays well below the threshold. `shares` are the
    /// flow's work on each lane.
    fn spare_lane(
        &self,
        shares: &[u32; MAX_LANES],
        loads: &Loads<'_>,
        threshold: u32,
    ) -> Option<usize> {
        let lane = of_mask(self.lanes).max_by_key(|lane| loads.calm(*lane))?;
        let left = self.lanes & !(1 << lane);
        let more = shares.get(lane)? / left.count_ones().max(1);
        let busiest = of_mask(left).map(|other| loads.calm(other) + more).max()?;
        (busiest + LANE_MARGIN <= threshold).then_some(lane)
    }

    /// Leaves lanes while the busiest core stays well below the threshold.
    fn shed(&mut self, mut shares: [u32; MAX_LANES], loads: &mut Loads<'_>, threshold: u32) {
        while let Some(lane) = self.spare_lane(&shares, loads, threshold) {
            let share = shares.get_mut(lane).map_or(0, core::mem::take);
            self.lanes &= !(1 << lane);
            loads.shift(lane, -(share as i32));
            let more = share / self.nr_lanes().max(1);
            for other in of_mask(self.lanes) {
                loads.shift(other, more as i32);
                if let Some(share) = shares.get_mut(other) {
                    *share += more;
                }
            }
            self.settled_samples = 0;
            self.since_shed = 0;
        }
    }

    fn size_batches(&mut self, load: u32, work: u32, targets: Targets) {
        let most = targets.most_batch_pkts();
        // Small batches do no harm while there is any time left.
        if load >= (targets.threshold() + FULL) / 2 {
            if self.batch_pkts < most && self.since_shrink < NEEDED_BACK_SAMPLES {
                self.batch_backoff.note_failure();
                self.since_shrink = u16::MAX;
            }
            self.batch_pkts = self.batch_pkts.saturating_mul(2).min(most);
            self.shrink_samples = 0;
        } else if load > targets.threshold() {
            self.shrink_samples = 0;
        } else {
            // A core can have time to spare for weeks.
            self.shrink_samples = self.shrink_samples.saturating_add(1);
            if self.shrink_samples >= self.batch_backoff.samples(SHRINK_SAMPLES) {
                let least = self.least_batch_pkts(work, targets);
                if self.batch_pkts > least {
                    self.batch_pkts = (self.batch_pkts / 2).max(least);
                    self.since_shrink = 0;
                } else {
                    self.batch_pkts = least;
                }
            }
        }
    }

    /// Returns how many packets keep a lane busy for [`SHORT_BATCH_US`], or the number from which GRO pays, if that is larger.
    fn least_batch_pkts(&self, work: u32, targets: Targets) -> u16 {
        let work_us = u64::from(work).saturating_mul(targets.elapsed_us) / u64::from(FULL);
        let pkts = (u64::from(self.pkts) * SHORT_BATCH_US).checked_div(work_us);
        let most = targets.most_batch_pkts();
        let least = if self.gro_joins { LEAST_JOINED_PKTS } else { 1 };
        let least = u64::from(least.min(most));
        pkts.map_or(most, |pkts| pkts.clamp(least, u64::from(most)) as u16)
    }
}
