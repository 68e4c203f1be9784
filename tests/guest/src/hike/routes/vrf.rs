// SPDX-License-Identifier: GPL-2.0

//! VRFs on the device that receives, and on a VLAN of it: each has its own table, with the same prefixes.

use anyhow::{ensure, Context as _, Result};
use mflow_hike::Engine;

use super::bed::{
    address, forwarding, ip, neighbours, sysctl, Bed, IN, ROUTER, SOURCES_V4, SOURCES_V6,
};
use super::packet::{Packet, FROM_MAC};
use crate::hike::network::text;
use crate::hike::Case;
use crate::network::netns;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "routes/vrf",
        proves: "packets that a VRF's device receives are routed by that VRF's table, also if it is a VLAN's, and by the main table only if the kernel does so",
        run: |_| vrfs(),
    }]
}

const TAG: [u8; 4] = [0x81, 0, 0, 100];
const COUNT: usize = 4;

fn packets(tags: &[[u8; 4]], v4: &str, v6: &str) -> Vec<Packet> {
    let v4 = Packet::plain(address(SOURCES_V4[0]), address(v4));
    let v6 = Packet::plain(address(SOURCES_V6[0]), address(v6));
    let with = |packet: Packet| Packet {
        tags: tags.to_vec(),
        ..packet
    };
    let both = [v4, v6].into_iter().map(with);
    both.cycle().take(COUNT).collect()
}

fn vrfs() -> Result<()> {
    let bed = Bed::up()?;
    let line = format!("ethtool -K {IN} rxvlan off rx-vlan-stag-hw-parse off");
    netns::run(ROUTER, &line)?;
    let from = text(FROM_MAC);
    // A device that comes to a VRF loses its addresses of IPv6, and routes of both families.
    ip(&format!(
        "link add red type vrf table 201
        link set red up
        link add blue type vrf table 202
        link set blue up
        link add link {IN} name wan0.100 type vlan id 100
        link set wan0.100 master blue
        link set wan0.100 up
        link set {IN} master red
        link set out1 master red
        link set out2 master blue
        address replace 10.8.0.1/24 dev {IN}
        address replace fd08::1/64 dev {IN} nodad
        neighbour replace 10.8.0.2 lladdr {from} dev {IN}
        neighbour replace fd08::2 lladdr {from} dev {IN}
        address replace 10.8.2.1/24 dev out1
        address replace fd08:2::1/64 dev out1 nodad
        address replace 10.8.3.1/24 dev out2
        address replace fd08:3::1/64 dev out2 nodad"
    ))?;
    neighbours("out1", "10.8.2.", "fd08:2::")?;
    neighbours("out2", "10.8.3.", "fd08:3::")?;
    ip("-4 route add 10.9.0.0/16 via 10.8.1.2 dev out0
        -6 route add 2001:db8::/32 via fd08:1::2 dev out0
        -4 route add 10.9.0.0/16 via 10.8.2.2 dev out1 table 201
        -6 route add 2001:db8::/32 via fd08:2::2 dev out1 table 201
        -4 route add 10.9.0.0/16 via 10.8.3.2 dev out2 table 202
        -6 route add 2001:db8::/32 via fd08:3::2 dev out2 table 202
        -4 route add 10.9.5.0/24 via 10.8.1.3 dev out0 table 201
        -6 route add 2001:db8:5::/48 via fd08:1::3 dev out0 table 201
        -4 route add 10.9.6.0/24 dev blue table 201
        -6 route add 2001:db8:6::/48 dev blue table 201")?;
    let mut hike = forwarding(Engine::Compiled)?;
    // In either VRF; then from one of them into the main table's network.
    for (tags, v4, v6, leaves_by) in [
        (&[][..], "10.9.1.1", "2001:db8:1::1", "out1"),
        (&[TAG][..], "10.9.1.1", "2001:db8:1::1", "out2"),
        (&[][..], "10.9.5.1", "2001:db8:5::1", "out0"),
    ] {
        let compared = bed.compare(&mut hike, &packets(tags, v4, v6))?;
        let what = || format!("to {v4} and {v6} with {tags:02x?}");
        compared.forwarded(COUNT).with_context(what)?;
        let devices = compared.devices();
        ensure!(
            devices.len() == 1 && devices.contains(leaves_by),
            "{}: packets left by {devices:?}",
            what()
        );
    }
    // From one VRF into another: what leaves by a VRF's device is routed again. And addresses of the router's own, in one VRF.
    for (v4, v6) in [("10.9.6.1", "2001:db8:6::1"), ("10.8.2.1", "fd08:2::1")] {
        let compared = bed.compare(&mut hike, &packets(&[], v4, v6))?;
        compared.forwarded(0)?;
    }
    // The VRF's own knob counts.
    sysctl("net/ipv4/conf/red/rp_filter", "1")?;
    let mut strays = packets(&[], "10.9.1.1", "2001:db8:1::1");
    for packet in &mut strays {
        if packet.source.is_ipv4() {
            packet.source = address("198.51.100.1");
        }
    }
    let compared = bed.compare(&mut hike, &strays)?;
    compared.left("fw-source", COUNT / 2)?;
    compared.forwarded(COUNT / 2)
}
