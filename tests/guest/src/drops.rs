// SPDX-License-Identifier: GPL-2.0

//! The kernel's counters of dropped packets, in all namespaces of the network under test. A case that has lost some packets tells
//! these counters beside the module's.

use std::collections::BTreeMap;

use crate::machine::proc_net;
use crate::network::topology::{CLIENT, CONTAINER};

/// Counters of `/proc/net/snmp` that grow where something is dropped.
const PROTOCOLS: [(&str, &[&str]); 2] = [
    (
        "Ip",
        &[
            "InHdrErrors",
            "InAddrErrors",
            "InUnknownProtos",
            "InDiscards",
            "OutDiscards",
            "OutNoRoutes",
            "ReasmTimeout",
            "ReasmFails",
            "FragFails",
        ],
    ),
    (
        "Udp",
        &[
            "NoPorts",
            "InErrors",
            "RcvbufErrors",
            "SndbufErrors",
            "InCsumErrors",
            "MemErrors",
        ],
    ),
];
/// Those of `/proc/net/snmp6`.
const SECOND_FAMILY: [&str; 7] = [
    "Ip6InDiscards",
    "Ip6OutDiscards",
    "Ip6ReasmTimeout",
    "Ip6ReasmFails",
    "Ip6FragFails",
    "Udp6InErrors",
    "Udp6InCsumErrors",
];
/// Columns of `/proc/net/stat/nf_conntrack`: what connection tracking refuses or drops.
const TRACKING: [&str; 4] = ["insert_failed", "drop", "early_drop", "error"];
/// Columns of `/proc/net/dev`, which do not count what a queueing discipline drops: the device that sends through it does.
const DEVICE: [(usize, &str); 6] = [
    (2, "rx_errors"),
    (3, "rx_dropped"),
    (4, "rx_fifo"),
    (10, "tx_errors"),
    (11, "tx_dropped"),
    (14, "tx_carrier"),
];

/// Counters by namespace and name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drops(BTreeMap<String, u64>);

impl Drops {
    /// Reads all there are; a namespace that a case has taken away has none.
    pub(crate) fn read() -> Self {
        let mut counts = BTreeMap::new();
        for (namespace, called) in [
            (None, "host"),
            (Some(CLIENT), CLIENT),
            (Some(CONTAINER), CONTAINER),
        ] {
            let read = |file| proc_net::read(namespace, file).unwrap_or_default();
            let found = of_protocols(&read("snmp"))
                .chain(of_second_family(&read("snmp6")))
                .chain(of_devices(&read("dev")))
                .chain(of_tracking(&read("stat/nf_conntrack")))
                .map(|(name, count)| (format!("{called} {name}"), count))
                .collect::<Vec<_>>();
            counts.extend(found);
        }
        Self(counts)
    }

    /// Returns what was added since `earlier`, without what did not change.
    pub(crate) fn since(&self, earlier: &Self) -> BTreeMap<String, u64> {
        let added = self.0.iter().map(|(name, &now)| {
            let before = earlier.0.get(name).copied().unwrap_or(0);
            (name.clone(), now.saturating_sub(before))
        });
        added.filter(|(_, added)| *added > 0).collect()
    }
}

fn of_protocols(text: &str) -> impl Iterator<Item = (String, u64)> + '_ {
    PROTOCOLS.iter().flat_map(move |(protocol, wanted)| {
        let counters = proc_net::counters(text, protocol).into_iter().flatten();
        counters
            .filter(|(name, _)| wanted.contains(name))
            .map(move |(name, count)| (format!("{protocol}{name}"), count))
    })
}

fn of_second_family(text: &str) -> impl Iterator<Item = (String, u64)> + '_ {
    proc_net::counters6(text)
        .filter(|(name, _)| SECOND_FAMILY.contains(name))
        .map(|(name, count)| (name.to_owned(), count))
}

fn of_devices(text: &str) -> impl Iterator<Item = (String, u64)> + '_ {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.flat_map(|(device, counts)| {
        let counts: Vec<&str> = counts.split_whitespace().collect();
        let pairs = DEVICE.iter().filter_map(|(column, name)| {
            let count = counts.get(*column)?.parse().ok()?;
            Some((format!("{} {name}", device.trim()), count))
        });
        pairs.collect::<Vec<_>>()
    })
}

/// Sums up columns of hexadecimal numbers that have a row for each CPU.
fn of_tracking(text: &str) -> impl Iterator<Item = (String, u64)> + '_ {
    let mut lines = text.lines().map(str::split_whitespace);
    let names: Vec<&str> = lines.next().into_iter().flatten().collect();
    let rows: Vec<Vec<&str>> = lines.map(Iterator::collect).collect();
    TRACKING.iter().filter_map(move |wanted| {
        let column = names.iter().position(|name| name == wanted)?;
        let counts = rows.iter().filter_map(|row| row.get(column));
        let counts = counts.filter_map(|count| u64::from_str_radix(count, 16).ok());
        Some((format!("conntrack {wanted}"), counts.sum()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_is_found_by_its_name() {
        let snmp = "Ip: Forwarding InDiscards ReasmFails\nIp: 1 0 4\nUdp: InDatagrams InErrors\nUdp: 9 2\n";
        let found: Vec<_> = of_protocols(snmp).collect();
        assert_eq!(
            found,
            [
                ("IpInDiscards".to_owned(), 0),
                ("IpReasmFails".to_owned(), 4),
                ("UdpInErrors".to_owned(), 2)
            ]
        );
        let second = "Ip6InReceives   \t7\nIp6ReasmFails   \t3\n";
        let found: Vec<_> = of_second_family(second).collect();
        assert_eq!(found, [("Ip6ReasmFails".to_owned(), 3)]);
        let tracking = "entries found drop insert_failed\n 5 1 a 2\n 5 1 1f 0\n";
        let found: Vec<_> = of_tracking(tracking).collect();
        assert_eq!(
            found,
            [
                ("conntrack insert_failed".to_owned(), 2),
                ("conntrack drop".to_owned(), 41)
            ]
        );
        let dev = " face |bytes packets\n vxlan0: 1 2 0 3 0 0 0 0 11 12 0 13 0 0 0 0\n";
        let dropped: Vec<_> = of_devices(dev).filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            dropped,
            [
                ("vxlan0 rx_dropped".to_owned(), 3),
                ("vxlan0 tx_dropped".to_owned(), 13)
            ]
        );
    }

    #[test]
    fn only_what_has_grown_is_told() {
        let at = |count| {
            Drops(BTreeMap::from([(
                "client eth1 tx_dropped".to_owned(),
                count,
            )]))
        };
        assert!(at(5).since(&at(5)).is_empty());
        assert_eq!(at(7).since(&at(5)).values().sum::<u64>(), 2);
    }
}
