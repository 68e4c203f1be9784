// SPDX-License-Identifier: GPL-2.0

//! Tables of hosts, and of what becomes of a flow there, made of the cases: one of `rust/README.md`, and a short one of
//! `README.md`. `cargo xtask docs` writes them there.

use anyhow::{Context as _, Result};

use super::elephant::Fate;
use super::Case;

const HEAD: &str = "| a host with | the flow is | cases |\n|---|---|---|\n";
const SHORT_HEAD: &str = "| a host with | a fast flow is |\n|---|---|\n";

/// The words of the short table for cases, by how the cases' names begin. The longest beginning counts.
const SHORT: &[(&str, &str)] = &[
    ("translation/", "NAT"),
    ("kube/", "kube-proxy"),
    ("kube/ipvs/", "IPVS"),
    ("docker/", "Docker"),
    ("docker/swarm", "IPVS"),
    ("docker/swarm/", "Swarm"),
    ("docker/swarm/ingress", "IPVS"),
    ("mesh/", "Istio"),
    ("tproxy/", "TPROXY"),
    ("bpf/", "Cilium's programs"),
    ("bpf/assign/nic", "sockets assigned at NICs"),
    ("bpf/socket/nic/", "AF_XDP at the NIC"),
    ("bpf/socket/", "AF_XDP elsewhere"),
    ("calico/", "Calico"),
    ("flannel", "flannel"),
    ("firewalld/", "firewalld"),
    ("ufw/", "ufw"),
    ("header/", "rewritten headers"),
    ("ecmp/", "ECMP"),
    ("policy/", "rules that count packets"),
    ("containers/", "restarts"),
    ("devices/", "VLAN"),
    ("devices/vrf", "VRF"),
    ("devices/bandwidth", "shapers at the veth"),
    ("devices/fq", "shapers at the veth"),
    ("devices/vlan-shaped", "shapers at the veth"),
    ("devices/vrf-shaped", "shapers at the veth"),
    ("devices/fou", "tunnels"),
    ("devices/gue", "tunnels"),
    ("devices/gue/numbered", "numbered GRE"),
    ("devices/gre", "tunnels"),
    ("devices/gre-shaped", "shapers at the veth"),
    ("devices/geneve-shaped", "shapers at the veth"),
    ("devices/neighbour-shaped", "shapers of neighbours"),
    ("devices/neighbour-shaped/one-outer", "shapers at the veth"),
    ("networks/openvswitch", "Open vSwitch"),
    ("networks/macvlan", "macvlan"),
    ("networks/ipvlan/", "ipvlan"),
    ("networks/macvlan/group", "macvlan and ipvlan groups"),
    ("networks/ipvlan/group", "macvlan and ipvlan groups"),
    ("networks/mixed/", "inner flows that are forwarded"),
    ("watchers/", "captures"),
    ("watchers/mirror", "mirrors"),
    ("xdp/", "generic XDP"),
    ("hashes/sweep", "RPS"),
    ("hashes/sockets", "Cilium's programs"),
    ("wireguard", "WireGuard"),
];

/// One line of a table.
struct Row<'a> {
    host: &'a str,
    outcome: String,
    names: Vec<&'a str>,
}

/// Returns the table in Markdown; cases of one host and one outcome share a line.
pub(super) fn table(cases: &[Case]) -> String {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for case in cases {
        let outcome = outcome(case);
        let mut same = rows.iter_mut();
        match same.find(|row| row.host == case.host && row.outcome == outcome) {
            Some(row) => row.names.push(&case.name),
            None => rows.push(Row {
                host: case.host,
                outcome,
                names: vec![&case.name],
            }),
        }
    }
    let lines = rows.iter().map(|row| {
        let names: Vec<_> = row.names.iter().map(|name| format!("`{name}`")).collect();
        format!(
            "| {} | {} | {} |\n",
            row.host,
            row.outcome,
            names.join(", ")
        )
    });
    HEAD.to_owned() + &lines.collect::<String>()
}

/// Returns the short table in Markdown; hosts with one outcome share a line.
pub(super) fn short(cases: &[Case]) -> Result<String> {
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for case in cases {
        let (_, words) = short_of(case)?;
        let outcome = short_outcome(case);
        match rows.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, hosts)) if hosts.contains(&words) => {}
            Some((_, hosts)) => hosts.push(words),
            None => rows.push((outcome, vec![words])),
        }
    }
    let line = |(outcome, hosts): &(_, Vec<_>)| format!("| {} | {outcome} |\n", hosts.join(", "));
    Ok(SHORT_HEAD.to_owned() + &rows.iter().map(line).collect::<String>())
}

/// Returns the longest beginning of a case's name that has words, and these.
fn short_of(case: &Case) -> Result<(&'static str, &'static str)> {
    let known = SHORT.iter().copied();
    let begins = known.filter(|(begin, _)| case.name.starts_with(begin));
    begins
        .max_by_key(|(begin, _)| begin.len())
        .with_context(|| format!("{} has no words for the short table of hosts", case.name))
}

fn outcome(case: &Case) -> String {
    let fate = fate(case);
    match case.differs {
        None => fate,
        Some(differs) => format!("{fate}; different: {differs}"),
    }
}

fn short_outcome(case: &Case) -> String {
    let fate = match case.fate {
        Fate::Kept(reason) => format!("whole (`{reason}`)"),
        Fate::Split | Fate::Either => fate(case),
    };
    match case.differs {
        None => fate,
        Some(_) => format!("{fate}, different"),
    }
}

fn fate(case: &Case) -> String {
    match case.fate {
        Fate::Split => "split".to_owned(),
        Fate::Kept(reason) => format!("whole, with reason `{reason}`"),
        Fate::Either => "split or whole".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = include_str!("../../../../rust/README.md");
    const FIRST_PAGE: &str = include_str!("../../../../README.md");
    const MARKS: [&str; 2] = ["<!-- cargo xtask docs: hosts -->\n", "<!-- end -->"];

    fn found(document: &str) -> &str {
        let [begin, end] = MARKS;
        let (_, rest) = document.split_once(begin).expect("the table begins");
        rest.split_once(end).expect("the table ends").0
    }

    #[test]
    fn the_tables_of_documents_are_those_of_the_cases() {
        let cases = super::super::all();
        let short = short(&cases).expect("all cases have words");
        for (document, text) in [(MANUAL, table(&cases)), (FIRST_PAGE, short)] {
            assert_eq!(found(document), text, "cargo xtask docs writes the tables");
        }
    }

    #[test]
    fn all_words_are_some_case() {
        let cases = super::super::all();
        for entry in SHORT {
            let is_it = |case: &Case| short_of(case).is_ok_and(|found| found == *entry);
            assert!(cases.iter().any(is_it), "{entry:?}");
        }
    }
}
