// SPDX-License-Identifier: GPL-2.0

//! The entries of lanes: where the kernel's NAPIs, which `c-shims/module/mflow_worker.c` has for each lane, call the Rust half.

use super::lane::{Carries, Lane};
use super::pool;
use super::source::Source;
use crate::glue::ffi;
use core::ffi::{c_int, c_void};

/// Polls a lane. Softirq context.
#[no_mangle]
unsafe extern "C" fn mflow_lane_poll(lane: *mut c_void, budget: c_int) -> c_int {
    // SAFETY: The worker was given the address of a lane that outlives it.
    let lane = unsafe { &*lane.cast::<Lane>() };
    // CAST: budgets are small and positive.
    let budget = budget as u32;
    if lane.carries() == Carries::Batches {
        // SAFETY: Only the worker's NAPI calls us.
        return unsafe { lane.poll(pool::slots(), budget) } as c_int;
    }
    // SAFETY: Only the worker's NAPI calls us.
    let work = unsafe { lane.poll_stage(budget) };
    // SAFETY: Softirqs are disabled.
    let stages = unsafe { ffi::mflow_stages_here() };
    if !stages.is_null() {
        // SAFETY: It is the source of this CPU (see `pipeline.rs`), freed only after it was taken from here and all softirqs have
        // ended; nobody else uses it, as hooks do so in a lane's poll on this CPU, and this one is at its end.
        unsafe { (*stages.cast::<Source>()).wake_next() };
    }
    // CAST: at most the budget.
    work as c_int
}

/// Builds packets for a lane. Softirq context.
#[no_mangle]
unsafe extern "C" fn mflow_lane_build(lane: *mut c_void, budget: c_int) -> c_int {
    // SAFETY: The worker was given the address of a lane that outlives it.
    let lane = unsafe { &*lane.cast::<Lane>() };
    // CAST: budgets are small and positive, and no more is done.
    // SAFETY: Only the NAPI of what builds for the lane calls us.
    unsafe { lane.poll_building(budget as u32) as c_int }
}

ffi::check_export!(mflow_lane_build, mflow_lane_poll);
