// SPDX-License-Identifier: GPL-2.0

//! The load controller at work: a sample now and then, as long as flows are split and `load_threshold_pct` is set.
//!
//! The work takes no lock, so that whoever holds the configuration's can wait for its end: it looks at slots and orders, which
//! are always there, at words of `runtime`, and at the sampler, which is changed only while no work runs.

use super::{ffi, pool, runtime};
use crate::algo::cpulist::CpuSet;
use crate::algo::knobs::{Knobs, Mode};
use crate::algo::load::sampler::{CpuClocks, Sampler, SplitFlow, SAMPLE_PERIOD_MS};
use core::cell::UnsafeCell;

struct Sole(UnsafeCell<Sampler>);

// SAFETY: Used by the work alone while that is under way, and else under the configuration lock: see `start` and `stop`.
unsafe impl Sync for Sole {}

static SAMPLER: Sole = Sole(UnsafeCell::new(Sampler::new()));

/// Samples are taken as long as it lives. Made and dropped under the configuration lock.
pub(crate) struct Sampling(());

impl Sampling {
    /// Returns whether there are to be samples.
    pub(super) fn is_wanted(knobs: &Knobs) -> bool {
        // Nothing is split in other modes, so there is nothing to control.
        knobs.enabled
            && knobs.mode == Mode::Mflow
            && !knobs.cpus.is_empty()
            && knobs.load_threshold_pct > 0
    }

    /// Starts with a controller that has seen nothing. Process context.
    ///
    /// # Safety: there is no other, and the configuration lock is held.
    pub(super) unsafe fn start(lanes: &CpuSet) -> Self {
        // SAFETY: By the contract nobody else is here, and no work runs.
        unsafe { (*SAMPLER.0.get()).restart(lanes.iter(), runtime::now_us()) };
        // SAFETY: Process context; `drop` stops it.
        unsafe { ffi::mflow_sampling_start(SAMPLE_PERIOD_MS) };
        Self(())
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        // SAFETY: Process context; the work takes no lock.
        unsafe { ffi::mflow_sampling_stop() };
        // Flows have all lanes again, and may all be split.
        pool::orders().clear();
    }
}

fn clocks(cpu: u32) -> CpuClocks {
    let mut times = ffi::mflow_cpu_times::default();
    // SAFETY: It fills in what it is given.
    unsafe { ffi::mflow_cpu_times(cpu, &mut times) };
    CpuClocks {
        at_us: times.at_us,
        idle_us: (times.idle_us != u64::MAX).then_some(times.idle_us),
        softirq_us: times.softirq_us,
        interrupt_us: times.interrupt_us,
        guest_us: times.guest_us,
        task_us: times.task_us,
    }
}

/// Takes a sample. Process context, one at a time.
#[no_mangle]
unsafe extern "C" fn mflow_sample() {
    let (slots, orders) = (pool::slots(), pool::orders());
    let flows = slots.taken().filter_map(|slot| {
        Some(SplitFlow {
            slot,
            generation: orders.generation(slot),
            cpu: orders.cpu(slot)?,
            arrived_pkts: slots.slot(slot).arrived_pkts(),
        })
    });
    // SAFETY: The work calls, which runs one at a time, and only between `Sampling::start` and its drop.
    let sampler = unsafe { &mut *SAMPLER.0.get() };
    sampler.sample(
        runtime::load_targets(),
        runtime::now_us(),
        flows,
        clocks,
        orders,
    );
}

ffi::check_export!(mflow_sample);
