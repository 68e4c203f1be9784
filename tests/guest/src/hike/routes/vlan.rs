// SPDX-License-Identifier: GPL-2.0

//! VLANs and VLANs in VLANs, on both sides of the router: the kernel's rules are asked for the VLAN's device, and packets leave with its tags.

use anyhow::{ensure, Context as _, Result};
use mflow_hike::Engine;

use super::bed::{
    address, forwarding, ip, neighbours, Bed, IN, ROUTER, SOURCES_V4, SOURCES_V6, TO,
};
use super::packet::Packet;
use crate::hike::Case;
use crate::network::{netns, topology};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "routes/vlan",
        proves: "packets with one tag or two are routed as those of their VLAN's device, leave with the tags of the device that the route names, and are the kernel's if no device has their tags or the NIC hides them",
        run: |_| {
            vlans(Engine::Compiled)?;
            vlans(Engine::TailCalls)
        },
    }]
}

const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;

fn tag(kind: u16, number: u16) -> [u8; 4] {
    let [kind, number] = [kind, number].map(u16::to_be_bytes);
    [kind[0], kind[1], number[0], number[1]]
}

/// Adds a VLAN's device on another one.
fn add(node: &str, below: &str, name: &str, kind: u16, number: u16, mtu: u16) -> Result<()> {
    let protocol = if kind == CUSTOMER {
        "802.1Q"
    } else {
        "802.1ad"
    };
    topology::ip_in(
        node,
        &format!(
            "link add link {below} name {name} mtu {mtu} type vlan protocol {protocol} id {number}
             link set {name} up"
        ),
    )
}

/// Packets with tags, and the device by which they leave.
struct Way {
    tags: &'static [[u8; 4]],
    leaves_by: &'static str,
}

const ONE: [u8; 4] = [0x81, 0, 0, 100];
/// The same, with a priority.
const URGENT: [u8; 4] = [0x81, 0, 0xe0, 100];
const OUTER: [u8; 4] = [0x88, 0xa8, 0, 200];
const INNER: [u8; 4] = [0x81, 0, 0, 7];
const PRIORITY: [u8; 4] = [0x81, 0, 0xa0, 0];

const WAYS: [Way; 6] = [
    Way {
        tags: &[],
        leaves_by: "out0",
    },
    Way {
        tags: &[PRIORITY],
        leaves_by: "out0",
    },
    Way {
        tags: &[ONE],
        leaves_by: "out0.5",
    },
    Way {
        tags: &[URGENT],
        leaves_by: "out0.5",
    },
    Way {
        tags: &[OUTER],
        leaves_by: "out1",
    },
    Way {
        tags: &[OUTER, INNER],
        leaves_by: "qinq",
    },
];

fn vlans(engine: Engine) -> Result<()> {
    const COUNT: usize = 3;
    let bed = Bed::up()?;
    // Frames come with their tags, and not with tags beside them, as a NIC hands over those that it takes off.
    let offload = |state: &str| {
        let line = format!("ethtool -K {IN} rxvlan {state} rx-vlan-stag-hw-parse {state}");
        netns::run(ROUTER, &line).map(drop)
    };
    offload("off")?;
    add(ROUTER, IN, "wan0.100", CUSTOMER, 100, 1_500)?;
    add(ROUTER, IN, "service", SERVICE, 200, 1_500)?;
    add(ROUTER, "service", "inner", CUSTOMER, 7, 1_496)?;
    for node in [ROUTER, TO] {
        add(node, "out0", "out0.5", CUSTOMER, 5, 1_500)?;
        add(node, "out2", "outer", SERVICE, 300, 1_500)?;
        add(node, "outer", "qinq", CUSTOMER, 6, 1_496)?;
    }
    neighbours("out0.5", "10.81.0.", "fd81::")?;
    neighbours("qinq", "10.82.0.", "fd82::")?;
    ip("-4 route add 10.9.0.0/16 via 10.8.1.2 dev out0
        -6 route add 2001:db8::/32 via fd08:1::2 dev out0
        -4 route add 10.9.0.0/16 via 10.81.0.3 dev out0.5 onlink table 101
        -6 route add 2001:db8::/32 via fd81::3 dev out0.5 onlink table 101
        -4 route add 10.9.0.0/16 via 10.8.2.4 dev out1 table 102
        -6 route add 2001:db8::/32 via fd08:2::4 dev out1 table 102
        -4 route add 10.9.0.0/16 via 10.82.0.2 dev qinq onlink table 103
        -6 route add 2001:db8::/32 via fd82::2 dev qinq onlink table 103
        -4 rule add pref 101 iif wan0.100 table 101
        -6 rule add pref 101 iif wan0.100 table 101
        -4 rule add pref 102 iif service table 102
        -6 rule add pref 102 iif service table 102
        -4 rule add pref 103 iif inner table 103
        -6 rule add pref 103 iif inner table 103")?;
    let mut hike = forwarding(engine)?;
    let packets = |tags: &[[u8; 4]], payload_bytes| -> Vec<Packet> {
        let v4 = Packet::plain(address(SOURCES_V4[1]), address("10.9.1.1"));
        let v6 = Packet::plain(address(SOURCES_V6[1]), address("2001:db8:1::1"));
        let with = |packet: Packet| Packet {
            tags: tags.to_vec(),
            payload_bytes,
            ..packet
        };
        [v4, v6]
            .into_iter()
            .map(with)
            .cycle()
            .take(2 * COUNT)
            .collect()
    };
    for way in WAYS {
        // Small, and as large as links take.
        for payload_bytes in [0, 1_400] {
            let compared = bed.compare(&mut hike, &packets(way.tags, payload_bytes))?;
            let what = || format!("tags {:02x?}, {payload_bytes} bytes", way.tags);
            compared.forwarded(2 * COUNT).with_context(what)?;
            ensure!(
                compared.kernels.len() == 2 * COUNT && compared.devices().contains(way.leaves_by),
                "{}: {} packets left by {:?}",
                what(),
                compared.kernels.len(),
                compared.devices()
            );
        }
    }
    // Nobody's, in the first place and in the second.
    let nobodys = [
        vec![tag(CUSTOMER, 101)],
        vec![tag(SERVICE, 100)],
        vec![OUTER, tag(CUSTOMER, 8)],
        vec![ONE, INNER],
    ];
    for tags in nobodys {
        let compared = bed.compare(&mut hike, &packets(&tags, 0))?;
        compared.left("fw-vlan", 2 * COUNT)?;
        ensure!(compared.kernels.is_empty(), "{tags:02x?} left the router");
    }
    // A VLAN whose frames get priorities is more than its tag.
    topology::ip_in(ROUTER, "link set out0.5 type vlan egress-qos-map 0:3")?;
    let compared = bed.compare(&mut hike, &packets(&[ONE], 0))?;
    compared.left("fw-no-port", 2 * COUNT)?;
    // Tags that may not be seen.
    offload("on")?;
    for tags in [&[] as &[[u8; 4]], &[ONE]] {
        let compared = bed.compare(&mut hike, &packets(tags, 0))?;
        compared.forwarded(0)?;
        ensure!(
            compared.kernels.len() == 2 * COUNT,
            "the kernel forwards {} packets with {tags:02x?}",
            compared.kernels.len()
        );
    }
    Ok(())
}
