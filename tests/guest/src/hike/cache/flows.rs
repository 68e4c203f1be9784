// SPDX-License-Identifier: GPL-2.0

//! Many flows in turn: as many as the cache has room for, and more.
//!
//! The case fails if a flow has one place alone, if a cache has not as many entries as were asked for, or if a packet leaves as those of
//! another flow.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use aya::programs::{TestRun as _, TestRunOptions};
use etherparse::PacketBuilder;
use mflow_hike::{Caching, Class, Destination, Engine, Hike, Hook, Route};
use nix::net::if_::if_nametoindex;
use nix::sched::sched_getcpu;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::ways::{Ways, OUT, ROUTER};
use crate::hike::{instance_with, TEST_RUN_MAC};
use crate::machine::cpu;
use crate::network::netns;

/// Numbers of flows, and of entries: of a cache that has room for them, and of one that has not. Where a CPU is too slow to see all of them
/// twice in a second, a quarter of them shows the same.
const SIZES: [(usize, i64, i64); 2] = [(10_000, 32_768, 4_096), (2_500, 8_192, 1_024)];
/// The time for which entries are good, with some to spare.
const GOOD: Duration = Duration::from_millis(900);
/// Other changes on this host end all entries, and somebody who watches may be late. So there are as many attempts at most.
const ATTEMPTS: usize = 20;
/// Next hops: which of them a packet has shows whose entry it has met.
const NEXT_HOPS: u8 = 16;
/// Room for what is left of a frame.
const MOST_BYTES: usize = 256;
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 2);

pub(super) fn run(seed: u64) -> Result<()> {
    let _ways = Ways::up()?;
    netns::within(ROUTER, || {
        // Each CPU has a cache of its own.
        cpu::pin(sched_getcpu()?)?;
        for engine in [Engine::Compiled, Engine::TailCalls] {
            for (name, flow) in kinds(seed) {
                check(engine, &flow).with_context(|| format!("{engine:?}, {name}, seed {seed}"))?;
            }
        }
        Ok(())
    })
}

type Flow = Box<dyn Fn(usize) -> Vec<u8>>;

/// Returns what makes frames of flows, by their numbers: flows as they come, and those that differ in little.
fn kinds(seed: u64) -> [(&'static str, Flow); 3] {
    let drawn = move |number: usize| {
        // CAST: of the number of a flow, all bits count.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (number as u64) << 32);
        let source = [172, rng.random_range(16..32), rng.random(), rng.random()];
        let destination = [
            10,
            rng.random_range(0..NEXT_HOPS),
            rng.random(),
            rng.random(),
        ];
        let mut frame = Vec::new();
        let packet = PacketBuilder::ethernet2([2; 6], TEST_RUN_MAC)
            .ipv4(source, destination, 64)
            .udp(rng.random(), rng.random());
        // Writing to memory cannot fail.
        let _written = packet.write(&mut frame, b"drawn");
        frame
    };
    let to = |destination: Ipv6Addr, from: u16| {
        let mut frame = Vec::new();
        let packet = PacketBuilder::ethernet2([2; 6], TEST_RUN_MAC)
            .ipv6(SOURCE_V6.octets(), destination.octets(), 64)
            .udp(from, 9);
        let _written = packet.write(&mut frame, b"in turn");
        frame
    };
    // CAST: numbers of flows have 16 bits.
    let hop = |number: usize| (number % usize::from(NEXT_HOPS)) as u16;
    let addresses = move |number: usize| {
        to(
            Ipv6Addr::new(0x2001, 0xdb8, 0, hop(number), 0, 0, 0, number as u16),
            4_000,
        )
    };
    let ports = move |number: usize| {
        to(
            Ipv6Addr::new(0x2001, 0xdb8, 0, hop(number), 0, 0, 0, 7),
            number as u16,
        )
    };
    [
        ("drawn", Box::new(drawn)),
        ("by addresses", Box::new(addresses)),
        ("by ports", Box::new(ports)),
    ]
}

fn check(engine: Engine, flow: &Flow) -> Result<()> {
    let mut took = Duration::ZERO;
    for (flows, roomy, small) in SIZES {
        let frames: Vec<_> = (0..flows).map(flow).collect();
        let mut most_of = |entries, wanted: usize| -> Result<Option<usize>> {
            let mut turns = Turns::new(engine, entries)?;
            let mut most = None;
            for _ in 0..ATTEMPTS {
                let (hits, time) = turns.twice(&frames)?;
                took = time;
                if time < GOOD {
                    most = most.max(Some(hits));
                }
                if most.is_some_and(|hits| hits >= wanted) {
                    break;
                }
            }
            Ok(most)
        };
        // Of a small one, a fifth shows that it is used; its entries are less than half as many as there are flows.
        let (nearly_all, some) = (flows - flows / 10, flows / 5..flows / 2);
        let (Some(of_roomy), Some(of_small)) =
            (most_of(roomy, nearly_all)?, most_of(small, some.start)?)
        else {
            continue;
        };
        ensure!(
            of_roomy >= nearly_all,
            "{roomy} entries were good for {of_roomy} of {flows} flows at most"
        );
        ensure!(
            some.contains(&of_small),
            "{small} entries were good for {of_small} of {flows} flows at most"
        );
        return Ok(());
    }
    bail!("each flow has had its second packet after {took:?} only, and entries are good for a second")
}

/// An instance that sees one packet of each flow in turn.
struct Turns {
    hike: Hike,
    class: Class,
    out: Vec<u8>,
}

impl Turns {
    fn new(engine: Engine, entries: i64) -> Result<Self> {
        let caching = Caching {
            entries: entries.try_into()?,
            ..Caching::default()
        };
        let mut hike = instance_with(Hook::Xdp, engine, caching)?;
        hike.watch()?;
        let port = if_nametoindex(OUT[0])?;
        hike.add_port(port)?;
        for hop in 0..NEXT_HOPS {
            let route = Route {
                port,
                mtu: 1_500,
                source: [2, 0, 0, 0, 1, 0],
                destination: [2, 0, 0, 0, 2, hop],
            };
            let v4 = Ipv4Addr::new(10, hop, 0, 0).into();
            let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, hop.into(), 0, 0, 0, 0).into();
            hike.set_route(Destination::prefix(v4, 16)?, &route)?;
            hike.set_route(Destination::prefix(v6, 64)?, &route)?;
        }
        let class = Class::of(hike.add_chain(&"fw-table".parse()?)?);
        Ok(Self {
            hike,
            class,
            out: vec![0; MOST_BYTES],
        })
    }

    /// Sees each flow twice; returns how many flows the cache was good for at the second time, and how long it took.
    fn twice(&mut self, frames: &[Vec<u8>]) -> Result<(usize, Duration)> {
        // What was known before is not good any more.
        self.hike.set_class(Destination::Default, self.class)?;
        let begin = Instant::now();
        let before = self.hike.cache_counts()?;
        let chains = self.turn(frames)?;
        let between = self.hike.cache_counts()?;
        let again = self.turn(frames)?;
        let took = begin.elapsed();
        let after = self.hike.cache_counts()?;
        // No two flows are one.
        ensure!(
            between.hits == before.hits,
            "a flow that nobody knows was in the cache"
        );
        let differs = chains
            .iter()
            .zip(&again)
            .position(|(one, other)| one != other);
        ensure!(
            differs.is_none(),
            "flow {differs:?} leaves otherwise the second time"
        );
        let all = after.hits + after.misses - between.hits - between.misses;
        ensure!(
            // CAST: some thousand.
            all <= frames.len() as u64,
            "{all} packets were counted, and {} have come",
            frames.len()
        );
        Ok((usize::try_from(after.hits - between.hits)?, took))
    }

    /// Returns what the packets have become.
    fn turn(&mut self, frames: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let entry = self.hike.dispatcher()?;
        let mut left = Vec::with_capacity(frames.len());
        for frame in frames {
            let result = entry.test_run(TestRunOptions {
                data_in: Some(frame),
                data_out: Some(&mut self.out),
                ..TestRunOptions::default()
            })?;
            let bytes = self.out.get(..result.data_size_out as usize);
            left.push(bytes.context("a frame has grown")?.to_vec());
        }
        Ok(left)
    }
}
