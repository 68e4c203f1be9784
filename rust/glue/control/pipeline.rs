// SPDX-License-Identifier: GPL-2.0

//! The pipeline of the stages behind the first one, and how flows come into the stages and out of them in order. Process
//! context, under the configuration lock.
//!
//! The first stage's sources are those of devices. Behind it each of `cpus` has one: what takes packets that a lane carries on
//! that CPU and that come to a tunnel's end or a veth (`stage_source.rs`).

use crate::algo::knobs::cpulist::CpuSet;
use crate::algo::knobs::Knobs;
use crate::algo::limits::MAX_LANES;
use crate::algo::stage::{Route, StageSet};
use crate::glue::ffi;
use crate::glue::locks::{sleep_us, synchronize, SoftirqsOff};
use crate::glue::packet::lane::Lane;
use crate::glue::packet::source::{Source, StageContext};
use crate::glue::runtime::{self, now_ms};
use core::ptr;
use kernel::prelude::*;

/// The time within which the ordinary path of a CPU has to be empty once. The packets kept back meanwhile, half of a ring, are a
/// limit, too.
const QUIET_MS: u32 = 1_000;
const LOOK_US: u32 = 50;
/// This many stages a packet may still have before it, with tunnels in tunnels.
const MOST_STAGES: u32 = 4;

/// The sources behind the first stage.
pub(super) struct Pipeline {
    sources: [Option<KVBox<Source>>; MAX_LANES],
    /// The CPUs that they are on: those of `cpus` that are online.
    pub(super) cpus: CpuSet,
}

impl Pipeline {
    pub(super) const NONE: Self = Self {
        sources: [const { None }; MAX_LANES],
        cpus: CpuSet::EMPTY,
    };

    pub(super) fn is_running(&self) -> bool {
        !self.cpus.is_empty()
    }

    pub(super) fn for_each(&self, f: impl FnMut(&Source)) {
        self.sources
            .iter()
            .flatten()
            .map(|source| &**source)
            .for_each(f);
    }

    /// Starts what `knobs` want, which are for CPUs that are online. On an error some may have been started.
    pub(super) fn start(&mut self, knobs: &Knobs) -> Result {
        let stages = StageSet::of(knobs);
        self.cpus = knobs.cpus;
        for (place, cpu) in self.sources.iter_mut().zip(knobs.cpus.iter()) {
            let context = StageContext {
                stages,
                device: 0,
                cpu: Some(cpu),
                is_first: false,
            };
            // SAFETY: There is no device to tell of GRO, and no NAPI.
            let source = unsafe { Source::of_stages(None, None, &knobs.cpus, context)? };
            source.set_route(Route::Onward);
            let source: &Source = place.insert(source);
            // SAFETY: The source is freed in `end`, after it was taken from here and all softirqs have ended.
            unsafe { ffi::mflow_stages_set(cpu, ptr::from_ref(source).cast_mut().cast()) };
        }
        Ok(())
    }

    /// Ends them, and shows what they have counted. Nothing comes to them any more.
    pub(super) fn end(&mut self, retire: impl FnMut(&Source)) {
        if !self.is_running() {
            return;
        }
        for cpu in self.cpus.iter() {
            // SAFETY: No source is none.
            unsafe { ffi::mflow_stages_set(cpu, ptr::null_mut()) };
        }
        synchronize();
        let mut is_carried = true;
        self.for_each(|source| is_carried &= source.is_carried());
        if !is_carried {
            pr_warn!("a stage has not run; the packets it still has are dropped\n");
        }
        self.for_each(retire);
        self.sources.iter_mut().for_each(|place| *place = None);
        self.cpus = CpuSet::EMPTY;
    }
}

/// Returns which of `cpus` are online, and stay so for now.
pub(super) fn online(cpus: &CpuSet) -> CpuSet {
    let mut online = CpuSet::EMPTY;
    for cpu in cpus.iter() {
        // SAFETY: Any context.
        if !runtime::is_cpu_gone(cpu) && unsafe { ffi::mflow_cpu_is_online(cpu) } {
            online.insert(cpu);
        }
    }
    online
}

/// Waits until the ordinary path of a CPU has been empty, but not beyond `end_ms`, and not when too much is `kept` back.
fn wait_quiet(cpu: u32, end_ms: u32, kept: impl Fn() -> bool) {
    // SAFETY: Process context.
    while !unsafe { ffi::mflow_cpu_is_quiet(cpu) } && !has_come(end_ms) && !kept() {
        sleep_us(LOOK_US);
    }
}

/// Returns the CPU that the thread is on at the moment, or was.
fn this_cpu() -> u32 {
    let _softirqs_off = SoftirqsOff::new();
    // SAFETY: Softirqs are disabled.
    unsafe { ffi::mflow_this_cpu() }
}

fn has_come(time_ms: u32) -> bool {
    // CAST: the sign of the difference says which comes first.
    now_ms().wrapping_sub(time_ms) as i32 >= 0
}

/// Waits until the packets in the stages have arrived, as `empty` does, and then until the packets kept back meanwhile have gone
/// after them on the ordinary path, each for `most_ms` at most.
pub(super) fn return_home(
    for_each: impl Fn(&mut dyn FnMut(&Source)),
    empty: impl FnOnce() -> bool,
    most_ms: u32,
) {
    for_each(&mut |source| source.set_route(Route::Returning));
    synchronize();
    if !empty() {
        pr_warn!("a stage has not run for {most_ms} ms; what it still has comes late, or is dropped if it ends\n");
    }
    for_each(&mut |source| source.set_route(Route::Home));
    synchronize();
    for_each(&mut |source| source.wake_home());
    let end_ms = now_ms().wrapping_add(most_ms);
    while !is_home_empty(&for_each) && !has_come(end_ms) {
        sleep_us(2 * LOOK_US);
    }
}

/// Returns whether nothing is kept back at home.
pub(super) fn is_home_empty(for_each: impl Fn(&mut dyn FnMut(&Source))) -> bool {
    let mut is_empty = true;
    for_each(&mut |source| is_empty &= source.is_home_empty());
    is_empty
}

/// Lets flows into the stages that have gathered before them since [`Source::begin`]: their last packets on the ordinary path are
/// out of the way once it has been empty. After `gro_holds_ms` GRO holds none of them.
pub(super) fn let_go(for_each: impl Fn(&mut dyn FnMut(&Source)), gro_holds_ms: u32) {
    let gathering = |f: &mut dyn FnMut(&Source)| {
        for_each(&mut |source| {
            if source.hands_on() && source.route() == Route::Gathering {
                f(source);
            }
        });
    };
    let mut any = false;
    gathering(&mut |_| any = true);
    if !any {
        return;
    }
    // All hooks see the sources now, and have noted on which CPU they are.
    synchronize();
    let end_ms = now_ms().wrapping_add(QUIET_MS);
    let gro_ms = now_ms().wrapping_add(gro_holds_ms.min(QUIET_MS));
    gathering(&mut |source| {
        // Its first packet has GRO let go. Where none comes, nothing waits in rings.
        while source.gro_may_hold() && !has_come(gro_ms) {
            sleep_us(LOOK_US);
        }
        if let Some(cpu) = source.cpu() {
            wait_quiet(cpu, end_ms, || source.is_half_full());
        }
    });
    gathering(&mut |source| source.set_route(Route::Onward));
    synchronize();
    // Those that have begun before have nothing to sleep for.
    for_each(&mut |source| {
        if source.hands_on() {
            source.wake_all();
        }
    });
}

/// Waits until all that waits in the stages' rings now has been carried to its end or to the next stage, but not beyond `end_ms`;
/// returns whether it has been.
pub(super) fn pass_rings(for_each: impl Fn(&mut dyn FnMut(&Source)), end_ms: u32) -> bool {
    pass_lanes(for_each, end_ms, Lane::has_passed_mark)
}

/// Does that for lanes that `has_passed` once they have passed their marks.
fn pass_lanes(
    for_each: impl Fn(&mut dyn FnMut(&Source)),
    end_ms: u32,
    has_passed: impl Fn(&Lane) -> bool,
) -> bool {
    for_each(&mut |source| source.lanes().for_each(Lane::set_mark));
    loop {
        let mut passed = true;
        for_each(&mut |source| passed &= source.lanes().all(&has_passed));
        if passed || has_come(end_ms) {
            // What was taken out last is still being carried.
            synchronize();
            return passed;
        }
        sleep_us(LOOK_US);
    }
}

/// Waits until all packets that are in the stages now have left them, for at most `most_ms`; returns whether it has.
pub(super) fn empty(
    for_each: impl Fn(&mut dyn FnMut(&Source)),
    cpus: &CpuSet,
    most_ms: u32,
) -> bool {
    let end_ms = now_ms().wrapping_add(most_ms);
    let pass = || {
        (0..MOST_STAGES).all(|_| {
            pass_lanes(&for_each, end_ms, |lane| {
                lane.has_passed_mark() || lane.waits_for_cpu()
            })
        })
    };
    let mut passed = pass();
    // What waits for a CPU that is gone goes after all that is before it: the later stages first.
    let elsewhere = online(cpus).iter().next().unwrap_or_else(this_cpu);
    for with_first in [false, true] {
        let mut any = false;
        for_each(&mut |source| {
            if with_first || !source.is_first() {
                any |= source.displace_lanes(elsewhere);
            }
        });
        if any {
            passed &= pass();
        }
    }
    // Behind the last stage a device may have a queue of its own.
    let end_ms = now_ms().wrapping_add(QUIET_MS);
    let kept = || {
        let mut kept = false;
        for_each(&mut |source| kept |= source.is_half_full());
        kept
    };
    Iterator::chain(cpus.iter(), [elsewhere]).for_each(|cpu| wait_quiet(cpu, end_ms, kept));
    passed
}
