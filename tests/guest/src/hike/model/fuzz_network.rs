// SPDX-License-Identifier: GPL-2.0

//! The devices and routes that random frames are forwarded by, and the same for the model.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use anyhow::{Context as _, Result};
use mflow_hike::routing::{Receiver, Routing, Sender, Tagged};
use mflow_hike::{Behaviour, Flavours, HOPS_TABLE};
use nix::net::if_::if_nametoindex;

use super::frames::VLANS;
use super::packet::{Hop, Tag};
use super::programs::{Model, Prefix};
use crate::machine::command;
use crate::network::topology;

pub(crate) const NAMESPACE: &str = "fuzz";
/// The device that packets leave through, and one that is no port.
pub(crate) const PORT: &str = "port0";
pub(crate) const CLOSED: &str = "closed0";
pub(crate) const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
pub(crate) const NEXT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
pub(crate) const TABLE_MAC: [u8; 6] = [2, 0, 0, 0, 1, 3];
pub(crate) const CLOSED_MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];
/// Devices that stand for VLANs on the port, with one tag and with two.
pub(crate) const TAGGED: [(&str, [u8; 6], &[Tag]); 2] = [
    ("tagged0", [2, 0, 0, 0, 3, 1], &[[0x81, 0, 0, 9]]),
    (
        "tagged1",
        [2, 0, 0, 0, 4, 1],
        &[[0x88, 0xa8, 0, 5], [0x81, 0, 0, 9]],
    ),
];
/// The numbers in what is behind each of them: `10.4.N.0/24` and `fc00:N::/32`.
pub(crate) const BLOCKS: [u16; 2] = [4, 6];
pub(crate) const MTU: u16 = 1_400;
/// All of these addresses are the host's own.
const OWN_PREFIX: &str = "10.77.0.0/16";
const OWN_PREFIX_V6: &str = "fd00:77::/32";
/// The kernel's table of what is not local (`RT_TABLE_MAIN`), and another one.
pub(crate) const MAIN_TABLE: u32 = 254;
pub(crate) const OTHER_TABLE: u32 = 100;

/// A neighbour by its link-local address.
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77);

/// Returns End.X to the link-local address of a neighbour.
pub(crate) fn link_local_hop() -> Result<Behaviour> {
    Ok(Behaviour::EndX {
        next_hop: LINK_LOCAL,
        device: Some(PORT.parse()?),
        flavours: Flavours::default(),
    })
}

/// Makes the devices, neighbours and routes of a namespace.
pub(crate) fn up() -> Result<()> {
    let hop = link_local_hop()?.hop().context("no link-local next hop")?;
    let stands_for = hop.stands_for;
    let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let (port, next, closed) = (mac(PORT_MAC), mac(NEXT_MAC), mac(CLOSED_MAC));
    let table = mac(TABLE_MAC);
    for family in ["ipv4", "ipv6"] {
        for scope in ["all", "default", "lo"] {
            topology::sysctl(&format!("net/{family}/conf/{scope}/forwarding"), "1")?;
        }
    }
    topology::sysctl("net/ipv6/conf/default/accept_dad", "0")?;
    topology::ip_in(
        NAMESPACE,
        &format!(
            "link set lo up
             link add {PORT} mtu {MTU} address {port} type veth peer name peer0 mtu {MTU}
             link add {CLOSED} mtu {MTU} address {closed} type veth peer name peer1 mtu {MTU}
             link set {PORT} up
             link set peer0 up
             link set {CLOSED} up
             link set peer1 up
             address add 10.15.0.1/24 dev {PORT}
             address add fd00:f::1/64 dev {PORT} nodad
             address add 10.16.0.1/24 dev {CLOSED}
             address add fd00:10::1/64 dev {CLOSED} nodad
             route add local {OWN_PREFIX} dev lo
             route add local {OWN_PREFIX_V6} dev lo
             neighbour add 10.15.0.2 lladdr {next} dev {PORT}
             neighbour add fd00:f::2 lladdr {next} dev {PORT}
             neighbour add fd00:f::3 lladdr {table} dev {PORT}
             neighbour add 10.16.0.2 lladdr {next} dev {CLOSED}
             neighbour add fd00:10::2 lladdr {next} dev {CLOSED}
             route add 10.1.0.0/16 via 10.15.0.2
             route add 2001:db8:1::/48 via fd00:f::2
             route add fc00:1::/32 via fd00:f::2
             route add 10.2.0.0/16 via 10.16.0.2
             route add fc00:2::/32 via fd00:10::2
             route add 2001:db8:1::/48 via fd00:f::3 table {OTHER_TABLE}
             neighbour add {LINK_LOCAL} lladdr {table} dev {PORT}
             route add {stands_for} via {LINK_LOCAL} dev {PORT} table {HOPS_TABLE}
             route add blackhole 10.6.0.0/16
             route add prohibit 10.7.0.0/16
             route add unreachable 2001:db8:6::/48
             route add blackhole 2001:db8:7::/48"
        ),
    )?;
    for (number, (name, own, _)) in TAGGED.into_iter().enumerate() {
        let (own, block) = (mac(own), BLOCKS[number]);
        topology::ip_in(
            NAMESPACE,
            &format!(
                "link add {name} mtu {MTU} address {own} type veth peer name {name}-peer mtu {MTU}
                 link set {name} up
                 link set {name}-peer up
                 neighbour add 10.4.{block}.1 lladdr {next} dev {name}
                 neighbour add fc00:{block}::1 lladdr {next} dev {name}
                 route add 10.4.{block}.0/24 dev {name}
                 route add fc00:{block}::/32 via fc00:{block}::1 dev {name} onlink"
            ),
        )?;
    }
    // What XDP redirects to a veth needs a NAPI at its other end.
    command::run("ethtool -K peer0 gro on").map(drop)
}

/// Returns the tags that are known of frames which the loopback device receives, as it does in test runs, and of each whether its packets
/// are left to the kernel. One of the tags that are drawn is nobody's.
pub(crate) fn receivers() -> BTreeMap<[Tag; 2], bool> {
    let tags = VLANS.map(|vlan| [0x8100u16, 0x88a8].map(|kind| tag(kind, vlan)));
    let tags = tags.as_flattened();
    let mut receivers = BTreeMap::new();
    for &first in &tags[1..] {
        receivers.insert([first, [0; 4]], first == tags[1]);
        for &second in tags {
            receivers.insert([first, second], false);
        }
    }
    receivers
}

fn tag(kind: u16, vlan: u16) -> Tag {
    let [kind, vlan] = [kind, vlan].map(u16::to_be_bytes);
    [kind[0], kind[1], vlan[0], vlan[1]]
}

/// Returns what the programs are told of tags.
pub(crate) fn routing() -> Result<Routing> {
    let device = if_nametoindex("lo")?;
    let receivers = receivers().into_iter().map(|(tags, is_left)| {
        let receiver = Receiver {
            is_left,
            ..Receiver::plain(device)
        };
        (Tagged { device, tags }, receiver)
    });
    let senders = TAGGED.into_iter().map(|(name, _, tags)| {
        let sender = Sender {
            port: if_nametoindex(PORT)?,
            tags: tags.to_vec(),
        };
        Ok((if_nametoindex(name)?, sender))
    });
    Ok(Routing {
        receivers: receivers.collect(),
        senders: senders.collect::<Result<_>>()?,
        ..Routing::default()
    })
}

/// Tells the model what the routes above, and those of the table, say.
pub(crate) fn routes(model: &mut Model) -> Result<()> {
    model.receivers = receivers();
    let hop = |source, destination, is_port| Hop {
        source,
        destination,
        mtu: MTU.into(),
        is_port,
        tags: &[],
        kept: None,
    };
    let prefix = |text: &str| -> Result<Prefix> {
        let (address, bits) = text.split_once('/').context("a prefix")?;
        Ok((address.parse()?, bits.parse()?))
    };
    for text in [
        "10.1.0.0/16",
        "2001:db8:1::/48",
        "fc00:1::/32",
        "10.15.0.2/32",
        "fd00:f::2/128",
    ] {
        model
            .fib
            .push((prefix(text)?, hop(PORT_MAC, Some(NEXT_MAC), true)));
    }
    for text in [
        "10.2.0.0/16",
        "fc00:2::/32",
        "10.16.0.2/32",
        "fd00:10::2/128",
    ] {
        model
            .fib
            .push((prefix(text)?, hop(CLOSED_MAC, Some(NEXT_MAC), false)));
    }
    model.fib.push((
        prefix("fd00:f::3/128")?,
        hop(PORT_MAC, Some(TABLE_MAC), true),
    ));
    model.fib.push((
        (LINK_LOCAL.into(), 128),
        hop(PORT_MAC, Some(TABLE_MAC), true),
    ));
    // On the links, and never heard of.
    for text in ["10.15.0.0/24", "fd00:f::/64"] {
        model.fib.push((prefix(text)?, hop(PORT_MAC, None, true)));
    }
    for text in ["10.16.0.0/24", "fd00:10::/64"] {
        model
            .fib
            .push((prefix(text)?, hop(CLOSED_MAC, None, false)));
    }
    for (number, (_, source, tags)) in TAGGED.into_iter().enumerate() {
        let block = BLOCKS[number];
        let hop = |destination| Hop {
            tags,
            ..hop(source, destination, true)
        };
        for (text, destination) in [
            (format!("10.4.{block}.1/32"), Some(NEXT_MAC)),
            (format!("10.4.{block}.0/24"), None),
            (format!("fc00:{block}::/32"), Some(NEXT_MAC)),
        ] {
            model.fib.push((prefix(&text)?, hop(destination)));
        }
    }
    for text in [
        "10.6.0.0/16",
        "10.7.0.0/16",
        "2001:db8:6::/48",
        "2001:db8:7::/48",
    ] {
        let refused = Hop {
            kept: Some("fw-refused"),
            ..hop(PORT_MAC, None, true)
        };
        model.fib.push((prefix(text)?, refused));
    }
    // What is the host's own, and what is for all hosts of a link or for all routers, is in a table that rules have looked at before: to
    // the main one, these are neighbours.
    let main = model.fib.clone();
    for text in [
        "10.15.0.1/32",
        "10.15.0.255/32",
        "10.16.0.1/32",
        "10.16.0.255/32",
        "fd00:f::/128",
        "fd00:f::1/128",
        "fd00:10::/128",
        "fd00:10::1/128",
        OWN_PREFIX,
        OWN_PREFIX_V6,
    ] {
        let own = Hop {
            kept: Some("fw-no-route"),
            ..hop(PORT_MAC, None, true)
        };
        model.fib.push((prefix(text)?, own));
        model.own.push(prefix(text)?);
    }
    for text in [
        "10.15.0.255/32",
        "10.16.0.255/32",
        "fd00:f::/128",
        "fd00:10::/128",
    ] {
        model.of_several.push(prefix(text)?);
    }
    model.tables.insert(MAIN_TABLE, main);
    let other = hop(PORT_MAC, Some(TABLE_MAC), true);
    let other = (prefix("2001:db8:1::/48")?, other);
    model.tables.insert(OTHER_TABLE, vec![other]);
    for text in ["10.0.0.0/8", "2001:db8::/32", "fc00::/16"] {
        model
            .table
            .push((prefix(text)?, hop(PORT_MAC, Some(TABLE_MAC), true)));
    }
    model.table.push((
        prefix("10.1.7.128/25")?,
        hop(CLOSED_MAC, Some(TABLE_MAC), false),
    ));
    Ok(())
}
