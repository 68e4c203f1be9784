// SPDX-License-Identifier: GPL-2.0

//! Attachment of the XDP program that redirects packets to a device of ours before they are built, where lanes are to build them
//! and drivers do not ask by themselves (`build` `lane` on a kernel without our hooks).
//!
//! The kernel takes rtnl where a program is attached, so that comes behind each change, without locks. Sources of the device end
//! before packets are dispatched at another place, and begin again: nothing overtakes what came the other way.

use super::configuration::Configuration;
use crate::algo::knobs::device_command::DeviceName;
use crate::algo::source::redirection::{Redirection, Refusal};
use crate::glue::locks::Rtnl;
use crate::glue::packet::pool;
use crate::glue::stack::device::Device;
use crate::glue::stack::way;
use kernel::prelude::*;

impl Configuration {
    /// Clears all refusals, so that redirection is asked for again.
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
            device.redirection = match device.redirection {
                Redirection::Off | Redirection::Refused(_) => Redirection::Off,
                // The one that attaches the program sees that it is not wanted any more.
                Redirection::Coming => Redirection::Coming,
                Redirection::On | Redirection::Going => Redirection::Going,
            };
        }
    }

    /// Begins the next change that there is to be, and returns it. The device has no source from then on.
    fn begin_change(&mut self) -> Option<Change> {
        let wanted = way::redirects(&self.knobs);
        let mut devices = self.devices.iter_mut().flatten();
        let device = devices.find(|device| match device.redirection {
            Redirection::Off => wanted,
            Redirection::Going => true,
            _ => false,
        })?;
        let change = Change {
            name: device
                .dev()
                .with_name(|name| DeviceName::new(name.as_bytes()))
                .ok()?,
            address: device.dev().address() as usize,
            comes: device.redirection == Redirection::Off,
        };
        if change.comes {
            device.redirection = Redirection::Coming;
            let address = change.address;
            self.stop(pool::slots(), |device, _| {
                device.dev().address() as usize == address
            });
        }
        Some(change)
    }

    /// Ends a change of a device, which may be gone.
    fn end_change(&mut self, rtnl: &Rtnl, change: &Change, result: Result<(), Refusal>) -> Result {
        let knobs = self.knobs;
        let mut devices = self.devices.iter_mut().flatten();
        let device = devices
            .find(|device| device.dev().address() as usize == change.address)
            .filter(|device| device.redirection.is_changing());
        let Some(device) = device else {
            return Ok(());
        };
        device.redirection = match result {
            Err(refusal) => Redirection::Refused(refusal),
            Ok(()) if change.comes && way::redirects(&knobs) => {
                device.dev().dispatch_early(rtnl);
                Redirection::On
            }
            Ok(()) => {
                device.dev().end_redirect(rtnl);
                Redirection::Off
            }
        };
        if knobs.enabled {
            device.start(rtnl, &knobs)?;
        }
        Ok(())
    }
}

/// A program comes to a device, or goes.
struct Change {
    name: DeviceName,
    address: usize,
    comes: bool,
}

impl Change {
    /// Carries it out. Process context, no locks held.
    fn carry_out(&self) -> Result<(), Refusal> {
        if !self.comes {
            Device::wait_redirects_ended();
            return Ok(());
        }
        // A device of that name in another namespace is another one.
        let here = Device::find(&self.name).filter(|dev| dev.address() as usize == self.address);
        here.map_or(Err(Refusal::Namespace), |dev| {
            dev.redirect()
                .map_err(|error| Refusal::of_errno(error.to_errno()))
        })
    }
}

/// Starts and ends the redirection of packets as the knobs want it, where that has not been tried. Process context, no locks
/// held. `say` is given the devices for which it cannot be had.
pub(crate) fn follow(mut say: impl FnMut(&DeviceName, Refusal)) {
    loop {
        let change = {
            let _rtnl = Rtnl::lock();
            Configuration::lock().begin_change()
        };
        let Some(change) = change else {
            return;
        };
        let result = change.carry_out();
        if let Err(refusal) = result {
            say(&change.name, refusal);
        }
        let rtnl = Rtnl::lock();
        let started = Configuration::lock().end_change(&rtnl, &change, result);
        if let Err(error) = started {
            pr_warn!("flows stay on one CPU: {error:?}\n");
        }
    }
}
