// SPDX-License-Identifier: GPL-2.0

//! The access list is replaced under packets.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{ensure, Result};
use aya::programs::{TestRun as _, TestRunOptions};
use mflow_hike::{Action, Class, Destination, Engine, Rule};

use super::classes::{entry_of, frame};
use crate::hike::{instance, Case};
use crate::machine::command::START;
use crate::machine::threads;

/// The number of times that the list is replaced, and the least number of packets that see that.
const CHANGES: u32 = 12;
const LEAST_PKTS: u64 = 1_000;
/// `enum xdp_action`.
const XDP_DROP: u32 = 1;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "tables/rules",
        proves: "each packet meets the old or the new access list, whole, and each rule counts what it has decided on",
        run: |_| replaced(),
    }]
}

/// Lists that deny the packet by another rule each, so that a mixture of both, or a part of one, would let it through.
fn lists(to: IpAddr) -> Result<[Vec<Rule>; 3]> {
    let elsewhere = Rule {
        source: "2001:db8:ffff::/48".parse()?,
        ..Rule::all(Action::Allow)
    };
    let by_destination = Rule {
        destination: Destination::Address(to),
        ..Rule::all(Action::Deny)
    };
    let by_protocol = Rule {
        // That of a packet with nothing in it.
        protocol: Some(59),
        source: "2001:db8::/64".parse()?,
        ..Rule::all(Action::Deny)
    };
    let no_ports = Rule {
        destination_ports: Some(1..=65535),
        ..Rule::all(Action::Allow)
    };
    Ok([
        vec![by_destination],
        vec![elsewhere.clone(), elsewhere, by_protocol],
        vec![no_ports, Rule::all(Action::Deny)],
    ])
}

fn replaced() -> Result<()> {
    let mut hike = instance(Engine::Compiled)?;
    let class = Class {
        chain: hike.add_chain(&"acl,fw-kernel".parse()?)?,
        path: None,
        lanes: None,
    };
    hike.set_class(Destination::Default, class)?;
    let to = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let lists = lists(to)?;
    hike.set_rules(&lists[0])?;
    let program = entry_of(&mut hike)?;
    let seen_pkts = AtomicU64::new(0);
    let watch = |stop: &AtomicBool| {
        let sent = frame(to);
        // ORDERING: Nothing else depends on it.
        while !stop.load(Ordering::Relaxed) {
            let done = program.test_run(TestRunOptions {
                data_in: Some(&sent),
                ..TestRunOptions::default()
            })?;
            ensure!(
                done.return_value == XDP_DROP,
                "a packet was let through that all lists deny"
            );
            // ORDERING: A count that nothing else depends on.
            seen_pkts.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let mut last = 0;
    threads::beside(watch, || {
        let start = Instant::now();
        for change in 1.. {
            // ORDERING: A count that nothing else depends on.
            let enough = seen_pkts.load(Ordering::Relaxed) >= LEAST_PKTS;
            if change > CHANGES && (enough || start.elapsed() > START) {
                break;
            }
            last = change as usize % lists.len();
            hike.set_rules(&lists[last])?;
        }
        Ok(())
    })?;
    let seen_pkts = seen_pkts.into_inner();
    ensure!(
        seen_pkts >= LEAST_PKTS,
        "only {seen_pkts} packets were sent"
    );
    // The last list counts from 0: its last rule denies, and no other one.
    hike.set_rules(&lists[(last + 1) % lists.len()])?;
    for _ in 0..3 {
        program.test_run(TestRunOptions {
            data_in: Some(&frame(to)),
            ..TestRunOptions::default()
        })?;
    }
    let hits: Vec<u64> = hike.rules()?.into_iter().map(|(_, hits)| hits).collect();
    let (deciding, others) = hits
        .split_last()
        .map_or((0, &[][..]), |(one, others)| (*one, others));
    ensure!(
        deciding == 3 && others.iter().all(|&hits| hits == 0),
        "of three packets, rules have decided on {hits:?}"
    );
    Ok(())
}
