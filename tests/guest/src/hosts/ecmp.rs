// SPDX-License-Identifier: GPL-2.0

//! A host that routes one address to two containers as next hops. Which of them a flow goes to is a matter of its addresses and ports,
//! and not of whether it is split.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{bail, ensure, Result};

use super::elephant::receiver::{seeing, Look};
use super::elephant::{unspecified, Elephant, Fate, PORT};
use super::host::{Host, CONTAINER2};
use super::{router, Case};
use crate::mflow;
use crate::network::netns;
use crate::network::topology::{self, Family, CONTAINER};

const FLOWS: usize = 17;
/// By addresses; by ports, too; by inner addresses, if there is an inner packet; by the fields below.
const POLICIES: [&str; 4] = ["0", "1", "2", "3"];
/// Addresses, protocol and ports, as the kernel numbers them.
const FIELDS: &str = "55";

pub(super) fn cases() -> Vec<Case> {
    [(Family::V4, "ecmp/v4"), (Family::V6, "ecmp/v6")]
        .map(|(inner, name)| {
            Case::new(
                name,
                "two containers as next hops of one address, chosen by each policy",
                "each of seventeen flows to two next hops stays with the one it has when splitting begins, whatever chooses it",
                move |host| every_policy(host, inner),
            )
            .patching_code()
        })
        .into()
}

fn every_policy(host: &Host, inner: Family) -> Result<()> {
    host.fresh(inner)?;
    router::set_up_shared()?;
    let folder = match inner {
        Family::V4 => "net/ipv4",
        Family::V6 => "net/ipv6",
    };
    topology::sysctl(&format!("{folder}/fib_multipath_hash_fields"), FIELDS)?;
    let mut wrong = Vec::new();
    for policy in POLICIES {
        topology::sysctl(&format!("{folder}/fib_multipath_hash_policy"), policy)?;
        if let Err(error) = stay(host, inner, policy != "0" && policy != "2") {
            wrong.push(format!("policy {policy}: {error:#}"));
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("; "));
    }
    Ok(())
}

/// Demands that each flow stays at its container; with `spread`, that there are flows at both.
fn stay(host: &Host, inner: Family, spread: bool) -> Result<()> {
    let address: IpAddr = router::SHARED[usize::from(inner == Family::V6)].parse()?;
    let bind = || seeing(UdpSocket::bind((unspecified(inner), PORT))?);
    let elephant = Elephant {
        from: inner.client(),
        to: vec![SocketAddr::from((address, PORT)); FLOWS],
        sockets: vec![
            netns::within(CONTAINER, bind)?,
            netns::within(CONTAINER2, bind)?,
        ],
        pps: host.elephant_pps,
        fate: Fate::Split,
    };
    let count = host.datagrams / 2;
    let (arrived, before) = elephant.run(count, |live| {
        live.send_more(count / 2)?;
        let before = places(&live.looks());
        let split = mflow::flows_split()?;
        mflow::write("enabled", "1")?;
        mflow::wait_split_since(split, 1)?;
        Ok(before)
    })?;
    mflow::write("enabled", "0")?;
    let after = places(&arrived.looks);
    let moved: Vec<_> = after
        .iter()
        .filter(|(_, places)| places.len() > 1)
        .collect();
    let strayed: u64 = moved
        .iter()
        .map(|(_, places)| places.values().min().unwrap_or(&0))
        .sum();
    ensure!(
        moved.is_empty(),
        "{} of {FLOWS} flows are at both containers, with {strayed} datagrams at the wrong one: {moved:?}; with enabled 0 it was \
         {before:?}",
        moved.len()
    );
    let used = |socket| {
        before
            .values()
            .filter(|places| places.contains_key(&socket))
            .count()
    };
    ensure!(
        used(0) + used(1) == FLOWS && (!spread || used(0) > 0 && used(1) > 0),
        "the containers have {} and {} of {FLOWS} flows",
        used(0),
        used(1)
    );
    arrived.require_whole()
}

/// Returns how many datagrams of each flow each socket has got.
fn places(looks: &BTreeMap<Look, u64>) -> BTreeMap<u16, BTreeMap<usize, u64>> {
    let mut places: BTreeMap<u16, BTreeMap<usize, u64>> = BTreeMap::new();
    for (look, count) in looks {
        *places
            .entry(look.flow)
            .or_default()
            .entry(look.socket)
            .or_default() += count;
    }
    places
}
