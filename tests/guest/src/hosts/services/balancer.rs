// SPDX-License-Identifier: GPL-2.0

//! A balancer: something that gives what is sent to one address to endpoints. An elephant, new connections and new flows go through it.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{ensure, Context as _, Result};

use super::cluster::{Front, Port, DNS, LOGS, PORTS, WEB};
use super::conntrack_ports::{Endpoints, Tracked};
use crate::hosts::elephant::receiver::{seeing, Arrived};
use crate::hosts::elephant::{Elephant, Fate};
use crate::hosts::host::{Change, Host};
use crate::hosts::new_flows::{Made, Server, Services, CONNECTIONS, FLOWS};
use crate::network::topology::{self, Family};
use crate::network::{conntrack, netns, nft};

/// Datagrams of each new flow: those behind the first have to find its endpoint.
const ROUNDS: usize = 2;

/// Counts what no rule of a balancer counts: packets that fit to no connection, and marks that have stayed.
const WATCH: &str = "
table inet mflow {
    counter invalid { }
    counter marked { }
    chain before {
        type filter hook prerouting priority mangle;
        ct state invalid counter name invalid
    }
    chain behind {
        type filter hook postrouting priority srcnat + 10;
        meta mark and 0x4000 == 0x4000 counter name marked
    }
}
";

/// IPVS makes an entry for the first packet of a connection, and has to see packets in order for that.
pub(super) const IN_ORDER: Fate = Fate::Kept("path_ordered");

/// Makes connection tracking of the caller's namespace remember flows of datagrams for longer than a case takes.
pub(super) fn remember() -> Result<()> {
    topology::sysctl("net/netfilter/nf_conntrack_udp_timeout", "300")
}

/// A rule by which endpoints are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Any for each connection; all come to be used.
    Any,
    /// One for all that a client sends to a port.
    ByClient,
}

pub(super) struct Balancer {
    /// The address that the client sends to, and which of the services' ports.
    pub(super) address: IpAddr,
    pub(super) front: Front,
    /// The namespace in which it is, unless it is the first one.
    pub(super) namespace: Option<&'static str>,
    /// Namespaces and addresses.
    pub(super) endpoints: Vec<(&'static str, IpAddr)>,
    pub(super) choice: Choice,
    /// A flag: endpoints see another address than the client's.
    pub(super) is_masquerading: bool,
    /// The state of the elephant once `enabled` is 1.
    pub(super) fate: Fate,
    /// The number of answers to what is asked meanwhile.
    pub(super) ask: fn() -> Result<u64>,
}

impl Balancer {
    fn family(&self) -> Family {
        match self.address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    fn of(&self, port: Port) -> SocketAddr {
        (self.address, self.front.port(port)).into()
    }

    /// Compares a host with this balancer with what it does with `enabled` 0.
    pub(super) fn compare(&self, host: &Host, set_up: impl Fn() -> Result<()>) -> Result<()> {
        self.compare_changed(host, set_up, &Change::NONE)
    }

    /// Does the same with a balancer that knows the elephant's service from the beginning, and the others by rules of their own.
    pub(super) fn compare_changed(
        &self,
        host: &Host,
        set_up: impl Fn() -> Result<()>,
        change: &Change<'_>,
    ) -> Result<()> {
        let set_up = || {
            set_up()?;
            change.before()?;
            nft::add(self.namespace, WATCH)?;
            match self.namespace {
                Some(namespace) => netns::within(namespace, remember)?,
                None => remember()?,
            }
            conntrack::forget()
        };
        let family = self.family();
        let seen = |host: &Host| self.seen(host, change);
        let compared = host.compare(family, change.when, set_up, seen)?;
        for (enabled, seen) in [&compared.off, &compared.on].into_iter().enumerate() {
            self.require(seen)
                .with_context(|| format!("with enabled {enabled}"))?;
        }
        let [off, on] = [&compared.off, &compared.on].map(|seen| self.only_look(&seen.arrived));
        let (off, on) = (off?, on?);
        ensure!(
            off == on && compared.off.answers == compared.on.answers,
            "with enabled 1 the elephant's receiver sees {on:?}, with 0 {off:?}, and {} and {} questions are answered",
            compared.on.answers,
            compared.off.answers
        );
        match self.fate {
            Fate::Split => compared.on.arrived.require_split(),
            Fate::Kept(_) => compared.on.arrived.require_kept(),
            Fate::Either => Ok(()),
        }
    }

    /// Demands what has to be, whether `enabled` is 0 or 1.
    fn require(&self, seen: &Seen) -> Result<()> {
        let (made, tracked) = (&seen.made, &seen.tracked);
        made.require_all_of(ROUNDS)
            .with_context(|| format!("{tracked:?}, {}", seen.arrived.counters()))?;
        // CAST: some hundred; the elephant is one more.
        let all = CONNECTIONS + FLOWS as u64 + 1;
        let wanted = Tracked {
            entries: all,
            // Nobody answers the elephant.
            unreplied: 1,
            masqueraded: if self.is_masquerading { all } else { 0 },
            ..Tracked::default()
        };
        ensure!(
            *tracked == wanted && seen.invalid == 0 && seen.marked == 0,
            "{tracked:?}, and it has to be {wanted:?}; {} packets are invalid, and {} leave with marks",
            seen.invalid,
            seen.marked
        );
        let used = |port| seen.endpoints.keys().filter(|(to, _)| *to == port).count();
        let used = [WEB, DNS].map(|port| used(self.front.port(port)));
        let wanted = match self.choice {
            Choice::Any => self.endpoints.len(),
            Choice::ByClient => 1,
        };
        ensure!(
            used == [wanted; 2],
            "{wanted} endpoints of each port have to be used, and not as in {:?}",
            seen.endpoints
        );
        seen.arrived.require_whole()
    }

    /// Returns how all datagrams look; fails if not all look alike, or if they are at an endpoint that they are not for.
    fn only_look(&self, arrived: &Arrived) -> Result<Alike> {
        let mut looks = arrived.looks.keys();
        let look = looks.next().context("no datagram has come")?;
        ensure!(
            looks.next().is_none(),
            "datagrams differ: {:?}",
            arrived.looks
        );
        let own = SocketAddr::from((self.endpoints[look.socket].1, LOGS.target));
        ensure!(look.to == Some(own), "at {own} are datagrams for {look:?}");
        Ok((look.from, look.tos, look.hops))
    }

    fn seen(&self, host: &Host, change: &Change<'_>) -> Result<Seen> {
        let (mut servers, mut sockets) = (Vec::new(), Vec::new());
        for &(namespace, address) in &self.endpoints {
            let server = Server::bind(namespace, address, WEB.target, DNS.target)?;
            servers.push(server);
            sockets.push(netns::within(namespace, || {
                seeing(UdpSocket::bind((address, LOGS.target))?)
            })?);
        }
        let services = Services {
            client: self.family().client(),
            connect: self.of(WEB),
            send: self.of(DNS),
            rounds: ROUNDS,
            servers,
        };
        let elephant = Elephant {
            from: self.family().client(),
            to: vec![self.of(LOGS)],
            sockets,
            pps: host.elephant_pps,
            fate: self.fate,
        };
        let ports = PORTS.map(|port| self.front.port(port));
        let earlier = Tracked::read(self.namespace, &ports)?;
        let use_all = || Ok((services.make()?, (self.ask)()?));
        let (arrived, (made, answers)) =
            elephant.run(host.datagrams / 4, |live| live.beside(change, use_all))?;
        let (tracked, endpoints) = Tracked::read_with_endpoints(self.namespace, &ports)?;
        Ok(Seen {
            arrived,
            made,
            tracked: tracked.since(&earlier),
            endpoints,
            answers,
            invalid: nft::counted(self.namespace, "invalid")?.pkts,
            marked: nft::counted(self.namespace, "marked")?.pkts,
        })
    }
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    tracked: Tracked,
    endpoints: Endpoints,
    answers: u64,
    invalid: u64,
    marked: u64,
}

/// The part of an arrival that a receiver sees whatever endpoint it is at, and whatever port a masqueraded flow has.
type Alike = (IpAddr, Option<u8>, Option<u8>);
