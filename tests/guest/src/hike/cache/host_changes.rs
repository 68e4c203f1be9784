// SPDX-License-Identifier: GPL-2.0

//! Changes of what an instance knows of its host, and of VLANs that packets leave by. The case fails if the library does not move the epoch
//! with one of them, or if the cache does not learn the tags.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_hike::routing::Family;
use mflow_hike::{Class, Destination, Engine, Facts, Hike, Routing};
use nix::net::if_::if_nametoindex;

use super::kernel_changes::SECOND;
use super::own_changes::{leads, path, SIDS};
use super::ways::{
    by, hits_in, is_used, mac, router, Seen, Ways, END, ENDS, ENOUGH, IN, OUT, ROUTER, TO_V6,
};
use crate::hike::instance;
use crate::machine::command::wait_until;
use crate::network::{netns, topology};

/// The time for which the cache may not be used: shorter than an entry is good.
const UNUSED: Duration = Duration::from_millis(500);
/// Another Ethernet address of the device where packets arrive.
const OTHER_MAC: &str = "02:00:00:00:20:99";
/// A VLAN on the first way, on both of its sides, and the last byte of its next hop's Ethernet address.
const VLAN: &str = "tagged";
const NEXT_HOP_ENDS: u8 = 0x71;

pub(super) fn run() -> Result<()> {
    for engine in [Engine::Compiled, Engine::TailCalls] {
        let ways = Ways::up()?;
        router(&format!("route add {} {}", SIDS[0], by(0, SIDS[0].into())))?;
        let mut hike = instance(engine)?;
        ways.attach(&mut hike)?;
        let all = |seen: &Seen| known(&mut hike, seen).and_then(|()| vlan(&mut hike, seen));
        ways.under_traffic(TO_V6.into(), all)
            .with_context(|| format!("{engine:?}"))?;
    }
    Ok(())
}

/// Lets the instance look again at what its host is.
fn follow(hike: &mut Hike) -> Result<()> {
    netns::within(ROUTER, || hike.follow())
}

/// Changes what the instance knows, of packets that it puts on a path.
fn known(hike: &mut Hike, seen: &Seen) -> Result<()> {
    let folder = hike.folder().to_owned();
    let hits = || hits_in(&folder);
    let to = Destination::Address(TO_V6.into());
    let chain = hike.add_chain(&"enc,fw-fib".parse()?)?;
    let class = Class {
        path: Some(hike.add_path(&path(SIDS[0]))?),
        ..Class::of(chain)
    };
    let is_back = |what: &str| seen.settles(what, leads(SIDS[0]));
    hike.set_class(to, class)?;
    is_back("they are on their path")?;

    // The kernel has told of it; until the instance looks, packets go on.
    router(&format!("address add {TO_V6}/128 dev lo"))?;
    seen.stops("an own address", &hits, || follow(hike))?;
    router(&format!("address del {TO_V6}/128 dev lo"))?;
    follow(hike)?;
    is_back("it is no own address")?;

    router(&format!("link set {IN} address {OTHER_MAC}"))?;
    seen.stops("an Ethernet address", &hits, || follow(hike))?;
    router(&format!("link set {IN} address {}", mac(0, 1)))?;
    follow(hike)?;
    is_back("they are for the device's address")?;

    let device = netns::within(ROUTER, || Ok(if_nametoindex(IN)?))?;
    netns::within(ROUTER, || hike.add_inside(device))?;
    hike.set_class_inside(to, class, None)?;
    is_back("they come from inside")?;
    seen.stops("no device inside", &hits, || hike.remove_inside(device))?;
    hike.set_class(to, class)?;
    is_back("their class is for all")?;

    // The kernel forwards them then.
    is_used("before routing changes", &hits)?;
    let disabled = Family {
        disabled: true,
        ..Family::default()
    };
    hike.set_routing(&Routing {
        families: [Family::default(), disabled],
        ..Routing::default()
    })?;
    let before = hits()?;
    thread::sleep(UNUSED);
    let after = hits()?;
    ensure!(
        after == before,
        "{} packets were taken from the cache when all were the kernel's",
        after - before
    );
    hike.set_routing(&Routing::default())?;
    is_used("routing is as before", &hits)
}

/// Leads packets to a VLAN: those that the cache is good for have its tag, too.
fn vlan(hike: &mut Hike, seen: &Seen) -> Result<()> {
    let folder = hike.folder().to_owned();
    let hits = || hits_in(&folder);
    let out = OUT[0];
    router(&format!(
        "link add link {out} name {VLAN} type vlan id 7
         link set {VLAN} up
         neighbour replace fd00:27::2 lladdr 02:00:00:00:27:{NEXT_HOP_ENDS:02x} dev {VLAN} nud permanent"
    ))?;
    topology::ip_in(
        ENDS[0],
        &format!("link add link {END} name {VLAN} type vlan id 7\nlink set {VLAN} up"),
    )?;
    let forwards = Class::of(hike.add_chain(&"fw-fib".parse()?)?);
    hike.set_class(Destination::Address(TO_V6.into()), forwards)?;
    netns::within(ROUTER, || hike.tell_routing(&Facts::read()?))?;
    let allowance = match hike.is_traced() {
        true => Duration::ZERO,
        false => SECOND,
    };
    let lead = || {
        router(&format!(
            "route replace {TO_V6} via fd00:27::2 dev {VLAN} onlink"
        ))
    };
    seen.changes("a VLAN", allowance, &hits, lead, |one| {
        one.destination == NEXT_HOP_ENDS
    })?;
    let begin = (hits()?, received()?);
    // Without the cache, one in a second or so has the tag.
    thread::sleep(UNUSED);
    wait_until("the VLAN receives packets", || {
        Ok(hits()? >= begin.0 + ENOUGH as u64)
    })?;
    let (hits, received) = (hits()? - begin.0, received()? - begin.1);
    ensure!(
        received + ENOUGH as u64 / 2 >= hits,
        "of {hits} packets that the cache was good for, {received} had the tag"
    );
    Ok(())
}

/// Returns how many packets the VLAN has received.
fn received() -> Result<u64> {
    netns::within(ENDS[0], || {
        let table = fs::read_to_string("/proc/thread-self/net/dev")?;
        let mut lines = table.lines().map(str::trim);
        let line = lines.find_map(|line| line.strip_prefix(VLAN)?.strip_prefix(':'));
        // Bytes, then packets.
        let pkts = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(pkts.context("the VLAN is not there")?.parse()?)
    })
}
