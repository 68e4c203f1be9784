// SPDX-License-Identifier: GPL-2.0

//! Counters of sockets in all network namespaces in which there are programs, by the files of one program in each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::diagnose::snapshot::Network;

/// The bounds of the search: a host has fewer, and the rest is not looked at.
const MOST_PROGRAMS: usize = 65_536;
const MOST_NAMESPACES: usize = 256;

/// The namespaces, by their identity (`net:[4026531840]`).
pub(super) type Networks = BTreeMap<PathBuf, Network>;

/// Reads the counters of each namespace.
pub(super) fn read(root: &Path) -> Networks {
    let mut found = Networks::new();
    for program in programs(root) {
        // A program that has ended meanwhile has none.
        let Ok(namespace) = fs::read_link(program.join("ns/net")) else {
            continue;
        };
        if found.contains_key(&namespace) {
            continue;
        }
        let text =
            |file: &str| fs::read_to_string(program.join("net").join(file)).unwrap_or_default();
        let mut counted = pairs_of_lines(&text("snmp"));
        counted.extend(pairs_of_lines(&text("netstat")));
        counted.extend(lines(&text("snmp6")));
        let network = Network {
            program: name(&program),
            counted,
        };
        found.insert(namespace, network);
        if found.len() == MOST_NAMESPACES {
            break;
        }
    }
    found
}

/// Returns what was counted between two times, in the namespaces that were there at both.
pub(super) fn since(before: &Networks, after: Networks) -> Vec<Network> {
    let network = |(namespace, mut network): (PathBuf, Network)| {
        let before = before.get(&namespace)?;
        for (name, count) in &mut network.counted {
            *count = count.wrapping_sub(before.counted.get(name).copied().unwrap_or(0));
        }
        Some(network)
    };
    after.into_iter().filter_map(network).collect()
}

/// Returns whether a program of this name runs.
pub(super) fn runs(root: &Path, wanted: &str) -> bool {
    programs(root).any(|program| name(&program) == wanted)
}

/// Returns the folders of programs, in no order.
fn programs(root: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(root.join("proc")).into_iter().flatten();
    let folders = entries.flatten().map(|entry| entry.path());
    let is_program = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    folders.filter(is_program).take(MOST_PROGRAMS)
}

fn name(program: &Path) -> String {
    let name = fs::read_to_string(program.join("comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Reads pairs of lines, `Udp: InDatagrams NoPorts` and `Udp: 5 0`, as names such as `UdpInDatagrams`.
fn pairs_of_lines(text: &str) -> BTreeMap<String, u64> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = BTreeMap::new();
    for pair in lines.chunks_exact(2) {
        let (Some((group, names)), Some((same, values))) =
            (pair[0].split_once(':'), pair[1].split_once(':'))
        else {
            continue;
        };
        if group != same {
            continue;
        }
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            // One that may be negative is no counter.
            if let Ok(value) = value.parse() {
                found.insert(format!("{group}{name}"), value);
            }
        }
    }
    found
}

/// Reads lines such as `Udp6RcvbufErrors  0`.
fn lines(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_name_of_their_group() {
        let text =
            "Tcp: RtoMin MaxConn InSegs\nTcp: 200 -1 7\nUdp: InDatagrams RcvbufErrors\nUdp: 5 6\n";
        let found = pairs_of_lines(text);
        let expected = [
            ("TcpInSegs", 7),
            ("TcpRtoMin", 200),
            ("UdpInDatagrams", 5),
            ("UdpRcvbufErrors", 6),
        ];
        assert_eq!(
            found,
            expected
                .map(|(name, count)| (name.to_owned(), count))
                .into()
        );
        let found = lines("Udp6RcvbufErrors                \t12\nIp6 x\n");
        assert_eq!(found, [("Udp6RcvbufErrors".to_owned(), 12)].into());
    }

    #[test]
    fn this_host_has_every_counter_that_is_asked_for() {
        let all = read(Path::new("/"));
        let own = fs::read_link("/proc/self/ns/net").expect("there is one");
        let counted = &all[&own].counted;
        for name in [
            "UdpInDatagrams",
            "UdpRcvbufErrors",
            "IpReasmReqds",
            "TcpExtPruneCalled",
            "TcpExtRcvPruned",
            "TcpExtTCPRcvCollapsed",
            "TcpExtTCPRcvQDrop",
            "TcpExtTCPBacklogDrop",
        ] {
            assert!(counted.contains_key(name), "{name}");
        }
    }

    #[test]
    fn a_namespace_that_is_new_has_counted_nothing() {
        let network = |count| Network {
            program: "a".to_owned(),
            counted: [("UdpInDatagrams".to_owned(), count)].into(),
        };
        let before = Networks::from([("net:[1]".into(), network(5))]);
        let after = Networks::from([
            ("net:[1]".into(), network(8)),
            ("net:[2]".into(), network(8)),
        ]);
        let counted = since(&before, after);
        assert_eq!(counted.len(), 1);
        assert_eq!(counted[0].counted["UdpInDatagrams"], 3);
    }
}
