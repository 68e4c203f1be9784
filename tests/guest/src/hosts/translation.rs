// SPDX-License-Identifier: GPL-2.0

//! A container whose namespace translates what comes in to other ports of its own, as a service mesh's REDIRECT and Docker's embedded
//! DNS do. Connection tracking thus has hooks of its own at the end of the way.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use anyhow::{ensure, Result};

use super::arrivals::Arrived;
use super::beside::{Made, Services, CONNECTIONS, FLOWS};
use super::elephant::{unspecified, Elephant};
use super::host::{Host, Rules};
use super::Case;
use crate::topology::{Family, CONTAINER};
use crate::{netns, nft, proc_net};

const TCP: u16 = 6_101;
const UDP: u16 = 6_102;
const TCP_TO: u16 = 7_002;
const UDP_TO: u16 = 7_003;

const RULES: &str = "
table inet mflow {
    chain before {
        type nat hook prerouting priority dstnat;
        tcp dport 6101 redirect to :7002
        udp dport 6102 redirect to :7003
    }
}
";

pub(super) fn cases() -> Vec<Case> {
    let case = |name, proves, inner: Family, rules| {
        Case::new(name, proves, move |host| translated(host, inner, rules))
    };
    let first = "rules that redirect are there before splitting is: new connections and datagrams beside a split flow are translated, \
                 and so are their answers";
    vec![
        case("translation/v4", first, Family::V4, Rules::First),
        case("translation/v6", first, Family::V6, Rules::First),
        case(
            "translation/later",
            "the same where the rules come once flows are split",
            Family::V4,
            Rules::Later,
        ),
    ]
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    tracked: Tracked,
}

fn translated(host: &Host, inner: Family, rules: Rules) -> Result<()> {
    let set_up = || nft::add(CONTAINER, RULES);
    let compared = host.compare(inner, rules, set_up, |host| seen(host, inner))?;
    compared.off.made.require_all()?;
    // CAST: some hundred.
    let all = CONNECTIONS + FLOWS as u64;
    ensure!(
        compared.off.tracked.entries == all && compared.off.tracked.unreplied == 0,
        "of {all} connections and flows {:?} is tracked with enabled 0",
        compared.off.tracked
    );
    let (on, off) = (&compared.on, &compared.off);
    ensure!(
        on.made == off.made && on.tracked == off.tracked,
        "with enabled 1 {:?} and {:?}, with 0 {:?} and {:?}",
        on.made,
        on.tracked,
        off.made,
        off.tracked
    );
    off.arrived.require_whole()?;
    on.arrived.require_whole()?;
    on.arrived.require_split()
}

fn seen(host: &Host, inner: Family) -> Result<Seen> {
    let any = unspecified(inner);
    let (listener, echo) = netns::within(CONTAINER, || {
        Ok((
            TcpListener::bind((any, TCP_TO))?,
            UdpSocket::bind((any, UDP_TO))?,
        ))
    })?;
    let at = |port| SocketAddr::from((inner.container(), port));
    let services = Services {
        client: inner.client(),
        connect: at(TCP),
        listener,
        told: at(TCP_TO),
        send: at(UDP),
        echo,
    };
    let (arrived, made) =
        Elephant::plain(host, inner)?.run(host.datagrams / 4, |_| services.make())?;
    Ok(Seen {
        arrived,
        made,
        tracked: Tracked::read(CONTAINER, &[TCP, UDP])?,
    })
}

/// What the container's connection tracking knows of some ports, as `conntrack -L` tells it, and what went wrong with packets, as
/// `conntrack -S` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tracked {
    /// Only what is confirmed is listed.
    entries: u64,
    unreplied: u64,
    /// Packets that fit to no connection, entries that could not be made, and packets dropped for that.
    invalid: u64,
    insert_failed: u64,
    dropped: u64,
}

impl Tracked {
    /// Reads them for connections to these ports.
    fn read(namespace: &str, ports: &[u16]) -> Result<Self> {
        let table = proc_net::read(Some(namespace), "nf_conntrack")?;
        let statistics = proc_net::read(Some(namespace), "stat/nf_conntrack")?;
        Ok(Self {
            invalid: statistic(&statistics, "invalid"),
            insert_failed: statistic(&statistics, "insert_failed"),
            dropped: statistic(&statistics, "drop"),
            ..entries(&table, ports)
        })
    }
}

/// Counts the entries whose first direction goes to one of these ports.
fn entries(table: &str, ports: &[u16]) -> Tracked {
    let goes_there = |line: &&str| {
        let mut words = line.split_whitespace();
        let port = words.find_map(|word| word.strip_prefix("dport="));
        port.and_then(|port| port.parse().ok())
            .is_some_and(|port: u16| ports.contains(&port))
    };
    let lines: Vec<_> = table.lines().filter(goes_there).collect();
    let unreplied = lines.iter().filter(|line| line.contains("[UNREPLIED]"));
    Tracked {
        // CAST: some hundred.
        unreplied: unreplied.count() as u64,
        entries: lines.len() as u64,
        ..Tracked::default()
    }
}

/// Adds up a column of hexadecimal numbers, one line for each CPU.
fn statistic(text: &str, name: &str) -> u64 {
    let mut lines = text.lines();
    let names = lines.next().unwrap_or_default();
    let Some(place) = names.split_whitespace().position(|one| one == name) else {
        return 0;
    };
    let value = |line: &str| u64::from_str_radix(line.split_whitespace().nth(place)?, 16).ok();
    lines.filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted_by_port() {
        let table = "ipv4 2 udp 17 26 src=10.0.1.1 dst=10.0.1.2 sport=4000 dport=6102 [UNREPLIED] src=10.0.1.2 dst=10.0.1.1 \
                     sport=7003 dport=4000 mark=0 use=2\n\
                     ipv4 2 tcp 6 119 TIME_WAIT src=10.0.1.1 dst=10.0.1.2 sport=5000 dport=6101 src=10.0.1.2 dst=10.0.1.1 \
                     sport=7002 dport=5000 [ASSURED] mark=0 use=1\n\
                     ipv4 2 udp 17 26 src=10.0.1.1 dst=10.0.1.2 sport=6101 dport=53 src=10.0.1.2 dst=10.0.1.1 sport=53 \
                     dport=6101 mark=0 use=2\n";
        let found = entries(table, &[6101, 6102]);
        assert_eq!((found.entries, found.unreplied), (2, 1));
    }

    #[test]
    fn statistics_of_all_cpus_are_added_up() {
        let text =
            "entries  invalid drop\n0000000a 00000001 00000000\n0000000a 0000000f 00000000\n";
        assert_eq!(statistic(text, "invalid"), 16);
        assert_eq!(statistic(text, "early_drop"), 0);
    }
}
