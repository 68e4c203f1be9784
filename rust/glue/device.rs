// SPDX-License-Identifier: GPL-2.0

//! An opted-in device and its sources: one for each NAPI, or for each CPU on which packets come without. Process context,
//! under the configuration lock.

use super::ffi;
use super::port::Port;
use super::runtime::MAX_CPUS;
use super::source::Source;
use crate::algo::knobs::{Knobs, Scaling};
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use kernel::prelude::*;

/// NAPIs (or CPUs) of one device that can be sources.
pub(super) const MAX_SOURCES: usize = 256;

/// An opted-in device.
pub(super) struct DeviceState {
    // Dropped before the port, which they refer to.
    pub(super) sources: [Option<KVBox<Source>>; MAX_SOURCES],
    pub(super) port: KVBox<Port>,
}

impl DeviceState {
    pub(super) fn dev(&self) -> *mut ffi::net_device {
        // ORDERING: Relaxed: written once, under the lock.
        self.port.dev.load(Ordering::Relaxed)
    }

    fn add_source(&mut self, source: KVBox<Source>, cpu: Option<usize>) -> Result {
        let place = self.sources.iter_mut().find(|place| place.is_none());
        let source = place.ok_or(ENOSPC)?.insert(source);
        let address = core::ptr::from_ref(&**source).cast_mut();
        match cpu {
            Some(cpu) => {
                let place = self.port.cpu_sources.get(cpu).ok_or(ERANGE)?;
                // ORDERING: Release pairs with the Acquire in `source_of_this_cpu`.
                place.store(address, Ordering::Release);
            }
            // SAFETY: The NAPI is there: we hold rtnl, and its end would tell us first.
            None => unsafe { ffi::mflow_napi_set_source(source.napi(), address.cast()) },
        }
        Ok(())
    }

    /// Gives a source to each NAPI and CPU that has none.
    pub(super) fn start(&mut self, knobs: &Knobs) -> Result {
        if knobs.cpus.is_empty() {
            return Ok(());
        }
        self.set_scaling(knobs.scaling);
        if knobs.scaling == Scaling::Path {
            let mut found = Found {
                device: self,
                knobs,
                result: Ok(()),
            };
            let dev = found.device.dev();
            // SAFETY: We hold rtnl; `found` lives for the call.
            unsafe { ffi::mflow_device_walk_napis(dev, (&raw mut found).cast()) };
            found.result?;
        }

        for cpu in 0..MAX_CPUS {
            let wanted = self.port.wanted_cpus.get(cpu / 64);
            // ORDERING: Relaxed, both: hints.
            if wanted.is_none_or(|word| word.load(Ordering::Relaxed) >> (cpu % 64) & 1 == 0) {
                continue;
            }
            let has_one = self.port.cpu_sources.get(cpu);
            if has_one.is_some_and(|place| place.load(Ordering::Relaxed).is_null()) {
                let source = Source::new(&self.port, core::ptr::null_mut(), &knobs.cpus)?;
                self.add_source(source, Some(cpu))?;
            }
        }
        // ORDERING: Relaxed: the next packet without a source asks again.
        self.port.wants_napi.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Notes where flows are split. Where that has changed there are no sources, and other CPUs may want some.
    fn set_scaling(&self, scaling: Scaling) {
        let behind_gro = scaling == Scaling::Device;
        // ORDERING: Relaxed, both: a packet that sees the old value finds no source.
        if self
            .port
            .splits_behind_gro
            .swap(behind_gro, Ordering::Relaxed)
            != behind_gro
        {
            for word in &self.port.wanted_cpus {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn for_each_source(&self, mut f: impl FnMut(&Source)) {
        for source in self.sources.iter().flatten() {
            f(source);
        }
    }

    /// Takes `source` away from its NAPI or CPU.
    pub(super) fn detach(&self, source: &Source) {
        let napi = source.napi();
        if !napi.is_null() {
            // SAFETY: The NAPI is there, as in `add_source`.
            unsafe { ffi::mflow_napi_set_source(napi, core::ptr::null_mut()) };
            return;
        }
        for place in &self.port.cpu_sources {
            // ORDERING: Relaxed, both: only we write it, and the caller synchronizes.
            if core::ptr::eq(place.load(Ordering::Relaxed), source) {
                place.store(core::ptr::null_mut(), Ordering::Relaxed);
            }
        }
    }
}

/// What [`mflow_napi_found`] works on.
struct Found<'a> {
    device: &'a mut DeviceState,
    knobs: &'a Knobs,
    result: Result,
}

impl Found<'_> {
    fn napi(&mut self, napi: *mut ffi::napi_struct) {
        // SAFETY: The NAPI is in the list that is being walked.
        let has_one = !unsafe { ffi::mflow_napi_source(napi) }.is_null();
        if has_one || self.result.is_err() {
            return;
        }
        self.result = Source::new(&self.device.port, napi, &self.knobs.cpus)
            .and_then(|source| self.device.add_source(source, None));
    }
}

/// A NAPI of the device that [`DeviceState::start`] walks.
#[no_mangle]
unsafe extern "C" fn mflow_napi_found(found: *mut c_void, napi: *mut ffi::napi_struct) {
    // SAFETY: `start` passed it and waits for us.
    unsafe { (*found.cast::<Found<'_>>()).napi(napi) };
}

ffi::check_export!(mflow_napi_found);
