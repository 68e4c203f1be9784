// SPDX-License-Identifier: GPL-2.0

//! Rules and routes, drawn and chosen: HIKE forwards as the kernel does, or leaves packets to it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{ensure, Context as _, Result};
use mflow_hike::Engine;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::bed::{address, forwarding, ip, sysctl, Bed, IN, PORTS, SOURCES_V4, SOURCES_V6};
use super::packet::{Between, Packet, ESP, GRE, ICMP, ICMP6, SCTP, TCP, UDP};
use crate::hike::{Case, Scale};

/// Sets of rules and routes that are drawn, and packets for each.
const SETS: u32 = 4;
const SETS_WHOLE: u32 = 24;
const PACKETS: usize = 60;
const TABLES: [u32; 3] = [101, 102, 103];
const PREFIXES_V4: [&str; 4] = ["10.9.0.0/16", "10.9.1.0/24", "10.9.2.0/24", "10.9.2.128/25"];
const PREFIXES_V6: [&str; 4] = [
    "2001:db8::/32",
    "2001:db8:1::/48",
    "2001:db8:2::/48",
    "2001:db8:2:8000::/49",
];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "routes/oracle",
            proves: "with rules by port, protocol, class, device, source and destination, and routes of all kinds, each packet leaves as from the kernel, and the kernel gets those of which HIKE cannot know that",
            run: drawn,
        },
        Case {
            name: "routes/left",
            proves: "what the kernel refuses, answers, encapsulates or tells others of, HIKE leaves to it, each with its reason",
            run: |_| left(),
        },
    ]
}

/// Something that is set beside rules and routes, so that more is left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    StrictSources,
    LooseSources,
    RouteMtu,
    Several,
    /// Rules of IPv6, too, suppress routes: HIKE leaves all of IPv6 then.
    Suppressors,
}

const BESIDE: [Beside; 7] = [
    Beside::Nothing,
    Beside::LooseSources,
    Beside::Nothing,
    Beside::StrictSources,
    Beside::RouteMtu,
    Beside::Several,
    Beside::Suppressors,
];

fn drawn(scale: &Scale) -> Result<()> {
    let sets = if scale.whole { SETS_WHOLE } else { SETS };
    let mut forwarded = 0;
    for set in 0..sets {
        // CAST: a few, and the low bits of what is drawn.
        let turn = match set {
            0 => 0,
            _ => (set as usize).wrapping_add(scale.seed as usize) % BESIDE.len(),
        };
        let beside = BESIDE[turn];
        let seed = scale.seed.wrapping_add(set.into());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let lines = draw_lines(&mut rng, beside);
        let packets: Vec<Packet> = (0..PACKETS).map(|_| draw_packet(&mut rng)).collect();
        forwarded += compare(set, beside, &lines, &packets)
            .with_context(|| format!("seed {seed}, {beside:?}, with\n{lines}"))?;
    }
    // Rules that are drawn may refuse all packets of a set, but not of all sets.
    ensure!(
        forwarded >= PACKETS as u64 / 2,
        "seed {}: HIKE has forwarded {forwarded} packets; this shows too little",
        scale.seed
    );
    Ok(())
}

/// Compares one set; returns how many packets HIKE has forwarded.
fn compare(set: u32, beside: Beside, lines: &str, packets: &[Packet]) -> Result<u64> {
    let bed = Bed::up()?;
    ip(lines)?;
    let filter = match beside {
        Beside::StrictSources => "1",
        Beside::LooseSources => "2",
        _ => "0",
    };
    sysctl(&format!("net/ipv4/conf/{IN}/rp_filter"), filter)?;
    let engine = match set % 2 {
        0 => Engine::Compiled,
        _ => Engine::TailCalls,
    };
    let mut hike = forwarding(engine)?;
    let compared = bed.compare(&mut hike, packets)?;
    let (forwarded, kernels) = (compared.counted("forwarded"), compared.kernels.len() as u64);
    println!(
        "{beside:?}: the kernel forwards {kernels}, HIKE {forwarded}: {:?}",
        compared.reasons
    );
    if beside == Beside::Nothing {
        ensure!(
            2 * forwarded >= kernels,
            "the kernel forwards {kernels} packets, and HIKE only {forwarded} of them: {:?}",
            compared.reasons
        );
    }
    Ok(forwarded)
}

fn one<T: Copy>(rng: &mut Xoshiro256PlusPlus, all: &[T]) -> T {
    all[rng.random_range(0..all.len())]
}

/// Draws tables and rules of both families.
fn draw_lines(rng: &mut Xoshiro256PlusPlus, beside: Beside) -> String {
    let mut lines = String::new();
    for v6 in [false, true] {
        let family = if v6 { "-6" } else { "-4" };
        let prefixes = if v6 { PREFIXES_V6 } else { PREFIXES_V4 };
        // Most packets have a way.
        let first = next_hop(rng, v6);
        lines += &format!("{family} route add {} {first}\n", prefixes[0]);
        for table in TABLES {
            for prefix in prefixes {
                if rng.random_range(0..3) == 0 {
                    continue;
                }
                let (kind, way) = draw_route(rng, v6, beside);
                lines += &format!("{family} route add {kind}{prefix} table {table} {way}\n");
            }
        }
        for number in 0..rng.random_range(4..8) {
            let preference = 100 + number;
            let selector = draw_selector(rng, v6);
            let action = draw_action(rng, v6, beside);
            lines += &format!("{family} rule add pref {preference} {selector} {action}\n");
        }
    }
    lines
}

fn next_hop(rng: &mut Xoshiro256PlusPlus, v6: bool) -> String {
    let link = rng.random_range(0..PORTS.len());
    let hop = rng.random_range(2..5);
    let (port, number) = (PORTS[link], link + 1);
    if v6 {
        format!("via fd08:{number}::{hop} dev {port}")
    } else {
        format!("via 10.8.{number}.{hop} dev {port}")
    }
}

/// Returns the words of a route to a prefix: those in front of it, and those behind its table.
fn draw_route(rng: &mut Xoshiro256PlusPlus, v6: bool, beside: Beside) -> (&'static str, String) {
    let hop = next_hop(rng, v6);
    match (rng.random_range(0..10), beside) {
        (0, _) => ("blackhole ", String::new()),
        (1, _) => ("unreachable ", String::new()),
        (2, _) => ("prohibit ", String::new()),
        (3, _) => ("throw ", String::new()),
        (4 | 5, Beside::RouteMtu) => ("", format!("{hop} mtu 1300")),
        (4 | 5, Beside::Several) => {
            let both = match v6 {
                true => ["via fd08:1::2 dev out0", "via fd08:3::4 dev out2"],
                false => ["via 10.8.1.2 dev out0", "via 10.8.3.4 dev out2"],
            };
            let [one, other] = both;
            (
                "",
                format!("nexthop {one} weight 2 nexthop {other} weight 3"),
            )
        }
        _ => ("", hop),
    }
}

/// Draws one or two things that a rule looks at.
fn draw_selector(rng: &mut Xoshiro256PlusPlus, v6: bool) -> String {
    const KINDS: usize = 8;
    let (sources, prefixes) = match v6 {
        true => (["fd88::/32", "fd08::2"], PREFIXES_V6),
        false => (["10.88.0.0/16", "10.8.0.2"], PREFIXES_V4),
    };
    let first = rng.random_range(0..KINDS);
    let second = (first + rng.random_range(1..KINDS)) % KINDS;
    let mut words = Vec::new();
    for kind in [Some(first), Some(second).filter(|_| rng.random())] {
        words.extend(kind.map(|kind| match kind {
            0 => format!("from {}", one(rng, &sources)),
            1 => format!("to {}", one(rng, &prefixes)),
            2 => format!("iif {}", one(rng, &[IN, PORTS[1], "lo"])),
            3 => format!("ipproto {}", one(rng, &[TCP, UDP, SCTP, GRE])),
            4 => format!("sport {}", one(rng, &["5000", "5000-5099"])),
            5 => format!("dport {}", one(rng, &["53", "443-6000"])),
            6 => format!("tos {}", one(rng, &["0x10", "0x08"])),
            _ => "fwmark 0x5".to_owned(),
        }));
    }
    let not = if rng.random_range(0..8) == 0 {
        "not "
    } else {
        ""
    };
    format!("{not}{}", words.join(" "))
}

fn draw_action(rng: &mut Xoshiro256PlusPlus, v6: bool, beside: Beside) -> String {
    let bits = if v6 { 40 } else { 20 };
    match rng.random_range(0..10) {
        0 => "blackhole".to_owned(),
        1 => "prohibit".to_owned(),
        2 | 3 if !v6 || beside == Beside::Suppressors => {
            format!("table main suppress_prefixlength {bits}")
        }
        _ => format!("table {}", one(rng, &TABLES)),
    }
}

/// Draws a packet; now and then one from an address that nobody, or the router itself, has.
fn draw_packet(rng: &mut Xoshiro256PlusPlus) -> Packet {
    let v6 = rng.random();
    let (sources, odd) = match v6 {
        true => (SOURCES_V6, ["fd77::1", "fd08:1::1", "fd08:1::9"]),
        false => (SOURCES_V4, ["198.51.100.1", "10.8.1.1", "10.8.0.255"]),
    };
    let source = match rng.random_range(0..12) {
        0 => one(rng, &odd),
        _ => one(rng, &sources),
    };
    let host = rng.random_range(1..255);
    let destination = match v6 {
        true => format!("2001:db8:{}:{:x}::1", rng.random_range(0..4), host << 8),
        false => format!("10.9.{}.{host}", rng.random_range(0..4)),
    };
    let icmp = if v6 { ICMP6 } else { ICMP };
    let between = match (rng.random_range(0..8), v6) {
        (0, _) => Between::FirstFragment,
        (1, _) => Between::LaterFragment,
        (2, true) => Between::Options,
        (3, true) => Between::Segments,
        _ => Between::Nothing,
    };
    Packet {
        class: one(rng, &[0, 0, 0x10, 0x08, 0xb9]),
        label: if v6 { one(rng, &[0, 7, 0x8_0001]) } else { 0 },
        protocol: one(rng, &[UDP, UDP, UDP, TCP, TCP, SCTP, icmp, GRE, ESP]),
        ports: (
            one(rng, &[5_000, 5_050, 4_001]),
            one(rng, &[53, 443, 6_000, 7_000]),
        ),
        between,
        payload_bytes: one(rng, &[0, 10, 1_350]),
        ..Packet::plain(address(source), address(&destination))
    }
}

/// One thing that the kernel does otherwise, and the reason by which packets are left to it.
#[derive(Clone, Copy)]
struct Left {
    what: &'static str,
    /// Lines of `ip`, and knobs.
    lines: &'static str,
    knobs: &'static [(&'static str, &'static str)],
    source: &'static str,
    destination: &'static str,
    reason: &'static str,
    /// True if the kernel forwards such packets all the same.
    leaves: bool,
}

const WAYS: &str = "-4 route add 10.9.0.0/16 via 10.8.1.2 dev out0
    -6 route add 2001:db8::/32 via fd08:1::2 dev out0";

fn lefts() -> Vec<Left> {
    let plain = Left {
        what: "",
        lines: "",
        knobs: &[],
        source: SOURCES_V4[0],
        destination: "10.9.1.1",
        reason: "",
        leaves: false,
    };
    let v6 = |left: Left| Left {
        source: SOURCES_V6[0],
        destination: "2001:db8:1::1",
        ..left
    };
    vec![
        Left {
            what: "blackhole",
            lines: "-4 route add blackhole 10.9.1.0/24",
            reason: "fw-refused",
            ..plain
        },
        v6(Left {
            what: "unreachable",
            lines: "-6 route add unreachable 2001:db8:1::/48",
            reason: "fw-refused",
            ..plain
        }),
        v6(Left {
            what: "a tunnel of seg6",
            lines: "-6 route add 2001:db8:1::/48 encap seg6 mode encap segs fc00::1 dev out0
                -6 route add fc00::/16 via fd08:1::3 dev out0",
            reason: "fw-tunnel",
            leaves: true,
            ..plain
        }),
        Left {
            what: "a device without forwarding",
            knobs: &[("net/ipv4/conf/wan0/forwarding", "0")],
            reason: "fw-disabled",
            ..plain
        },
        v6(Left {
            what: "a device without forwarding, of which IPv6 takes no notice",
            knobs: &[("net/ipv6/conf/wan0/forwarding", "0")],
            reason: "fw-disabled",
            leaves: true,
            ..plain
        }),
        v6(Left {
            what: "no forwarding but on the device",
            knobs: &[
                ("net/ipv6/conf/all/forwarding", "0"),
                ("net/ipv6/conf/wan0/forwarding", "1"),
            ],
            reason: "fw-disabled",
            ..plain
        }),
        v6(Left {
            what: "a device without IPv6",
            knobs: &[("net/ipv6/conf/wan0/disable_ipv6", "1")],
            reason: "fw-disabled",
            ..plain
        }),
        Left {
            what: "a source that is the router's own address",
            source: "10.8.1.1",
            reason: "fw-source",
            ..plain
        },
        Left {
            what: "a source that is reached by another device",
            lines: "-4 route add 10.88.7.0/24 via 10.8.2.2 dev out1",
            knobs: &[("net/ipv4/conf/wan0/rp_filter", "1")],
            source: "10.88.7.1",
            reason: "fw-source",
            ..plain
        },
        Left {
            what: "a source that is not reached",
            knobs: &[("net/ipv4/conf/wan0/rp_filter", "2")],
            source: "198.51.100.1",
            reason: "fw-source",
            ..plain
        },
        Left {
            what: "a way back by the same device",
            knobs: &[("net/ipv4/conf/wan0/send_redirects", "1")],
            destination: "10.88.0.1",
            reason: "fw-redirect",
            ..plain
        },
        Left {
            what: "a policy of IPsec",
            lines: "xfrm policy add src 10.9.1.1/32 dst 10.9.9.9/32 dir fwd action block",
            reason: "fw-ipsec",
            leaves: true,
            ..plain
        },
        Left {
            what: "a way that is too narrow",
            lines: "-4 route add 10.9.1.0/24 via 10.8.1.2 dev out0 mtu 700",
            reason: "fw-too-big",
            ..plain
        },
    ]
}

fn left() -> Result<()> {
    let mut forwards = BTreeSet::new();
    for left in lefts() {
        let what = left.what;
        hold(&left, &mut forwards).context(what)?;
    }
    Ok(())
}

/// Holds one. `forwards` are the families, true: IPv6, of which packets were seen to be forwarded before a change.
fn hold(left: &Left, forwards: &mut BTreeSet<bool>) -> Result<()> {
    const COUNT: usize = 5;
    let bed = Bed::up()?;
    ip(WAYS)?;
    let packet = Packet {
        payload_bytes: 800,
        ..Packet::plain(address(left.source), address(left.destination))
    };
    let mut hike = forwarding(Engine::Compiled)?;
    // Without that, HIKE forwards packets of the same family, if they are not to go back.
    let source = match packet.destination {
        IpAddr::V4(_) => SOURCES_V4[0],
        IpAddr::V6(_) => SOURCES_V6[0],
    };
    let usual = Packet {
        source: address(source),
        ..packet.clone()
    };
    if left.reason != "fw-redirect" && forwards.insert(packet.destination.is_ipv6()) {
        let usual = vec![usual; COUNT];
        let compared = bed.compare(&mut hike, &usual)?;
        compared.forwarded(COUNT).context("before")?;
    }
    for (knob, value) in left.knobs {
        sysctl(knob, value)?;
    }
    ip(left.lines)?;
    let packets = vec![packet; COUNT];
    let compared = bed.compare(&mut hike, &packets)?;
    compared.left(left.reason, COUNT)?;
    let leaves = compared.kernels.len();
    ensure!(
        leaves == if left.leaves { COUNT } else { 0 },
        "the kernel forwards {leaves} packets"
    );
    Ok(())
}
