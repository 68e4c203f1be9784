// SPDX-License-Identifier: GPL-2.0

//! kube-proxy in its three modes, with rules as kube-proxy itself writes them.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{ensure, Context as _, Result};

use super::cluster::{self, Front, DNS, ENDPOINTS, LOGS, NAMESPACES, WEB};
use super::tracked::{Endpoints, Tracked};
use super::{ipvs, kube_iptables, kube_nftables};
use crate::hosts::arrivals::{seeing, Arrived};
use crate::hosts::beside::{Made, Server, Services, CONNECTIONS, FLOWS};
use crate::hosts::elephant::{Elephant, Fate};
use crate::hosts::host::{Host, Rules};
use crate::hosts::Case;
use crate::topology::Family;
use crate::{conntrack, netns, nft};

/// Datagrams of each new flow: those behind the first have to find its endpoint.
const ROUNDS: usize = 2;

/// Counts what no rule of kube-proxy's counts: packets that fit to no connection, and marks that have stayed.
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

/// Who translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Iptables,
    Nftables,
    Ipvs,
}

/// What kube-proxy is told of the services.
#[derive(Clone, Copy, Debug)]
struct Kube {
    mode: Mode,
    front: Front,
    has_affinity: bool,
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, mode) in [
        ("iptables", Mode::Iptables),
        ("nftables", Mode::Nftables),
        ("ipvs", Mode::Ipvs),
    ] {
        for (what, front, has_affinity) in [
            ("cluster-ip", Front::ClusterIp, false),
            ("node-port", Front::NodePort, false),
            ("affinity", Front::ClusterIp, true),
        ] {
            let kube = Kube {
                mode,
                front,
                has_affinity,
            };
            cases.push(Case::new(
                format!("kube/{name}/{what}"),
                "kube-proxy's rules give each new connection and each flow beside a split one to one endpoint, with the addresses and \
                 marks that they have with enabled 0",
                move |host| balanced(host, kube),
            ));
        }
    }
    cases
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    tracked: Tracked,
    /// Who has got new connections and flows.
    endpoints: Endpoints,
    invalid: u64,
    marked: u64,
}

fn balanced(host: &Host, kube: Kube) -> Result<()> {
    let set_up = || {
        cluster::set_up()?;
        match kube.mode {
            Mode::Iptables => kube_iptables::set_up(kube.has_affinity)?,
            Mode::Nftables => kube_nftables::set_up(kube.has_affinity)?,
            Mode::Ipvs => ipvs::set_up(kube.has_affinity)?,
        }
        nft::add(None, WATCH)?;
        conntrack::forget()
    };
    let compared = host.compare(Family::V4, Rules::First, set_up, |_| seen(host, kube))?;
    for (enabled, seen) in [&compared.off, &compared.on].into_iter().enumerate() {
        require(seen, kube).with_context(|| format!("with enabled {enabled}"))?;
    }
    let looks = [&compared.off, &compared.on].map(|seen| only_look(&seen.arrived));
    let [off, on] = looks;
    ensure!(
        off.as_ref().ok() == on.as_ref().ok(),
        "with enabled 1 the elephant's receiver sees {on:?}, with 0 {off:?}"
    );
    compared.on.arrived.require_split()
}

/// Demands what has to be, whether `enabled` is 0 or 1.
fn require(seen: &Seen, kube: Kube) -> Result<()> {
    let (made, tracked) = (&seen.made, &seen.tracked);
    made.require_all_of(ROUNDS)
        .with_context(|| format!("{tracked:?}, {:?}", seen.arrived.counters()))?;
    // CAST: some hundred; the elephant is one more.
    let all = CONNECTIONS + FLOWS as u64 + 1;
    let wanted = Tracked {
        entries: all,
        // Nobody answers the elephant.
        unreplied: 1,
        masqueraded: if kube.front == Front::NodePort {
            all
        } else {
            0
        },
        ..Tracked::default()
    };
    ensure!(
        *tracked == wanted && seen.invalid == 0 && seen.marked == 0,
        "{tracked:?}, and it has to be {wanted:?}; {} packets are invalid, and {} leave with marks",
        seen.invalid,
        seen.marked
    );
    // The elephant, connections and flows have an endpoint each if they have affinity, and else all have.
    let used = seen.endpoints.len();
    ensure!(
        kube.has_affinity || used == ENDPOINTS.len(),
        "only {used} endpoints are used"
    );
    seen.arrived.require_whole()
}

/// What a receiver sees whatever endpoint it is at, and whatever port a masqueraded flow has.
type Alike = (IpAddr, Option<u8>, Option<u8>);

/// Returns how all datagrams look; fails if not all look alike, or if they are at an endpoint that they are not for.
fn only_look(arrived: &Arrived) -> Result<Alike> {
    let mut looks = arrived.looks.keys();
    let look = looks.next().context("no datagram has come")?;
    ensure!(
        looks.next().is_none(),
        "datagrams differ: {:?}",
        arrived.looks
    );
    let own = SocketAddr::from((ENDPOINTS[look.socket], LOGS.target));
    ensure!(look.to == Some(own), "at {own} are datagrams for {look:?}");
    Ok((look.from, look.tos, look.hops))
}

fn seen(host: &Host, kube: Kube) -> Result<Seen> {
    let (mut servers, mut sockets) = (Vec::new(), Vec::new());
    for (namespace, address) in NAMESPACES.into_iter().zip(ENDPOINTS) {
        servers.push(Server::bind(
            namespace,
            address.into(),
            WEB.target,
            DNS.target,
        )?);
        sockets.push(netns::within(namespace, || {
            seeing(UdpSocket::bind((address, LOGS.target))?)
        })?);
    }
    let front = kube.front;
    let services = Services {
        client: Family::V4.client(),
        connect: front.of(WEB),
        send: front.of(DNS),
        rounds: ROUNDS,
        servers,
    };
    let elephant = Elephant {
        from: Family::V4.client(),
        to: vec![front.of(LOGS)],
        sockets,
        pps: host.elephant_pps,
        fate: Fate::Split,
    };
    let earlier = Tracked::read(None, &front.ports())?;
    let (arrived, made) = elephant.run(host.datagrams / 4, |_| services.make())?;
    let (tracked, endpoints) = Tracked::read_with_endpoints(None, &front.ports())?;
    Ok(Seen {
        arrived,
        made,
        tracked: tracked.since(&earlier),
        endpoints,
        invalid: nft::counted(None, "invalid")?.pkts,
        marked: nft::counted(None, "marked")?.pkts,
    })
}
