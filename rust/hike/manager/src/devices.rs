// SPDX-License-Identifier: GPL-2.0

//! The devices of this network namespace, as the kernel says over netlink.

use std::collections::BTreeMap;

use anyhow::{ensure, Context as _, Result};
use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, LinkXdp};

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
    /// True if it is set up; the kernel takes no routes for one that is not.
    pub is_up: bool,
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

    /// Returns the name of the device with this index.
    pub fn name(&self, index: u32) -> Option<&str> {
        let mut all = self.0.iter();
        let (name, _) = all.find(|(_, device)| device.index == index)?;
        Some(name)
    }

    /// Returns whether there are the same devices, by name and index, and the same are up.
    pub fn are_those_of(&self, other: &Self) -> bool {
        let what = |(name, device): (&String, &Device)| (name.clone(), device.index, device.is_up);
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
        ..Device::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Address(bytes) => device.mac = bytes.as_slice().try_into().ok(),
            LinkAttribute::Mtu(bytes) => device.mtu = *bytes,
            LinkAttribute::Xdp(facts) => {
                device.program = facts.iter().find_map(|fact| match fact {
                    LinkXdp::ProgId(number) => Some(*number),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some((name?, device))
}
