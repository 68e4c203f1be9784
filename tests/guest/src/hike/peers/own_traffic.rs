// SPDX-License-Identifier: GPL-2.0

//! The traffic of the host itself under a class for all destinations: with chains that do not ask the kernel for the way, the host must
//! stay reachable, and find its neighbours.

use anyhow::{ensure, Context as _, Result};
use mflow_hike::config::path::Mode;
use mflow_hike::{Class, Destination, Engine, Hike, Route};
use nix::net::if_::if_nametoindex;

use super::kernel::{frame, path, Shape, Wire, HOP_LIMIT};
use crate::hike::network::{attach, mac, text, Network, INGRESS, LEFT, RIGHT, SRC};
use crate::hike::{instance, Case};
use crate::network::{netns, topology};

/// Addresses of ingress, on its link with src.
pub(crate) const OWN_V6: &str = "fd00::2";
pub(crate) const OWN_V4: &str = "10.9.0.2";
/// All addresses of a prefix that is ingress's own, and one of them.
const PREFIX: &str = "2001:db8:77::/64";
const IN_PREFIX: &str = "2001:db8:77::1";
const VRF: &str = "vrf77";
const PINGS: u32 = 3;
const SHAPE: Shape = Shape {
    v6: true,
    mode: Mode::Encaps,
    sids: 3,
};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "peer/own-traffic",
        proves: "with a class for all destinations, the host's own addresses answer, link-local ones, prefixes and those of a VRF among them, and neighbours find each other",
        run: |_| {
            let engine = Engine::Compiled;
            reachable(engine, "enc,fw-fib")?;
            reachable(engine, "acl,mon-in,enc,fw-table")?;
            reachable(engine, "fw-table")?;
            reachable(Engine::TailCalls, "enc,fw-table")
        },
    }]
}

/// Pings an address from src.
pub(crate) fn ping(to: &str) -> Result<()> {
    netns::run(SRC, &format!("ping -n -c {PINGS} -i 0.2 -W 5 {to}")).map(drop)
}

/// Makes src and ingress look for each other's Ethernet addresses.
pub(crate) fn forget_neighbours() -> Result<()> {
    topology::ip_in(
        SRC,
        &format!(
            "neighbour del {OWN_V6} dev {RIGHT}
             neighbour del {OWN_V4} dev {RIGHT}"
        ),
    )?;
    topology::ip_in(
        INGRESS,
        &format!(
            "neighbour del fd00::1 dev {LEFT}
             neighbour del 10.9.0.1 dev {LEFT}"
        ),
    )
}

fn reachable(engine: Engine, chain: &str) -> Result<()> {
    reach_all(engine, chain).with_context(|| format!("{engine:?}, {chain}"))
}

fn reach_all(engine: Engine, chain: &str) -> Result<()> {
    let _network = Network::up()?;
    topology::ip_in(INGRESS, &format!("route add local {PREFIX} dev lo"))?;
    let wire = Wire::open()?;
    let mut hike = instance(engine)?;
    let class = Class {
        path: Some(hike.add_path(&path(SHAPE))?),
        ..Class::of(hike.add_chain(&chain.parse()?)?)
    };
    hike.set_class(Destination::Default, class)?;
    netns::within(INGRESS, || {
        let route = Route {
            port: if_nametoindex(RIGHT)?,
            mtu: 1_500,
            source: mac(1, 1),
            destination: mac(1, 2),
        };
        hike.set_route("::/0".parse()?, &route)?;
        hike.set_route("0.0.0.0/0".parse()?, &route)
    })?;
    attach(&mut hike, INGRESS)?;
    // What is for others takes the chain.
    let before = counted(&hike, "forwarded")?;
    wire.carry(&frame(SHAPE, 0, HOP_LIMIT)?)?;
    ensure!(
        counted(&hike, "forwarded")? > before,
        "nothing was forwarded"
    );
    let own = counted(&hike, "own-address")?;
    forget_neighbours()?;
    let left = link_local()?;
    for to in [OWN_V6, OWN_V4, IN_PREFIX, &format!("{left}%{RIGHT}")] {
        ping(to).with_context(|| format!("ping {to}"))?;
    }
    let own = counted(&hike, "own-address")? - own;
    // Link-local addresses are told apart by themselves.
    ensure!(
        own >= u64::from(3 * PINGS),
        "{own} packets were for this host"
    );
    to_vrf()?;
    netns::within(INGRESS, || hike.follow())?;
    for to in [OWN_V6, OWN_V4] {
        ping(to).with_context(|| format!("ping {to} in a VRF"))?;
    }
    Ok(())
}

fn counted(hike: &Hike, name: &str) -> Result<u64> {
    let reasons = hike.reasons()?;
    let one = reasons.iter().find(|(reason, _)| reason.name == name);
    Ok(one.with_context(|| format!("no reason {name}"))?.1)
}

/// Returns the link-local address of ingress on its link with src.
fn link_local() -> Result<String> {
    let said = netns::run(INGRESS, &format!("ip -6 -brief address show dev {LEFT}"))?;
    let mut words = said.split_whitespace();
    let address = words.find_map(|word| word.strip_prefix("fe80"));
    let rest = address.and_then(|rest| rest.split('/').next());
    Ok(format!("fe80{}", rest.context("no link-local address")?))
}

/// Puts the link with src into a VRF, whose table then has the addresses.
fn to_vrf() -> Result<()> {
    // A device that comes to a VRF is down for a moment, and loses what it had.
    topology::ip_in(
        INGRESS,
        &format!(
            "link add {VRF} type vrf table 77
             link set {VRF} up
             link set {LEFT} master {VRF}
             address replace {OWN_V6}/64 dev {LEFT} nodad
             address replace {OWN_V4}/24 dev {LEFT}
             neighbour replace fd00::1 lladdr {src} dev {LEFT}
             neighbour replace 10.9.0.1 lladdr {src} dev {LEFT}",
            src = text(mac(0, 1))
        ),
    )
}
