// SPDX-License-Identifier: GPL-2.0

//! A host with ufw, which routes to its containers: the tunnel's port is let in, and what comes out of the tunnel is routed by port.

use anyhow::{ensure, Result};

use super::iptables_counters::{self, Counts};
use super::stateful_firewall::{Wall, SESSIONS};
use crate::hosts::host::{Host, Rules};
use crate::hosts::new_flows::{CONNECTIONS, FLOWS};
use crate::hosts::{router, Case};
use crate::network::iptables;
use crate::network::topology::Family;

/// The rules of each family, as ufw has loaded them.
const RULES: &str = include_str!("ufw.rules");
const RULES6: &str = include_str!("ufw6.rules");
/// Ports that the rules let in.
const TCP: u16 = 6_841;
const UDP: u16 = 6_842;
const FTP: u16 = 21;

pub(super) fn cases() -> Vec<Case> {
    let case = |name, inner, rules| {
        let has = match rules {
            Rules::First => "ufw on a host that routes to its containers, and a helper for FTP",
            Rules::Later => "ufw on such a host, enabled when splitting is on already",
            Rules::During => {
                "ufw on such a host, enabled, disabled and enabled again while a flow is split"
            }
        };
        Case::new(
            name,
            has,
            "ufw's rules let new connections and flows through beside a split flow, and see the first packet of each, once; files come by \
             FTP over connections that only the helper has announced; nothing is invalid, logged or dropped",
            move |host| walled(host, inner, rules),
        )
    };
    vec![
        case("ufw/v4", Family::V4, Rules::First),
        case("ufw/v6", Family::V6, Rules::First),
        case("ufw/later", Family::V4, Rules::Later),
        case("ufw/during", Family::V4, Rules::During),
    ]
}

fn walled(host: &Host, inner: Family, rules: Rules) -> Result<()> {
    let wall = Wall {
        namespace: None,
        inner,
        rules,
        tcp: TCP,
        udp: UDP,
        count,
    };
    let counts = wall.compare(host, router::set_up, || {
        iptables::restore(None, Family::V4, RULES)?;
        iptables::restore(None, Family::V6, RULES6)
    })?;
    // CAST: some hundred.
    let wanted = [(TCP, CONNECTIONS), (UDP, FLOWS as u64), (FTP, SESSIONS)];
    for (port, first_pkts) in wanted {
        let of_port = format!("--dport {port} ");
        let rules = counts.iter().filter(|(rule, _)| rule.contains(&of_port));
        let pkts: u64 = rules.map(|(_, pkts)| pkts).sum();
        ensure!(
            pkts == first_pkts,
            "the rule for port {port} has seen {pkts} packets, and it has to be {first_pkts}: {counts:?}"
        );
    }
    let refusing = counts.iter().filter(|(rule, _)| !rule.contains("--dport"));
    let refused: u64 = refusing.map(|(_, pkts)| pkts).sum();
    ensure!(
        refused == 0,
        "rules that refuse have seen packets: {counts:?}"
    );
    Ok(())
}

/// Returns what the rules for the ports have seen, and those that log and drop what is routed.
fn count(family: Family) -> Result<Counts> {
    let ports = [TCP, UDP, FTP].map(|port| format!("--dport {port} "));
    iptables_counters::counted(None, family, "filter", |rule| {
        let is_of_port = ports.iter().any(|port| rule.contains(port));
        let is_routed = rule.contains("forward");
        let refuses = ["DROP", "REJECT", "LOG"]
            .iter()
            .any(|word| rule.contains(word));
        is_routed && (is_of_port || refuses)
    })
}
