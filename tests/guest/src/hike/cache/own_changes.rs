// SPDX-License-Identifier: GPL-2.0

//! Changes of an instance's own tables. The case fails if the library does not move the epoch with one of them.

use std::net::Ipv6Addr;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use mflow_hike::config::path::Dscp;
use mflow_hike::{
    Chain, Class, Destination, Direction, Engine, ExactFlow, Flow, Hike, Marking, Monitor, Path,
    Route,
};
use nix::net::if_::if_nametoindex;

use super::ways::{
    by, hits_in, router, Arrival, Seen, Ways, OUT, PORT, ROUTER, SMALL_FROM, SRC_V6, TO_V4, TO_V6,
};
use crate::hike::instance;
use crate::network::netns;

const TUNNEL_SOURCE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 1);
/// The SIDs of two paths, each of which takes its own way.
pub(super) const SIDS: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfc00, 0x21, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfc00, 0x22, 0, 0, 0, 0, 0, 1),
];
/// The traffic class of a packet with a colour.
pub(super) const COLOUR: u8 = 4;
/// The last bytes of a next hop's Ethernet address in the table of `fw-table`.
const NEXT_HOP: u8 = 2;
const OTHER_NEXT_HOP: u8 = 0x77;
/// The time in which a round ends, and no block does.
const LONGEST: Duration = Duration::from_secs(3_600);

pub(super) fn run() -> Result<()> {
    for engine in [Engine::Compiled, Engine::TailCalls] {
        let ways = Ways::up()?;
        ways.leads_to(1)?;
        ways.leads_to(0)?;
        for (way, sid) in SIDS.into_iter().enumerate() {
            router(&format!("route add {sid} {}", by(way, sid.into())))?;
        }
        let mut hike = instance(engine)?;
        ways.attach(&mut hike)?;
        let all = |seen: &Seen| Own::new(&mut hike, seen)?.all();
        ways.under_traffic(TO_V6.into(), all)
            .with_context(|| format!("{engine:?}"))?;
        let all = |seen: &Seen| v4(&mut hike, seen);
        ways.under_traffic(TO_V4.into(), all)
            .with_context(|| format!("{engine:?}, IPv4"))?;
    }
    Ok(())
}

/// Returns a path with one SID, whose packets have no DSCP.
pub(super) fn path(sid: Ipv6Addr) -> Path {
    Path {
        dscp: Dscp::Fixed(0),
        ..Path::new(TUNNEL_SOURCE, [sid])
    }
}

pub(super) fn leads(sid: Ipv6Addr) -> impl Fn(&Arrival) -> bool {
    move |one| one.outer.map(|(to, _)| to) == Some(sid)
}

fn is_plain(one: &Arrival) -> bool {
    one.outer.is_none()
}

/// An instance whose tables change.
struct Own<'a> {
    hike: &'a mut Hike,
    seen: &'a Seen,
    to: Destination,
}

impl<'a> Own<'a> {
    fn new(hike: &'a mut Hike, seen: &'a Seen) -> Result<Self> {
        let to = Destination::Address(TO_V6.into());
        let forwards = Class::of(hike.add_chain(&"fw-fib".parse()?)?);
        hike.set_class(to, forwards)?;
        Ok(Self { hike, seen, to })
    }

    /// Makes a change while the cache is good for packets, and holds that it has taken effect for all that are sent afterwards.
    fn change(
        &mut self,
        what: &str,
        change: impl FnOnce(&mut Hike) -> Result<()>,
        is_new: impl Fn(&Arrival) -> bool,
    ) -> Result<()> {
        changed(self.hike, self.seen, what, change, is_new)
    }

    fn all(&mut self) -> Result<()> {
        let to = self.to;
        let chain: Chain = "enc,fw-fib".parse()?;
        let encapsulates = self.hike.add_chain(&chain)?;
        let mut with_path = Vec::new();
        for sid in SIDS {
            with_path.push(Class {
                path: Some(self.hike.add_path(&path(sid))?),
                ..Class::of(encapsulates)
            });
        }
        let (one, other) = (with_path[0], with_path[1]);
        self.change("a class", |hike| hike.set_class(to, one), leads(SIDS[0]))?;
        self.change("its path", |hike| hike.set_class(to, other), leads(SIDS[1]))?;
        let forwards: Chain = "fw-fib".parse()?;
        self.change(
            "its chain",
            |hike| hike.replace_chain(encapsulates, &forwards),
            is_plain,
        )?;
        self.change(
            "its chain again",
            |hike| hike.replace_chain(encapsulates, &chain),
            leads(SIDS[1]),
        )?;
        self.flows(&forwards)?;
        self.monitors(other)?;
        self.tables()?;
        self.hike.remove_class(to)
    }

    /// Gives the flow of small packets a class of its own.
    fn flows(&mut self, chain: &Chain) -> Result<()> {
        let forwards = Class::of(self.hike.add_chain(chain)?);
        let flow = ExactFlow::Ports {
            source: SRC_V6.into(),
            destination: TO_V6.into(),
            protocol: 17,
            ports: (SMALL_FROM, PORT),
        };
        self.change(
            "a class of a flow",
            |hike| hike.set_flow_class(&flow, forwards),
            |one| is_plain(one) != one.is_large,
        )?;
        self.change(
            "no class of a flow",
            |hike| hike.remove_flow_class(&flow),
            leads(SIDS[1]),
        )
    }

    /// Colours packets, and no more.
    fn monitors(&mut self, class: Class) -> Result<()> {
        let to = self.to;
        let flow = Flow::of(&path(SIDS[1]))?;
        let monitor = odd_block()?;
        let colours = Class {
            path: class.path,
            ..Class::of(self.hike.add_chain(&"enc,mon-in,fw-fib".parse()?)?)
        };
        let has = |colour: u8| move |one: &Arrival| one.outer == Some((SIDS[1], colour));
        self.change(
            "a chain that counts",
            |hike| hike.set_class(to, colours),
            has(0),
        )?;
        self.change(
            "a monitor",
            |hike| hike.add_monitor(&flow, Direction::In, &monitor),
            has(COLOUR),
        )?;
        self.change(
            "no monitor",
            |hike| hike.remove_monitor(&flow, Direction::In),
            has(0),
        )
    }

    /// Changes the table of `fw-table`, and ports.
    fn tables(&mut self) -> Result<()> {
        let to = self.to;
        let by_table = Class::of(self.hike.add_chain(&"fw-table".parse()?)?);
        let index = |way: usize| netns::within(ROUTER, || Ok(if_nametoindex(OUT[way])?));
        let ports = [index(0)?, index(1)?];
        let route = |way: usize, ends| Route {
            port: ports[way],
            mtu: 1_500,
            source: [2, 0, 0, 0, 0, 1],
            destination: [2, 0, 0, 0, 0, ends],
        };
        let leaves = |way, ends| move |one: &Arrival| (one.way, one.destination) == (way, ends);
        self.hike.set_route(to, &route(0, NEXT_HOP))?;
        self.change(
            "a chain with the table",
            |hike| hike.set_class(to, by_table),
            |one| is_plain(one) && one.way == 0,
        )?;
        self.change(
            "an address in the table",
            |hike| hike.set_route(to, &route(0, OTHER_NEXT_HOP)),
            leaves(0, OTHER_NEXT_HOP),
        )?;
        self.change(
            "a port in the table",
            |hike| hike.set_route(to, &route(1, OTHER_NEXT_HOP)),
            leaves(1, OTHER_NEXT_HOP),
        )?;
        // The kernel gets packets, and its routes lead them to the other way.
        let hike = &mut *self.hike;
        let close = || hike.remove_port(ports[1]);
        self.seen
            .changed("no port", Duration::ZERO, close, |one| one.way == 0)?;
        netns::within(ROUTER, || self.hike.add_port(ports[1]))
    }
}

/// The same of IPv4, in short.
fn v4(hike: &mut Hike, seen: &Seen) -> Result<()> {
    let to = Destination::Address(TO_V4.into());
    let forwards = Class::of(hike.add_chain(&"fw-fib".parse()?)?);
    let chain = hike.add_chain(&"enc,mon-in,fw-fib".parse()?)?;
    let encapsulates = Class {
        path: Some(hike.add_path(&path(SIDS[1]))?),
        ..Class::of(chain)
    };
    hike.set_class(to, forwards)?;
    changed(
        hike,
        seen,
        "a path",
        |hike| hike.set_class(to, encapsulates),
        leads(SIDS[1]),
    )?;
    changed(
        hike,
        seen,
        "no path",
        |hike| hike.set_class(to, forwards),
        is_plain,
    )
}

fn changed(
    hike: &mut Hike,
    seen: &Seen,
    what: &str,
    change: impl FnOnce(&mut Hike) -> Result<()>,
    is_new: impl Fn(&Arrival) -> bool,
) -> Result<()> {
    let folder = hike.folder().to_owned();
    let hits = || hits_in(&folder);
    seen.changes(what, Duration::ZERO, &hits, || change(hike), is_new)
}

/// Returns a monitor whose block has an odd number, and lasts.
fn odd_block() -> Result<Monitor> {
    let now = SystemTime::now();
    let monitors = (40_000..80_000).map(|seconds| Monitor {
        period: Duration::from_secs(seconds),
        marking: Marking::DscpBit(0),
    });
    let lasts = |monitor: &Monitor| {
        let block = monitor.block_at(now);
        block % 2 == 1 && block == monitor.block_at(now + LONGEST)
    };
    let mut lasting = monitors.filter(lasts);
    lasting.next().context("all blocks end soon")
}
