// SPDX-License-Identifier: GPL-2.0

//! The programs of both engines and the model with the same configuration, which is drawn, and held against each other.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use anyhow::{ensure, Context as _, Result};
use mflow_hike::config::manifest;
use mflow_hike::config::manifest::Program;
use mflow_hike::config::path::{Dscp, Exceptions, FlowLabel, Mode};
use mflow_hike::{
    Behaviour, Cache, Caching, Chain, Class, Destination, Direction, Engine, ExactFlow, Flow, Hike,
    Hook, Lanes, Marking, Monitor, Path, Route, Rule,
};
use nix::net::if_::if_nametoindex;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::comparison::Comparison;
use super::frames::{self, SOURCES};
use super::fuzz_network::{
    self, CLOSED, CLOSED_MAC, MAIN_TABLE, MTU, NAMESPACE, OTHER_TABLE, PORT, PORT_MAC, TABLE_MAC,
};
use super::programs::{self, Colour, Model};
use crate::hike::model::test_runs::{occurs, TestRuns};
use crate::hike::peers::local_sids;
use crate::hike::{instance_with, Case, Scale};
use crate::network::netns;

/// The source of all tunnels.
const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xe, 0, 0, 0, 0, 1);
/// A time that no case exceeds, so that the colour of packets stays the same for all of it.
const LONGEST: Duration = Duration::from_secs(2 * 3_600);
/// Of as many frames at most, the cache is good for one.
const LEAST_HITS: u64 = 1_000;
/// Classes of a run whose chains and paths are drawn.
const DRAWN: u16 = 12;
/// Chains that are in every run, with how many SIDs of which block, and what becomes of exceptions: so that each reason has its
/// turn.
const ALWAYS: [(&str, u16, u16, Exceptions); 12] = [
    ("enc,enc,fw-fib", 10, 1, Exceptions::Dropped),
    ("enc,fw-fib", 2, 1, Exceptions::Left),
    ("enc,mon-in,fw-table", 3, 1, Exceptions::Dropped),
    ("enc,fw-fib", 1, 2, Exceptions::Left),
    ("mon-out,mon-in,mon-out,fw-kernel", 1, 1, Exceptions::Left),
    ("mon-in,mon-out,drop", 1, 1, Exceptions::Left),
    ("fw-table", 1, 1, Exceptions::Left),
    ("acl,fw-kernel", 1, 1, Exceptions::Left),
    ("enc,fw-fib", 3, 1, Exceptions::Told),
    ("enc,fw-table", 1, 1, Exceptions::Told),
    ("enc,enc,fw-fib", 2, 1, Exceptions::Told),
    ("enc,mon-in,fw-fib", 1, 1, Exceptions::Told),
];

/// The same where chains may ask mflow for something: three of them, so that each hint has its turn.
const ASKING: [(&str, u16, u16, Exceptions); 3] = [
    ("mon-in,lanes,fw-kernel", 1, 1, Exceptions::Left),
    ("enc,lanes,mon-in,fw-table", 2, 1, Exceptions::Dropped),
    ("lanes,acl,fw-kernel", 1, 1, Exceptions::Left),
];
/// The program that makes answers, chains with it, and destinations that have these, mostly the host's own, with what becomes of answers
/// that are too big for the path; how often frames are for one of them.
const REFLECT: &str = "reflect";
const REFLECTORS: [(&str, &str, Exceptions); 8] = [
    ("10.77.2.0/24", "reflect,send-back", Exceptions::Dropped),
    (
        "fd00:77:1::/48",
        "mon-in,reflect,send-back",
        Exceptions::Dropped,
    ),
    (
        "fd00:77:2::/48",
        "reflect,enc,mon-in,fw-fib",
        Exceptions::Told,
    ),
    ("fd00:77:3::/48", "reflect,enc,fw-table", Exceptions::Left),
    ("10.77.4.0/24", "reflect,enc,fw-fib", Exceptions::Told),
    ("10.1.77.0/24", "reflect,send-back", Exceptions::Dropped),
    // Of all hosts of a link, and of all of its routers.
    ("10.15.0.255", "reflect,send-back", Exceptions::Dropped),
    ("fd00:10::", "reflect,send-back", Exceptions::Dropped),
];
const OFTEN: usize = 8;
/// The requests that classes make in turn.
const LANES: [Option<Lanes>; 3] = [Some(Lanes::Never), Some(Lanes::Split), None];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "model",
            proves: "random frames come out of both engines as the model says, byte by byte, and are counted the same, with the cache and without it",
            run: |scale| within_network(Hook::Xdp, scale),
        },
        Case {
            name: "tcx/model",
            proves: "the same at tcx, where packets leave and may be several on the wire",
            run: |scale| within_network(Hook::Tcx, scale),
        },
    ]
}

fn within_network(hook: Hook, scale: &Scale) -> Result<()> {
    netns::add(NAMESPACE)?;
    let done = netns::within(NAMESPACE, || run(hook, scale));
    netns::delete(NAMESPACE)?;
    done
}

/// A destination, and the treatment of its packets.
struct Classified {
    destination: Destination,
    chain: Chain,
    path: Option<Path>,
    behaviour: Option<Behaviour>,
    lanes: Option<Lanes>,
}

/// The configuration of the programs, and likewise of the model.
struct Configuration {
    classes: Vec<Classified>,
    exact: Vec<(ExactFlow, Chain, Path, Option<Lanes>)>,
    /// Those of the destinations whose packets have to come from inside.
    inside: BTreeSet<Destination>,
    rules: Vec<Rule>,
    flows: Vec<(Flow, Direction, Monitor)>,
    destinations: Vec<IpAddr>,
}

fn run(hook: Hook, scale: &Scale) -> Result<()> {
    fuzz_network::up()?;
    let seed = scale.seed;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut model = Model::default();
    let configuration = configure(hook, &mut rng, &mut model)?;
    let mut engines = Vec::new();
    for setup in setups(seed) {
        engines.push((setup, set_up(hook, setup, seed, &configuration)?));
    }
    let flows = configuration.flows.into_iter();
    let mut comparison = Comparison {
        hook,
        seed,
        engines,
        model,
        destinations: configuration.destinations,
        flows: flows
            .map(|(flow, direction, _)| (flow, direction))
            .collect(),
        test_runs: TestRuns::new()?,
    };
    comparison.run(&mut rng, scale.frames)?;
    for (setup, hike) in &comparison.engines {
        let counts = hike.cache_counts()?;
        let expected = match (hook, setup.1) {
            (Hook::Xdp, Cache::On) => counts.hits >= scale.frames / LEAST_HITS,
            _ => counts.hits == 0 && counts.learned == 0,
        };
        ensure!(
            expected,
            "seed {seed}, {setup:?}: the cache was good for {counts:?}, of {} frames and more; this shows too little",
            scale.frames
        );
    }
    let model = comparison.model;
    // A run in which some reason or direction does not occur proves nothing of it.
    let missing = mflow_hike::counters::reason::reasons()
        .iter()
        .map(|reason| reason.name)
        .filter(|reason| occurs(hook, reason) && !model.reasons.contains_key(reason));
    let missing: Vec<&str> = missing.collect();
    ensure!(
        missing.is_empty() && model.counted.len() >= 30,
        "seed {seed}: no frame had {missing:?}, and {} flows and colours were counted; this shows too little",
        model.counted.len()
    );
    Ok(())
}

fn configure(hook: Hook, rng: &mut Xoshiro256PlusPlus, model: &mut Model) -> Result<Configuration> {
    fuzz_network::routes(model)?;
    let mut configuration = Configuration {
        classes: Vec::new(),
        exact: Vec::new(),
        inside: BTreeSet::new(),
        rules: local_sids::draw_rules(rng),
        flows: Vec::new(),
        destinations: ["2001:db8:ffff::1", "192.0.2.1", "10.1.7.200"]
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, _>>()?,
    };
    model.rules = configuration
        .rules
        .iter()
        .map(|rule| (rule.clone(), 0))
        .collect();
    let mut flows = BTreeSet::new();
    // Destinations on the link, of this host and of many, and such as the kernel treats otherwise.
    let special = [
        "fd00:f::2",
        "fd00:f::9",
        "10.15.0.9",
        "fd00:f::1",
        "10.15.0.1",
        "ff0e::1",
        "239.1.1.1",
        // By devices that put tags on, and by routes that refuse.
        "10.4.4.1",
        "10.4.6.1",
        "10.4.6.2",
        "fc00:4::2",
        "fc00:6::2",
        "10.6.0.1",
        "10.7.0.1",
        "2001:db8:6::1",
        "2001:db8:7::1",
    ];
    for (number, text) in special.iter().enumerate() {
        let chain = ["fw-fib", "mon-in,fw-fib"][number % 2];
        add_class(model, &mut configuration, text.parse()?, chain, None, None)?;
    }
    // The same where the kernel is not asked for the way.
    let stay = [
        ("10.16.0.1", "fw-table"),
        ("10.16.0.255", "acl,enc,fw-table"),
        ("10.77.1.1", "enc,mon-in,fw-fib"),
        ("fd00:10::1", "mon-in,enc,fw-fib"),
        ("fd00:f::", "enc,fw-kernel"),
        ("ff0e::2", "enc,fw-fib"),
        ("169.254.1.1", "mon-in,fw-table"),
    ];
    for (number, (text, chain)) in stay.into_iter().enumerate() {
        let path = Path::new(SOURCE, sids_of(1, 2_000 + number, 1));
        let destination = text.parse()?;
        add_class(
            model,
            &mut configuration,
            destination,
            chain,
            Some(path),
            None,
        )?;
    }
    let from_inside = "2001:db8:5::/64".parse()?;
    let configured = &mut configuration;
    add_class(model, configured, from_inside, "fw-kernel", None, None)?;
    configuration.inside.insert(from_inside);
    let class = model.classes.last_mut();
    let class = class.and_then(|(_, class)| Rc::get_mut(class));
    class.context("the class has another user")?.inside = true;
    let mut local_sids = local_sids::all([MAIN_TABLE, OTHER_TABLE]);
    if hook == Hook::Tcx {
        local_sids.clear();
    }
    if hook == Hook::Xdp {
        local_sids.push(("mon-out,end-x", fuzz_network::link_local_hop()?));
    }
    for (number, (chain, behaviour)) in local_sids.into_iter().enumerate() {
        let text = match number % 2 {
            0 => format!("fc00:5:{number:x}::1"),
            _ => format!("fc00:5:{number:x}::/64"),
        };
        let sid = text.parse()?;
        add_class(model, &mut configuration, sid, chain, None, Some(behaviour))?;
    }
    let mut chains: Vec<(String, Path)> = Vec::new();
    let asking = ASKING.iter().filter(|_| hook == Hook::Xdp);
    for &(chain, sids, block, exceptions) in ALWAYS.iter().chain(asking) {
        let path = Path {
            mtu: 1_280,
            exceptions,
            ..Path::new(SOURCE, sids_of(block, chains.len(), sids))
        };
        chains.push((chain.to_owned(), path));
    }
    for _ in 0..DRAWN {
        let path = draw_path(rng, chains.len());
        chains.push((draw_chain(hook, rng), path));
    }
    for (number, (chain, path)) in chains.into_iter().enumerate() {
        let number = number + 1;
        let text = match number % 4 {
            0 => format!("2001:db8:1:{number:x}::1"),
            1 => format!("2001:db8:1:{number:x}::/64"),
            2 => format!("10.1.{number}.1"),
            _ => format!("10.1.{number}.0/24"),
        };
        flows.insert(Flow::of(&path)?);
        let needs = chain.parse::<Chain>()?.needs_behaviour();
        let behaviour = needs.map(|program| local_sids::draw(rng, program.name));
        let destination = text.parse()?;
        add_class(
            model,
            &mut configuration,
            destination,
            &chain,
            Some(path),
            behaviour,
        )?;
    }
    let reflectors = match hook {
        Hook::Xdp => &REFLECTORS[..],
        Hook::Tcx => &[],
    };
    for (number, &(text, chain, exceptions)) in reflectors.iter().enumerate() {
        let path = Path {
            mtu: 1_280,
            exceptions,
            ..Path::new(SOURCE, sids_of(1, 3_000 + number, 1))
        };
        let destination = text.parse()?;
        add_class(
            model,
            &mut configuration,
            destination,
            chain,
            Some(path),
            None,
        )?;
    }
    add_exact_flows(hook, model, &mut configuration)?;
    for (text, ..) in reflectors {
        if let Destination::Prefix(address, _) | Destination::Address(address) = text.parse()? {
            configuration.destinations.extend([address; OFTEN]);
        }
    }
    for count in 1..=16 {
        let travelled: Vec<Ipv6Addr> = frames::sids(count).into_iter().rev().collect();
        let flow = Flow::new(SOURCES[0], travelled)?;
        flows.insert(flow.clone());
        for id in frames::FLOW_IDS {
            flows.insert(flow.clone().with_id(Some(id))?);
        }
    }
    let to = configuration.destinations.clone();
    for destination in to {
        if let IpAddr::V6(destination) = destination {
            let flow = Flow::new(SOURCES[1], [destination])?;
            flows.insert(flow.clone());
            flows.insert(flow.with_id(Some(frames::FLOW_IDS[0]))?);
        }
    }
    // How often a length of blocks is drawn depends on the time, on which nothing else shall.
    let mut periods = Xoshiro256PlusPlus::seed_from_u64(rng.random());
    for flow in flows {
        let marking = match rng.random_range(0..2) {
            0 if flow.id().is_some() => Marking::Option,
            _ => Marking::DscpBit(rng.random_range(0..6)),
        };
        for direction in [Direction::In, Direction::Out] {
            let (monitor, now) = draw_monitor(&mut periods, marking);
            let class_bit = match marking {
                Marking::Option => 0,
                Marking::DscpBit(bit) => 4 << bit,
            };
            let sids = flow.sids().iter().rev().copied().collect();
            let shown = (flow.id(), flow.source(), sids);
            model
                .flows
                .insert((direction, shown), Colour { class_bit, now });
            configuration.flows.push((flow.clone(), direction, monitor));
        }
    }
    Ok(configuration)
}

/// Gives flows to every other destination a class of their own, whether the destination has one or not.
fn add_exact_flows(hook: Hook, model: &mut Model, configuration: &mut Configuration) -> Result<()> {
    let to_kernel = match hook {
        Hook::Xdp => "lanes,fw-kernel",
        Hook::Tcx => "fw-kernel",
    };
    let to: Vec<IpAddr> = configuration
        .destinations
        .iter()
        .copied()
        .step_by(2)
        .collect();
    for (number, destination) in to.into_iter().enumerate() {
        let by_ports = |source, ports| ExactFlow::Ports {
            source,
            destination,
            protocol: 17,
            ports,
        };
        let flow = match (number % 3, destination) {
            (_, IpAddr::V4(_)) => by_ports(Ipv4Addr::new(10, 9, 0, 1).into(), frames::PORTS[0]),
            (0, _) => by_ports(SOURCES[0].into(), frames::PORTS[0]),
            // What is not of a protocol with ports, or a fragment.
            (1, _) => ExactFlow::Ports {
                source: SOURCES[0].into(),
                destination,
                protocol: 43,
                ports: (0, 0),
            },
            (_, IpAddr::V6(destination)) => ExactFlow::Label {
                source: SOURCES[0],
                destination,
                label: frames::LABEL,
            },
        };
        let chain: Chain = ["enc,fw-fib", to_kernel, "drop"][number % 3].parse()?;
        let lanes = LANES[number % 2];
        // One that no other has, which none of the monitored flows is.
        let path = Path::new(SOURCE, sids_of(1, 1_000 + number, 2));
        let names = chain.programs().iter().map(|program| program.name);
        let class = programs::Class {
            chain: names.collect(),
            path: Some(path.clone()),
            behaviour: None,
            lanes,
            inside: false,
        };
        model.exact.insert(flow, Rc::new(class));
        configuration.exact.push((flow, chain, path, lanes));
    }
    Ok(())
}

fn add_class(
    model: &mut Model,
    configuration: &mut Configuration,
    destination: Destination,
    chain: &str,
    path: Option<Path>,
    behaviour: Option<Behaviour>,
) -> Result<()> {
    let chain: Chain = chain.parse()?;
    let prefix = match destination {
        Destination::Address(address) => (address, if address.is_ipv4() { 32 } else { 128 }),
        Destination::Prefix(address, bits) => (address, bits),
        Destination::Default => anyhow::bail!("no prefix"),
    };
    let names = chain.programs().iter().map(|program| program.name);
    let lanes = LANES[model.classes.len() % LANES.len()];
    let class = programs::Class {
        chain: names.collect(),
        path: path.clone(),
        behaviour,
        lanes,
        inside: false,
    };
    model.classes.push((prefix, Rc::new(class)));
    // The network's own address has a host's bits of 0, and is as good as any.
    configuration.destinations.push(prefix.0);
    configuration.classes.push(Classified {
        destination,
        chain,
        path,
        behaviour,
        lanes,
    });
    Ok(())
}

/// Draws a chain of 1 to 16 programs.
fn draw_chain(hook: Hook, rng: &mut Xoshiro256PlusPlus) -> String {
    let (ends, others): (Vec<Program>, Vec<Program>) = manifest::programs()
        .iter()
        .copied()
        .filter(|program| hook == Hook::Xdp || program.at_tcx)
        // Those chains are for destinations that are not this host's, where there is nothing to answer.
        .filter(|program| program.name != REFLECT && !program.needs_answer)
        .partition(|program| program.ends);
    loop {
        let long = rng.random_range(0..4) == 0;
        let count = rng.random_range(0..if long { 16 } else { 4 });
        let mut names: Vec<&str> = (0..count)
            .map(|_| others[rng.random_range(0..others.len())].name)
            .collect();
        names.push(ends[rng.random_range(0..ends.len())].name);
        let chain = names.join(",");
        // Some want two behaviours, which cannot be.
        if chain.parse::<Chain>().is_ok() {
            return chain;
        }
    }
}

/// Returns this many SIDs that are this path's alone.
fn sids_of(block: u16, path: usize, count: u16) -> Vec<Ipv6Addr> {
    // CAST: a few.
    (0..count)
        .map(|sid| Ipv6Addr::new(0xfc00, block, path as u16, sid, 0, 0, 0, 0))
        .collect()
}

fn draw_path(rng: &mut Xoshiro256PlusPlus, number: usize) -> Path {
    // Some lead to the device that is no port, some nowhere, and some to devices that put tags on.
    let block = [1, 1, 1, 2, 3, 4, 6][rng.random_range(0..7)];
    let sids = sids_of(block, number, rng.random_range(1..=10));
    Path {
        mode: [Mode::Encaps, Mode::Reduced][rng.random_range(0..2)],
        hop_limit: [64, 255, 1][rng.random_range(0..3)],
        dscp: [Dscp::Copied, Dscp::Fixed(rng.random_range(0..64))][rng.random_range(0..2)],
        flow_label: [
            FlowLabel::PerFlow,
            FlowLabel::Fixed(rng.random_range(0..1 << 20)),
        ][rng.random_range(0..2)],
        mtu: [1280, 1400, 1500][rng.random_range(0..3)],
        exceptions: [Exceptions::Told, Exceptions::Dropped, Exceptions::Left]
            [rng.random_range(0..3)],
        flow_id: [None, Some(rng.random_range(0..1 << 20))][rng.random_range(0..2)],
        ..Path::new(SOURCE, sids)
    }
}

/// Draws a length of blocks, so that the one of now lasts for the whole case; returns its colour, too.
fn draw_monitor(rng: &mut Xoshiro256PlusPlus, marking: Marking) -> (Monitor, bool) {
    let now = SystemTime::now();
    loop {
        let period = Duration::from_secs(rng.random_range(40_000..80_000));
        let monitor = Monitor { period, marking };
        let block = |time| monitor.block_at(time);
        if block(now) == block(now + LONGEST) {
            return (monitor, block(now) % 2 == 1);
        }
    }
}

/// Numbers of entries of the cache: with the least, most flows share places.
const ENTRIES: [i64; 3] = [1_024, 4_096, 32_768];

/// Returns the engines, each with the cache or without: one of them has it.
fn setups(seed: u64) -> [(Engine, Cache); 2] {
    let (compiled, calls) = match seed % 3 {
        0 => (Cache::On, Cache::On),
        1 => (Cache::On, Cache::Off),
        _ => (Cache::Off, Cache::On),
    };
    [(Engine::Compiled, compiled), (Engine::TailCalls, calls)]
}

fn set_up(
    hook: Hook,
    (engine, cache): (Engine, Cache),
    seed: u64,
    configuration: &Configuration,
) -> Result<Hike> {
    // CAST: less than the number of places.
    let place = (seed / 3 % ENTRIES.len() as u64) as usize;
    let caching = Caching {
        cache,
        entries: ENTRIES[place].try_into()?,
        ..Caching::default()
    };
    let mut hike = instance_with(hook, engine, caching)?;
    hike.watch()?;
    hike.follow()?;
    let port = if_nametoindex(PORT)?;
    hike.add_port(port)?;
    hike.set_routing(&fuzz_network::routing()?)?;
    hike.set_rules(&configuration.rules)?;
    for one in &configuration.classes {
        let (destination, lanes) = (one.destination, one.lanes);
        let chain = hike.add_chain(&one.chain)?;
        let path = match &one.path {
            Some(path) => Some(hike.add_path(path)?),
            None => None,
        };
        let class = Class { chain, path, lanes };
        match &one.behaviour {
            Some(behaviour) => {
                let behaviour = hike.add_behaviour(behaviour)?;
                hike.set_local_sid(destination, class, behaviour)?;
            }
            None if configuration.inside.contains(&destination) => {
                hike.set_class_inside(destination, class, None)?;
            }
            None => hike.set_class(destination, class)?,
        }
    }
    for (flow, chain, path, lanes) in &configuration.exact {
        let class = Class {
            chain: hike.add_chain(chain)?,
            path: Some(hike.add_path(path)?),
            lanes: *lanes,
        };
        hike.set_flow_class(flow, class)?;
    }
    for text in ["10.0.0.0/8", "2001:db8::/32", "fc00::/16"] {
        let route = Route {
            port,
            mtu: MTU,
            source: PORT_MAC,
            destination: TABLE_MAC,
        };
        hike.set_route(text.parse()?, &route)?;
    }
    let closed = Route {
        port: if_nametoindex(CLOSED)?,
        mtu: MTU,
        source: CLOSED_MAC,
        destination: TABLE_MAC,
    };
    hike.set_route("10.1.7.128/25".parse()?, &closed)?;
    for (flow, direction, monitor) in &configuration.flows {
        hike.add_monitor(flow, *direction, monitor)?;
    }
    Ok(hike)
}
