// SPDX-License-Identifier: GPL-2.0

//! A small SRv6 domain, in namespaces of one guest.
//!
//! ```text
//!   src ───── ingress ───── way1 ───── way2 ───── egress ───── dst
//!   right   left   right  left   right           left   right  left
//! ```
//!
//! Link n is `fd00:n::/64` and `10.9.n.0/24`, with 1 at its left end and 2 at its right. The kernel's own segment routing has the
//! SIDs `fc00:1::/32` (`End`, at way1), `fc00:2::/32` (`End`, at way2), `fc00:3::6` and `fc00:3::4` (`End.DX6` and `End.DX4`, at egress).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Result;
use mflow_hike::Hike;
use nix::net::if_::if_nametoindex;

use crate::network::{netns, topology};

pub(super) const SRC: &str = "src";
pub(super) const INGRESS: &str = "ingress";
pub(super) const WAY1: &str = "way1";
pub(super) const WAY2: &str = "way2";
pub(super) const EGRESS: &str = "egress";
pub(super) const DST: &str = "dst";
const NODES: [&str; 6] = [SRC, INGRESS, WAY1, WAY2, EGRESS, DST];

/// The devices of a node.
pub(super) const LEFT: &str = "left";
pub(super) const RIGHT: &str = "right";

/// The source of all tunnels: an address of ingress.
pub(super) const TUNNEL_SOURCE: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1);
pub(super) const SRC_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
pub(super) const DST_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 4, 0, 0, 0, 0, 0, 2);
pub(super) const SRC_V4: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(super) const DST_V4: Ipv4Addr = Ipv4Addr::new(10, 9, 4, 2);

/// The domain, until the end of the scope.
pub(super) struct Network(());

impl Network {
    pub(super) fn up() -> Result<Self> {
        for node in NODES {
            netns::add(node)?;
        }
        let network = Self(());
        for node in NODES {
            make_router(node)?;
        }
        for (link, ends) in NODES.windows(2).enumerate() {
            topology::ip_in(
                ends[0],
                &format!(
                    "link add {RIGHT} address {} type veth peer name {LEFT} netns {} address {}",
                    text(mac(link, 1)),
                    ends[1],
                    text(mac(link, 2))
                ),
            )?;
        }
        for (place, node) in NODES.iter().enumerate() {
            topology::ip_in(*node, &addresses(place))?;
            // Frames that XDP takes lose what offloads leave to the device.
            netns::run(
                *node,
                &format!(
                    "ethtool -K {} tx off",
                    if place == 0 { RIGHT } else { LEFT }
                ),
            )?;
        }
        for node in [WAY1, WAY2, EGRESS, DST] {
            // What XDP redirects to a veth needs a NAPI at its other end.
            netns::run(node, &format!("ethtool -K {LEFT} gro on"))?;
        }
        topology::ip_in(
            WAY1,
            &format!("route add fc00:1::/32 encap seg6local action End dev {RIGHT}"),
        )?;
        topology::ip_in(
            WAY2,
            &format!("route add fc00:2::/32 encap seg6local action End dev {RIGHT}"),
        )?;
        topology::ip_in(
            EGRESS,
            &format!(
                "route add fc00:3::6 encap seg6local action End.DX6 nh6 {DST_V6} dev {RIGHT}
                 route add fc00:3::4 encap seg6local action End.DX4 nh4 {DST_V4} dev {RIGHT}"
            ),
        )?;
        Ok(network)
    }
}

/// Makes a node forward, before it has devices.
pub(super) fn make_router(node: &str) -> Result<()> {
    netns::within(node, || {
        topology::sysctl("net/ipv4/ip_forward", "1")?;
        for scope in ["all", "default"] {
            for (knob, value) in [
                ("forwarding", "1"),
                ("accept_dad", "0"),
                ("seg6_enabled", "1"),
            ] {
                topology::sysctl(&format!("net/ipv6/conf/{scope}/{knob}"), value)?;
            }
        }
        Ok(())
    })
}

impl Drop for Network {
    fn drop(&mut self) {
        for node in NODES {
            // The next case finds out if one is left.
            let _gone = netns::delete(node);
        }
    }
}

/// Returns this many SIDs of a way through the domain that ends with a decapsulation.
pub(super) fn sids(count: u16, v6: bool) -> Vec<Ipv6Addr> {
    let last = Ipv6Addr::new(0xfc00, 3, 0, 0, 0, 0, 0, if v6 { 6 } else { 4 });
    let mut sids: Vec<Ipv6Addr> = (1..count)
        .map(|place| {
            // All at the first waypoint but the last of them.
            let way = if place + 1 == count && count > 2 {
                2
            } else {
                1
            };
            Ipv6Addr::new(0xfc00, way, 0, 0, 0, 0, 0, place)
        })
        .collect();
    sids.push(last);
    sids
}

/// Attaches an instance to a node, where it takes the packets that the node receives on its left, and may let them leave on its
/// right.
pub(super) fn attach(hike: &mut Hike, node: &str) -> Result<()> {
    netns::within(node, || {
        hike.attach(LEFT)?;
        hike.add_port(if_nametoindex(RIGHT)?)
    })
}

/// Returns the Ethernet address of the left (1) or right (2) end of a link.
pub(super) fn mac(link: usize, end: u8) -> [u8; 6] {
    // CAST: five links.
    [2, 0, 0, 0, link as u8, end]
}

pub(super) fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns the commands that give a node its addresses, neighbours and routes.
fn addresses(place: usize) -> String {
    let mut lines = "link set lo up\n".to_owned();
    let ends = [
        (place > 0).then(|| (LEFT, place - 1, 2, 1)),
        (place + 1 < NODES.len()).then_some((RIGHT, place, 1, 2)),
    ];
    for (device, link, own, other) in ends.into_iter().flatten() {
        let (v6, v4) = (address_v6(link, other), address_v4(link, other));
        let mac = text(mac(link, other));
        lines += &format!(
            "address add {}/64 dev {device} nodad
             address add {}/24 dev {device}
             link set {device} up
             neighbour add {v6} lladdr {mac} dev {device}
             neighbour add {v4} lladdr {mac} dev {device}\n",
            address_v6(link, own),
            address_v4(link, own)
        );
        // What is not on the left is on the right.
        let (to_v6, to_v4) = match device {
            LEFT if place + 1 == NODES.len() => ("::/0".to_owned(), "0.0.0.0/0".to_owned()),
            LEFT => (
                format!("{}/64", address_v6(0, 0)),
                format!("{}/24", address_v4(0, 0)),
            ),
            _ => ("::/0".to_owned(), "0.0.0.0/0".to_owned()),
        };
        if !(device == LEFT && place == 1) {
            lines += &format!("route add {to_v6} via {v6} dev {device}\nroute add {to_v4} via {v4} dev {device}\n");
        }
    }
    lines
}

fn address_v6(link: usize, end: u8) -> IpAddr {
    // CAST: five links.
    Ipv6Addr::new(0xfd00, link as u16, 0, 0, 0, 0, 0, end.into()).into()
}

fn address_v4(link: usize, end: u8) -> IpAddr {
    // CAST: five links.
    Ipv4Addr::new(10, 9, link as u8, end).into()
}
