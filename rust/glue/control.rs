// SPDX-License-Identifier: GPL-2.0

//! Start and stop: devices, their sources, knobs. Process context, under the configuration lock.
//!
//! Lock order: rtnl, the hooks' mutex, ours (`mflow_config_lock_inner`), CPU hotplug. The packet path takes none.
//!
//! Stopping a source loses and reorders nothing: its flows are told to stop, each of their packets brings them nearer
//! to the ordinary path, and what has no packets any more is drained when nobody dispatches.

use super::memory::{Zeroable, Zeroed};
use super::source::Source;
use super::{ffi, runtime};
use crate::algo::counters::{Counter, NR_COUNTERS};
use crate::algo::knobs::{DeviceName, Knobs, Scaling, DEVICE_NAME_SIZE};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use kernel::prelude::*;

/// Devices that can be opted in at once.
pub(crate) const MAX_DEVICES: usize = 32;
/// NAPIs (or CPUs) of one device that can be sources.
const MAX_SOURCES: usize = 256;
/// CPUs that can be sources of devices without NAPI, or lanes.
const MAX_CPUS: usize = 1024;

/// How long flows with packets may take to stop, and drained ones to end.
const STOP_MS: u32 = 3_000;
/// How long nothing has to move before flows are taken to have no packets.
const STILL_MS: u32 = 100;

/// What the packet path knows of an opted-in device.
pub struct Port {
    dev: AtomicPtr<ffi::net_device>,
    // Its driver calls GRO: packets are taken there and nowhere else, unless flows are split behind GRO.
    uses_gro: AtomicBool,
    splits_behind_gro: AtomicBool,
    wants_napi: AtomicBool,
    // CPUs on which packets came without GRO, and the source of each.
    wanted_cpus: [AtomicU64; MAX_CPUS / 64],
    cpu_sources: [AtomicPtr<Source>; MAX_CPUS],
}

// SAFETY: Null pointers, false, zeros.
unsafe impl Zeroable for Port {}

impl Port {
    /// Notes that the device's packets come through GRO.
    pub(crate) fn note_gro(&self) {
        // ORDERING: Relaxed, both: the packet that tells so has not come to the other place yet.
        if !self.uses_gro.load(Ordering::Relaxed) {
            self.uses_gro.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a NAPI of the device has no source. Softirq context.
    pub(crate) fn want_napi(&self) {
        self.note_gro();
        // ORDERING: Relaxed: written while there are no sources.
        if self.splits_behind_gro.load(Ordering::Relaxed) {
            return;
        }
        // ORDERING: Relaxed: the work that is queued looks at everything.
        if !self.wants_napi.swap(true, Ordering::Relaxed) {
            // SAFETY: May be called in any context.
            unsafe { ffi::mflow_rescan() };
        }
    }

    /// Returns the source for packets that come without GRO, or from it if that is where flows are split, on this CPU.
    /// Softirqs disabled.
    pub(crate) fn source_of_this_cpu(&self) -> Option<&Source> {
        // ORDERING: Relaxed, both: as in `note_gro` and `want_napi`.
        if self.uses_gro.load(Ordering::Relaxed) && !self.splits_behind_gro.load(Ordering::Relaxed)
        {
            return None;
        }
        // SAFETY: Softirqs are disabled, so the CPU stays the same.
        let cpu = unsafe { ffi::mflow_this_cpu() } as usize;
        // ORDERING: Acquire pairs with the Release in `DeviceState::add_source`.
        let source = self.cpu_sources.get(cpu)?.load(Ordering::Acquire);
        if source.is_null() {
            // ORDERING: Relaxed: as in `want_napi`.
            let word = self.wanted_cpus.get(cpu / 64)?;
            if word.fetch_or(1 << (cpu % 64), Ordering::Relaxed) >> (cpu % 64) & 1 == 0 {
                // SAFETY: May be called in any context.
                unsafe { ffi::mflow_rescan() };
            }
        }
        // SAFETY: It is freed only after it was taken from here and all softirqs have ended.
        unsafe { source.as_ref() }
    }
}

/// An opted-in device.
pub(crate) struct DeviceState {
    // Dropped before the port, which they refer to.
    sources: [Option<Zeroed<Source>>; MAX_SOURCES],
    port: Zeroed<Port>,
}

/// Everything that is configured.
pub(crate) struct State {
    pub(crate) knobs: Knobs,
    devices: [Option<KBox<DeviceState>>; MAX_DEVICES],
    // What sources that are gone have counted.
    retired: [u64; NR_COUNTERS],
    retired_lane_pkts: [u64; MAX_CPUS],
    // What `reset` has set to zero.
    base: [u64; NR_COUNTERS],
    base_lane_pkts: [u64; MAX_CPUS],
}

struct Locked(UnsafeCell<State>);

// SAFETY: Only reached through `Guard`, which holds the lock.
unsafe impl Sync for Locked {}

static STATE: Locked = Locked(UnsafeCell::new(State {
    knobs: Knobs::DEFAULT,
    devices: [const { None }; MAX_DEVICES],
    retired: [0; NR_COUNTERS],
    retired_lane_pkts: [0; MAX_CPUS],
    base: [0; NR_COUNTERS],
    base_lane_pkts: [0; MAX_CPUS],
}));

/// The configuration, locked.
pub(crate) struct Guard {
    with_rtnl: bool,
}

impl Guard {
    /// Locks rtnl and the configuration.
    pub(crate) fn lock() -> Self {
        // SAFETY: Process context, no locks held.
        unsafe { ffi::mflow_config_lock() };
        Self { with_rtnl: true }
    }

    /// Locks the configuration; for callers that hold rtnl, or walk no device.
    fn lock_inner() -> Self {
        // SAFETY: Process context; at most rtnl and the hooks' mutex are held.
        unsafe { ffi::mflow_config_lock_inner() };
        Self { with_rtnl: false }
    }
}

impl Deref for Guard {
    type Target = State;

    fn deref(&self) -> &State {
        // SAFETY: We hold the lock.
        unsafe { &*STATE.0.get() }
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: We hold the lock.
        unsafe { &mut *STATE.0.get() }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: Locked in `lock` or `lock_inner`.
        unsafe {
            if self.with_rtnl {
                ffi::mflow_config_unlock();
            } else {
                ffi::mflow_config_unlock_inner();
            }
        }
    }
}

fn synchronize() {
    // SAFETY: Process context.
    unsafe { ffi::mflow_synchronize() };
}

fn sleep_ms(ms: u32) {
    // SAFETY: Process context.
    unsafe { ffi::mflow_sleep_ms(ms) };
}

impl DeviceState {
    fn dev(&self) -> *mut ffi::net_device {
        // ORDERING: Relaxed: written once, under the lock.
        self.port.dev.load(Ordering::Relaxed)
    }

    fn add_source(&mut self, source: Zeroed<Source>, cpu: Option<usize>) -> Result {
        let place = self.sources.iter_mut().find(|place| place.is_none());
        let source = place.ok_or(ENOSPC)?.insert(source);
        let address = source.as_ptr().as_ptr();
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
    fn start(&mut self, knobs: &Knobs) -> Result {
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

    fn for_each_source(&self, mut f: impl FnMut(&Source)) {
        for source in self.sources.iter().flatten() {
            f(source);
        }
    }

    /// Takes `source` away from its NAPI or CPU.
    fn detach(&self, source: &Source) {
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

impl State {
    fn devices(&mut self) -> impl Iterator<Item = &mut KBox<DeviceState>> {
        self.devices.iter_mut().flatten()
    }

    /// Writes the names of the opted-in devices, one per line.
    pub(crate) fn write_devices(&self, to: &mut dyn core::fmt::Write) -> core::fmt::Result {
        for device in self.devices.iter().flatten() {
            let mut name = [0; DEVICE_NAME_SIZE];
            // SAFETY: We hold a reference to the device; the name fits.
            unsafe { ffi::mflow_device_name(device.dev(), name.as_mut_ptr().cast()) };
            let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
            writeln!(to, "{}", core::str::from_utf8(name).unwrap_or("?"))?;
        }
        Ok(())
    }

    /// Opts a device in. Under rtnl.
    pub(crate) fn add_device(&mut self, name: &DeviceName) -> Result {
        // SAFETY: Process context; the name ends in NUL.
        let dev = unsafe { ffi::mflow_device_find(name.as_array().as_ptr().cast()) };
        if dev.is_null() {
            return Err(ENODEV);
        }
        let added = self.add_found_device(dev);
        if !matches!(added, Ok(true)) {
            // SAFETY: `mflow_device_find` gave the reference.
            unsafe { ffi::mflow_device_put(dev) };
        }
        added.map(|_| ())
    }

    /// Takes over the reference to `dev` if it returns true.
    fn add_found_device(&mut self, dev: *mut ffi::net_device) -> Result<bool> {
        if self.devices().any(|device| device.dev() == dev) {
            return Ok(false);
        }
        let knobs = self.knobs;
        let place = self.devices.iter_mut().find(|place| place.is_none());
        let place = place.ok_or(ENOSPC)?;
        let port = Zeroed::<Port>::new()?;
        // ORDERING: Relaxed: published with the port.
        port.dev.store(dev, Ordering::Relaxed);
        let address = port.as_ptr().as_ptr();
        let device = KBox::new(
            DeviceState {
                sources: [const { None }; MAX_SOURCES],
                port,
            },
            GFP_KERNEL,
        )?;
        let device = place.insert(device);
        // SAFETY: We hold a reference to the device.
        unsafe { ffi::mflow_device_set_port(dev, address.cast()) };
        if knobs.enabled {
            if let Err(error) = device.start(&knobs) {
                self.remove_device(dev, false);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Opts a device out. Under rtnl.
    pub(crate) fn remove_named_device(&mut self, name: &DeviceName) -> Result {
        // SAFETY: Process context; the name ends in NUL.
        let dev = unsafe { ffi::mflow_device_find(name.as_array().as_ptr().cast()) };
        if dev.is_null() {
            return Err(ENODEV);
        }
        let known = self.devices().any(|device| device.dev() == dev);
        if known {
            self.remove_device(dev, true);
        }
        // SAFETY: `mflow_device_find` gave the reference.
        unsafe { ffi::mflow_device_put(dev) };
        if known {
            Ok(())
        } else {
            Err(ENODEV)
        }
    }

    fn remove_device(&mut self, dev: *mut ffi::net_device, put: bool) {
        self.stop(|device, _| device.dev() == dev);
        for place in &mut self.devices {
            if place.as_ref().is_some_and(|device| device.dev() == dev) {
                // SAFETY: The device is there, we hold a reference.
                unsafe { ffi::mflow_device_set_port(dev, core::ptr::null_mut()) };
                synchronize();
                *place = None;
                if put {
                    // SAFETY: The reference of `add_device`.
                    unsafe { ffi::mflow_device_put(dev) };
                }
            }
        }
    }

    /// Makes `knobs` the configuration. Under rtnl. On an error everything is off.
    pub(crate) fn apply(&mut self, knobs: Knobs) -> Result {
        let restart = knobs.cpus != self.knobs.cpus
            || knobs.enabled != self.knobs.enabled
            || knobs.scaling != self.knobs.scaling;
        runtime::publish(&knobs);
        if !restart {
            self.knobs = knobs;
            return Ok(());
        }
        self.stop(|_, _| true);
        self.knobs = knobs;
        let result = if knobs.enabled {
            self.start_all()
        } else {
            Ok(())
        };
        if result.is_err() {
            self.stop(|_, _| true);
            self.knobs.enabled = false;
        }
        // SAFETY: Process context.
        unsafe { ffi::mflow_set_enabled(self.knobs.enabled) };
        result
    }

    fn start_all(&mut self) -> Result {
        let knobs = self.knobs;
        for device in self.devices() {
            device.start(&knobs)?;
        }
        Ok(())
    }

    /// Stops and ends the sources that `which` names.
    fn stop(&mut self, which: impl Fn(&DeviceState, &Source) -> bool) {
        let each = |state: &State, f: &mut dyn FnMut(&DeviceState, &Source)| {
            for device in state.devices.iter().flatten() {
                device.for_each_source(|source| {
                    if which(device, source) {
                        f(device, source);
                    }
                });
            }
        };
        let active = |state: &State| {
            let mut flows = 0;
            each(state, &mut |_, source| flows += source.active_flows());
            flows
        };
        // What moves while flows with packets stop.
        let motion = |state: &State| {
            let mut sum = 0;
            each(state, &mut |_, source| {
                sum += source.count(Counter::InlinePkts) + source.count(Counter::LanePkts);
            });
            sum
        };
        // A lane that has packets still is only slow: what came behind them would overtake them.
        let is_carried = |state: &State| {
            let mut all = true;
            each(state, &mut |_, source| all &= source.is_carried());
            all
        };

        each(self, &mut |_, source| source.begin_stop());
        synchronize();
        let begun_ms = runtime::now_ms();
        let (mut moved_ms, mut seen) = (begun_ms, motion(self));
        while active(self) > 0 {
            sleep_ms(1);
            let now_ms = runtime::now_ms();
            let now = motion(self);
            if now != seen || !is_carried(self) {
                (moved_ms, seen) = (now_ms, now);
            }
            if now_ms.wrapping_sub(moved_ms) >= STILL_MS || now_ms.wrapping_sub(begun_ms) >= STOP_MS
            {
                break;
            }
        }

        each(self, &mut |device, source| device.detach(source));
        synchronize();
        let begun_ms = runtime::now_ms();
        loop {
            // SAFETY: Detached, and all that were dispatching have ended.
            each(self, &mut |_, source| unsafe { source.finish() });
            if active(self) == 0 || runtime::now_ms().wrapping_sub(begun_ms) >= STOP_MS {
                break;
            }
            sleep_ms(1);
        }
        let left = active(self);
        if left > 0 {
            pr_warn!("{left} flows did not drain; their slots stay in use\n");
        }

        for place in &mut self.devices {
            let Some(device) = place else {
                continue;
            };
            for index in 0..MAX_SOURCES {
                let Some(Some(source)) = device.sources.get(index) else {
                    continue;
                };
                if !which(device, source) {
                    continue;
                }
                for (sum, counter) in self.retired.iter_mut().zip(Counter::ALL) {
                    *sum += source.count(*counter);
                }
                for lane in source.lanes() {
                    if let Some(sum) = self.retired_lane_pkts.get_mut(lane.cpu() as usize) {
                        *sum += lane.counters.get(Counter::LanePkts);
                    }
                }
                if let Some(place) = device.sources.get_mut(index) {
                    *place = None;
                }
            }
        }
    }

    /// Returns a counter's sum over everything, since the last reset.
    pub(crate) fn total(&self, counter: Counter) -> u64 {
        let base = self.base.get(counter as usize).copied().unwrap_or(0);
        self.absolute(counter).wrapping_sub(base)
    }

    fn absolute(&self, counter: Counter) -> u64 {
        let mut sum = self.retired.get(counter as usize).copied().unwrap_or(0);
        for device in self.devices.iter().flatten() {
            device.for_each_source(|source| sum += source.count(counter));
        }
        if let Some(slots) = super::pool::slots() {
            for slot in slots.iter() {
                sum += slot.counters.get(counter);
            }
        }
        sum
    }

    /// Returns the packets that lanes on `cpu` have carried since the last reset; none if it has never been a lane.
    pub(crate) fn lane_pkts(&self, cpu: usize) -> Option<u64> {
        let base = self.base_lane_pkts.get(cpu)?;
        let sum = self.absolute_lane_pkts(cpu);
        let is_lane = u32::try_from(cpu).is_ok_and(|cpu| self.knobs.cpus.contains(cpu));
        (is_lane || sum > 0).then(|| sum.wrapping_sub(*base))
    }

    fn absolute_lane_pkts(&self, cpu: usize) -> u64 {
        let mut sum = self.retired_lane_pkts.get(cpu).copied().unwrap_or(0);
        for device in self.devices.iter().flatten() {
            device.for_each_source(|source| {
                for lane in source.lanes().filter(|lane| lane.cpu() as usize == cpu) {
                    sum += lane.counters.get(Counter::LanePkts);
                }
            });
        }
        sum
    }

    /// Starts all counters from zero, as far as readers see.
    pub(crate) fn reset_counters(&mut self) {
        for counter in Counter::ALL {
            let now = self.absolute(*counter);
            if let Some(base) = self.base.get_mut(*counter as usize) {
                *base = now;
            }
        }
        for cpu in 0..MAX_CPUS {
            let now = self.absolute_lane_pkts(cpu);
            if let Some(base) = self.base_lane_pkts.get_mut(cpu) {
                *base = now;
            }
        }
        // SAFETY: Any context.
        unsafe { ffi::mflow_stack_reset() };
    }
}

/// Largest CPU number of a lane, plus one.
pub(crate) const NR_LANE_CPUS: usize = MAX_CPUS;

/// Switches everything off; flows go back to the ordinary path. Process context, no locks held.
pub(crate) fn stop_all() {
    let mut state = Guard::lock();
    let knobs = Knobs {
        enabled: false,
        ..state.knobs
    };
    // Cannot fail: only starting can.
    let _ = state.apply(knobs);
}

/// A NAPI goes away; it is disabled. Process context, perhaps under rtnl.
pub(crate) fn napi_gone(napi: *mut ffi::napi_struct) {
    let mut state = Guard::lock_inner();
    state.stop(|_, source| source.napi() == napi);
}

/// Events of devices and CPUs reach us as long as it lives.
pub(crate) struct Control(());

impl Control {
    /// Starts listening.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Process context; the pool is there.
        kernel::error::to_result(unsafe { ffi::mflow_shim_init() })?;
        Ok(Self(()))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: Process context, no locks held; hooks are unregistered.
        unsafe { ffi::mflow_shim_quiesce() };
        let mut state = Guard::lock();
        for index in 0..MAX_DEVICES {
            let dev = match state.devices.get(index) {
                Some(Some(device)) => device.dev(),
                _ => continue,
            };
            state.remove_device(dev, true);
        }
        drop(state);
        // SAFETY: Nothing is left that uses it.
        unsafe { ffi::mflow_shim_exit() };
    }
}

/// A device is being unregistered. Under rtnl.
#[no_mangle]
unsafe extern "C" fn mflow_device_gone(dev: *mut ffi::net_device) {
    Guard::lock_inner().remove_device(dev, true);
}

/// A packet came for which there is no source yet. Process context.
#[no_mangle]
unsafe extern "C" fn mflow_rescan_devices() {
    let mut state = Guard::lock();
    if !state.knobs.enabled {
        return;
    }
    if let Err(error) = state.start_all() {
        pr_warn!("new queues of a device stay on one CPU: {error:?}\n");
    }
}

/// A CPU comes or goes. Under the CPU hotplug lock: no locks of ours.
#[no_mangle]
unsafe extern "C" fn mflow_cpu_changed(cpu: kernel::ffi::c_uint, online: bool) {
    runtime::set_cpu_online(cpu, online);
}

ffi::check_export!(
    mflow_napi_found,
    mflow_device_gone,
    mflow_rescan_devices,
    mflow_cpu_changed
);
