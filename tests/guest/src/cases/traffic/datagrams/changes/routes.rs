// SPDX-License-Identifier: GPL-2.0

//! Routes change under load: lanes, whose packets take the route of the one before, notice at once.

use std::time::Duration;

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::machine::command;
use crate::mflow::Knobs;
use crate::network::netns;
use crate::network::topology::Family::{self, V4, V6};
use crate::network::topology::{self, CONTAINER};
use crate::traffic::datagrams::run::LiveDatagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Live as _;

struct Change {
    name: &'static str,
    what: &'static str,
    inner: Family,
    /// From here on nothing may arrive.
    close: fn() -> Result<()>,
    open: fn() -> Result<()>,
}

const CHANGES: &[Change] = &[
    Change {
        name: "address",
        what: "the container loses its address",
        inner: V4,
        close: || topology::container_ip("addr del 10.0.1.2/24 dev eth0"),
        open: || topology::container_ip("addr add 10.0.1.2/24 dev eth0"),
    },
    Change {
        name: "address-v6",
        what: "the container loses its IPv6 address",
        inner: V6,
        close: || topology::container_ip("addr del fd00:1::2/64 dev eth0"),
        open: || topology::container_ip("addr add fd00:1::2/64 dev eth0 nodad"),
    },
    Change {
        name: "source",
        what: "the container expects the sender's packets on another device",
        inner: V4,
        close: || {
            topology::container_ip("route add 10.0.1.1/32 dev lo")?;
            reverse_path_filter("1")
        },
        open: || {
            reverse_path_filter("0")?;
            topology::container_ip("route del 10.0.1.1/32 dev lo")
        },
    },
    Change {
        name: "ring",
        what: "the container routes to a ring of HSR, which sends under a lock and, over a bridge, to itself",
        inner: V4,
        close: close_ring,
        open: || {
            forwarding("0")?;
            topology::container_ip("link del hsr0
                                    link del br1
                                    link del a1
                                    link del a2
                                    route del 10.0.1.1/32 dev eth0
                                    addr add 10.0.1.2/24 dev eth0")
        },
    },
];

const ROUNDS: usize = 3;
/// An address that a bridge has not seen, so it floods.
const NOBODYS_MAC: &str = "02:00:00:00:08:02";

pub(in crate::cases) fn cases() -> Vec<Case> {
    let case = |change: &'static Change| {
        Case::of_traffic(
            format!("routes/{}", change.name),
            format!(
                "{} under load: nothing arrives, until that is undone",
                change.what
            ),
            Run::Always,
            move |rig| run(rig, change),
        )
    };
    CHANGES.iter().map(case).collect()
}

fn reverse_path_filter(value: &str) -> Result<()> {
    netns::within(CONTAINER, || {
        topology::sysctl("net/ipv4/conf/eth0/rp_filter", value)
    })
}

fn forwarding(value: &str) -> Result<()> {
    netns::within(CONTAINER, || topology::sysctl("net/ipv4/ip_forward", value))
}

/// Makes the container a node of a ring, and routes into the ring. One neighbour is a bridge that sends all into the ring again.
fn close_ring() -> Result<()> {
    forwarding("1")?;
    topology::container_ip(&format!(
        "link add a1 type veth peer name b1
         link add a2 type veth peer name b2
         link set a1 up
         link set b1 up
         link set a2 up
         link set b2 up
         link add hsr0 type hsr slave1 a1 slave2 a2
         link add br1 type bridge
         link set b1 master br1
         link set hsr0 master br1
         link set hsr0 up
         link set br1 up
         addr del 10.0.1.2/24 dev eth0
         route add 10.0.1.1/32 dev eth0
         route add 10.0.1.2/32 dev hsr0
         neigh replace 10.0.1.2 lladdr {NOBODYS_MAC} dev hsr0"
    ))
}

fn run(rig: &Rig, change: &Change) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.inner = change.inner;
    let outcome = rig.measure(&plan, &Knobs::default(), |live| {
        for _ in 0..ROUNDS {
            live.flow_for(Duration::from_millis(200))?;
            (change.close)()?;
            command::wait_until("nothing arrives", || is_quiet(live, 50))?;
            ensure!(is_quiet(live, 200)?, "a packet has taken an old route");
            (change.open)()?;
            command::wait_until("something arrives again", || Ok(!is_quiet(live, 10)?))?;
        }
        Ok(())
    })?;
    outcome.judge(|outcome| {
        outcome.require_intact()?;
        outcome.require_order()?;
        rig.settle()
    })
}

/// Tells whether nothing arrives for so long.
fn is_quiet(live: &mut LiveDatagrams, ms: u64) -> Result<bool> {
    let before = live.arrivals();
    live.flow_for(Duration::from_millis(ms))?;
    Ok(live.arrivals() == before)
}
