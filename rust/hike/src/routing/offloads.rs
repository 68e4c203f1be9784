// SPDX-License-Identifier: GPL-2.0

//! Devices that take VLAN tags out of the frames that they receive, before XDP sees them: `ethtool -k DEVICE` says `rx-vlan-offload`.
//! Tags then look like none.

use anyhow::{Context as _, Result};
use netlink_sys::protocols::NETLINK_GENERIC;

use super::netlink::{attribute, attributes, half, Attributes, Netlink, NESTED};

/// `struct genlmsghdr` of linux/genetlink.h: command, version, and two bytes that nobody uses.
const HEADER_BYTES: usize = 4;
/// `GENL_ID_CTRL`, and how it is asked for the number of a family by its name.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_NAME: u16 = 2;
const FAMILY_ID: u16 = 1;
/// linux/ethtool_netlink.h: `ETHTOOL_MSG_FEATURES_GET`, its attributes, and those of a set of bits.
const GET_FEATURES: u8 = 11;
const HEADER: u16 = 1;
const DEVICE: u16 = 1;
const ACTIVE: u16 = 4;
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
/// The features that take out tags of 802.1Q and of 802.1ad.
const HIDING: [&[u8]; 2] = [b"rx-vlan-hw-parse\0", b"rx-vlan-stag-hw-parse\0"];

/// Returns whether a device hides tags; if that cannot be said, it may.
pub(crate) fn hides_tags(device: u32) -> bool {
    is_hiding(device).unwrap_or(true)
}

fn is_hiding(device: u32) -> Result<bool> {
    let mut netlink = Netlink::open(NETLINK_GENERIC)?;
    let mut family = None;
    let name = attribute(FAMILY_NAME, b"ethtool\0");
    netlink.get(CONTROL, &request(GET_FAMILY, &name), |message| {
        let id = attributes(message.body, HEADER_BYTES).value(FAMILY_ID);
        family = family.or(id.and_then(half));
    })?;
    let family = family.context("the kernel has no features of devices on netlink")?;
    let header = attribute(DEVICE, &device.to_ne_bytes());
    let header = attribute(HEADER | NESTED, &header);
    let mut hides = None;
    netlink.get(family, &request(GET_FEATURES, &header), |message| {
        let active = attributes(message.body, HEADER_BYTES).inside(ACTIVE);
        hides = Some(hiding(active.inside(BITS)));
    })?;
    hides.context("the kernel does not say which features the device has")
}

fn request(command: u8, attributes: &[u8]) -> Vec<u8> {
    [&[command, 1, 0, 0][..], attributes].concat()
}

fn hiding(mut bits: Attributes<'_>) -> bool {
    bits.any(|(kind, bit)| {
        let name = Attributes(bit).value(BIT_NAME);
        kind == BIT && name.is_some_and(|name| HIDING.contains(&name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_found_by_their_names() {
        let bit = |name: &[u8]| attribute(BIT | NESTED, &attribute(BIT_NAME, name));
        let bits = [bit(b"rx-gro\0"), bit(b"tx-vlan-hw-insert\0")].concat();
        assert!(!hiding(Attributes(&bits)));
        for name in HIDING {
            let bits = [bits.clone(), bit(name)].concat();
            assert!(hiding(Attributes(&bits)));
        }
    }
}
