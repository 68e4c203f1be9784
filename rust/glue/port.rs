// SPDX-License-Identifier: GPL-2.0

//! An opted-in device as the packet path sees it: which source takes a packet, and that one is missing.

use super::ffi;
use super::runtime::{self, MAX_CPUS};
use super::source::{Source, UsesGro};
use crate::algo::backoff::Backoff;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use kernel::init::Zeroable;

/// What the packet path knows of an opted-in device.
pub struct Port {
    pub(super) uses_gro: UsesGro,
    pub(super) splits_behind_gro: AtomicBool,
    // For NAPIs without a source, and for CPUs without one.
    pub(super) napi_search: Backoff,
    pub(super) cpu_search: Backoff,
    // CPUs on which packets came without GRO, and the source of each.
    pub(super) wanted_cpus: [AtomicU64; MAX_CPUS / 64],
    pub(super) cpu_sources: [AtomicPtr<Source>; MAX_CPUS],
}

// SAFETY: Null pointers, false, zeros.
unsafe impl Zeroable for Port {}

impl Port {
    /// Notes that a NAPI of the device has no source. Softirq context.
    pub(crate) fn want_napi(&self) {
        self.uses_gro.note();
        // ORDERING: Relaxed: written while there are no sources.
        if self.splits_behind_gro.load(Ordering::Relaxed) {
            return;
        }
        search(&self.napi_search);
    }

    /// Returns the source for packets that come without GRO, or from it if that is where flows are split, on this CPU.
    /// Softirqs disabled.
    pub(crate) fn source_of_this_cpu(&self) -> Option<&Source> {
        // ORDERING: Relaxed: written while there are no sources.
        if self.uses_gro.get() && !self.splits_behind_gro.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: Softirqs are disabled, so the CPU stays the same.
        let cpu = unsafe { ffi::mflow_this_cpu() } as usize;
        // ORDERING: Acquire pairs with the Release in `device::add_source`.
        let source = self.cpu_sources.get(cpu)?.load(Ordering::Acquire);
        if source.is_null() {
            let word = self.wanted_cpus.get(cpu / 64)?;
            // ORDERING: Relaxed, both: a hint for the search.
            if word.load(Ordering::Relaxed) >> (cpu % 64) & 1 == 0 {
                word.fetch_or(1 << (cpu % 64), Ordering::Relaxed);
            }
            search(&self.cpu_search);
        }
        // SAFETY: It is freed only after it was taken from here and all softirqs have ended.
        unsafe { source.as_ref() }
    }
}

/// Has all devices searched, unless that was in vain not long ago.
fn search(backoff: &Backoff) {
    if backoff.ask(runtime::now_ms()) {
        // SAFETY: May be called in any context.
        unsafe { ffi::mflow_rescan() };
    }
}
