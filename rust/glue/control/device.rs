// SPDX-License-Identifier: GPL-2.0

//! An opted-in device and its sources, one for each NAPI or CPU, or one for all CPUs. Process context, under the configuration lock.

use crate::algo::knobs::{Build, Knobs, Mode, Scaling};
use crate::algo::source::queue_builder::QueueBuilder;
use crate::algo::source::redirection::Redirection;
use crate::algo::stage::StageSet;
use crate::glue::locks::Rtnl;
use crate::glue::packet::pool;
use crate::glue::packet::port::Port;
use crate::glue::packet::source::{Source, StageContext, Takes};
use crate::glue::runtime::{self, MAX_CPUS};
use crate::glue::stack::device::{self, Device};
use crate::glue::stack::way;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicPtr, Ordering};
use core::{ptr, slice};
use kernel::init;
use kernel::prelude::*;

/// NAPIs (or CPUs) of one device that can be sources.
pub(crate) const MAX_SOURCES: usize = 256;

/// An opted-in device. Its fields are dropped in this order: sources refer to the port, and the port is of the device.
pub(crate) struct DeviceState {
    sources: [Option<KVBox<Source>>; MAX_SOURCES],
    port: KVBox<Port>,
    dev: Device,
    pub(super) redirection: Redirection,
    // Each NAPI has a source, whether or not it seems to send only.
    takes_all_napis: bool,
}

impl DeviceState {
    pub(super) fn new(dev: Device) -> Result<KBox<Self>> {
        let state = Self {
            sources: [const { None }; MAX_SOURCES],
            port: KVBox::init(init::zeroed(), GFP_KERNEL)?,
            dev,
            redirection: Redirection::Off,
            takes_all_napis: false,
        };
        Ok(KBox::new(state, GFP_KERNEL)?)
    }

    pub(crate) fn dev(&self) -> &Device {
        &self.dev
    }

    /// Opts the device in. On an error nothing has happened.
    pub(super) fn opt_in(&self, rtnl: &Rtnl) -> Result {
        // SAFETY: The port is freed with this state, which `Configuration::remove_device` drops after a grace period.
        unsafe { self.dev.opt_in::<Port>(rtnl, &self.port) }
    }

    /// Gives a source to each NAPI and CPU that has none, unless it only sends.
    pub(super) fn start(&mut self, rtnl: &Rtnl, knobs: &Knobs) -> Result {
        if knobs.cpus.is_empty() {
            return Ok(());
        }
        if self.redirection.is_changing() {
            // What ends the change starts it. Until then each search is in vain.
            self.end_searches([false; 2]);
            return Ok(());
        }
        self.set_places(knobs);
        let napis = self.start_napis(rtnl, knobs);
        let cpus = self.start_cpus(knobs);
        self.end_searches([&napis, &cpus].map(|found| found.as_ref().is_ok_and(|&found| found)));
        self.give_places(knobs);
        napis.and(cpus).map(|_| ())
    }

    /// Lets packets that are not built be left to the lanes of each source whose packets come so. No others need the memory.
    pub(super) fn give_places(&self, knobs: &Knobs) {
        if knobs.build == Build::Nic || knobs.mode != Mode::Mflow {
            return;
        }
        let redirected = self.redirection == Redirection::On;
        let mut given = Ok(());
        self.for_each_source(|source| {
            let asks = source.builder() == QueueBuilder::Lane;
            if given.is_ok() && (asks || redirected && !source.is_shared()) {
                // SAFETY: We are under the configuration lock.
                given = unsafe { source.give_places() };
            }
        });
        if let Err(error) = given {
            pr_warn!("the NIC's core builds all packets of some queues: {error:?}\n");
        }
    }

    /// Returns whether a packet has asked for a search of the device.
    pub(super) fn is_searched_for(&self) -> bool {
        self.port.napi_search.is_asked() || self.port.cpu_search.is_asked()
    }

    /// Reports the end of a search of the device to those who asked for it, and whether it found a NAPI and a CPU without a
    /// source.
    pub(super) fn end_searches(&self, found: [bool; 2]) {
        let now_ms = runtime::now_ms();
        let searches = [&self.port.napi_search, &self.port.cpu_search];
        for (search, found) in searches.into_iter().zip(found) {
            search.end(now_ms, found);
        }
    }

    /// Returns whether there was a NAPI without a source.
    fn start_napis(&mut self, rtnl: &Rtnl, knobs: &Knobs) -> Result<bool> {
        if way::FINDS_SOURCES_BY_NUMBER {
            return start_numbers(&mut self.sources, &self.port, &self.dev, knobs);
        }
        let behind_gro = is_behind_gro(knobs);
        if behind_gro && knobs.mode == Mode::Mflow {
            return Ok(false);
        }
        let found = self.start_listed(rtnl, knobs, behind_gro)?;
        if found || behind_gro || self.takes_all_napis || !self.port.napi_search.is_asked() {
            return Ok(found);
        }
        // Packets have come through a NAPI that was passed over.
        self.takes_all_napis = true;
        self.start_listed(rtnl, knobs, behind_gro)
    }

    /// Gives a source to each NAPI of the device's list that has none, but for those that seem to send only; returns whether there
    /// was one.
    fn start_listed(&mut self, rtnl: &Rtnl, knobs: &Knobs, behind_gro: bool) -> Result<bool> {
        let Self {
            sources, port, dev, ..
        } = self;
        let mut has_numbers = false;
        // SAFETY: The NAPI is in the list that is being walked.
        dev.for_each_napi(rtnl, |napi| {
            has_numbers |= unsafe { napi.number() }.is_some()
        });
        // Of a device whose NAPIs have numbers, those for sending alone have none (`netif_napi_add_tx()`). Behind GRO, packets of a
        // NAPI without a number come as if there were none.
        let wants_number = behind_gro || has_numbers && !self.takes_all_napis;
        let mut found = Ok(false);
        dev.for_each_napi(rtnl, |napi| {
            // SAFETY: The NAPI is in the list that is being walked, both.
            let (has_source, number) = unsafe { (napi.has_source(), napi.number()) };
            if found.is_ok() && !has_source && (number.is_some() || !wants_number) {
                found = add_source(sources, port, dev, Takes::OfNapi(napi), knobs).map(|()| true);
            }
        });
        found
    }

    /// Returns whether there was one that wants a source and has none.
    fn start_cpus(&mut self, knobs: &Knobs) -> Result<bool> {
        let Self {
            sources, port, dev, ..
        } = self;
        let places = cpu_places(port, knobs);
        // Where no NAPI says which it is, each may come to any CPU, so all CPUs have one source.
        let takes_any = way::FINDS_SOURCES_BY_NUMBER && !dev.has_numbers();
        let mut found = false;
        for cpu in 0..MAX_CPUS {
            let wanted = port.wanted_cpus.get(cpu / 64);
            // ORDERING: Relaxed, both: hints.
            if wanted.is_none_or(|word| word.load(Ordering::Relaxed) >> (cpu % 64) & 1 == 0) {
                continue;
            }
            let has_one = places.get(cpu);
            if has_one.is_some_and(|place| place.load(Ordering::Relaxed).is_null()) {
                let takes = if takes_any {
                    Takes::OfAnyCpu
                } else {
                    Takes::OfCpu(cpu)
                };
                add_source(sources, port, dev, takes, knobs)?;
                found = true;
            }
        }
        Ok(found)
    }

    /// Notes where flows are split or handed on. Where that has changed there are no sources, and other CPUs may want some.
    fn set_places(&self, knobs: &Knobs) {
        let places = [
            (self.port.head.splits_behind_gro(), is_behind_gro(knobs)),
            (&self.port.hands_on, knobs.mode != Mode::Mflow),
        ];
        // ORDERING: Relaxed, all: a packet that sees an old value finds no source.
        let changes = places.map(|(place, value)| place.swap(value, Ordering::Relaxed) != value);
        if changes.contains(&true) {
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
        }
        self.port.remove(source);
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

/// Returns whether packets are taken behind GRO. Those of drivers that do not call it are anyway.
pub(super) fn is_behind_gro(knobs: &Knobs) -> bool {
    match knobs.mode {
        Mode::Mflow => knobs.scaling == Scaling::Device,
        Mode::FalconDev => true,
        Mode::FalconFunc => false,
    }
}

/// Returns the places in which packets find the sources of CPUs.
fn cpu_places<'a>(port: &'a Port, knobs: &Knobs) -> &'a [AtomicPtr<Source>; MAX_CPUS] {
    match knobs.mode {
        Mode::Mflow => &port.cpu_sources,
        Mode::FalconDev | Mode::FalconFunc => &port.stage_sources,
    }
}

/// Makes a source for each NAPI that packets have come through and that has none; returns whether there was one.
fn start_numbers(
    sources: &mut [Option<KVBox<Source>>],
    port: &Port,
    dev: &Device,
    knobs: &Knobs,
) -> Result<bool> {
    let mut found = false;
    for wanted in &port.wanted_numbers {
        // ORDERING: Relaxed, all: hints, and places that only we write.
        let Some(number) = NonZeroU32::new(wanted.load(Ordering::Relaxed)) else {
            continue;
        };
        if !device::napi_is_there(number) {
            wanted.store(0, Ordering::Relaxed);
        } else if port.napi_place(number).load(Ordering::Relaxed).is_null() {
            add_source(sources, port, dev, Takes::OfNumber(number), knobs)?;
            found = true;
        }
    }
    Ok(found)
}

/// Makes a source and makes it known where its packets come.
fn add_source(
    sources: &mut [Option<KVBox<Source>>],
    port: &Port,
    dev: &Device,
    takes: Takes,
    knobs: &Knobs,
) -> Result {
    let stages = StageSet::of(knobs);
    let source = if stages.is_empty() {
        // SAFETY: Port and device are dropped after the sources, and the NAPI has just been found under rtnl.
        unsafe { Source::new(&port.head, dev, takes, knobs)? }
    } else {
        let cpu = match takes {
            // CAST: below MAX_CPUS.
            Takes::OfCpu(cpu) => Some(cpu as u32),
            _ => None,
        };
        let context = StageContext {
            stages,
            device: dev.index(),
            cpu,
            is_first: true,
        };
        // SAFETY: The port is freed after the sources, and the NAPI has just been found under rtnl.
        unsafe { Source::of_stages(Some(&port.head), takes.napi(), &knobs.cpus, context)? }
    };
    let place = sources.iter_mut().find(|place| place.is_none());
    let source: &Source = place.ok_or(ENOSPC)?.insert(source);
    if let Some(napi) = takes.napi() {
        // SAFETY: The NAPI has just been found under rtnl; `detach` takes the source away before it is freed.
        unsafe { napi.set_source(Some(source)) };
    }
    let places = match takes {
        Takes::OfCpu(cpu) => cpu_places(port, knobs).get(cpu..=cpu).ok_or(ERANGE)?,
        Takes::OfAnyCpu => cpu_places(port, knobs).as_slice(),
        Takes::OfNapi(_) | Takes::OfNumber(_) => match source.number_behind_gro() {
            Some(number) => slice::from_ref(port.napi_place(number)),
            None => &[],
        },
    };
    for place in places {
        // ORDERING: Relaxed: only we write it. Release pairs with the Acquire in `Port::source_of` and `Port::source_of_napi`.
        if place.load(Ordering::Relaxed).is_null() {
            place.store(ptr::from_ref(source).cast_mut(), Ordering::Release);
        }
    }
    source.begin(pool::slots());
    Ok(())
}
