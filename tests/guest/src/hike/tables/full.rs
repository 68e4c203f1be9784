// SPDX-License-Identifier: GPL-2.0

//! Tables with as many entries as they can have: what that costs, and what comes of one more.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use aya::maps::MapData;
use mflow_hike::limits::{CHAINS, CLASSES, PORTS};
use mflow_hike::{ChainId, Class, Destination, Engine, Hike, Hook};
use nix::net::if_::if_nametoindex;

use super::classes::{frame, run};
use crate::hike::{instance, instance_at, Case};
use crate::network::{netns, topology};

/// Prefixes that have classes.
const PREFIXES: usize = 100_000;
/// Bytes that an entry may take, its share of the table's own included.
const MOST_ENTRY_BYTES: u64 = 160;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "tables/full",
            proves: "131,072 addresses and 100,000 prefixes have classes, each its own; one more address is refused in one sentence, and all that is there stays and can be changed",
            run: |_| {
                addresses()?;
                prefixes()
            },
        },
        Case {
            name: "tables/full-others",
            proves: "ports and chains that are full refuse one more in one sentence, and what is there stays",
            run: |_| others(),
        },
    ]
}

/// Returns an address that no other number has.
fn address(number: usize) -> IpAddr {
    // CAST: below 2^32.
    let number = number as u32;
    let [high, low] = [(number >> 16) as u16, number as u16];
    Ipv6Addr::new(0x2001, 0xdb8, high, low, 0, 0, 0, 1).into()
}

/// An instance with two chains, which tell by their reasons which of them a packet has had.
struct Classed {
    hike: Hike,
    chains: [ChainId; 2],
}

const REASONS: [&str; 2] = ["by-chain", "by-program"];

impl Classed {
    fn new() -> Result<Self> {
        let mut hike = instance(Engine::Compiled)?;
        let chains = [
            hike.add_chain(&"fw-kernel".parse()?)?,
            hike.add_chain(&"drop".parse()?)?,
        ];
        Ok(Self { hike, chains })
    }

    fn set(&mut self, destination: Destination, chain: usize) -> Result<()> {
        self.hike
            .set_class(destination, Class::of(self.chains[chain]))
    }

    /// Holds that a packet to an address takes one of the chains; `None`: none.
    fn takes(&mut self, to: IpAddr, chain: Option<usize>) -> Result<()> {
        let before = self.counted()?;
        run(self.hike.dispatcher()?, &frame(to))?;
        let after = self.counted()?;
        let grown: Vec<bool> = (0..2).map(|one| after[one] > before[one]).collect();
        let expected: Vec<bool> = (0..2).map(|one| chain == Some(one)).collect();
        ensure!(
            grown == expected,
            "a packet to {to} took {grown:?}, and not {expected:?}"
        );
        Ok(())
    }

    fn counted(&self) -> Result<[u64; 2]> {
        let reasons = self.hike.reasons()?;
        let of = |name: &str| {
            let one = reasons.iter().find(|(reason, _)| reason.name == name);
            one.map_or(0, |one| one.1)
        };
        Ok(REASONS.map(of))
    }

    /// Returns the bytes that a table takes, as the kernel says.
    fn bytes(&self, table: &str) -> Result<u64> {
        let map = MapData::from_pin(self.hike.folder().join(table))?;
        let number = map.fd().as_fd().as_raw_fd();
        let facts = fs::read_to_string(format!("/proc/self/fdinfo/{number}"))?;
        let bytes = facts.lines().find_map(|line| line.strip_prefix("memlock:"));
        Ok(bytes.context("no memlock")?.trim().parse()?)
    }
}

fn say(what: &str, entries: usize, took: Duration, bytes: u64) -> Result<()> {
    println!(
        "{what}: {entries} entries in {:.1} s, {} bytes each",
        took.as_secs_f64(),
        bytes / entries as u64
    );
    let each = bytes / entries as u64;
    ensure!(
        each <= MOST_ENTRY_BYTES,
        "{what}: an entry takes {each} bytes, and not {MOST_ENTRY_BYTES} at most"
    );
    Ok(())
}

fn addresses() -> Result<()> {
    let mut classed = Classed::new()?;
    let start = Instant::now();
    for number in 0..CLASSES {
        classed.set(Destination::Address(address(number)), number % 2)?;
    }
    say(
        "addresses",
        CLASSES,
        start.elapsed(),
        classed.bytes("classes")?,
    )?;
    for number in (0..CLASSES).step_by(CLASSES / 256) {
        classed.takes(address(number), Some(number % 2))?;
    }
    let more = address(CLASSES);
    let said = classed.set(Destination::Address(more), 0);
    let said = said.err().map(|error| error.to_string());
    let expected =
        format!("there are {CLASSES} addresses with a class already, and no more are allowed");
    ensure!(said.as_deref() == Some(&expected[..]), "it says {said:?}");
    classed.takes(more, None)?;
    classed.takes(address(1), Some(1))?;
    // What is there can be replaced, and makes room when it goes.
    classed.set(Destination::Address(address(1)), 0)?;
    classed.takes(address(1), Some(0))?;
    classed
        .hike
        .remove_class(Destination::Address(address(1)))?;
    classed.takes(address(1), None)?;
    classed.set(Destination::Address(more), 1)?;
    classed.takes(more, Some(1))
}

fn prefixes() -> Result<()> {
    let mut classed = Classed::new()?;
    let start = Instant::now();
    for number in 0..PREFIXES {
        classed.set(Destination::prefix(network(number), 64)?, number % 2)?;
    }
    say(
        "prefixes",
        PREFIXES,
        start.elapsed(),
        classed.bytes("prefixes")?,
    )?;
    for number in (0..PREFIXES).step_by(PREFIXES / 256) {
        classed.takes(address(number), Some(number % 2))?;
    }
    classed.takes(address(PREFIXES), None)
}

/// Returns the network of 64 bits that an address is in.
fn network(number: usize) -> IpAddr {
    match address(number) {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

/// Devices that go all at once, with their namespace.
const NODE: &str = "full";

fn others() -> Result<()> {
    netns::add(NODE)?;
    let full = ports();
    netns::delete(NODE)?;
    full?;
    let mut classed = Classed::new()?;
    // Two are there, and they share their programs with all others.
    for _ in 2..CHAINS {
        classed.hike.add_chain(&"drop".parse()?)?;
    }
    let said = classed.hike.add_chain(&"drop".parse()?);
    let said = said.err().map(|error| error.to_string());
    ensure!(
        said.as_deref() == Some("no chain is free"),
        "it says {said:?}"
    );
    classed.set(Destination::Default, 1)?;
    classed.takes(address(0), Some(1))
}

fn ports() -> Result<()> {
    // Any device is good there.
    let mut hike = instance_at(Hook::Tcx, Engine::Compiled)?;
    let lines = (0..PORTS).map(|number| format!("link add full{number} type bridge"));
    topology::ip_in(NODE, &lines.collect::<Vec<_>>().join("\n"))?;
    netns::within(NODE, || {
        let lo = if_nametoindex("lo")?;
        hike.add_port(lo)?;
        for number in 1..PORTS {
            let port = if_nametoindex(format!("full{number}").as_str())?;
            hike.add_port(port)?;
        }
        let more = if_nametoindex("full0")?;
        let said = hike.add_port(more);
        let said = said.err().map(|error| format!("{error:#}"));
        let expected = format!(
            "device {more} cannot be a port: there are {PORTS} ports already, and no more are allowed"
        );
        ensure!(said.as_deref() == Some(&expected[..]), "it says {said:?}");
        hike.remove_port(lo)?;
        hike.add_port(more)
    })
}
