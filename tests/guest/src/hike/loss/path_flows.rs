// SPDX-License-Identifier: GPL-2.0

//! The counts of flows whose path is known, by their numbers, and of the same flows by their headers: no packet is counted twice
//! or lost, in whatever order paths and monitors come and go.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use anyhow::{ensure, Result};
use aya::maps::{Map, MapData, PerCpuHashMap};
use mflow_hike::{Class, Destination, Direction, Engine, Flow, Hike, Marking, Monitor, PathId};

use crate::hike::tables::classes::{entry_of, frame, path, run};
use crate::hike::{instance, Case};

/// A map's value in words: how it is counted, and then the number and the packets of each block.
const WORDS: usize = 11;
const WORDS_BEFORE_BLOCKS: usize = 3;

const FIRST: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const SECOND: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "monitors/by-path",
        proves: "packets are counted by the number of their path's flow where that is known, else by their headers, and each once",
        run: |_| {
            by_path(Engine::Compiled)?;
            by_path(Engine::TailCalls)
        },
    }]
}

fn by_path(engine: Engine) -> Result<()> {
    let mut hike = instance(engine)?;
    let flow = Flow::of(&path(1))?;
    let monitor = Monitor {
        period: Duration::from_secs(3_600),
        marking: Marking::DscpBit(0),
    };
    let on_path = hike.add_chain(&"enc,mon-in,drop".parse()?)?;
    let class = |path: PathId| Class {
        path: Some(path),
        ..Class::of(on_path)
    };
    let entry = entry_of(&mut hike)?;
    let send = |to, pkts: usize| -> Result<Vec<u8>> {
        let mut seen = Vec::new();
        for _ in 0..pkts {
            seen = run(&entry, &frame(to))?;
        }
        Ok(seen)
    };

    hike.add_monitor(&flow, Direction::In, &monitor)?;
    let first = hike.add_path(&path(1))?;
    hike.set_class(Destination::Address(FIRST), class(first))?;
    let encapsulated = send(FIRST, 3)?;
    expect(&hike, &flow, 3, 3, "a path that comes behind its monitor")?;

    // It differs in the flow label, which is no part of what a flow is.
    let second = hike.add_path(&path(2))?;
    hike.set_class(Destination::Address(SECOND), class(second))?;
    send(SECOND, 2)?;
    expect(&hike, &flow, 5, 5, "two paths with one flow")?;

    let by_headers = hike.add_chain(&"mon-in,drop".parse()?)?;
    let sid = IpAddr::V6(flow.sids()[0]);
    hike.set_class(Destination::Address(sid), Class::of(by_headers))?;
    run(&entry, &encapsulated)?;
    expect(&hike, &flow, 6, 5, "packets that were on the path before")?;

    hike.remove_monitor(&flow, Direction::In)?;
    send(FIRST, 1)?;
    let counts = hike.counts(&flow, Direction::In);
    ensure!(counts.is_err(), "{counts:?} of what is not monitored");
    ensure!(numbered(&hike)? == 0, "what is not monitored is counted");

    hike.add_monitor(&flow, Direction::In, &monitor)?;
    send(FIRST, 2)?;
    send(SECOND, 1)?;
    expect(&hike, &flow, 3, 3, "paths that come before their monitor")?;

    // The place of the first one is free for another flow.
    hike.remove_class(Destination::Address(FIRST))?;
    hike.remove_path(first)?;
    let mut other = path(3);
    other.source = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
    let other = hike.add_path(&other)?;
    hike.set_class(Destination::Address(FIRST), class(other))?;
    send(FIRST, 4)?;
    send(SECOND, 1)?;
    expect(
        &hike,
        &flow,
        4,
        4,
        "another flow in the place of a path that has gone",
    )
}

/// Holds what is counted of a flow, and what of all flows by number, against what has been sent.
fn expect(hike: &Hike, flow: &Flow, all: u64, by_number: u64, of: &str) -> Result<()> {
    let counts = hike.counts(flow, Direction::In)?;
    let counted: u64 = counts.blocks().map(|(_, pkts)| pkts).sum();
    ensure!(
        counted == all,
        "{of}: {counted} packets are counted, and {all} were sent"
    );
    let counted = numbered(hike)?;
    ensure!(
        counted == by_number,
        "{of}: {counted} packets are counted by number, and {by_number} should be"
    );
    Ok(())
}

fn numbered(hike: &Hike) -> Result<u64> {
    let data = MapData::from_pin(hike.folder().join("numbered_flows"))?;
    let table: PerCpuHashMap<MapData, u64, [u64; WORDS]> = Map::from_map_data(data)?.try_into()?;
    let mut pkts = 0;
    for entry in table.iter() {
        let (_, of_cpus) = entry?;
        let blocks = of_cpus
            .iter()
            .flat_map(|words| &words[WORDS_BEFORE_BLOCKS..]);
        pkts += blocks.skip(1).step_by(2).sum::<u64>();
    }
    Ok(pkts)
}
