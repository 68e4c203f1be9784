// SPDX-License-Identifier: GPL-2.0

//! Everything that is configured, and the lock around it.

use super::cpu_survey::CpuSurvey;
use super::device::DeviceState;
use super::pipeline::{self, Pipeline};
use super::sampling_work::SamplingWork;
use crate::algo::counters::{Counter, NR_COUNTERS};
use crate::algo::knobs::Knobs;
use crate::glue::ffi;
use crate::glue::locks::NotSend;
use crate::glue::packet::lane::Lane;
use crate::glue::packet::source::Source;
use crate::glue::runtime::{self, now_ms, MAX_CPUS};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use kernel::prelude::*;

pub(crate) const MAX_DEVICES: usize = 32;

pub(crate) struct Configuration {
    pub(crate) knobs: Knobs,
    pub(crate) devices: [Option<KBox<DeviceState>>; MAX_DEVICES],
    /// The sources that carry flows on behind the first stage.
    pub(super) pipeline: Pipeline,
    /// The knowledge of the CPUs for the choice of lanes.
    pub(super) survey: CpuSurvey,
    /// The load controller, if it is at work.
    pub(super) sampling: Option<SamplingWork>,
    /// The counts of sources that are gone.
    pub(super) retired: Totals,
    /// The counts at the last `reset`, which are subtracted.
    pub(super) base: Totals,
}

pub(super) struct Totals {
    pub(super) counters: [u64; NR_COUNTERS],
    pub(super) lane_pkts: [u64; MAX_CPUS],
}

impl Totals {
    const ZERO: Self = Self {
        counters: [0; NR_COUNTERS],
        lane_pkts: [0; MAX_CPUS],
    };

    /// Adds what a source and its lanes have counted.
    pub(super) fn add(&mut self, source: &Source) {
        for (sum, counter) in self.counters.iter_mut().zip(Counter::ALL) {
            *sum = sum.wrapping_add(source.count(*counter));
        }
        for (cpu, pkts) in source.lanes().flat_map(Lane::pkts_by_cpu) {
            if let Some(sum) = self.lane_pkts.get_mut(cpu as usize) {
                *sum = sum.wrapping_add(pkts);
            }
        }
    }
}

struct Locked(UnsafeCell<Configuration>);

// SAFETY: Only reached through `Guard`, which holds the lock.
unsafe impl Sync for Locked {}

static CONFIGURATION: Locked = Locked(UnsafeCell::new(Configuration {
    knobs: Knobs::DEFAULT,
    devices: [const { None }; MAX_DEVICES],
    pipeline: Pipeline::NONE,
    survey: CpuSurvey::NONE,
    sampling: None,
    retired: Totals::ZERO,
    base: Totals::ZERO,
}));

/// The configuration, locked.
pub(crate) struct Guard(NotSend);

impl Configuration {
    /// Locks the configuration. Process context; at most rtnl and the hooks' mutex are held.
    pub(crate) fn lock() -> Guard {
        // SAFETY: Process context; `drop` unlocks.
        unsafe { ffi::mflow_config_lock() };
        Guard(PhantomData)
    }

    pub(crate) fn for_each_source(&self, mut f: impl FnMut(&DeviceState, &Source)) {
        for device in self.devices.iter().flatten() {
            device.for_each_source(|source| f(device, source));
        }
    }

    /// Waits until all packets that are in the stages now have left them; returns whether it has.
    pub(super) fn empty_stages(&self, most_ms: u32) -> bool {
        pipeline::empty(
            |f| self.for_each_source_of_all(f),
            &self.pipeline.cpus,
            most_ms,
        )
    }

    /// Waits until nothing is left in the stages' rings of what is in them now, and so of what refers to a device that goes;
    /// returns whether that is so.
    pub(super) fn pass_stages(&self, most_ms: u32) -> bool {
        let end_ms = now_ms().wrapping_add(most_ms);
        !self.pipeline.is_running()
            || pipeline::pass_rings(|f| self.for_each_source_of_all(f), end_ms)
    }

    /// Lets flows into the stages where sources have just begun.
    pub(super) fn let_go(&self) {
        let devices = self.devices.iter().flatten();
        let gro_holds_ms = devices.map(|device| device.dev().gro_holds_ms()).max();
        pipeline::let_go(
            |f| self.for_each_source(|_, source| f(source)),
            gro_holds_ms.unwrap_or(0),
        );
        runtime::forget_feeding();
        self.for_each_source(|_, source| {
            if let (true, Some(cpu)) = (source.hands_on(), source.cpu()) {
                runtime::note_feeding(cpu);
            }
        });
    }

    /// Ends the stages behind the first one, of which no source is left.
    pub(super) fn end_stages(&mut self) {
        let Self {
            pipeline, retired, ..
        } = self;
        pipeline.end(|source| retired.add(source));
    }

    /// Calls `f` with the sources of all devices, and with those behind the first stage.
    pub(super) fn for_each_source_of_all(&self, mut f: impl FnMut(&Source)) {
        self.for_each_source(|_, source| f(source));
        self.pipeline.for_each(f);
    }
}

impl Deref for Guard {
    type Target = Configuration;

    fn deref(&self) -> &Configuration {
        // SAFETY: We hold the lock.
        unsafe { &*CONFIGURATION.0.get() }
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Configuration {
        // SAFETY: We hold the lock.
        unsafe { &mut *CONFIGURATION.0.get() }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: Only `Configuration::lock` makes a guard.
        unsafe { ffi::mflow_config_unlock() };
    }
}
