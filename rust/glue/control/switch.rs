// SPDX-License-Identifier: GPL-2.0

//! Start and end of devices and of splitting itself. Process context, under the configuration lock.

use super::configuration::{Configuration, MAX_DEVICES};
use super::device::{is_behind_gro, DeviceState};
use super::sampling_work::SamplingWork;
use super::stop::STOP_MS;
use super::{auto_cpus, pipeline};
use crate::algo::counters::Counter;
use crate::algo::knobs::device_command::DeviceName;
use crate::algo::knobs::{Knobs, Mode};
use crate::algo::source::queue_builder::{QueueBuilder, WATCHED};
use crate::glue::locks::{synchronize, Rtnl};
use crate::glue::packet::pool;
use crate::glue::stack::device::{Device, Napi, Watch};
use crate::glue::stack::{hooks, way};
use crate::glue::{ffi, runtime};
use core::fmt;
use kernel::prelude::*;

impl Configuration {
    fn devices(&mut self) -> impl Iterator<Item = &mut KBox<DeviceState>> {
        self.devices.iter_mut().flatten()
    }

    pub(crate) fn write_devices(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        for device in self.devices.iter().flatten() {
            device.dev().with_name(|name| writeln!(to, "{name}"))?;
        }
        Ok(())
    }

    /// Writes for each device which core builds the packets of how many of its queues, and notes a device whose datagrams are not joined
    /// as they are watched.
    pub(crate) fn write_builders(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        let knobs = &self.knobs;
        let joins = knobs.enabled && knobs.join && knobs.mode == Mode::Mflow;
        for device in self.devices.iter().flatten() {
            if way::redirects(&self.knobs) {
                let (builder, mut sources) = (device.redirection.builder(), 0);
                // What else is received comes through NAPIs.
                device.for_each_source(|source| sources += u32::from(!source.is_shared()));
                device
                    .dev()
                    .with_name(|name| writeln!(to, "{name} {builder} {sources}"))?;
                continue;
            }
            for builder in QueueBuilder::ALL {
                let mut queues = 0;
                device.for_each_source(|source| {
                    queues += u32::from(source.is_before_gro() && source.builder() == builder);
                });
                if queues > 0 {
                    device
                        .dev()
                        .with_name(|name| writeln!(to, "{name} {} {queues}", builder.name()))?;
                }
            }
            let watch = device.dev().watch();
            let index = device.dev().index();
            let has_watched_flow = || {
                let mut flows = pool::slots().taken();
                flows.any(|slot| pool::slots().slot(slot).watched_device() == index)
            };
            let is_watched = watch == Watch::All || watch == Watch::Filtered && has_watched_flow();
            if joins && is_watched {
                device
                    .dev()
                    .with_name(|name| writeln!(to, "{name} {WATCHED}"))?;
            }
        }
        Ok(())
    }

    /// Lets the hook behind GRO see the packets that come from there only if some may be taken there. Those of a driver that does
    /// not call GRO do not come from there, unless another device's NAPI has brought them.
    fn look_behind_gro(&mut self, knobs: &Knobs) {
        way::look_behind_gro(is_behind_gro(knobs) || self.devices().count() > 1);
    }

    /// Opts a device in; nothing happens if it is already.
    pub(crate) fn add_device(&mut self, rtnl: &Rtnl, name: &DeviceName) -> Result {
        let dev = Device::find(name).ok_or(ENODEV)?;
        let address = dev.address();
        if self.devices().any(|device| device.dev().is(address)) {
            return Ok(());
        }
        let knobs = self.knobs;
        let place = self.devices.iter_mut().find(|place| place.is_none());
        let place = place.ok_or(ENOSPC)?;
        let device = DeviceState::new(dev)?;
        device.opt_in(rtnl)?;
        *place = Some(device);
        if knobs.enabled {
            let knobs = self.startable();
            self.look_behind_gro(&knobs);
            let started = self
                .devices()
                .filter(|device| device.dev().is(address))
                .try_for_each(|device| device.start(rtnl, &knobs));
            // Also if some sources could not be started: what gathers before the others' lanes is carried before they end.
            self.let_go();
            if let Err(error) = started {
                self.remove_device(rtnl, address);
                return Err(error);
            }
        }
        Ok(())
    }

    pub(crate) fn remove_named_device(&mut self, rtnl: &Rtnl, name: &DeviceName) -> Result {
        let dev = Device::find(name).ok_or(ENODEV)?;
        if !self.remove_device(rtnl, dev.address()) {
            return Err(ENODEV);
        }
        Ok(())
    }

    /// Returns whether the device was in.
    fn remove_device(&mut self, rtnl: &Rtnl, dev: *const ffi::net_device) -> bool {
        let is_this = |device: &KBox<DeviceState>| device.dev().is(dev);
        let mut places = self.devices.iter();
        let Some(index) = places.position(|place| place.as_ref().is_some_and(is_this)) else {
            return false;
        };
        self.stop(pool::slots(), |device, _| device.dev().is(dev));
        // The device's reference to the port ends first, then those of hooks that run now, then ours to the device.
        let Some(device) = self.devices.get_mut(index).and_then(Option::take) else {
            return false;
        };
        device.dev().opt_out(rtnl);
        synchronize();
        true
    }

    /// Makes `knobs` the configuration. On an error everything is off.
    pub(crate) fn apply(&mut self, rtnl: &Rtnl, knobs: Knobs) -> Result {
        let restart = self.knobs.restarts_for(&knobs)
            || way::redirects(&self.knobs) != way::redirects(&knobs);
        if restart || !SamplingWork::is_wanted(&knobs) {
            // What it has given out is for the lanes that there have been.
            self.sampling = None;
        }
        runtime::publish(&knobs);
        if restart {
            self.end_all();
        }
        self.knobs = knobs;
        let mut result = Ok(());
        if restart {
            self.end_redirections(rtnl);
        }
        if !restart {
            self.start_sampling();
            for device in self.devices() {
                device.give_places(&knobs);
            }
            result = self.follow_orders(rtnl);
        } else {
            self.begin_orders();
            runtime::set_staged(knobs.enabled && knobs.mode != Mode::Mflow);
            if knobs.has_work() {
                // The hooks are switched one by one: no packet may have a tag before GRO looks at tags.
                result = hooks::switch_on(rtnl).inspect_err(|error| {
                    pr_err!("enabled: the kernel has not taken the module's hooks ({error:?}), so no flow is split\n");
                });
                result = result.and_then(|()| self.start_all(rtnl));
            }
        }
        if result.is_err() {
            self.sampling = None;
            self.end_all();
            self.knobs.enabled = false;
            runtime::set_staged(false);
        }
        // Without our patches the hooks cost all packets of a device the NIC's GRO.
        if !self.knobs.has_work() {
            let are_drained = pool::slots().taken().next().is_none();
            hooks::switch_off(rtnl, are_drained);
        }
        self.start_sampling();
        auto_cpus::begin(&self.knobs);
        result
    }

    fn end_all(&mut self) {
        self.stop(pool::slots(), |_, _| true);
        self.end_stages();
    }

    /// Returns the knobs that sources start with. Stages are on CPUs that are online: there is no other to take their place.
    fn startable(&self) -> Knobs {
        match self.knobs.mode {
            Mode::Mflow => self.knobs,
            Mode::FalconDev | Mode::FalconFunc => Knobs {
                cpus: pipeline::online(&self.knobs.cpus),
                mode: self.effective_mode(runtime::stage_orders()),
                ..self.knobs
            },
        }
    }

    /// Starts the load controller if the knobs want it and it does not run, or runs for other CPUs.
    fn start_sampling(&mut self) {
        if !SamplingWork::is_wanted(&self.knobs) {
            return;
        }
        let lanes = if self.pipeline.is_running() {
            self.pipeline.cpus
        } else {
            self.knobs.cpus
        };
        if !self.sampling.as_ref().is_some_and(|it| it.is_of(&lanes)) {
            self.sampling = None;
            // SAFETY: There is none, and the holder of the configuration has its lock.
            self.sampling = Some(unsafe { SamplingWork::start(self.knobs.mode, &lanes) });
        }
    }

    fn start_all(&mut self, rtnl: &Rtnl) -> Result {
        let knobs = self.startable();
        let mut result = Ok(());
        if knobs.mode != Mode::Mflow && !self.pipeline.is_running() {
            let started = self.pipeline.start(&knobs);
            if started.is_err() {
                // All or none: so the next search tries again, and what asked for this one has to see its end.
                self.end_stages();
                self.devices()
                    .for_each(|device| device.end_searches([false; 2]));
                return started;
            }
        }
        self.look_behind_gro(&knobs);
        for device in self.devices() {
            // Also behind one that fails: what asked for the search of a device has to see its end.
            let started = device.start(rtnl, &knobs);
            result = result.and(started);
        }
        self.let_go();
        result
    }

    /// Follows the CPUs that come and go, if flows are handed on from one to the next.
    fn follow_cpus(&mut self, rtnl: &Rtnl) -> Result {
        if !self.pipeline.is_running() {
            return Ok(());
        }
        if self.startable().cpus == self.pipeline.cpus {
            // One may have gone and come back: what has waited for it meanwhile has nobody to wake it.
            self.for_each_source_of_all(|source| {
                if source.hands_on() {
                    source.wake_all();
                }
            });
            return Ok(());
        }
        self.restart(rtnl)
    }

    /// Ends the sources of NAPIs that are gone without a word.
    fn end_gone(&mut self) {
        let mut any = false;
        self.for_each_source(|_, source| any |= source.note_gone());
        if any {
            self.stop(pool::slots(), |_, source| source.is_gone());
        }
    }

    fn restart(&mut self, rtnl: &Rtnl) -> Result {
        self.end_all();
        // What it wants is about the CPUs that there have been.
        self.sampling = None;
        self.begin_orders();
        let started = self.start_all(rtnl);
        self.start_sampling();
        started
    }

    /// Arranges the stages as the load controller orders, or as the knobs do without one.
    fn follow_orders(&mut self, rtnl: &Rtnl) -> Result {
        let (orders, wanted) = (runtime::stage_orders(), self.wanted_orders());
        if !self.pipeline.is_running() || wanted == orders {
            return Ok(());
        }
        let mut followed = Ok(());
        if self.effective_mode(wanted) == self.effective_mode(orders) {
            if (wanted.loaded, wanted.onward) == (orders.loaded, orders.onward) {
                // GRO is where the mode has it anyway.
                runtime::set_stage_orders(wanted);
                return Ok(());
            }
            self.rearrange(wanted);
        } else {
            // Packets are taken elsewhere, by other sources.
            self.end_all();
            runtime::set_stage_orders(wanted);
            followed = self.start_all(rtnl);
        }
        self.count_one(Counter::StagesMoved);
        followed
    }
}

/// Switches everything off; flows go back to the ordinary path. Process context, no locks held.
pub(crate) fn stop_all() {
    let rtnl = Rtnl::lock();
    let mut configuration = Configuration::lock();
    let knobs = Knobs {
        enabled: false,
        ..configuration.knobs
    };
    // Cannot fail: only starting can.
    let _ = configuration.apply(&rtnl, knobs);
}

/// Ends the source of a NAPI that goes, and is disabled, if it has one. Process context, perhaps under rtnl.
pub(crate) fn napi_gone(napi: Napi) {
    let mut configuration = Configuration::lock();
    let mut has_source = false;
    configuration.for_each_source(|_, source| has_source |= source.napi() == Some(napi));
    // Many have none, and their end is not to wait for grace periods.
    if has_source {
        configuration.stop(pool::slots(), |_, source| source.napi() == Some(napi));
    }
}

/// Events of devices and CPUs reach us as long as it lives.
pub(crate) struct Control(());

impl Control {
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
        {
            let rtnl = Rtnl::lock();
            let mut configuration = Configuration::lock();
            for index in 0..MAX_DEVICES {
                if let Some(Some(device)) = configuration.devices.get(index) {
                    let dev = device.dev().address();
                    configuration.remove_device(&rtnl, dev);
                }
            }
        }
        // SAFETY: Nothing is left that uses it.
        unsafe { ffi::mflow_shim_exit() };
    }
}

/// Ends all that refers to a device that is being unregistered. Under rtnl.
#[no_mangle]
unsafe extern "C" fn mflow_device_gone(dev: *mut ffi::net_device, opted_in: bool) {
    if !opted_in && !runtime::is_staged() {
        // Nothing of ours refers to it. That stays so: what starts stages holds rtnl.
        return;
    }
    // SAFETY: C calls under rtnl.
    let rtnl = unsafe { Rtnl::assume_held() };
    let mut configuration = Configuration::lock();
    if opted_in {
        configuration.remove_device(&rtnl, dev);
    }
    // It is closed: no more packets come that refer to it. What waits for a CPU that is gone does so until stages begin again.
    let followed = configuration.follow_cpus(&rtnl);
    if followed.is_ok() && configuration.pass_stages(STOP_MS) {
        return;
    }
    // It is freed soon. The end of a stage leaves no packet of it.
    pr_warn!("a stage has not run for {STOP_MS} ms, and a device goes: all stages begin again\n");
    if let Err(error) = configuration.restart(&rtnl) {
        pr_warn!("flows stay on one CPU: {error:?}\n");
    }
}

/// Searches devices for queues without a source, as a packet of one came, and gives lanes places for requests where a driver leaves
/// packets to them. Process context.
#[no_mangle]
unsafe extern "C" fn mflow_rescan_devices() {
    let rtnl = Rtnl::lock();
    let mut configuration = Configuration::lock();
    if !configuration.knobs.enabled {
        return;
    }
    if configuration.devices().any(|it| it.is_searched_for()) {
        configuration.count_one(Counter::DeviceSearches);
    }
    if way::FINDS_SOURCES_BY_NUMBER {
        configuration.end_gone();
    }
    let started = configuration.follow_cpus(&rtnl);
    if let Err(error) = started.and_then(|()| configuration.start_all(&rtnl)) {
        pr_warn!("new queues of a device stay on one CPU: {error:?}\n");
    }
    configuration.start_sampling();
}

/// Lays stages out again, as the load controller asks for it. Process context.
///
/// No lock is held where this work is waited for, so it may wait for all of them; what is wanted is looked up after that.
#[no_mangle]
unsafe extern "C" fn mflow_restage_flows() {
    let rtnl = Rtnl::lock();
    let mut configuration = Configuration::lock();
    // While one of the CPUs comes or goes, or does not run, the next sample asks again.
    let is_settled = configuration.startable().cpus == configuration.pipeline.cpus;
    if !is_settled || !configuration.stages_run() {
        return;
    }
    if let Err(error) = configuration.follow_orders(&rtnl) {
        pr_warn!("flows stay on one CPU: {error:?}\n");
    }
}

/// Notes that a CPU comes or goes. Under the CPU hotplug lock: no locks of ours.
#[no_mangle]
unsafe extern "C" fn mflow_cpu_changed(cpu: kernel::ffi::c_uint, online: bool) {
    runtime::set_cpu_online(cpu, online);
    if runtime::is_staged() {
        // SAFETY: May be called in any context.
        unsafe { ffi::mflow_rescan() };
    }
}

ffi::check_export!(
    mflow_device_gone,
    mflow_rescan_devices,
    mflow_restage_flows,
    mflow_cpu_changed
);
