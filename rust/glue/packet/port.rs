// SPDX-License-Identifier: GPL-2.0

//! An opted-in device as the packet path sees it: the source of each packet, and the search for missing sources.

use super::source::Source;
use crate::algo::source::search_backoff::SearchBackoff;
use crate::glue::ffi;
use crate::glue::runtime::{self, MAX_CPUS};
use crate::glue::stack::hook_heads::{BeginsWithPortHead, PortHead};
use crate::glue::stack::skb::SkBuff;
use crate::glue::stack::way;
use core::mem::offset_of;
use core::num::NonZeroU32;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use kernel::init::Zeroable;

/// The data of an opted-in device that the packet path uses.
#[repr(C)]
pub struct Port {
    // First of all: the hooks read it.
    pub(crate) head: PortHead,
    // True if the sources hand flows on. They are then those of `stage_sources`.
    pub(crate) hands_on: AtomicBool,
    // The searches for the missing sources of NAPIs, and of CPUs.
    pub(crate) napi_search: SearchBackoff,
    pub(crate) cpu_search: SearchBackoff,
    // CPUs on which packets came without GRO, and the source of each.
    pub(crate) wanted_cpus: [AtomicU64; MAX_CPUS / 64],
    pub(crate) cpu_sources: [AtomicPtr<Source>; MAX_CPUS],
    // The sources of CPUs that hand flows on. They are apart, so that the path of split flows asks nothing more for each packet.
    pub(crate) stage_sources: [AtomicPtr<Source>; MAX_CPUS],
    // The sources of NAPIs behind GRO, by the NAPI's number. If two NAPIs have the same place, the second one has no source.
    napi_sources: [AtomicPtr<Source>; NAPI_PLACES],
    // The numbers of NAPIs that packets have come through, in the places of their sources.
    pub(crate) wanted_numbers: [AtomicU32; NAPI_PLACES],
}

/// The number of places for sources of NAPIs. As many NAPIs with consecutive numbers have places of their own.
pub(crate) const NAPI_PLACES: usize = 256;

const _: () = assert!(offset_of!(Port, head) == 0);
// SAFETY: Its first field is one, as the line above checks.
unsafe impl BeginsWithPortHead for Port {}
// SAFETY: Null pointers, false, zeros.
unsafe impl Zeroable for Port {}

impl Port {
    /// Notes that a NAPI of the device has no source. Softirq context.
    pub(crate) fn want_napi(&self) {
        self.head.note_gro();
        // ORDERING: Relaxed: written while there are no sources.
        if self.head.splits_behind_gro().load(Ordering::Relaxed) && !self.hands_on() {
            return;
        }
        // SAFETY: Softirqs are disabled.
        if self.hands_on() && unsafe { ffi::mflow_lane_is_here() } {
            // It comes from a lane, which gives it to GRO.
            return;
        }
        search(&self.napi_search);
    }

    /// Returns this CPU's source. It takes packets that come without GRO; if flows are split behind GRO, packets that come from
    /// GRO, too. Softirqs disabled.
    pub(crate) fn source_of_this_cpu(&self) -> Option<&Source> {
        self.source_of(&self.cpu_sources, || self.hands_on())
    }

    /// Returns the source that splits the flow of `packet`, at the point where RPS would choose a CPU. If the packet says which
    /// NAPI it comes from, that is the NAPI's source, whichever CPU polls it. Otherwise it is this CPU's source. Softirqs
    /// disabled.
    #[inline]
    pub(crate) fn split_source(&self, packet: &SkBuff) -> Option<&Source> {
        if !way::FINDS_SOURCES_BY_NUMBER {
            return self.source_of_this_cpu();
        }
        let Some(number) = packet.napi_number() else {
            return self.source_of_this_cpu();
        };
        let source = self.source_of_napi(number);
        match source {
            Some(found) if found.is_of(number) => source,
            _ => {
                self.want_number(number);
                None
            }
        }
    }

    /// Notes that packets come through a NAPI that has no source.
    #[cold]
    fn want_number(&self, number: NonZeroU32) {
        // CAST: 32 bits into a usize. PANIC: the remainder is below the length.
        let wanted = &self.wanted_numbers[number.get() as usize % NAPI_PLACES];
        // ORDERING: Relaxed, both: a hint for the search.
        if wanted.load(Ordering::Relaxed) != number.get() {
            wanted.store(number.get(), Ordering::Relaxed);
        }
        search(&self.napi_search);
    }

    /// Returns the source that hands on `packet`, at the point where RPS would choose a CPU. Behind GRO that is the source of the
    /// packet's NAPI, whichever CPU polls it. Without GRO it is this CPU's source. Softirqs disabled.
    pub(crate) fn stage_source(&self, packet: &SkBuff) -> Option<&Source> {
        if !self.hands_on() {
            return None;
        }
        // SAFETY: Softirqs are disabled.
        if unsafe { ffi::mflow_lane_is_here() } {
            // It comes from a lane, and is under way already.
            return None;
        }
        if let Some(number) = packet.napi_number() {
            match self.source_of_napi(number) {
                Some(source) if source.is_of(number) => return Some(source),
                // The hook before GRO has asked for one.
                None if self.head.is_gro_used() => return None,
                _ => {}
            }
        }
        self.source_of(&self.stage_sources, || false)
    }

    /// Returns the source in the place of a NAPI with this number.
    #[inline]
    fn source_of_napi(&self, number: NonZeroU32) -> Option<&Source> {
        // ORDERING: Acquire pairs with the Release in `device::add_source`.
        let source = self.napi_place(number).load(Ordering::Acquire);
        // SAFETY: It is freed only after it was taken from here and all softirqs have ended.
        unsafe { source.as_ref() }
    }

    /// Returns the place of a NAPI with this number.
    #[inline]
    pub(crate) fn napi_place(&self, number: NonZeroU32) -> &AtomicPtr<Source> {
        // CAST: 32 bits into a usize.
        &self.napi_sources[number.get() as usize % NAPI_PLACES]
    }

    /// Takes `source` away from where packets find it. Only softirqs that have it already may use it until they end. Process
    /// context, under the configuration lock.
    pub(crate) fn remove(&self, source: &Source) {
        let of_cpus = Iterator::chain(self.cpu_sources.iter(), &self.stage_sources);
        for place in Iterator::chain(of_cpus, &self.napi_sources) {
            // ORDERING: Relaxed, both: only we write it, and the caller synchronizes.
            if ptr::eq(place.load(Ordering::Relaxed), source) {
                place.store(ptr::null_mut(), Ordering::Relaxed);
            }
        }
    }

    fn hands_on(&self) -> bool {
        // ORDERING: Relaxed: written while there are no sources.
        self.hands_on.load(Ordering::Relaxed)
    }

    /// Returns this CPU's entry of `sources`. If the entry is empty, notes that a source is wanted, unless `is_unwanted` is true.
    #[inline]
    fn source_of(
        &self,
        sources: &[AtomicPtr<Source>; MAX_CPUS],
        is_unwanted: impl FnOnce() -> bool,
    ) -> Option<&Source> {
        // SAFETY: Softirqs are disabled, so the CPU stays the same.
        let cpu = unsafe { ffi::mflow_this_cpu() } as usize;
        // ORDERING: Acquire pairs with the Release in `device::add_source`.
        let source = sources.get(cpu)?.load(Ordering::Acquire);
        if source.is_null() {
            if is_unwanted() {
                return None;
            }
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

/// Asks for a search of all devices, unless a search was in vain not long ago.
fn search(backoff: &SearchBackoff) {
    if backoff.ask(runtime::now_ms()) {
        // SAFETY: May be called in any context.
        unsafe { ffi::mflow_rescan() };
    }
}
