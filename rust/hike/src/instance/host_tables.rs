// SPDX-License-Identifier: GPL-2.0

//! The tables of an instance that say what its host is: the devices that packets come from, and the destinations that are its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use anyhow::Result;
use aya::maps::lpm_trie::Key;
use aya::maps::{HashMap, LpmTrie, MapData};

use crate::config::destination::Destination;
use crate::host::links::{receivers, requires_hmac, Link};
use crate::host::Host;
use crate::layout::{Address, Device};
use crate::limits::{DEVICES, OWN_ADDRESSES, OWN_PREFIXES};
use crate::maps::{open, or_full};

/// The value of what is there.
const THERE: u32 = 1;

/// The tables, opened once.
pub(crate) struct HostTables {
    devices: HashMap<MapData, u32, Device>,
    addresses: HashMap<MapData, Key<Address>, u32>,
    prefixes: LpmTrie<MapData, Address, u32>,
}

/// The things that they are to say.
#[derive(Default)]
pub(crate) struct Facts {
    devices: BTreeMap<u32, Device>,
    own: BTreeSet<Destination>,
}

impl Facts {
    /// Adds what a host says of itself, and of these devices, whose packets come to an instance.
    pub(crate) fn add(&mut self, host: &Host, devices: impl IntoIterator<Item = u32>) {
        self.own.extend(&host.own);
        for index in devices {
            for link in receivers(&host.links, index) {
                self.devices.extend(device_of(host, link));
            }
        }
    }

    /// Adds a device of which nobody but the caller knows.
    pub(crate) fn add_device(&mut self, index: u32, mac: [u8; 6]) {
        let device = Device {
            mac,
            flags: 0,
            network: 0,
        };
        self.devices.insert(index, device);
    }

    /// Returns the flags that each device has.
    fn flags(&self) -> u16 {
        match self.own.iter().all(is_address) {
            true => 0,
            false => Device::OWN_PREFIXES,
        }
    }
}

/// Returns the entry of a device with Ethernet headers.
fn device_of(host: &Host, link: &Link) -> Option<(u32, Device)> {
    let flags = match requires_hmac(&host.links, link.index) {
        true => Device::SIGNED,
        false => 0,
    };
    let device = Device {
        mac: link.mac?,
        flags,
        // CAST: the kernel's numbers of namespaces have 32 bits.
        network: host.namespace as u32,
    };
    Some((link.index, device))
}

fn is_address(destination: &Destination) -> bool {
    matches!(destination, Destination::Address(_))
}

impl HostTables {
    /// Opens those of an instance.
    pub(crate) fn open(folder: &FilePath) -> Result<Self> {
        Ok(Self {
            devices: open(folder, "devices")?.try_into()?,
            addresses: open(folder, "own_addresses")?.try_into()?,
            prefixes: open(folder, "own_prefixes")?.try_into()?,
        })
    }

    /// Makes the tables say this, and nothing else. What is new comes first, so that nothing is missing meanwhile.
    pub(crate) fn write(&mut self, facts: &Facts) -> Result<()> {
        let there = self.own()?;
        for &own in facts.own.difference(&there) {
            let key = Address::prefix(own);
            if is_address(&own) {
                let written = self.addresses.insert(key, THERE, 0);
                or_full(written, "addresses of this host's own", OWN_ADDRESSES)?;
            } else {
                let written = self.prefixes.insert(&key, THERE, 0);
                or_full(written, "prefixes of this host's own", OWN_PREFIXES)?;
            }
        }
        self.write_devices(facts)?;
        for &own in there.difference(&facts.own) {
            let key = Address::prefix(own);
            match is_address(&own) {
                true => self.addresses.remove(&key)?,
                false => self.prefixes.remove(&key)?,
            }
        }
        Ok(())
    }

    fn write_devices(&mut self, facts: &Facts) -> Result<()> {
        let flags = facts.flags();
        for (&index, &device) in &facts.devices {
            let device = Device {
                flags: device.flags | flags,
                ..device
            };
            if self.devices.get(&index, 0).ok() != Some(device) {
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

    /// Returns the destinations that are in the tables.
    fn own(&self) -> Result<BTreeSet<Destination>> {
        let addresses = self.addresses.keys();
        let mut own = BTreeSet::new();
        for key in addresses.chain(self.prefixes.keys()) {
            let key = key?;
            own.insert(key.data().destination(key.prefix_len())?);
        }
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_look_for_prefixes_only_where_there_are_some() {
        let flags = |own: &[&str]| {
            let own = own.iter().map(|text| text.parse().expect(text));
            let facts = Facts {
                own: own.collect(),
                ..Facts::default()
            };
            facts.flags()
        };
        assert_eq!(flags(&[]), 0);
        assert_eq!(flags(&["10.0.0.1", "2001:db8::1"]), 0);
        assert_eq!(flags(&["10.0.0.1", "2001:db8::/64"]), Device::OWN_PREFIXES);
        assert_eq!(flags(&["0.0.0.0/0"]), Device::OWN_PREFIXES);
    }
}
