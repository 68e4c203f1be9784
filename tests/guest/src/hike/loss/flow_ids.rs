// SPDX-License-Identifier: GPL-2.0

//! Flows that differ in nothing but their FlowMonID (RFC 9343, 5.3): each monitor counts the packets of its own.
//!
//! The case has to fail if a flow is its source and SIDs alone: then the kernel's table has one entry for all of them.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use aya::programs::Xdp;
use mflow_hike::{Class, Destination, Direction, Engine, Flow, Hike, Marking, Monitor, Path};

use crate::hike::tables::classes::{entry_of, frame, path, run};
use crate::hike::{instance, Case};

/// The FlowMonIDs of the paths, the packets that each path gets, and whether its flow is monitored.
const FLOWS: [(Option<u32>, u64, bool); 4] = [
    (Some(0), 2, true),
    (Some(0xf_ffff), 3, true),
    (Some(1), 5, false),
    (None, 7, true),
];

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "monitors/flow-ids",
        proves: "flows with the same source and SIDs that differ in their FlowMonID, or have none, are counted each by itself, at both ends",
        run: |_| {
            flow_ids(Engine::Compiled)?;
            flow_ids(Engine::TailCalls)
        },
    }]
}

fn path_of(id: Option<u32>) -> Path {
    Path {
        flow_id: id,
        ..path(1)
    }
}

fn monitor(id: Option<u32>) -> Monitor {
    Monitor {
        period: Duration::from_secs(3_600),
        marking: id.map_or(Marking::DscpBit(0), |_| Marking::Option),
    }
}

fn flow_ids(engine: Engine) -> Result<()> {
    let mut hike = instance(engine)?;
    for (id, _, is_monitored) in FLOWS {
        let flow = Flow::of(&path_of(id))?;
        for direction in [Direction::In, Direction::Out] {
            if is_monitored {
                hike.add_monitor(&flow, direction, &monitor(id))
                    .with_context(|| format!("FlowMonID {id:?}, {direction:?}"))?;
            }
        }
    }
    let without = Flow::of(&path_of(None))?;
    let option = monitor(Some(0));
    ensure!(
        hike.add_monitor(&without, Direction::In, &option).is_err(),
        "a flow without a FlowMonID is monitored by the option"
    );
    let entry = entry_of(&mut hike)?;
    let entered = enter(&mut hike, &entry)?;
    // Both tell it by the headers: at the far end, and where it enters once more.
    for (chain, direction, times) in [
        ("mon-out,drop", Direction::Out, 1),
        ("mon-in,drop", Direction::In, 2),
    ] {
        let sid = IpAddr::V6(without.sids()[0]);
        let class = Class::of(hike.add_chain(&chain.parse()?)?);
        hike.set_class(Destination::Address(sid), class)?;
        for frame in &entered {
            run(&entry, frame)?;
        }
        expect(&hike, direction, times)?;
    }
    Ok(())
}

/// Puts packets on all paths; returns them as they are there.
fn enter(hike: &mut Hike, entry: &Xdp) -> Result<Vec<Vec<u8>>> {
    let chain = hike.add_chain(&"enc,mon-in,drop".parse()?)?;
    let mut entered = Vec::new();
    for ((id, pkts, _), number) in FLOWS.into_iter().zip(1..) {
        let to = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number));
        let class = Class {
            path: Some(hike.add_path(&path_of(id))?),
            ..Class::of(chain)
        };
        hike.set_class(Destination::Address(to), class)?;
        for _ in 0..pkts {
            entered.push(run(entry, &frame(to))?);
        }
    }
    expect(hike, Direction::In, 1)?;
    Ok(entered)
}

/// Fails unless each monitored flow has its packets this many times, and the others none.
fn expect(hike: &Hike, direction: Direction, times: u64) -> Result<()> {
    for (id, pkts, is_monitored) in FLOWS {
        let counted = hike.counts(&Flow::of(&path_of(id))?, direction);
        match counted {
            Ok(counts) => ensure!(
                is_monitored && counts.total_pkts() == times * pkts,
                "{direction:?}: {} packets with FlowMonID {id:?} are counted, and not {}",
                counts.total_pkts(),
                times * pkts
            ),
            Err(error) => ensure!(!is_monitored, "FlowMonID {id:?}: {error:#}"),
        }
    }
    Ok(())
}
