// SPDX-License-Identifier: GPL-2.0

//! The knobs as the packet path reads them, and the state of the CPUs: plain words, read without a lock.

use super::ffi;
use crate::algo::flow::dispatcher::Config;
use crate::algo::headers::flow_key::FlowHasher;
use crate::algo::knobs::{Build, Knobs};
use crate::algo::limits;
use crate::algo::limits::RATE_WINDOW_MS;
use crate::algo::load::stage_plan::StageOrders;
use core::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};

/// CPUs that can be lanes, or sources of devices without NAPI.
// CAST: a small number.
pub(super) const MAX_CPUS: usize = limits::MAX_CPUS as usize;

static BATCH_PKTS: AtomicU32 = AtomicU32::new(Knobs::DEFAULT.batch_pkts);
// No flow is fast enough before the knobs are published.
static MIN_WINDOW_PKTS: AtomicU32 = AtomicU32::new(u32::MAX);
static MERGE_TIMEOUT_US: AtomicU32 = AtomicU32::new(Knobs::DEFAULT.merge_timeout_us);
static LOAD_THRESHOLD_PCT: AtomicU32 = AtomicU32::new(Knobs::DEFAULT.load_threshold_pct);
static BUILD: AtomicU8 = AtomicU8::new(Knobs::DEFAULT.build as u8);
static JOIN: AtomicBool = AtomicBool::new(Knobs::DEFAULT.join);
static FLOW_SEED: AtomicU64 = AtomicU64::new(0);

/// Counts changes of `OFFLINE`, so that sources look at it only then.
static CPU_CHANGES: AtomicU32 = AtomicU32::new(0);
static OFFLINE: [AtomicU64; MAX_CPUS / 64] = [const { AtomicU64::new(0) }; MAX_CPUS / 64];

/// Publishes the knobs. Each is a word of its own: a packet may see the new one before another.
pub(crate) fn publish(knobs: &Knobs) {
    let min_window_pkts = u64::from(knobs.min_flow_pps) * u64::from(RATE_WINDOW_MS) / 1000;
    // ORDERING: Relaxed, all: independent words.
    LOAD_THRESHOLD_PCT.store(knobs.load_threshold_pct, Ordering::Relaxed);
    BUILD.store(knobs.build as u8, Ordering::Relaxed);
    JOIN.store(knobs.join, Ordering::Relaxed);
    BATCH_PKTS.store(knobs.batch_pkts, Ordering::Relaxed);
    MERGE_TIMEOUT_US.store(knobs.merge_timeout_us, Ordering::Relaxed);
    // CAST: at most a tenth of a 32-bit number.
    MIN_WINDOW_PKTS.store(min_window_pkts.max(1) as u32, Ordering::Relaxed);
}

#[inline]
pub(crate) fn config(stopping: bool) -> Config {
    Config {
        // ORDERING: Relaxed, all: independent words.
        batch_pkts: BATCH_PKTS.load(Ordering::Relaxed),
        min_window_pkts: MIN_WINDOW_PKTS.load(Ordering::Relaxed),
        build: Build::of_number(BUILD.load(Ordering::Relaxed)),
        stopping,
    }
}

/// Returns the load controller's limits: the threshold, and packets in a batch at most.
pub(crate) fn load_targets() -> (u32, u32) {
    // ORDERING: Relaxed, both: independent words.
    (
        LOAD_THRESHOLD_PCT.load(Ordering::Relaxed),
        BATCH_PKTS.load(Ordering::Relaxed),
    )
}

/// Returns whether lanes join frames.
pub(crate) fn joins() -> bool {
    // ORDERING: Relaxed: a word by itself.
    JOIN.load(Ordering::Relaxed)
}

pub(crate) fn merge_timeout_us() -> u32 {
    // ORDERING: Relaxed: a word by itself.
    MERGE_TIMEOUT_US.load(Ordering::Relaxed)
}

/// Returns whether somebody listens to the event of merges.
#[inline]
pub(crate) fn merges_are_traced() -> bool {
    // SAFETY: A word that C writes; a volatile read sees some recent value.
    unsafe { core::ptr::read_volatile(&raw const ffi::mflow_merges_traced) != 0 }
}

/// Returns a random number.
pub(crate) fn random() -> u64 {
    // SAFETY: May be called in any context.
    unsafe { kernel::bindings::get_random_u64() }
}

/// Chooses the seed of the flow keys; once, before any packet.
pub(crate) fn seed_flow_keys() {
    // ORDERING: Relaxed: hooks are registered afterwards.
    FLOW_SEED.store(random(), Ordering::Relaxed);
}

#[inline]
pub(crate) fn flow_keys() -> FlowHasher {
    // ORDERING: Relaxed: written before the hooks were registered.
    FlowHasher::new(FLOW_SEED.load(Ordering::Relaxed))
}

/// Returns a coarse time in milliseconds that wraps: ticks.
#[inline]
pub(crate) fn now_ms() -> u32 {
    // SAFETY: A word that the timer interrupt counts up; a volatile read sees some recent value.
    let ticks = unsafe { core::ptr::read_volatile(&raw const kernel::bindings::jiffies) };
    // CAST: the low bits, as it wraps.
    ticks.wrapping_mul(1000 / ffi::MFLOW_HZ as kernel::ffi::c_ulong) as u32
}

pub(crate) fn now_us() -> u64 {
    // SAFETY: May be called in any context.
    let ns = unsafe { kernel::bindings::ktime_get() };
    // CAST: time since boot is not negative.
    ns as u64 / 1000
}

pub(crate) fn set_cpu_online(cpu: u32, online: bool) {
    let Some(word) = OFFLINE.get(cpu as usize / 64) else {
        return;
    };
    let bit = 1 << (cpu % 64);
    // ORDERING: Release pairs with the Acquire in `cpu_changes`.
    if online {
        word.fetch_and(!bit, Ordering::Relaxed);
    } else {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    CPU_CHANGES.fetch_add(1, Ordering::Release);
}

#[inline]
pub(crate) fn cpu_changes() -> u32 {
    // ORDERING: Acquire pairs with the Release in `set_cpu_online`.
    CPU_CHANGES.load(Ordering::Acquire)
}

/// Set while flows are handed on from stage to stage: then each change of the CPUs is also one of the stages.
static STAGED: AtomicBool = AtomicBool::new(false);

/// Sets whether flows go through stages. Called under rtnl, before the stages' CPUs are chosen.
pub(crate) fn set_staged(staged: bool) {
    // ORDERING: Relaxed: see the fence.
    STAGED.store(staged, Ordering::Relaxed);
    // ORDERING: SeqCst pairs with the fence in `is_staged`: this thread then sees a CPU's change, or the CPU sees the stages.
    fence(Ordering::SeqCst);
}

pub(crate) fn is_staged() -> bool {
    // ORDERING: SeqCst pairs with the fence in `set_staged`.
    fence(Ordering::SeqCst);
    // ORDERING: Relaxed: see the fence.
    STAGED.load(Ordering::Relaxed)
}

pub(crate) fn is_cpu_gone(cpu: u32) -> bool {
    OFFLINE
        .get(cpu as usize / 64)
        // ORDERING: Relaxed: read after `cpu_changes`.
        .is_some_and(|word| word.load(Ordering::Relaxed) >> (cpu % 64) & 1 == 1)
}

/// The orders for flows in stages: a word of `StageOrders`.
static STAGE_ORDERS: AtomicU32 = AtomicU32::new(StageOrders::FORCED.word());

/// Sets the orders for flows in stages. Under the configuration lock, while no packet is in them. The caller synchronizes before
/// a packet enters them.
pub(super) fn set_stage_orders(orders: StageOrders) {
    // ORDERING: Relaxed: the grace period that the caller waits for comes before the loads in `stage_orders` that matter.
    STAGE_ORDERS.store(orders.word(), Ordering::Relaxed);
}

#[inline]
pub(super) fn stage_orders() -> StageOrders {
    // ORDERING: Relaxed: see `set_stage_orders`.
    StageOrders::of_word(STAGE_ORDERS.load(Ordering::Relaxed))
}

/// CPUs on which packets come that then go through stages.
static FEEDING: [AtomicU64; MAX_CPUS / 64] = [const { AtomicU64::new(0) }; MAX_CPUS / 64];

pub(super) fn note_feeding(cpu: u32) {
    if let Some(word) = FEEDING.get(cpu as usize / 64) {
        // ORDERING: Relaxed: a hint for the sampler.
        word.fetch_or(1 << (cpu % 64), Ordering::Relaxed);
    }
}

pub(super) fn forget_feeding() {
    for word in &FEEDING {
        // ORDERING: Relaxed: see `note_feeding`.
        word.store(0, Ordering::Relaxed);
    }
}

pub(super) fn feeding() -> impl Iterator<Item = u32> {
    (0..limits::MAX_CPUS).filter(|cpu| {
        let word = FEEDING.get(*cpu as usize / 64);
        // ORDERING: Relaxed: see `note_feeding`.
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (cpu % 64) & 1 == 1)
    })
}
