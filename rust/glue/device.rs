// SPDX-License-Identifier: GPL-2.0

//! An opted-in device and its sources, one for each NAPI or CPU. Process context, under the configuration lock.

use super::locks::Rtnl;
use super::pool;
use super::port::Port;
use super::runtime::{self, MAX_CPUS};
use super::source::Source;
use super::stack::device::{Device, Napi};
use crate::algo::knobs::{Knobs, Scaling};
use core::ptr;
use core::sync::atomic::Ordering;
use kernel::init;
use kernel::prelude::*;

/// NAPIs (or CPUs) of one device that can be sources.
pub(super) const MAX_SOURCES: usize = 256;

/// An opted-in device. Its fields are dropped in this order: sources refer to the port, and the port is of the device.
pub(super) struct DeviceState {
    sources: [Option<KVBox<Source>>; MAX_SOURCES],
    port: KVBox<Port>,
    dev: Device,
}

impl DeviceState {
    pub(super) fn new(dev: Device) -> Result<KBox<Self>> {
        let state = Self {
            sources: [const { None }; MAX_SOURCES],
            port: KVBox::init(init::zeroed(), GFP_KERNEL)?,
            dev,
        };
        Ok(KBox::new(state, GFP_KERNEL)?)
    }

    pub(super) fn dev(&self) -> &Device {
        &self.dev
    }

    pub(super) fn opt_in(&self, rtnl: &Rtnl) {
        // SAFETY: The port is freed with this state, which `Configuration::remove_device` drops after a grace period.
        unsafe { self.dev.opt_in::<Port>(rtnl, &self.port) };
    }

    /// Gives a source to each NAPI and CPU that has none.
    pub(super) fn start(&mut self, rtnl: &Rtnl, knobs: &Knobs) -> Result {
        if knobs.cpus.is_empty() {
            return Ok(());
        }
        self.set_scaling(knobs.scaling);
        let napis = self.start_napis(rtnl, knobs);
        let cpus = self.start_cpus(knobs);
        let now_ms = runtime::now_ms();
        for (search, found) in [
            (&self.port.napi_search, &napis),
            (&self.port.cpu_search, &cpus),
        ] {
            search.end(now_ms, found.as_ref().is_ok_and(|&found| found));
        }
        napis.and(cpus).map(|_| ())
    }

    /// Returns whether there was one without a source.
    fn start_napis(&mut self, rtnl: &Rtnl, knobs: &Knobs) -> Result<bool> {
        let Self { sources, port, dev } = self;
        let mut found = Ok(false);
        if knobs.scaling == Scaling::Path {
            dev.for_each_napi(rtnl, |napi| {
                // SAFETY: The NAPI is in the list that is being walked.
                if found.is_ok() && !unsafe { napi.has_source() } {
                    found = add_source(sources, port, Some(napi), None, knobs).map(|()| true);
                }
            });
        }
        found
    }

    /// Returns whether there was one that wants a source and has none.
    fn start_cpus(&mut self, knobs: &Knobs) -> Result<bool> {
        let Self { sources, port, .. } = self;
        let mut found = false;
        for cpu in 0..MAX_CPUS {
            let wanted = port.wanted_cpus.get(cpu / 64);
            // ORDERING: Relaxed, both: hints.
            if wanted.is_none_or(|word| word.load(Ordering::Relaxed) >> (cpu % 64) & 1 == 0) {
                continue;
            }
            let has_one = port.cpu_sources.get(cpu);
            if has_one.is_some_and(|place| place.load(Ordering::Relaxed).is_null()) {
                add_source(sources, port, None, Some(cpu), knobs)?;
                found = true;
            }
        }
        Ok(found)
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

    pub(super) fn detach(&self, source: &Source) {
        // Where queues go, others may come.
        self.port.napi_search.reset();
        self.port.cpu_search.reset();
        if let Some(napi) = source.napi() {
            // SAFETY: The NAPI is there: before it goes, `napi_gone` takes its source away.
            unsafe { napi.set_source::<Source>(None) };
            return;
        }
        for place in &self.port.cpu_sources {
            // ORDERING: Relaxed, both: only we write it, and the caller synchronizes.
            if ptr::eq(place.load(Ordering::Relaxed), source) {
                place.store(ptr::null_mut(), Ordering::Relaxed);
            }
        }
    }

    pub(super) fn retain_sources(&mut self, mut keep: impl FnMut(&Self, &Source) -> bool) {
        for index in 0..MAX_SOURCES {
            let goes = match self.sources.get(index) {
                Some(Some(source)) => !keep(self, source),
                _ => continue,
            };
            if let (true, Some(place)) = (goes, self.sources.get_mut(index)) {
                *place = None;
            }
        }
    }
}

/// Makes a source of `napi` or `cpu` and makes it known there.
fn add_source(
    sources: &mut [Option<KVBox<Source>>],
    port: &Port,
    napi: Option<Napi>,
    cpu: Option<usize>,
    knobs: &Knobs,
) -> Result {
    // SAFETY: The port is freed after the sources.
    let source = unsafe { Source::new(&port.uses_gro, napi, &knobs.cpus)? };
    let place = sources.iter_mut().find(|place| place.is_none());
    let source: &Source = place.ok_or(ENOSPC)?.insert(source);
    if let Some(napi) = napi {
        // SAFETY: The NAPI has just been found under rtnl; `detach` takes the source away before it is freed.
        unsafe { napi.set_source(Some(source)) };
    }
    if let Some(cpu) = cpu {
        let place = port.cpu_sources.get(cpu).ok_or(ERANGE)?;
        // ORDERING: Release pairs with the Acquire in `source_of_this_cpu`.
        place.store(ptr::from_ref(source).cast_mut(), Ordering::Release);
    }
    source.begin(pool::slots());
    Ok(())
}
