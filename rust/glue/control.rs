// SPDX-License-Identifier: GPL-2.0

//! Start and stop: devices, their sources, knobs. Process context, under the configuration lock.
//!
//! Lock order: rtnl, the hooks' mutex, ours (`mflow_config_lock`), CPU hotplug. The packet path takes none.

use super::device::{DeviceState, MAX_SOURCES};
use super::port::Port;
use super::stop::synchronize;
use super::totals::Totals;
use super::{ffi, runtime};
use crate::algo::knobs::{DeviceName, Knobs, DEVICE_NAME_SIZE};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;
use kernel::init;
use kernel::prelude::*;

/// Devices that can be opted in at once.
pub(crate) const MAX_DEVICES: usize = 32;

/// Everything that is configured.
pub(crate) struct State {
    pub(crate) knobs: Knobs,
    pub(super) devices: [Option<KBox<DeviceState>>; MAX_DEVICES],
    /// What sources that are gone have counted.
    pub(super) retired: Totals,
    /// What `reset` has set to zero.
    pub(super) base: Totals,
}

struct Locked(UnsafeCell<State>);

// SAFETY: Only reached through `Guard`, which holds the lock.
unsafe impl Sync for Locked {}

static STATE: Locked = Locked(UnsafeCell::new(State {
    knobs: Knobs::DEFAULT,
    devices: [const { None }; MAX_DEVICES],
    retired: Totals::ZERO,
    base: Totals::ZERO,
}));

/// The configuration, locked.
pub(crate) struct Guard {
    with_rtnl: bool,
}

impl Guard {
    /// Locks rtnl and the configuration.
    pub(crate) fn lock() -> Self {
        // SAFETY: Process context, no locks held.
        unsafe {
            ffi::mflow_rtnl_lock();
            ffi::mflow_config_lock();
        }
        Self { with_rtnl: true }
    }

    /// Locks the configuration; for callers that hold rtnl, or walk no device.
    fn lock_inner() -> Self {
        // SAFETY: Process context; at most rtnl and the hooks' mutex are held.
        unsafe { ffi::mflow_config_lock() };
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
            ffi::mflow_config_unlock();
            if self.with_rtnl {
                ffi::mflow_rtnl_unlock();
            }
        }
    }
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
        let port: KVBox<Port> = KVBox::init(init::zeroed(), GFP_KERNEL)?;
        // ORDERING: Relaxed: published with the port.
        port.dev.store(dev, Ordering::Relaxed);
        let address = core::ptr::from_ref(&*port).cast_mut();
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
        let mut result = Ok(());
        if knobs.enabled {
            // The hooks are switched one by one: no packet may have a tag before GRO looks at tags.
            set_hooks(true);
            result = self.start_all();
        }
        if result.is_err() {
            self.stop(|_, _| true);
            self.knobs.enabled = false;
        }
        if !self.knobs.enabled {
            set_hooks(false);
        }
        result
    }

    fn start_all(&mut self) -> Result {
        let knobs = self.knobs;
        for device in self.devices() {
            device.start(&knobs)?;
        }
        Ok(())
    }
}

/// Switches the hooks. While they are on, packets have tags only where there are sources.
fn set_hooks(on: bool) {
    // SAFETY: Process context.
    unsafe { ffi::mflow_set_enabled(on) };
}

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

ffi::check_export!(mflow_device_gone, mflow_rescan_devices, mflow_cpu_changed);
