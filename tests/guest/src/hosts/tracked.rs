// SPDX-License-Identifier: GPL-2.0

//! What a namespace's connection tracking knows, as `conntrack -L` and `conntrack -S` tell it.

use anyhow::Result;

use crate::proc_net;

/// Entries for connections to some ports, and what went wrong with packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tracked {
    /// Only what is confirmed is listed.
    pub(super) entries: u64,
    pub(super) unreplied: u64,
    /// Packets that fit to no connection, entries that could not be made, and packets dropped for that.
    pub(super) invalid: u64,
    pub(super) insert_failed: u64,
    pub(super) dropped: u64,
}

impl Tracked {
    /// Reads them for connections to these ports.
    pub(super) fn read(namespace: &str, ports: &[u16]) -> Result<Self> {
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
