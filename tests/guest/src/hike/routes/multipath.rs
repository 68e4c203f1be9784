// SPDX-License-Identifier: GPL-2.0

//! Routes with several next hops: HIKE chooses the kernel's one while the kernel chooses by addresses, and leaves such packets to it otherwise.

use anyhow::{ensure, Context as _, Result};
use mflow_hike::{Engine, Hike};

use super::bed::{address, forwarding, ip, sysctl, Bed};
use super::packet::{Between, Packet, ICMP, ICMP6, TCP, UDP};
use crate::hike::Case;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "routes/multipath",
        proves: "of several next hops each packet takes the kernel's: routes with several, groups, resilient ones, under each of the kernel's policies",
        run: |_| several(),
    }]
}

const FLOWS: u8 = 40;

/// Returns packets of flows that differ in addresses, or in ports and labels alone.
fn packets(v6: bool, protocol: u8) -> Vec<Packet> {
    let of = |number: u8| {
        let port = 5_000 + u16::from(number);
        let (source, destination) = match v6 {
            true => (
                format!("fd88::{number:x}"),
                format!("2001:db8:1::{number:x}"),
            ),
            false => (format!("10.88.0.{number}"), format!("10.9.1.{number}")),
        };
        Packet {
            protocol,
            ports: (2 * port, 53),
            label: u32::from(number) * 1_000,
            between: match number % 5 {
                0 => Between::FirstFragment,
                _ => Between::Nothing,
            },
            ..Packet::plain(address(&source), address(&destination))
        }
    };
    (1..=FLOWS).map(of).collect()
}

/// Returns the same, and errors among them, which carry another packet.
fn errors(v6: bool) -> Vec<Packet> {
    let mut packets = packets(v6, if v6 { ICMP6 } else { ICMP });
    for packet in packets.iter_mut().step_by(2) {
        packet.ports.0 += 1;
    }
    for packet in &mut packets {
        packet.between = Between::Nothing;
    }
    packets
}

/// Ways to say that there are several next hops.
const KINDS: [(&str, &str); 3] = [
    (
        "routes with several",
        "-4 route add 10.9.0.0/16 nexthop via 10.8.1.2 dev out0 weight 1 nexthop via 10.8.2.3 dev out1 weight 2
         -6 route add 2001:db8::/32 nexthop via fd08:1::2 dev out0 weight 1 nexthop via fd08:2::3 dev out1 weight 2",
    ),
    (
        "groups",
        "nexthop add id 1 via 10.8.1.2 dev out0
         nexthop add id 2 via 10.8.2.3 dev out1
         nexthop add id 3 via fd08:1::2 dev out0
         nexthop add id 4 via fd08:2::3 dev out1
         nexthop add id 10 group 1/2
         nexthop add id 11 group 3/4
         -4 route add 10.9.0.0/16 nhid 10
         -6 route add 2001:db8::/32 nhid 11",
    ),
    (
        "resilient groups",
        "nexthop add id 1 via 10.8.1.2 dev out0
         nexthop add id 2 via 10.8.2.3 dev out1
         nexthop add id 3 via fd08:1::2 dev out0
         nexthop add id 4 via fd08:2::3 dev out1
         nexthop add id 10 group 1/2 type resilient buckets 32
         nexthop add id 11 group 3/4 type resilient buckets 32
         -4 route add 10.9.0.0/16 nhid 10
         -6 route add 2001:db8::/32 nhid 11",
    ),
];

fn several() -> Result<()> {
    for (what, lines) in KINDS {
        let bed = Bed::up()?;
        ip(lines)?;
        let mut hike = forwarding(Engine::Compiled)?;
        for policy in ["0", "1", "2", "3"] {
            for family in ["ipv4", "ipv6"] {
                sysctl(&format!("net/{family}/fib_multipath_hash_policy"), policy)?;
            }
            for v6 in [false, true] {
                compare(&bed, &mut hike, policy == "0", v6)
                    .with_context(|| format!("{what}, policy {policy}, IPv6: {v6}"))?;
            }
        }
    }
    Ok(())
}

/// Compares datagrams, segments and errors at once.
fn compare(bed: &Bed, hike: &mut Hike, follows: bool, v6: bool) -> Result<()> {
    let count = usize::from(FLOWS);
    let packets: Vec<Packet> = [packets(v6, UDP), packets(v6, TCP), errors(v6)].concat();
    let compared = bed.compare(hike, &packets)?;
    if follows {
        compared.forwarded(2 * count)?;
        compared.left("fw-icmp", count)?;
    } else {
        compared.left("fw-multipath", packets.len())?;
    }
    // Otherwise nothing was chosen.
    for numbers in [0..count, count..2 * count] {
        let devices = compared.devices_of(numbers.clone());
        ensure!(
            devices.len() == 2,
            "the packets {numbers:?} left by {devices:?}"
        );
    }
    Ok(())
}
