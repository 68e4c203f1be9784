// SPDX-License-Identifier: GPL-2.0

//! The devices of this network namespace, as the kernel says over netlink.

use std::collections::BTreeMap;

use anyhow::{bail, ensure, Context as _, Result};
use futures_util::TryStreamExt as _;
use mflow_hike::{Hook, XdpMode};
use rtnetlink::packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp, XdpAttached,
};

/// One device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its Ethernet address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// The largest packet that it sends.
    pub mtu: u32,
    /// The kernel's number of the program at XDP, if it has one.
    pub program: Option<u32>,
    /// The part of the kernel that runs this program.
    pub mode: Option<XdpMode>,
    /// True if it is set up; the kernel takes no routes for one that is not.
    pub is_up: bool,
    /// Its kind.
    pub kind: DeviceKind,
    /// The index of the device that it is a part of.
    pub part_of: Option<u32>,
    /// The index of the device below it.
    pub above: Option<u32>,
    /// True if its packets have no Ethernet headers.
    pub lacks_ethernet: bool,
}

/// A kind of device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// One that packets come and go by.
    #[default]
    Usual,
    /// Several devices that are used as one, for which each of them runs programs.
    Bond,
    /// The same, but none of them does.
    Team,
    /// Several devices that have a routing table of their own.
    Vrf,
    /// Several devices that are one Ethernet.
    Bridge,
    /// A VLAN of the device below.
    Vlan,
    /// One that gets its packets by others in another way.
    Above,
    /// The end of a wire to a program, such as a virtual machine.
    Tap,
}

/// All devices, by name.
#[derive(Clone, Debug, Default)]
pub struct Devices(BTreeMap<String, Device>);

impl Devices {
    /// Asks the kernel.
    pub async fn read() -> Result<Self> {
        let (connection, handle, _) =
            rtnetlink::new_connection().context("cannot open a netlink socket")?;
        let connection = tokio::spawn(connection);
        let links = handle.link().get().execute();
        let links: Result<Vec<LinkMessage>, _> = links.try_collect().await;
        connection.abort();
        let links = links.context("cannot list the devices")?;
        Ok(Self(links.iter().filter_map(device).collect()))
    }

    /// Returns a device; fails with the names of those that there are.
    pub fn get(&self, name: &str) -> Result<Device> {
        let known = || self.0.keys().map(String::as_str).collect::<Vec<_>>();
        ensure!(
            self.0.contains_key(name),
            "there is no device {name}; there are {}",
            known().join(", ")
        );
        Ok(self.0[name])
    }

    /// Returns a device whose packets can take chains at a hook. Fails with what to name in place of one whose packets cannot.
    ///
    /// GRO joins packets on their way up from the device that has received them. A device above gets the joined ones, which are longer
    /// than any path's MTU, and which monitors would count as one.
    pub fn with_chains(&self, hook: Hook, mode: XdpMode, name: &str) -> Result<Device> {
        const JOINED: &str = "which gets packets that GRO has joined";
        let device = self.get(name)?;
        let below = || {
            let below = device.above.and_then(|index| self.name(index));
            below.unwrap_or("the device below").to_owned()
        };
        let instead = || {
            format!(
                "name its devices in its place{}",
                self.parts_of(device.index)
            )
        };
        ensure!(
            !device.lacks_ethernet,
            "device {name}: its packets have no Ethernet headers, behind which chains look for IP; name a device that has them"
        );
        match (device.kind, hook) {
            (DeviceKind::Bond, Hook::Xdp) if mode == XdpMode::Generic => bail!(
                "device {name}: it is a bond, {JOINED} where the stack runs programs; leave out mode = \"generic\", or {}",
                instead()
            ),
            (DeviceKind::Team, Hook::Xdp) => bail!(
                "device {name}: it is a team, {JOINED}; {}",
                instead()
            ),
            (DeviceKind::Vrf, _) => bail!(
                "device {name}: it is a VRF, by which no packets come or leave; {}",
                instead()
            ),
            (DeviceKind::Bridge, Hook::Xdp) => bail!(
                "device {name}: it is a bridge, {JOINED}; {}",
                instead()
            ),
            (DeviceKind::Vlan, Hook::Xdp) => bail!(
                "device {name}: it is a VLAN, {JOINED}; name {} in its place, as chains look through VLAN tags",
                below()
            ),
            (DeviceKind::Above, Hook::Xdp) => bail!(
                "device {name}: it is above another device, {JOINED}; name {} in its place",
                below()
            ),
            (DeviceKind::Tap, Hook::Xdp) if mode == XdpMode::Native => bail!(
                "device {name}: it is a tap, whose packets may be several that are cut later (GSO); switch the offloads of its other end \
                 off, and write mode = \"generic\""
            ),
            _ => {}
        }
        Ok(device)
    }

    /// Returns the names of the devices that are a part of another one, to go on with in a sentence.
    fn parts_of(&self, index: u32) -> String {
        let parts = self.0.iter().filter(|(_, one)| one.part_of == Some(index));
        let parts: Vec<&str> = parts.map(|(name, _)| name.as_str()).collect();
        match parts.is_empty() {
            true => String::new(),
            false => format!(": {}", parts.join(", ")),
        }
    }

    /// Returns the name of the device with this index.
    pub fn name(&self, index: u32) -> Option<&str> {
        let mut all = self.0.iter();
        let (name, _) = all.find(|(_, device)| device.index == index)?;
        Some(name)
    }

    /// Returns whether there are the same devices, as far as tables, links and routes depend on them: by name and index, with the same
    /// addresses and MTUs, and the same ones up.
    pub fn are_those_of(&self, other: &Self) -> bool {
        let what = |(name, device): (&String, &Device)| {
            let Device {
                index,
                mac,
                mtu,
                is_up,
                ..
            } = *device;
            (name.clone(), index, mac, mtu, is_up)
        };
        let (these, those) = (self.0.iter(), other.0.iter());
        these.map(what).eq(those.map(what))
    }

    /// Returns all.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Device)> {
        self.0.iter().map(|(name, device)| (name.as_str(), device))
    }
}

fn device(link: &LinkMessage) -> Option<(String, Device)> {
    let mut name = None;
    let mut device = Device {
        index: link.header.index,
        is_up: link.header.flags.contains(LinkFlags::Up),
        lacks_ethernet: !matches!(
            link.header.link_layer_type,
            LinkLayerType::Ether | LinkLayerType::Loopback
        ),
        ..Device::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Address(bytes) => device.mac = bytes.as_slice().try_into().ok(),
            LinkAttribute::Mtu(bytes) => device.mtu = *bytes,
            LinkAttribute::Controller(index) => device.part_of = Some(*index),
            LinkAttribute::Link(index) => device.above = Some(*index),
            LinkAttribute::LinkInfo(facts) => device.kind = kind(facts),
            LinkAttribute::Xdp(facts) => {
                device.program = facts.iter().find_map(|fact| match fact {
                    LinkXdp::ProgId(number) => Some(*number),
                    _ => None,
                });
                device.mode = facts.iter().find_map(|fact| match fact {
                    LinkXdp::Attached(XdpAttached::Driver | XdpAttached::Hardware) => {
                        Some(XdpMode::Native)
                    }
                    LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(XdpMode::Generic),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some((name?, device))
}

fn kind(facts: &[LinkInfo]) -> DeviceKind {
    let kind = facts.iter().find_map(|fact| match fact {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    });
    match kind {
        Some(InfoKind::Bond) => DeviceKind::Bond,
        Some(InfoKind::Team) => DeviceKind::Team,
        Some(InfoKind::Vrf) => DeviceKind::Vrf,
        Some(InfoKind::Bridge) => DeviceKind::Bridge,
        Some(InfoKind::Vlan) => DeviceKind::Vlan,
        Some(InfoKind::Tun) => DeviceKind::Tap,
        Some(
            InfoKind::MacVlan
            | InfoKind::MacVtap
            | InfoKind::IpVlan
            | InfoKind::IpVtap
            | InfoKind::Vxlan
            | InfoKind::Geneve
            | InfoKind::GreTap
            | InfoKind::GreTap6
            | InfoKind::MacSec
            | InfoKind::Hsr,
        ) => DeviceKind::Above,
        _ => DeviceKind::Usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(devices: &[(&str, Device)]) -> Devices {
        let devices = devices.iter();
        Devices(
            devices
                .map(|(name, device)| ((*name).to_owned(), *device))
                .collect(),
        )
    }

    #[test]
    fn a_change_that_tables_depend_on_makes_other_devices() {
        let one = Device {
            index: 1,
            mac: Some([2; 6]),
            mtu: 1_500,
            is_up: true,
            ..Device::default()
        };
        let of = |device| named(&[("eth0", device)]);
        let running = Some(7);
        let same = Device {
            program: running,
            ..one
        };
        assert!(of(one).are_those_of(&of(same)));
        let mac = Some([4; 6]);
        for other in [
            Device { mac, ..one },
            Device { mtu: 1_400, ..one },
            Device { index: 2, ..one },
            Device {
                is_up: false,
                ..one
            },
        ] {
            assert!(!of(one).are_those_of(&of(other)), "{other:?}");
        }
    }

    #[test]
    fn devices_whose_packets_take_no_chains_are_refused_with_what_to_name() {
        let of = |index, kind, part_of| Device {
            index,
            kind,
            part_of,
            ..Device::default()
        };
        let usual = |index, part_of| of(index, DeviceKind::Usual, part_of);
        let tunnel = Device {
            kind: DeviceKind::Tap,
            lacks_ethernet: true,
            ..usual(7, None)
        };
        let vlan = Device {
            above: Some(4),
            ..of(8, DeviceKind::Vlan, None)
        };
        let devices = named(&[
            ("eth2.5", vlan),
            ("vxlan0", of(9, DeviceKind::Above, Some(10))),
            ("br0", of(10, DeviceKind::Bridge, None)),
            ("tap0", of(11, DeviceKind::Tap, None)),
            ("eth0", usual(1, Some(3))),
            ("eth1", usual(2, Some(3))),
            ("bond0", of(3, DeviceKind::Bond, Some(6))),
            ("team0", of(12, DeviceKind::Team, None)),
            ("eth3", usual(13, Some(12))),
            ("eth2", usual(4, None)),
            ("red", of(5, DeviceKind::Vrf, None)),
            ("blue", of(6, DeviceKind::Vrf, None)),
            ("tun0", tunnel),
        ]);
        let (native, generic) = (XdpMode::Native, XdpMode::Generic);
        let refused = |hook, name: &str| {
            let refused = devices.with_chains(hook, native, name);
            refused.expect_err(name).to_string()
        };
        assert!(devices.with_chains(Hook::Xdp, native, "bond0").is_ok());
        let bond = devices.with_chains(Hook::Xdp, generic, "bond0");
        assert_eq!(
            bond.expect_err("behind GRO").to_string(),
            "device bond0: it is a bond, which gets packets that GRO has joined where the stack runs programs; leave out mode = \"generic\", or \
             name its devices in its place: eth0, eth1"
        );
        for hook in [Hook::Xdp, Hook::Tcx] {
            assert_eq!(
                refused(hook, "blue"),
                "device blue: it is a VRF, by which no packets come or leave; name its devices in its place: bond0"
            );
            assert!(refused(hook, "red").ends_with("; name its devices in its place"));
            assert_eq!(
                refused(hook, "tun0"),
                "device tun0: its packets have no Ethernet headers, behind which chains look for IP; name a device that has them"
            );
            assert!(refused(hook, "eth7").starts_with("there is no device eth7; there are blue"));
            for name in ["eth0", "eth2"] {
                assert!(devices.with_chains(hook, native, name).is_ok());
            }
        }
        let joined = "which gets packets that GRO has joined";
        for (name, said) in [
            ("eth2.5", format!("it is a VLAN, {joined}; name eth2 in its place, as chains look through VLAN tags")),
            ("vxlan0", format!("it is above another device, {joined}; name the device below in its place")),
            ("br0", format!("it is a bridge, {joined}; name its devices in its place: vxlan0")),
            ("team0", format!("it is a team, {joined}; name its devices in its place: eth3")),
        ] {
            assert_eq!(refused(Hook::Xdp, name), format!("device {name}: {said}"));
            assert!(devices.with_chains(Hook::Xdp, generic, name).is_err());
        }
        assert!(refused(Hook::Xdp, "tap0").ends_with("and write mode = \"generic\""));
        assert!(devices.with_chains(Hook::Xdp, generic, "tap0").is_ok());
        // What leaves is still theirs.
        for name in ["bond0", "team0", "eth2.5", "vxlan0", "br0", "tap0"] {
            assert!(devices.with_chains(Hook::Tcx, native, name).is_ok());
        }
    }
}
