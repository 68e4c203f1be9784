// SPDX-License-Identifier: GPL-2.0

//! The load controller at work: a sample now and then, as long as flows are split or go through stages, and
//! `load_threshold_pct` is set.
//!
//! The work takes no lock, so that the holder of the configuration's can wait for its end: it looks at slots and orders, which
//! are always there, at words of `runtime`, and at the sampler, which is changed only while no work runs. What it wants to change
//! about stages takes locks, and is another work item's, which is waited for without any (`switch.rs`).

use crate::algo::knobs::cpulist::CpuSet;
use crate::algo::knobs::{Knobs, Mode};
use crate::algo::load::sampler::{CpuClocks, Sampler, SplitFlow, SAMPLE_PERIOD_MS};
use crate::algo::load::stage_plan::StageOrders;
use crate::glue::packet::pool;
use crate::glue::{ffi, runtime};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

struct Samples {
    sampler: Sampler,
    mode: Mode,
    // Samples until a change of stages may be asked for again.
    pause: u32,
}

/// A second's. A change that has been asked for waits while a CPU of the stages does not run; each try holds locks for a while.
const PAUSE_SAMPLES: u32 = 20;

struct Sole(UnsafeCell<Samples>);

// SAFETY: Used by the work alone while that is under way, and else under the configuration lock: see `start` and `stop`.
unsafe impl Sync for Sole {}

static SAMPLES: Sole = Sole(UnsafeCell::new(Samples {
    sampler: Sampler::new(),
    mode: Mode::DEFAULT,
    pause: 0,
}));

/// The orders for stages that the last sample asks for: a word of `StageOrders`.
static WANTED: AtomicU32 = AtomicU32::new(StageOrders::CALM.word());

/// Samples are taken as long as it lives. Made and dropped under the configuration lock.
pub(crate) struct SamplingWork {
    lanes: CpuSet,
}

impl SamplingWork {
    /// Returns whether there are to be samples.
    pub(super) fn is_wanted(knobs: &Knobs) -> bool {
        knobs.has_work() && knobs.load_threshold_pct > 0
    }

    /// Starts with a controller that has seen nothing. Process context.
    ///
    /// # Safety: there is no other, and the configuration lock is held.
    pub(super) unsafe fn start(mode: Mode, lanes: &CpuSet) -> Self {
        // SAFETY: By the contract nobody else is here, and no work runs.
        let samples = unsafe { &mut *SAMPLES.0.get() };
        samples.sampler.restart(lanes.iter(), runtime::now_us());
        samples.mode = mode;
        samples.pause = 0;
        // ORDERING: Relaxed: no work runs.
        WANTED.store(StageOrders::CALM.word(), Ordering::Relaxed);
        // SAFETY: Process context; `drop` stops it.
        unsafe { ffi::mflow_sampling_start(SAMPLE_PERIOD_MS) };
        Self { lanes: *lanes }
    }

    /// Returns whether it looks at these lanes.
    pub(super) fn is_of(&self, lanes: &CpuSet) -> bool {
        self.lanes == *lanes
    }

    /// Returns the orders for stages that the last sample asks for.
    pub(super) fn stage_orders(&self) -> StageOrders {
        // ORDERING: Relaxed: a word by itself; queueing the work item that reads it orders the two.
        StageOrders::of_word(WANTED.load(Ordering::Relaxed))
    }
}

impl Drop for SamplingWork {
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
    // SAFETY: The work calls, which runs one at a time, and only between `SamplingWork::start` and its drop.
    let samples = unsafe { &mut *SAMPLES.0.get() };
    match samples.mode {
        Mode::Mflow => sample_split(&mut samples.sampler),
        Mode::FalconDev | Mode::FalconFunc => sample_stages(samples),
    }
}

fn sample_split(sampler: &mut Sampler) {
    let (slots, orders) = (pool::slots(), pool::orders());
    let flows = slots.taken().filter_map(|slot| {
        Some(SplitFlow {
            slot,
            generation: orders.generation(slot),
            cpu: orders.cpu(slot)?,
            arrived_pkts: slots.slot(slot).arrived_pkts(),
            gro_joins: slots.slot(slot).gro_joins(),
        })
    });
    sampler.sample(
        runtime::load_targets(),
        runtime::now_us(),
        flows,
        clocks,
        orders,
    );
}

fn sample_stages(samples: &mut Samples) {
    let (load_threshold_pct, _) = runtime::load_targets();
    let moves_gro = samples.mode == Mode::FalconFunc;
    let nics = runtime::feeding().filter(|_| moves_gro);
    let now_us = runtime::now_us();
    let wanted = samples
        .sampler
        .sample_stages(load_threshold_pct, now_us, nics, clocks);
    // ORDERING: Relaxed: see `SamplingWork::stage_orders`.
    WANTED.store(wanted.word(), Ordering::Relaxed);
    if wanted == runtime::stage_orders() {
        samples.pause = 0;
    } else if samples.pause > 0 {
        samples.pause -= 1;
    } else {
        samples.pause = PAUSE_SAMPLES;
        // SAFETY: Any context.
        unsafe { ffi::mflow_restage() };
    }
}

ffi::check_export!(mflow_sample);
