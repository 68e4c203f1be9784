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

/// The rules of flannel 0.2x; the chain's policy is what Docker and others make it, which is why flannel has rules there.
const RULES: &str = "\
*filter
:FORWARD DROP [0:0]
:FLANNEL-FWD - [0:0]
-A FORWARD -m comment --comment \"flanneld forward\" -j FLANNEL-FWD
-A FLANNEL-FWD -s 10.0.0.0/16 -m comment --comment \"flanneld forward\" -j ACCEPT
-A FLANNEL-FWD -d 10.0.0.0/16 -m comment --comment \"flanneld forward\" -j ACCEPT
COMMIT
*nat
:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment \"flanneld masq\" -j RETURN
-A FLANNEL-POSTRTG -s 10.0.1.2/32 -d 10.0.0.0/16 -m comment --comment \"flanneld masq\" -j RETURN
-A FLANNEL-POSTRTG -s 10.0.0.0/16 -d 10.0.1.2/32 -m comment --comment \"flanneld masq\" -j RETURN
-A FLANNEL-POSTRTG ! -s 10.0.0.0/16 -d 10.0.1.2/32 -m comment --comment \"flanneld masq\" -j RETURN
-A FLANNEL-POSTRTG -s 10.0.0.0/16 ! -d 224.0.0.0/4 -m comment --comment \"flanneld masq\" -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s 10.0.0.0/16 -d 10.0.0.0/16 -m comment --comment \"flanneld masq\" -j MASQUERADE --random-fully
COMMIT
";
/// The rule that has to see the first packet of each connection, and no other does.
const POD_TO_POD: &str = "-A FLANNEL-POSTRTG -s 10.0.0.0/16 -d 10.0.1.2/32";

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(
        "flannel",
        "flannel's rules for pods behind a bridge",
        "flannel's rules see the first packet of each connection beside a split flow, and no address changes",
        forwarded,
    )]
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    tracked: Tracked,
    rules: Counts,
}

fn forwarded(host: &Host) -> Result<()> {
    let set_up = || {
        router::set_up_before(BRIDGE)?;
        router::answer_by_host(CONTAINER, BRIDGE)?;
        iptables::restore(None, Family::V4, RULES)?;
        // Flows of the other half may have had the same ports.
        conntrack::forget()
    };
    let compared = host.compare(Family::V4, Rules::First, set_up, seen)?;
    // CAST: some hundred.
    let all = CONNECTIONS + FLOWS as u64;
    compared.each(|seen| {
        let counters = || format!("{:?}; counters: {}", seen.rules, seen.arrived.counters());
        seen.made.require_all().with_context(counters)?;
        let matched = |rule: &str| rule.starts_with(POD_TO_POD);
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

fn seen(host: &Host) -> Result<Seen> {
    let services = Services::of_container(Family::V4, [TCP, UDP], [TCP, UDP])?;
    let earlier = Tracked::read(None, &[])?;
    let (arrived, made) =
        Elephant::plain(host, Family::V4)?.run(host.datagrams / 4, |_| services.make())?;
    Ok(Seen {
        arrived,
        made,
        tracked: Tracked::read(None, &[TCP, UDP])?.since(&earlier),
        rules: iptables_counters::counted(None, Family::V4, "nat", |rule| {
            rule.starts_with("-A FLANNEL-POSTRTG")
        })?,
    })
}
