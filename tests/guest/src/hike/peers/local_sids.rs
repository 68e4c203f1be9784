// SPDX-License-Identifier: GPL-2.0

//! Local SIDs and rules of the access list that random frames are held against.

use std::net::Ipv6Addr;
use std::ops::RangeInclusive;

use mflow_hike::{Action, Behaviour, Destination, Flavours, Rule};
use rand::rngs::Xoshiro256PlusPlus;
use rand::RngExt as _;

/// Rules of the list: more than a word has bits.
const RULES: usize = 80;
/// Holds most of the sources that frames have.
const SOURCES_OF_FIRST_RULE: &str = "2001:db8:a::/64";
/// Next hops of `End.X`: a neighbour, one that was never heard of, one behind a device that is no port, and nobody.
const NEXT_HOPS: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd00, 0xf, 0, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0xfd00, 0xf, 0, 0, 0, 0, 0, 9),
    Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0x2001, 0xdb8, 0xdead, 0, 0, 0, 0, 1),
];
/// A table that is not there.
const NO_TABLE: u32 = 77;

/// Returns all flavours.
fn flavours() -> impl Iterator<Item = Flavours> {
    (0..8).map(|bits| Flavours {
        psp: bits & 1 != 0,
        usp: bits & 2 != 0,
        usd: bits & 4 != 0,
    })
}

/// Returns End.X to a next hop that is not link-local.
fn end_x(next_hop: Ipv6Addr, flavours: Flavours) -> Behaviour {
    Behaviour::EndX {
        next_hop,
        device: None,
        flavours,
    }
}

/// Returns chains for local SIDs, and what they do, with these tables.
pub(crate) fn all(tables: [u32; 2]) -> Vec<(&'static str, Behaviour)> {
    let mut all = Vec::new();
    for (number, flavours) in flavours().enumerate() {
        let chain = ["end,fw-fib", "end,acl,mon-in,fw-table"][number % 2];
        all.push((chain, Behaviour::End { flavours }));
        let next_hop = NEXT_HOPS[0];
        all.push(("mon-out,end-x", end_x(next_hop, flavours)));
    }
    for next_hop in &NEXT_HOPS[1..] {
        let (next_hop, flavours) = (*next_hop, Flavours::default());
        all.push(("end-x", end_x(next_hop, flavours)));
    }
    // Tables are those of IPv6: kernels without policy routing have one of IPv4, in which the host's own addresses may be, too.
    let [main, other] = tables;
    for behaviour in [
        Behaviour::Dt4 { table: None },
        Behaviour::Dt6 { table: None },
        Behaviour::Dt46 { table: None },
        Behaviour::Dt6 { table: Some(main) },
        Behaviour::Dt6 { table: Some(other) },
        Behaviour::Dt6 {
            table: Some(NO_TABLE),
        },
    ] {
        all.push(("mon-out,acl,dec", behaviour));
        all.push(("dec", behaviour));
    }
    all
}

/// Draws a behaviour for a program.
pub(crate) fn draw(rng: &mut Xoshiro256PlusPlus, program: &str) -> Behaviour {
    let flavours = Flavours {
        psp: rng.random(),
        usp: rng.random(),
        usd: rng.random(),
    };
    match program {
        "end" => Behaviour::End { flavours },
        "end-x" => end_x(NEXT_HOPS[0], flavours),
        "dec" => Behaviour::Dt46 { table: None },
        other => panic!("no behaviour for {other}"),
    }
}

/// Draws an access list that many packets meet, and few are denied by: some always, as the first rule is not drawn.
pub(crate) fn draw_rules(rng: &mut Xoshiro256PlusPlus) -> Vec<Rule> {
    let first = Rule {
        source: parsed(SOURCES_OF_FIRST_RULE),
        protocol: Some(132),
        ..Rule::all(Action::Deny)
    };
    let mut rules = vec![first];
    rules.extend((1..RULES).map(|_| draw_rule(rng)));
    let last = Rule {
        protocol: Some(58),
        ..Rule::all(Action::Allow)
    };
    rules.push(last);
    rules
}

fn parsed(text: &str) -> Destination {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn draw_rule(rng: &mut Xoshiro256PlusPlus) -> Rule {
    let v4 = rng.random();
    let sources = match v4 {
        true => ["10.9.0.1", "10.9.0.0/31", "10.9.0.0/16", "default"],
        false => [
            "2001:db8:a::1",
            "2001:db8:a::/48",
            "2001:db8:e::1",
            "default",
        ],
    };
    let destinations = match v4 {
        true => ["10.1.0.0/16", "10.1.4.0/22", "10.15.0.9", "default"],
        false => ["2001:db8:1::/49", "fc00:5::/32", "fc00::/15", "default"],
    };
    let mut draw =
        |texts: [&str; 4]| -> Destination { parsed(texts[rng.random_range(0..texts.len())]) };
    let (source, destination) = (draw(sources), draw(destinations));
    let protocol = [None, Some(17), Some(6), Some(132), Some(58)][rng.random_range(0..5)];
    let ports = |rng: &mut Xoshiro256PlusPlus| -> Option<RangeInclusive<u16>> {
        let (one, two): (u16, u16) = (rng.random(), rng.random());
        let takes = protocol != Some(58) && rng.random_range(0..2) == 0;
        takes.then_some(one.min(two)..=one.max(two))
    };
    Rule {
        action: [Action::Allow, Action::Deny][rng.random_range(0..2)],
        source,
        destination,
        protocol,
        source_ports: ports(rng),
        destination_ports: ports(rng),
    }
}
