// SPDX-License-Identifier: GPL-2.0

//! A node with flannel: it forwards to its pods behind a bridge, and leaves the addresses of what pods send each other as they are.

use anyhow::{ensure, Context as _, Result};

use super::iptables_counters::{self, Counts};
use crate::hosts::elephant::receiver::Arrived;
use crate::hosts::elephant::Elephant;
use crate::hosts::host::{Host, Rules};
use crate::hosts::new_flows::{Made, Services, CONNECTIONS, FLOWS};
use crate::hosts::services::conntrack_ports::Tracked;
use crate::hosts::{router, Case};
use crate::network::topology::{Family, CONTAINER};
use crate::network::{conntrack, iptables};

const TCP: u16 = 6_711;
const UDP: u16 = 6_712;
const BRIDGE: &str = "br0";

/// The chain that flannel has at the end of a packet's way.
const CHAIN: &str = "-A FLANNEL-POSTRTG";

/// Returns the rules of flannel 0.2x; the chain's policy is what Docker and others make it, which is why flannel has rules there.
fn rules(family: Family) -> String {
    let (network, groups) = match family {
        Family::V4 => ("10.0.0.0/16", "224.0.0.0/4"),
        Family::V6 => ("fd00::/28", "ff00::/8"),
    };
    let node = pods_of_node(family);
    format!(
        "\
*filter
:FORWARD DROP [0:0]
:FLANNEL-FWD - [0:0]
-A FORWARD -m comment --comment \"flanneld forward\" -j FLANNEL-FWD
-A FLANNEL-FWD -s {network} -m comment --comment \"flanneld forward\" -j ACCEPT
-A FLANNEL-FWD -d {network} -m comment --comment \"flanneld forward\" -j ACCEPT
COMMIT
*nat
:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG
{CHAIN} -m mark --mark 0x4000/0x4000 -m comment --comment \"flanneld masq\" -j RETURN
{CHAIN} -s {node} -d {network} -m comment --comment \"flanneld masq\" -j RETURN
{CHAIN} -s {network} -d {node} -m comment --comment \"flanneld masq\" -j RETURN
{CHAIN} ! -s {network} -d {node} -m comment --comment \"flanneld masq\" -j RETURN
{CHAIN} -s {network} ! -d {groups} -m comment --comment \"flanneld masq\" -j MASQUERADE --random-fully
{CHAIN} ! -s {network} -d {network} -m comment --comment \"flanneld masq\" -j MASQUERADE --random-fully
COMMIT
"
    )
}

fn pods_of_node(family: Family) -> &'static str {
    match family {
        Family::V4 => "10.0.1.2/32",
        Family::V6 => "fd00:1::2/128",
    }
}

/// Tells whether a rule is the one that has to see the first packet of each connection, and no other does.
fn is_from_pod_to_pod(family: Family, rule: &str) -> bool {
    let to_node = format!("-d {}", pods_of_node(family));
    rule.starts_with(&format!("{CHAIN} -s")) && rule.contains(&to_node)
}

pub(super) fn cases() -> Vec<Case> {
    [("flannel", Family::V4), ("flannel/v6", Family::V6)]
        .map(|(name, family)| {
            Case::new(
                name,
                "flannel's rules for pods behind a bridge",
                "flannel's rules see the first packet of each connection beside a split flow, and no address changes",
                move |host| forwarded(host, family),
            )
        })
        .into()
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    tracked: Tracked,
    rules: Counts,
}

fn forwarded(host: &Host, family: Family) -> Result<()> {
    let set_up = || {
        router::set_up_before(BRIDGE)?;
        router::answer_by_host(CONTAINER, BRIDGE)?;
        iptables::restore(None, family, &rules(family))?;
        // Flows of the other half may have had the same ports.
        conntrack::forget()
    };
    let compared = host.compare(family, Rules::First, set_up, |host| seen(host, family))?;
    // CAST: some hundred.
    let all = CONNECTIONS + FLOWS as u64;
    compared.each(|seen| {
        let counters = || format!("{:?}; counters: {}", seen.rules, seen.arrived.counters());
        seen.made.require_all().with_context(counters)?;
        let matched = |rule: &str| is_from_pod_to_pod(family, rule);
        let others: u64 = seen
            .rules
            .iter()
            .filter(|(rule, _)| !matched(rule))
            .map(|(_, pkts)| pkts)
            .sum();
        let pkts: u64 = seen.rules.values().sum();
        // The elephant is one more.
        ensure!(
            others == 0
                && pkts == all + 1
                && seen.tracked.entries == all
                && seen.tracked.masqueraded == 0,
            "rules see {:?} of {all} connections and flows; {:?}",
            seen.rules,
            seen.tracked
        );
        seen.arrived.require_whole()
    })?;
    compared.require_same(|seen| &seen.tracked)?;
    let (on, off) = (&compared.on, &compared.off);
    on.arrived.require_looks_of(&off.arrived)?;
    on.arrived.require_split()
}

fn seen(host: &Host, family: Family) -> Result<Seen> {
    let services = Services::of_container(family, [TCP, UDP], [TCP, UDP])?;
    let earlier = Tracked::read(None, &[])?;
    let (arrived, made) =
        Elephant::plain(host, family)?.run(host.datagrams / 4, |_| services.make())?;
    Ok(Seen {
        arrived,
        made,
        tracked: Tracked::read(None, &[TCP, UDP])?.since(&earlier),
        rules: iptables_counters::counted(None, family, "nat", |rule| rule.starts_with(CHAIN))?,
    })
}
