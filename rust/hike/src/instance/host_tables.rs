// SPDX-License-Identifier: GPL-2.0

//! The tables of an instance that say what its host is: the devices that packets come from.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use anyhow::Result;
use aya::maps::{HashMap, MapData};

use crate::host::links::{receivers, Link};
use crate::host::Host;
use crate::layout::Device;
use crate::limits::DEVICES;
use crate::maps::{open, or_full};

/// The tables, opened once.
pub(crate) struct HostTables {
    devices: HashMap<MapData, u32, Device>,
}

/// What they are to say.
#[derive(Default)]
pub(crate) struct Facts {
    devices: BTreeMap<u32, Device>,
}

impl Facts {
    /// Adds what a host says of these devices of its, whose packets come to an instance.
    pub(crate) fn add(&mut self, host: &Host, devices: impl IntoIterator<Item = u32>) {
        for index in devices {
            for link in receivers(&host.links, index) {
                self.devices.extend(device_of(link));
            }
        }
    }

    /// Adds a device of which nobody but the caller knows.
    pub(crate) fn add_device(&mut self, index: u32, mac: [u8; 6]) {
        self.devices.insert(index, Device { mac, flags: 0 });
    }
}

/// Returns the entry of a device with Ethernet headers.
fn device_of(link: &Link) -> Option<(u32, Device)> {
    let mac = link.mac?;
    Some((link.index, Device { mac, flags: 0 }))
}

impl HostTables {
    /// Opens those of an instance.
    pub(crate) fn open(folder: &FilePath) -> Result<Self> {
        Ok(Self {
            devices: open(folder, "devices")?.try_into()?,
        })
    }

    /// Makes the tables say this, and nothing else.
    pub(crate) fn write(&mut self, facts: &Facts) -> Result<()> {
        for (&index, device) in &facts.devices {
            if self.devices.get(&index, 0).ok().as_ref() != Some(device) {
                let written = self.devices.insert(index, device, 0);
                or_full(written, "devices that packets come from", DEVICES)?;
            }
        }
        let there: Vec<u32> = self.devices.keys().collect::<Result<_, _>>()?;
        for index in there {
            if !facts.devices.contains_key(&index) {
                self.devices.remove(&index)?;
            }
        }
        Ok(())
    }
}
