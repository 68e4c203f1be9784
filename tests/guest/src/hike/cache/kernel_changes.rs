// SPDX-License-Identifier: GPL-2.0

//! Changes of the kernel's routes, rules, neighbours, links and next hops.
//!
//! The case fails if the epoch does not move behind a change, and where the kernel cannot be traced, if entries are good for longer than a
//! second besides.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mflow_hike::{Class, Destination, Engine, Hike};

use super::ways::{
    by, forget_mtu, mac, neighbour, router, Arrival, Seen, Ways, OUT, ROUTER, TO_V4, TO_V6,
};
use crate::hike::{instance, Scale};
use crate::network::netns;

/// The time for which entries are good at most where nobody traces the kernel, with some for a clock that is late.
pub(super) const SECOND: Duration = Duration::from_millis(1_100);
/// Another Ethernet address, and its last byte.
const OTHER_MAC: &str = "02:00:00:00:2f:99";
const OTHER_MAC_ENDS: u8 = 0x99;
/// Rounds of all changes in a run of all variants.
const ROUNDS: u32 = 3;

pub(super) fn run(scale: &Scale) -> Result<()> {
    let both = [IpAddr::V6(TO_V6), IpAddr::V4(TO_V4)];
    // CAST: the lowest bit.
    let drawn = (scale.seed % 2) as usize;
    for &to in if scale.whole {
        &both[..]
    } else {
        &both[drawn..=drawn]
    } {
        let ways = Ways::up()?;
        let mut hike = instance(Engine::Compiled)?;
        let class = Class::of(hike.add_chain(&"fw-fib".parse()?)?);
        hike.set_class(Destination::Address(to), class)?;
        ways.attach(&mut hike)?;
        let why = hike.why_untraced().and_then(|why| why.lines().next());
        let allowance = match hike.is_traced() {
            true => Duration::ZERO,
            false => SECOND,
        };
        let told = why.unwrap_or("it is traced").to_owned();
        let changes = Changes {
            ways: &ways,
            hike: &hike,
            to,
            allowance,
        };
        let rounds = if scale.whole { ROUNDS } else { 1 };
        let all = |seen: &Seen| (0..rounds).try_for_each(|_| changes.all(seen));
        ways.under_traffic(to, all)
            .with_context(|| format!("to {to}; of the kernel: {told}"))?;
    }
    Ok(())
}

struct Changes<'a> {
    ways: &'a Ways,
    hike: &'a Hike,
    to: IpAddr,
    /// The time after a change for which packets may leave as before.
    allowance: Duration,
}

impl Changes<'_> {
    fn all(&self, seen: &Seen) -> Result<()> {
        let (to, one, other) = (self.to, by(0, self.to), by(1, self.to));
        self.ways.leads_to(1)?;
        self.ways.leads_to(0)?;
        seen.settles("all take the first way", |arrival| arrival.way == 0)?;
        let way = |lines: &str, way| self.change(seen, lines, |arrival| arrival.way == way);

        way(&format!("route replace {to} {other}"), 1)?;
        way(&format!("route replace {to} {one}"), 0)?;

        router(&format!("route replace {to} {other} table 100"))?;
        self.rule(seen, "add", 1)?;
        self.rule(seen, "del", 0)?;

        router(&format!(
            "nexthop add id 7 {one}\nroute replace {to} nhid 7"
        ))?;
        way(&format!("nexthop replace id 7 {other}"), 1)?;
        way(&format!("nexthop replace id 7 {one}"), 0)?;
        router(&format!("route replace {to} {one}\nnexthop del id 7"))?;

        for (address, ends) in [(OTHER_MAC.to_owned(), OTHER_MAC_ENDS), (mac(1, 2), 2)] {
            self.change(seen, &neighbour(0, to, &address), |arrival| {
                arrival.destination == ends
            })?;
        }
        self.link(seen)
    }

    fn rule(&self, seen: &Seen, what: &str, way: usize) -> Result<()> {
        let version = if self.to.is_ipv6() { "-6" } else { "-4" };
        let line = format!(
            "ip {version} rule {what} pref 100 to {} lookup 100",
            self.to
        );
        let change = || netns::run(ROUTER, &line).map(drop);
        seen.changes(&line, self.allowance, &self.hits(), change, |arrival| {
            arrival.way == way
        })
    }

    /// Changes the link of the first way.
    fn link(&self, seen: &Seen) -> Result<()> {
        let (to, out) = (self.to, OUT[0]);
        self.change(
            seen,
            &format!("link set {out} address {OTHER_MAC}"),
            |arrival| arrival.source == OTHER_MAC_ENDS,
        )?;
        router(&format!("link set {out} address {}", mac(1, 1)))?;
        self.ways.leads_to(0)?;

        self.change(seen, &format!("link set {out} mtu 1280"), |arrival| {
            !arrival.is_large
        })?;
        router(&format!("link set {out} mtu 1500"))?;
        forget_mtu()?;
        seen.settles("they are in one piece again", |arrival| {
            arrival.way == 0 && !arrival.is_piece
        })?;

        router(&format!("route add {to} {} metric 2000", by(1, to)))?;
        self.change(seen, &format!("link set {out} down"), |arrival| {
            arrival.way == 1
        })?;
        router(&format!(
            "link set {out} up\naddress replace fd00:21::1/64 dev {out} nodad"
        ))?;
        self.ways.leads_to(0)?;
        router(&format!("route del {to} metric 2000"))?;
        seen.settles("the first way is there again", |arrival| arrival.way == 0)
    }

    fn hits(&self) -> impl Fn() -> Result<u64> + '_ {
        || Ok(self.hike.cache_counts()?.hits)
    }

    fn change(&self, seen: &Seen, lines: &str, is_new: impl Fn(&Arrival) -> bool) -> Result<()> {
        let change = || router(lines);
        seen.changes(lines, self.allowance, &self.hits(), change, is_new)
    }
}
