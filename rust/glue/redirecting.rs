// SPDX-License-Identifier: GPL-2.0

//! Redirection of packets to a device of ours before they are built, where lanes are to build them and drivers do not ask by
//! themselves (`build` `lane` on a kernel without our hooks).
//!
//! The kernel takes rtnl where a program is attached, so that comes behind each change, without locks. Sources of the device end
//! before packets are dispatched at another place, and begin again: nothing overtakes what came the other way.

use super::configuration::Configuration;
use super::locks::Rtnl;
use super::pool;
use super::stack::device::Device;
use super::stack::way;
use crate::algo::knobs::DeviceName;
use crate::algo::redirection::{Redirection, Refusal};
use kernel::prelude::*;

impl Configuration {
    /// Has what was refused asked for again.
    pub(crate) fn retry_redirections(&mut self) {
        for device in self.devices.iter_mut().flatten() {
            if matches!(device.redirection, Redirection::Refused(_)) {
                device.redirection = Redirection::Off;
            }
        }
    }

    /// Ends redirection if it is not wanted. There are no sources.
    pub(super) fn end_redirections(&mut self, rtnl: &Rtnl) {
        if way::redirects(&self.knobs) {
            return;
        }
        for device in self.devices.iter_mut().flatten() {
            device.dev().end_redirect(rtnl);
            device.redirection = Redirection::Off;
        }
    }

    /// Returns the name of a device whose packets are to be redirected and are not yet, and where the device is.
    fn next_redirection(&self) -> Option<(DeviceName, usize)> {
        let mut devices = self.devices.iter().flatten();
        let device = devices
            .find(|device| way::redirects(&self.knobs) && device.redirection == Redirection::Off)?;
        let name = device
            .dev()
            .with_name(|name| DeviceName::new(name.as_bytes()));
        Some((name.ok()?, device.dev().address() as usize))
    }

    /// Notes what has become of the redirection of a device, which may be gone.
    fn note_redirection(
        &mut self,
        rtnl: &Rtnl,
        address: usize,
        result: Result<(), Refusal>,
    ) -> Result {
        let is_this =
            |device: &super::device::DeviceState| device.dev().address() as usize == address;
        let mut devices = self.devices.iter_mut().flatten();
        let Some(device) = devices.find(|device| is_this(device)) else {
            return Ok(());
        };
        if let Err(refusal) = result {
            device.redirection = Redirection::Refused(refusal);
            return Ok(());
        }
        self.stop(pool::slots(), |device, _| is_this(device));
        let knobs = self.knobs;
        let mut devices = self.devices.iter_mut().flatten();
        let Some(device) = devices.find(|device| is_this(device)) else {
            return Ok(());
        };
        if way::redirects(&knobs) {
            device.dev().dispatch_early(rtnl);
            device.redirection = Redirection::On;
        } else {
            device.dev().end_redirect(rtnl);
        }
        if knobs.enabled {
            device.start(rtnl, &knobs)?;
        }
        Ok(())
    }
}

/// Has packets redirected as the knobs want it, where that has not been tried. Process context, no locks held. `say` is given the
/// devices for which it cannot be had.
pub(crate) fn follow(say: impl Fn(&DeviceName, Refusal)) {
    loop {
        let Some((name, address)) = Configuration::lock().next_redirection() else {
            return;
        };
        // A device of that name in another namespace is another one.
        let here = Device::find(&name).filter(|dev| dev.address() as usize == address);
        let result = here.map_or(Err(Refusal::Namespace), |dev| {
            dev.redirect()
                .map_err(|error| Refusal::of_errno(error.to_errno()))
        });
        if let Err(refusal) = result {
            say(&name, refusal);
        }
        let rtnl = Rtnl::lock();
        let started = Configuration::lock().note_redirection(&rtnl, address, result);
        if let Err(error) = started {
            pr_warn!("flows stay on one CPU: {error:?}\n");
        }
    }
}
