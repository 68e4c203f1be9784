// SPDX-License-Identifier: GPL-2.0

//! The tables of an instance that say what its host is: the devices that packets come from, those of them that are inside of the SR
//! domain, and the destinations that are its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use anyhow::Result;
use aya::maps::lpm_trie::Key;
use aya::maps::{HashMap, LpmTrie, MapData};

use crate::config::destination::Destination;
use crate::host::addresses::OwnedBy;
use crate::host::links::{receivers, requires_hmac, Link};
use crate::host::Host;
use crate::layout::{Address, Device, GROUP_INSIDE};
use crate::limits::{DEVICES, GROUPED, OWN_ADDRESSES, OWN_PREFIXES};
use crate::maps::{open, or_full};
use crate::tables::epoch::{Behind, Epoch};

/// The tables, opened once.
pub(crate) struct HostTables {
    devices: HashMap<MapData, u32, Device>,
    groups: HashMap<MapData, u32, u32>,
    addresses: HashMap<MapData, Key<Address>, u32>,
    prefixes: LpmTrie<MapData, Address, u32>,
    epoch: Epoch,
}

/// The things that they are to say.
#[derive(Default)]
pub(crate) struct Facts {
    devices: BTreeMap<u32, Device>,
    inside: BTreeSet<u32>,
    own: BTreeMap<Destination, OwnedBy>,
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

    /// Adds a device inside, and those that receive for it, as far as its host is known.
    pub(crate) fn add_inside(&mut self, host: Option<&Host>, device: u32) {
        let links = host.map(|host| receivers(&host.links, device));
        let links = links.into_iter().flatten().map(|link| link.index);
        self.inside.extend(std::iter::once(device).chain(links));
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
        match self.own.keys().all(is_address) {
            true => 0,
            false => Device::OWN_PREFIXES,
        }
    }
}

/// Returns the entry of a device with Ethernet headers. A backup has none: what it receives is left to the kernel, which drops it.
fn device_of(host: &Host, link: &Link) -> Option<(u32, Device)> {
    if link.is_backup {
        return None;
    }
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
            groups: open(folder, "groups")?.try_into()?,
            addresses: open(folder, "own_addresses")?.try_into()?,
            prefixes: open(folder, "own_prefixes")?.try_into()?,
            epoch: Epoch::open(folder)?,
        })
    }

    /// Makes the tables say this, and nothing else. What is new comes first, so that nothing is missing meanwhile.
    pub(crate) fn write(&mut self, facts: &Facts) -> Result<()> {
        let mut moves = self.epoch.moves_if_changed();
        let there = self.own()?;
        for (&own, &by) in &facts.own {
            // CAST: 1 or 2.
            let by = by as u32;
            if there.get(&own) == Some(&by) {
                continue;
            }
            moves.changes();
            let key = Address::prefix(own);
            if is_address(&own) {
                let written = self.addresses.insert(key, by, 0);
                or_full(written, "addresses of this host's own", OWN_ADDRESSES)?;
            } else {
                let written = self.prefixes.insert(&key, by, 0);
                or_full(written, "prefixes of this host's own", OWN_PREFIXES)?;
            }
        }
        self.write_groups(facts, &mut moves)?;
        self.write_devices(facts, &mut moves)?;
        for &own in there.keys().filter(|own| !facts.own.contains_key(own)) {
            moves.changes();
            let key = Address::prefix(own);
            match is_address(&own) {
                true => self.addresses.remove(&key)?,
                false => self.prefixes.remove(&key)?,
            }
        }
        Ok(())
    }

    fn write_groups(&mut self, facts: &Facts, moves: &mut Behind) -> Result<()> {
        for &device in &facts.inside {
            if self.groups.get(&device, 0).ok() != Some(GROUP_INSIDE) {
                moves.changes();
                let written = self.groups.insert(device, GROUP_INSIDE, 0);
                or_full(written, "devices inside", GROUPED)?;
            }
        }
        let there: Vec<u32> = self.groups.keys().collect::<Result<_, _>>()?;
        for device in there {
            if !facts.inside.contains(&device) {
                moves.changes();
                self.groups.remove(&device)?;
            }
        }
        Ok(())
    }

    fn write_devices(&mut self, facts: &Facts, moves: &mut Behind) -> Result<()> {
        let flags = facts.flags();
        for (&index, &device) in &facts.devices {
            let device = Device {
                flags: device.flags | flags,
                ..device
            };
            if self.devices.get(&index, 0).ok() != Some(device) {
                moves.changes();
                let written = self.devices.insert(index, device, 0);
                or_full(written, "devices that packets come from", DEVICES)?;
            }
        }
        let there: Vec<u32> = self.devices.keys().collect::<Result<_, _>>()?;
        for index in there {
            if !facts.devices.contains_key(&index) {
                moves.changes();
                self.devices.remove(&index)?;
            }
        }
        Ok(())
    }

    /// Returns the destinations that are in the tables, with the values there.
    fn own(&self) -> Result<BTreeMap<Destination, u32>> {
        let addresses = self.addresses.iter();
        let mut own = BTreeMap::new();
        for entry in addresses.chain(self.prefixes.iter()) {
            let (key, by) = entry?;
            own.insert(key.data().destination(key.prefix_len())?, by);
        }
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::InfoKind;

    use super::*;

    #[test]
    fn a_bond_s_slaves_are_inside_with_it_and_backups_receive_nothing() {
        let link = |index, kind, master, is_backup| Link {
            index,
            kind,
            master,
            is_backup,
            mac: Some([2; 6]),
            ..Link::default()
        };
        let links = [
            link(1, Some(InfoKind::Bond), None, false),
            link(2, None, Some(1), false),
            link(3, None, Some(1), true),
            link(4, None, None, false),
        ];
        let host = Host {
            links: links.into_iter().map(|link| (link.index, link)).collect(),
            ..Host::default()
        };
        let mut facts = Facts::default();
        facts.add(&host, [1, 4]);
        facts.add_inside(Some(&host), 1);
        facts.add_inside(None, 9);
        assert_eq!(Vec::from_iter(facts.devices.keys().copied()), [1, 2, 4]);
        assert_eq!(Vec::from_iter(facts.inside), [1, 2, 3, 9]);
    }

    #[test]
    fn packets_look_for_prefixes_only_where_there_are_some() {
        let flags = |own: &[&str]| {
            let own = own.iter().map(|text| text.parse().expect(text));
            let own = own.map(|own| (own, OwnedBy::This));
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
