// SPDX-License-Identifier: GPL-2.0

//! Devices inside and outside of the SR domain: RFC 8754, 5.1.

use std::net::Ipv6Addr;

use anyhow::{ensure, Context as _, Result};
use aya::maps::{HashMap, Map, MapData};
use mflow_hike::config::path::Mode;

use super::daemon::{Daemon, Place};
use crate::hike::network::{
    mac, text, Network, DST, DST_V6, EGRESS, INGRESS, LEFT, RIGHT, TUNNEL_SOURCE, WAY2,
};
use crate::hike::peers::kernel::{frame, Shape, ETHERNET_BYTES, HOP_LIMIT, MARK};
use crate::hike::peers::other_hosts::{bond_ingress, Ends, BOND};
use crate::hike::Case;
use crate::machine::command::wait_until;
use crate::network::packet_socket::PacketSocket;

/// A local SID of egress, which takes the outer header off.
const SID: Ipv6Addr = Ipv6Addr::new(0xfc00, 3, 0, 0, 0, 0, 0, 7);
const IPV6_INSIDE: u8 = 41;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "manager/inside",
            proves: "a packet from a device outside does not reach a local SID, nor the kernel, once any device is inside and unless the class says so; one from inside does",
            run: |_| inside(),
        },
        Case {
            name: "manager/bond",
            proves: "a bond takes chains by its devices, and is inside with them",
            run: |_| bond(),
        },
    ]
}

fn configuration(inside: &str, from: &str) -> String {
    format!(
        r#"
devices = ["{LEFT}", "{RIGHT}"]
{inside}
ports = ["{RIGHT}"]

[chains]
local = "dec"

[behaviours]
exit = {{ action = "End.DT46" }}

[classes]
"fc00:3::/64" = {{ chain = "local", behaviour = "exit"{from} }}
"#
    )
}

/// Returns a frame with a packet to dst in a packet to the SID.
fn tunnelled(from: [u8; 6], to: [u8; 6]) -> Result<Vec<u8>> {
    let shape = Shape {
        v6: true,
        mode: Mode::Encaps,
        sids: 1,
    };
    let inner = &frame(shape, 0, HOP_LIMIT)?[ETHERNET_BYTES..];
    let mut frame = [to, from].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    // CAST: some dozens.
    frame.extend((inner.len() as u16).to_be_bytes());
    frame.extend([IPV6_INSIDE, HOP_LIMIT]);
    frame.extend(TUNNEL_SOURCE.octets());
    frame.extend(SID.octets());
    frame.extend(inner);
    Ok(frame)
}

/// Waits until exactly these numbers of packets have been forwarded, and dropped as they came from outside.
fn counted(daemon: &Daemon<'_>, forwarded: u64, from_outside: u64) -> Result<()> {
    let mut seen = (0, 0);
    wait_until("the packets are counted", || {
        seen = (
            daemon.counted("forwarded")?,
            daemon.counted("from-outside")?,
        );
        Ok(seen == (forwarded, from_outside))
    })
    .with_context(|| {
        format!("{seen:?} are counted, and not {forwarded} forwarded, {from_outside} dropped")
    })
}

fn inside() -> Result<()> {
    let _network = Network::up()?;
    let (domain, customer) = (
        PacketSocket::open(WAY2, RIGHT)?,
        PacketSocket::open(DST, LEFT)?,
    );
    let from_inside = tunnelled(mac(3, 1), mac(3, 2))?;
    let from_outside = tunnelled(mac(4, 2), mac(4, 1))?;
    let place = Place::new(EGRESS);
    let daemon = place.start()?;
    // Nothing is inside: all is as it was, and is said.
    let answer = daemon.applied(&configuration("", ""))?;
    let warnings = answer["warnings"].as_array().into_iter().flatten();
    let mut warnings = warnings.filter_map(serde_json::Value::as_str);
    ensure!(
        warnings.any(|one| {
            one.starts_with("class fc00:3::/64: any of the devices can reach this local SID")
        }),
        "it warns of {}",
        answer["warnings"]
    );
    customer.send(&from_outside)?;
    counted(&daemon, 1, 0)?;
    let left = format!("inside = [\"{LEFT}\"]");
    let closed = configuration(&left, "");
    let answer = daemon.applied(&closed)?;
    ensure!(answer["warnings"] == serde_json::json!([]), "{answer}");
    ensure!(daemon.diff(&closed)?.is_empty(), "it differs at once");
    customer.send(&from_outside)?;
    counted(&daemon, 1, 1)?;
    domain.send(&from_inside)?;
    counted(&daemon, 2, 1)?;
    let delivered = customer.receive(&MARK)?;
    ensure!(
        delivered[ETHERNET_BYTES + 24..][..16] == DST_V6.octets(),
        "{delivered:02x?} was delivered"
    );
    // Others' changes are mended.
    let revision = place.generations()?;
    let pin = place.pins.join(format!("{}/groups", revision[0]));
    let groups = Map::from_map_data(MapData::from_pin(pin)?)?;
    let mut groups: HashMap<MapData, u32, u32> = groups.try_into()?;
    let devices = groups.keys().collect::<Result<Vec<u32>, _>>()?;
    ensure!(devices.len() == 1, "{devices:?} are inside");
    groups.remove(&devices[0])?;
    wait_until("it is mended", || Ok(groups.get(&devices[0], 0).is_ok()))?;
    // The class says so.
    daemon.apply(&configuration(&left, ", from = \"anywhere\""))?;
    customer.send(&from_outside)?;
    counted(&daemon, 3, 1)?;
    daemon.stop()
}

fn bond() -> Result<()> {
    let _network = Network::up()?;
    let ends = Ends::open()?;
    bond_ingress()?;
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    let with_inside = |inside: &str| {
        format!(
            r#"
devices = ["{BOND}", "{RIGHT}"]
inside = ["{inside}"]
ports = ["{RIGHT}"]

[chains]
out = "fw-table"

[classes]
"{DST_V6}" = {{ chain = "out", from = "inside" }}

[routes]
"{DST_V6}" = {{ port = "{RIGHT}", next-hop = "{}" }}
"#,
            text(mac(1, 2))
        )
    };
    let trusted = with_inside(BOND);
    daemon.apply(&trusted)?;
    ensure!(daemon.diff(&trusted)?.is_empty(), "it differs at once");
    ends.send(mac(0, 2), HOP_LIMIT)?;
    ends.see_own()?;
    counted(&daemon, 1, 0)?;
    daemon.apply(&with_inside(RIGHT))?;
    ends.send(mac(0, 2), HOP_LIMIT)?;
    counted(&daemon, 1, 1)?;
    daemon.stop()
}
