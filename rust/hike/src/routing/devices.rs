// SPDX-License-Identifier: GPL-2.0

//! Devices: what is above and below each, and what their knobs say. For a packet that one of them receives, the kernel asks the rules for
//! another one that is above it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, Result};

use super::netlink::{attributes, half, word, Attributes, Listed, Message, Netlink};
use super::sysctl;

/// The bytes in front of the attributes: `struct ifinfomsg`, and `struct ifaddrmsg` (linux/rtnetlink.h, linux/if_addr.h).
const LINK_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;
/// Lists that change while they are read are read this many times at most.
const TRIES: u32 = 5;

/// Attributes of devices: linux/if_link.h.
mod link {
    pub(super) const NAME: u16 = 3;
    pub(super) const MTU: u16 = 4;
    pub(super) const LINK: u16 = 5;
    pub(super) const MASTER: u16 = 10;
    pub(super) const INFO: u16 = 18;
    pub(super) const LINK_NAMESPACE: u16 = 37;
    /// Inside of `INFO`.
    pub(super) const KIND: u16 = 1;
    pub(super) const DATA: u16 = 2;
    pub(super) const PORT_DATA: u16 = 5;
    /// Inside of a VLAN's `DATA`.
    pub(super) const VLAN: u16 = 1;
    pub(super) const EGRESS_QOS: u16 = 3;
    pub(super) const PROTOCOL: u16 = 5;
    /// Inside of the `PORT_DATA` of a bond's port, and a value of it: a backup.
    pub(super) const BOND_STATE: u16 = 1;
    pub(super) const BACKUP: u8 = 1;
}

/// A VLAN tag without its priority, as it stands in a frame: kind and number.
pub(crate) type Tag = [u8; 4];

/// The kind of a device, as far as it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Other,
    Vrf,
    /// Its ports receive for it.
    Bond,
    Vlan {
        tag: Tag,
        /// The device below; `None`: it is in another namespace.
        parent: Option<u32>,
        /// True if tags get priorities.
        maps_priorities: bool,
    },
}

/// A device, and the knobs that count for what it receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) is_up: bool,
    pub(crate) mtu: u32,
    pub(crate) kind: Kind,
    pub(crate) master: Option<u32>,
    /// True of a bond's port that receives nothing for it.
    pub(crate) is_backup: bool,
    /// True if it takes VLAN tags out of the frames before XDP sees them.
    pub(crate) hides_tags: bool,
    pub(crate) has_ipv4: bool,
    pub(crate) no_ipv6: bool,
    pub(crate) rp_filter: i64,
    pub(crate) sends_redirects: bool,
    pub(crate) answers_for_neighbours: bool,
}

/// The kernel's device for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The device that receives it.
    pub(crate) device: u32,
    /// The device that rules are asked for: its VRF, if it is in one.
    pub(crate) asked: u32,
}

/// All devices, by their indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    pub(crate) all: BTreeMap<u32, Device>,
}

impl Devices {
    /// Reads all. Whether they hide tags is asked only of devices with VLANs.
    pub(crate) fn read(netlink: &mut Netlink, hides_tags: impl Fn(u32) -> bool) -> Result<Self> {
        let mut devices = Self::listed(netlink)?;
        for index in devices.receive_tags() {
            if let Some(device) = devices.all.get_mut(&index) {
                device.hides_tags = hides_tags(index);
            }
        }
        for device in devices.all.values_mut() {
            device.read_knobs();
        }
        Ok(devices)
    }

    fn listed(netlink: &mut Netlink) -> Result<Self> {
        let mut request = [0; ADDRESS_BYTES];
        // CAST: 2.
        request[0] = libc::AF_INET as u8;
        for _ in 0..TRIES {
            let mut devices = Self::default();
            let links = netlink.list(libc::RTM_GETLINK, &[0; LINK_BYTES], |link| {
                devices.all.extend(device(link));
            })?;
            let addresses =
                netlink.list(libc::RTM_GETADDR, &request, |one| devices.address(one))?;
            if links == Listed::Whole && addresses == Listed::Whole {
                return Ok(devices);
            }
        }
        bail!("devices change faster than they can be listed; try again")
    }

    fn address(&mut self, Message { body, .. }: Message<'_>) {
        let device = body.get(4..).and_then(word);
        if let Some(device) = device.and_then(|index| self.all.get_mut(&index)) {
            device.has_ipv4 = true;
        }
    }

    /// Returns the devices that VLANs are on, and the ports of bonds among them.
    fn receive_tags(&self) -> BTreeSet<u32> {
        let kinds = self.all.values().map(|device| device.kind);
        let parents = kinds.filter_map(|kind| match kind {
            Kind::Vlan { parent, .. } => parent,
            _ => None,
        });
        let parents: BTreeSet<u32> = parents.collect();
        parents
            .iter()
            .flat_map(|parent| self.carriers(*parent))
            .chain(parents.iter().copied())
            .collect()
    }

    /// Returns the index of a device with this name.
    pub(crate) fn index(&self, name: &str) -> Option<u32> {
        let mut all = self.all.iter();
        all.find(|(_, device)| device.name == name)
            .map(|(&index, _)| index)
    }

    /// Returns the devices from which XDP has packets if a program is attached to this one: its ports, if it is a bond.
    pub(crate) fn carriers(&self, index: u32) -> Vec<u32> {
        let is_bond = |device: &Device| device.kind == Kind::Bond;
        if !self.all.get(&index).is_some_and(is_bond) {
            return vec![index];
        }
        let ports = self.all.iter();
        let ports = ports.filter(|(_, port)| port.master == Some(index));
        ports.map(|(&port, _)| port).collect()
    }

    /// Returns where the kernel has a packet that this device receives; `None`: something else than routing takes it.
    pub(crate) fn place(&self, index: u32) -> Option<Place> {
        let mut device = index;
        // A bond may be in a VRF, and nothing is in more than that.
        for _ in 0..3 {
            let this = self.all.get(&device)?;
            let Some(master) = this.master else {
                return Some(Place {
                    device,
                    asked: device,
                });
            };
            match self.all.get(&master)?.kind {
                Kind::Vrf => {
                    return Some(Place {
                        device,
                        asked: master,
                    })
                }
                Kind::Bond if !this.is_backup => device = master,
                _ => return None,
            }
        }
        None
    }

    /// Returns the VLANs on a device that are up, with their tags.
    pub(crate) fn vlans_on(&self, below: u32) -> impl Iterator<Item = (Tag, u32)> + '_ {
        self.all
            .iter()
            .filter(|(_, device)| device.is_up)
            .filter_map(move |(&index, device)| match device.kind {
                Kind::Vlan { tag, parent, .. } if parent == Some(below) => Some((tag, index)),
                _ => None,
            })
    }

    /// Returns the tags that frames of a VLAN's device have, from the outermost on, and the device below all of them; `None` if frames
    /// cannot be sent there with tags alone.
    pub(crate) fn tags_of(&self, index: u32) -> Option<(Vec<Tag>, u32)> {
        let mut tags = Vec::new();
        let mut device = index;
        while let Kind::Vlan {
            tag,
            parent,
            maps_priorities,
        } = self.all.get(&device)?.kind
        {
            if maps_priorities || tags.len() == 2 {
                return None;
            }
            tags.insert(0, tag);
            device = parent?;
        }
        // Drivers take one tag beyond the MTU.
        let room = self.all.get(&device)?.mtu + 4;
        // CAST: 8 at most.
        let needed = self.all.get(&index)?.mtu + 4 * tags.len() as u32;
        (!tags.is_empty() && needed <= room).then_some((tags, device))
    }
}

impl Device {
    fn read_knobs(&mut self) {
        let name = self.name.clone();
        let knob = |family, knob| sysctl::of_device(family, &name, knob).unwrap_or(0);
        self.rp_filter = knob("ipv4", "rp_filter");
        self.sends_redirects = knob("ipv4", "send_redirects") != 0;
        self.no_ipv6 = knob("ipv6", "disable_ipv6") != 0;
        self.answers_for_neighbours = knob("ipv6", "proxy_ndp") != 0;
    }
}

/// Returns what a message says of a device, and its index.
fn device(Message { body, .. }: Message<'_>) -> Option<(u32, Device)> {
    let all = attributes(body, LINK_BYTES);
    let number = |kind| all.value(kind).and_then(word);
    let info = all.inside(link::INFO);
    let state = info.inside(link::PORT_DATA).value(link::BOND_STATE);
    let name = all.value(link::NAME)?;
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    let device = Device {
        name: String::from_utf8_lossy(name).into_owned(),
        // CAST: 1.
        is_up: word(body.get(8..)?)? & libc::IFF_UP as u32 != 0,
        mtu: number(link::MTU).unwrap_or(0),
        kind: kind(all, info),
        master: number(link::MASTER),
        is_backup: state.is_some_and(|state| state == [link::BACKUP]),
        ..Device::default()
    };
    Some((word(body.get(4..)?)?, device))
}

fn kind(all: Attributes<'_>, info: Attributes<'_>) -> Kind {
    let name = info.value(link::KIND).unwrap_or_default();
    let data = info.inside(link::DATA);
    match name.strip_suffix(&[0]).unwrap_or(name) {
        b"vrf" => Kind::Vrf,
        b"bond" => Kind::Bond,
        b"vlan" => {
            let number = data.value(link::VLAN).and_then(half).unwrap_or(0);
            let protocol = data.value(link::PROTOCOL);
            let protocol = protocol.and_then(|protocol| protocol.first_chunk());
            let [kind, of_kind] = *protocol.unwrap_or(&[0x81, 0]);
            let [high, low] = number.to_be_bytes();
            let here = all.value(link::LINK_NAMESPACE).is_none();
            Kind::Vlan {
                tag: [kind, of_kind, high, low],
                parent: all.value(link::LINK).and_then(word).filter(|_| here),
                maps_priorities: data.value(link::EGRESS_QOS).is_some(),
            }
        }
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::netlink::attribute;

    fn body(index: u32, up: bool, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![0; 4];
        body.extend(index.to_ne_bytes());
        body.extend(u32::from(up).to_ne_bytes());
        body.extend([0; 4]);
        body.extend(attributes.concat());
        body
    }

    #[test]
    fn a_vlan_is_read() {
        let number = |kind, number: u32| attribute(kind, &number.to_ne_bytes());
        let data = [
            attribute(link::VLAN, &100u16.to_ne_bytes()),
            attribute(link::PROTOCOL, &[0x88, 0xa8]),
        ];
        let info = [
            attribute(link::KIND, b"vlan\0"),
            attribute(link::DATA, &data.concat()),
        ];
        let body = body(
            7,
            true,
            &[
                attribute(link::NAME, b"eth0.100\0"),
                number(link::MTU, 1_496),
                number(link::LINK, 2),
                number(link::MASTER, 9),
                attribute(link::INFO, &info.concat()),
            ],
        );
        let kind = libc::RTM_NEWLINK;
        let read = device(Message { kind, body: &body });
        let expected = Device {
            name: "eth0.100".to_owned(),
            is_up: true,
            mtu: 1_496,
            kind: Kind::Vlan {
                tag: [0x88, 0xa8, 0, 100],
                parent: Some(2),
                maps_priorities: false,
            },
            master: Some(9),
            ..Device::default()
        };
        assert_eq!(read, Some((7, expected)));
    }

    #[test]
    fn devices_that_have_addresses_are_known() {
        let mut devices = Devices::default();
        for index in [7, 8] {
            devices.all.insert(index, Device::default());
        }
        let mut body = vec![2, 24, 0, 0];
        body.extend(7u32.to_ne_bytes());
        let kind = libc::RTM_NEWADDR;
        devices.address(Message { kind, body: &body });
        assert!(devices.all[&7].has_ipv4 && !devices.all[&8].has_ipv4);
    }

    #[test]
    fn a_backup_of_a_bond_is_read() {
        let state = attribute(link::BOND_STATE, &[link::BACKUP]);
        let info = attribute(link::PORT_DATA, &state);
        let body = body(
            3,
            false,
            &[
                attribute(link::NAME, b"eth1\0"),
                attribute(link::INFO, &info),
            ],
        );
        let kind = libc::RTM_NEWLINK;
        let (index, read) = device(Message { kind, body: &body }).expect("a device");
        assert_eq!((index, read.is_backup, read.is_up), (3, true, false));
    }
}
