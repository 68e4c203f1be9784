// SPDX-License-Identifier: GPL-2.0

//! Counters as a reader sees them: of all sources and slots, those that are gone included, since the last reset.

use super::configuration::Configuration;
use crate::algo::counters::Counter;
use crate::glue::ffi;
use crate::glue::packet::lane::Lane;
use crate::glue::packet::pool::Slots;
use crate::glue::runtime::MAX_CPUS;

impl Configuration {
    /// Returns a counter's sum over everything, since the last reset.
    pub(crate) fn total(&self, slots: &Slots, counter: Counter) -> u64 {
        let base = self.base.counters.get(counter as usize);
        self.absolute(slots, counter)
            .wrapping_sub(base.copied().unwrap_or(0))
    }

    fn absolute(&self, slots: &Slots, counter: Counter) -> u64 {
        let retired = self.retired.counters.get(counter as usize);
        let mut sum = retired.copied().unwrap_or(0);
        self.for_each_source_of_all(|source| sum = sum.wrapping_add(source.count(counter)));
        for slot in slots.iter() {
            sum = sum.wrapping_add(slot.counters.get(counter));
        }
        sum
    }

    /// Returns the packets that lanes on `cpu` have carried, or built for other CPUs, since the last reset; none if it has never been a lane.
    pub(crate) fn lane_pkts(&self, cpu: usize) -> Option<u64> {
        let base = self.base.lane_pkts.get(cpu)?;
        let sum = self.absolute_lane_pkts(cpu);
        let is_lane = u32::try_from(cpu).is_ok_and(|cpu| self.knobs.cpus.contains(cpu));
        (is_lane || sum > 0).then(|| sum.wrapping_sub(*base))
    }

    fn absolute_lane_pkts(&self, cpu: usize) -> u64 {
        let mut sum = self.retired.lane_pkts.get(cpu).copied().unwrap_or(0);
        self.for_each_source_of_all(|source| {
            let by_cpu = source.lanes().flat_map(Lane::pkts_by_cpu);
            for (_, pkts) in by_cpu.filter(|(of, _)| *of as usize == cpu) {
                sum = sum.wrapping_add(pkts);
            }
        });
        sum
    }

    /// Counts one of what is of no source.
    pub(crate) fn count_one(&mut self, counter: Counter) {
        let counters = &mut self.retired.counters;
        if let Some(count) = counters.get_mut(counter as usize) {
            *count = count.wrapping_add(1);
        }
    }

    pub(crate) fn reset_counters(&mut self, slots: &Slots) {
        for counter in Counter::ALL {
            let now = self.absolute(slots, *counter);
            if let Some(base) = self.base.counters.get_mut(*counter as usize) {
                *base = now;
            }
        }
        for cpu in 0..MAX_CPUS {
            let now = self.absolute_lane_pkts(cpu);
            if let Some(base) = self.base.lane_pkts.get_mut(cpu) {
                *base = now;
            }
        }
        // SAFETY: Any context; by `&mut self` under the configuration lock.
        unsafe {
            ffi::mflow_freed_reset();
            ffi::mflow_stack_reset();
        }
    }
}
