// SPDX-License-Identifier: GPL-2.0

//! The knowledge of connection tracking about some ports.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{bail, Result};

use crate::machine::proc_net;

/// Readings of a table, at most, and those in a row that bring nothing new.
const MOST_READINGS: usize = 20;
const QUIET_READINGS: usize = 2;

/// The knowledge of a namespace's connection tracking about some ports, as `conntrack -L` tells it, and what went wrong with packets, as
/// `conntrack -S` does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::hosts) struct Tracked {
    /// Only what is confirmed is listed.
    pub(in crate::hosts) entries: u64,
    pub(in crate::hosts) unreplied: u64,
    /// Entries whose answers do not go to who has sent the first packet.
    pub(in crate::hosts) masqueraded: u64,
    /// Packets that fit to no connection, entries that could not be made, and packets dropped for that.
    pub(in crate::hosts) invalid: u64,
    pub(in crate::hosts) insert_failed: u64,
    pub(in crate::hosts) dropped: u64,
}

/// In how many entries who answers what is sent to which port.
pub(in crate::hosts) type Endpoints = BTreeMap<(u16, IpAddr), u64>;

impl Tracked {
    /// Reads them for connections to these ports.
    pub(in crate::hosts) fn read(namespace: Option<&str>, ports: &[u16]) -> Result<Self> {
        Ok(Self::read_with_endpoints(namespace, ports)?.0)
    }

    /// Does the same, and says who answers.
    pub(in crate::hosts) fn read_with_endpoints(
        namespace: Option<&str>,
        ports: &[u16],
    ) -> Result<(Self, Endpoints)> {
        let entries = settled(|| {
            let table = proc_net::read(namespace, "nf_conntrack")?;
            Ok(entries(&table, ports))
        })?;
        let (entries, endpoints) = counted(&entries);
        let statistics = proc_net::read(namespace, "stat/nf_conntrack")?;
        let tracked = Self {
            invalid: statistic(&statistics, "invalid"),
            insert_failed: statistic(&statistics, "insert_failed"),
            dropped: statistic(&statistics, "drop"),
            ..entries
        };
        Ok((tracked, endpoints))
    }

    /// Returns the same without what went wrong before `earlier` was read: it is counted from the namespace's beginning.
    pub(in crate::hosts) fn since(self, earlier: &Self) -> Self {
        Self {
            invalid: self.invalid - earlier.invalid,
            insert_failed: self.insert_failed - earlier.insert_failed,
            dropped: self.dropped - earlier.dropped,
            ..self
        }
    }
}

/// Reads until readings bring no more entries. The kernel counts from the table's beginning for each page of the file, so it passes
/// over an entry for each one that another namespace loses meanwhile.
fn settled(read: impl Fn() -> Result<Entries>) -> Result<Entries> {
    let mut all = read()?;
    let mut quiet = 0;
    for _ in 0..MOST_READINGS {
        let known = all.len();
        all.extend(read()?);
        quiet = if all.len() == known { quiet + 1 } else { 0 };
        if quiet == QUIET_READINGS {
            return Ok(all);
        }
    }
    bail!("connection tracking's table changes all the time");
}

/// Entries by what they say of the first packet.
type Entries = BTreeMap<String, Entry>;

/// One line: where the first packet came from and went to, and where answers do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    from: IpAddr,
    to_port: u16,
    answers_from: IpAddr,
    answers_to: IpAddr,
    is_unreplied: bool,
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let mut values = ["src=", "dst=", "dport="].map(|key| {
            line.split_whitespace()
                .filter_map(move |word| word.strip_prefix(key))
        });
        let [src, dst, dport] = &mut values;
        let (from, _) = (src.next()?, dst.next()?);
        Some(Self {
            from: from.parse().ok()?,
            to_port: dport.next()?.parse().ok()?,
            answers_from: src.next()?.parse().ok()?,
            answers_to: dst.next()?.parse().ok()?,
            is_unreplied: line.contains("[UNREPLIED]"),
        })
    }
}

/// Returns how many connections helpers have announced in a namespace.
pub(in crate::hosts) fn announced(namespace: Option<&str>) -> Result<u64> {
    let statistics = proc_net::read(namespace, "stat/nf_conntrack")?;
    Ok(statistic(&statistics, "expect_create"))
}

/// Returns the entries whose first direction goes to one of these ports.
fn entries(table: &str, ports: &[u16]) -> Entries {
    let entry = |line| Some((first_direction(line), Entry::parse(line)?));
    let entries = table.lines().filter_map(entry);
    entries
        .filter(|(_, entry)| ports.contains(&entry.to_port))
        .collect()
}

/// Returns the protocol, addresses and ports of the first packet.
fn first_direction(line: &str) -> String {
    let keys = ["src=", "dst=", "sport=", "dport="];
    let find = |key| line.split_whitespace().find(|word| word.starts_with(key));
    let protocol = line.split_whitespace().nth(2);
    let words = protocol.into_iter().chain(keys.iter().filter_map(find));
    words.collect::<Vec<_>>().join(" ")
}

fn counted(entries: &Entries) -> (Tracked, Endpoints) {
    let (mut tracked, mut endpoints) = (Tracked::default(), Endpoints::new());
    for entry in entries.values() {
        tracked.entries += 1;
        tracked.unreplied += u64::from(entry.is_unreplied);
        tracked.masqueraded += u64::from(entry.answers_to != entry.from);
        let endpoint = (entry.to_port, entry.answers_from);
        *endpoints.entry(endpoint).or_default() += 1;
    }
    (tracked, endpoints)
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
        let (found, endpoints) = counted(&entries(table, &[6101, 6102]));
        assert_eq!((found.entries, found.unreplied), (2, 1));
        let container = IpAddr::from([10, 0, 1, 2]);
        assert_eq!(
            endpoints,
            BTreeMap::from([((6101, container), 1), ((6102, container), 1)])
        );
    }

    #[test]
    fn readings_are_put_together() {
        let table = |ports: &[u16]| {
            let line = |port: &u16| {
                format!(
                    "ipv4 2 udp 17 26 src=10.0.1.1 dst=10.0.1.2 sport={port} dport=53 src=10.0.1.2 dst=10.0.1.1 sport=53 dport={port}\n"
                )
            };
            entries(&ports.iter().map(line).collect::<String>(), &[53])
        };
        let readings = [&[1, 2][..], &[2, 3], &[1, 3], &[1, 2]];
        let readings = std::cell::RefCell::new(readings.into_iter());
        let read = || Ok(table(readings.borrow_mut().next().unwrap_or_default()));
        assert_eq!(settled(read).unwrap().len(), 3);
        let changing = std::cell::Cell::new(0);
        let read = || Ok(table(&[changing.replace(changing.get() + 1)]));
        assert!(settled(read).is_err());
    }

    #[test]
    fn a_masqueraded_entry_is_told_by_where_answers_go() {
        let table = "ipv4 2 udp 17 26 src=10.0.1.1 dst=10.96.0.10 sport=4000 dport=53 packets=1 bytes=44 src=10.0.7.2 \
                     dst=192.168.50.2 sport=5353 dport=4100 packets=1 bytes=44 mark=0 use=2\n";
        assert_eq!(counted(&entries(table, &[53])).0.masqueraded, 1);
    }

    #[test]
    fn statistics_of_all_cpus_are_added_up() {
        let text =
            "entries  invalid drop\n0000000a 00000001 00000000\n0000000a 0000000f 00000000\n";
        assert_eq!(statistic(text, "invalid"), 16);
        assert_eq!(statistic(text, "early_drop"), 0);
    }
}
