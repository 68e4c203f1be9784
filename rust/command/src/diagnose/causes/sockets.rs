// SPDX-License-Identifier: GPL-2.0

//! Programs that do not read as fast as packets come.

use crate::diagnose::finding::Finding;
use crate::diagnose::snapshot::{Network, Snapshot};

const DATAGRAMS: &[&str] = &["UdpRcvbufErrors", "Udp6RcvbufErrors"];
/// Times that memory of sockets had to be made free: packets were squeezed together, or thrown away.
const STREAMS: &[&str] = &[
    "TcpExtPruneCalled",
    "TcpExtRcvPruned",
    "TcpExtTCPRcvCollapsed",
    "TcpExtTCPRcvQDrop",
    "TcpExtTCPBacklogDrop",
];

/// Finds namespaces whose sockets have dropped datagrams, as their buffers were full.
pub fn datagrams_dropped(snapshot: &Snapshot) -> Vec<Finding> {
    each(snapshot, DATAGRAMS, |network, dropped| {
        Finding::new(
            "socket_drops",
            format!("Sockets where {} runs have dropped {dropped} datagrams: their program does not read fast enough.", network.program),
            "a faster reader, or more of them; for bursts a larger buffer: sysctl -w net.core.rmem_max=26214400 net.core.rmem_default=26214400",
        )
    })
}

/// Finds namespaces whose streams had no memory for what came.
pub fn streams_pruned(snapshot: &Snapshot) -> Vec<Finding> {
    each(snapshot, STREAMS, |network, times| {
        Finding::new(
            "streams_pruned",
            format!("Streams where {} runs had no memory for what came, {times} times: their program does not read fast enough.", network.program),
            "a faster reader; for long ways a larger window: sysctl net.ipv4.tcp_rmem",
        )
    })
}

fn each(
    snapshot: &Snapshot,
    counters: &[&str],
    finding: impl Fn(&Network, u64) -> Finding,
) -> Vec<Finding> {
    let networks = snapshot.networks.iter();
    let counted = networks.map(|network| (network, network.sum(counters)));
    let counted = counted.filter(|(_, count)| *count > 0);
    counted
        .map(|(network, count)| finding(network, count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_of_the_slow_reader_is_named() {
        let network = |program: &str, name: &str, count| Network {
            program: program.to_owned(),
            counted: [(name.to_owned(), count)].into(),
        };
        let host = Snapshot {
            networks: vec![
                network("init", "UdpRcvbufErrors", 0),
                network("memcached", "Udp6RcvbufErrors", 9),
                network("iperf3", "TcpExtPruneCalled", 2),
            ],
            ..Snapshot::default()
        };
        let [datagrams] = &datagrams_dropped(&host)[..] else {
            panic!("one has dropped some");
        };
        assert!(datagrams.says.contains("memcached") && datagrams.says.contains('9'));
        let [streams] = &streams_pruned(&host)[..] else {
            panic!("one had no memory");
        };
        assert!(streams.says.contains("iperf3"));
    }
}
