// SPDX-License-Identifier: GPL-2.0

//! Lanes where they are best (`cpus` `auto`): a look twice a second, and a change if other CPUs are better.
//!
//! The work takes the locks that a write to a knob takes, so the end of the module waits for it without any. It ends by itself
//! when it finds, under these locks, that nothing is to be followed any more.

use super::configuration::Configuration;
use crate::algo::knobs::Knobs;
use crate::algo::placement::LOOK_PERIOD_MS;
use crate::glue::ffi;
use crate::glue::locks::Rtnl;
use crate::glue::stack::hooks;
use kernel::prelude::*;

impl Configuration {
    /// Returns `knobs` with the lanes that are best for them now, if they leave that to us.
    pub(crate) fn with_lanes(&self, knobs: Knobs) -> Knobs {
        if !knobs.auto_cpus {
            return knobs;
        }
        let devices = self.devices.iter().flatten();
        let nodes = devices.map(|device| device.dev().node());
        Knobs {
            cpus: self.survey.lanes(&knobs, nodes),
            ..knobs
        }
    }

    /// Moves lanes to the CPUs that suit them best now, if that choice is left to the module.
    pub(crate) fn place_lanes(&mut self, rtnl: &Rtnl) -> Result {
        let knobs = self.with_lanes(self.knobs);
        if knobs != self.knobs {
            self.apply(rtnl, knobs)?;
        }
        Ok(())
    }

    fn look(&mut self) {
        let Self {
            devices,
            survey,
            knobs,
            ..
        } = self;
        survey.look(knobs, |f| {
            for device in devices.iter().flatten() {
                device.for_each_source(&mut *f);
            }
        });
        let devices = devices.iter().flatten();
        survey.take_up(knobs, devices.map(|device| device.dev().node()));
    }
}

/// Starts looks at the CPUs, if the knobs leave the choice of lanes to the module. Under the configuration lock.
pub(crate) fn begin(knobs: &Knobs) {
    let follows = is_wanted(knobs);
    hooks::watch_readers(follows);
    if follows {
        // SAFETY: Any context.
        unsafe { ffi::mflow_placing_start(LOOK_PERIOD_MS) };
    }
}

fn is_wanted(knobs: &Knobs) -> bool {
    knobs.enabled && knobs.auto_cpus
}

/// Takes a look; returns whether there is to be another. Process context, one at a time.
#[no_mangle]
unsafe extern "C" fn mflow_place_lanes() -> bool {
    {
        // Most looks change nothing, and so have no need for rtnl, for which others queue.
        let mut configuration = Configuration::lock();
        if !is_wanted(&configuration.knobs) {
            return false;
        }
        configuration.look();
        if configuration.with_lanes(configuration.knobs) == configuration.knobs {
            return true;
        }
    }
    let rtnl = Rtnl::lock();
    let mut configuration = Configuration::lock();
    if is_wanted(&configuration.knobs) {
        if let Err(error) = configuration.place_lanes(&rtnl) {
            pr_warn!("switched off, as lanes could not be placed again: {error:?}\n");
        }
    }
    is_wanted(&configuration.knobs)
}

ffi::check_export!(mflow_place_lanes);
