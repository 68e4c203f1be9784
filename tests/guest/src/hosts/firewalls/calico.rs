// SPDX-License-Identifier: GPL-2.0

//! A node with Calico: each of its pods has chains, in which the state of connections decides, then policies, whose sets of addresses
//! mark what they accept. `veth` is what names of the pods' devices begin with, as Felix is told by `InterfacePrefix`.

use std::path::Path;

use anyhow::{ensure, Context as _, Result};

use super::iptables_counters::{self, Counts};
use crate::hosts::elephant::receiver::Arrived;
use crate::hosts::elephant::Elephant;
use crate::hosts::host::{Change, Host, Rules};
use crate::hosts::new_flows::{Made, Services, CONNECTIONS, FLOWS};
use crate::hosts::services::conntrack_ports::Tracked;
use crate::hosts::{router, Case};
use crate::machine::command;
use crate::network::topology::{Family, CONTAINER};
use crate::network::{conntrack, iptables, nft};

const TCP: u16 = 6_701;
const UDP: u16 = 6_702;

pub(super) fn cases() -> Vec<Case> {
    let case = |name, inner, rules| {
        let has = match rules {
            Rules::First => "Calico's policies for a pod that the host routes to",
            Rules::Later => "Calico's policies, written when splitting is on already",
            Rules::During => {
                "Calico's policies, written, taken away and written again while a flow is split"
            }
        };
        Case::new(
            name,
            has,
            "policies accept each new connection and flow beside a split flow once, drop nothing, and count what they count with enabled 0",
            move |host| policed(host, inner, rules),
        )
    };
    vec![
        case("calico/v4", Family::V4, Rules::First),
        case("calico/v6", Family::V6, Rules::First),
        case("calico/later", Family::V4, Rules::Later),
        case("calico/during", Family::V4, Rules::During),
    ]
}

/// Makes the sets that policies ask, of the client's address and of the pools that pods have theirs of.
fn sets(inner: Family) -> Result<()> {
    let (kind, client, pool) = match inner {
        Family::V4 => ("inet", "10.0.1.1", "10.0.0.0/16"),
        Family::V6 => ("inet6", "fd00:1::1", "fd00::/16"),
    };
    let number = inner.number();
    let text = format!(
        "create cali{number}0s:clients hash:net family {kind} maxelem 1048576
add cali{number}0s:clients {client}
create cali{number}0masq-ipam-pools hash:net family {kind} maxelem 1048576
add cali{number}0masq-ipam-pools {pool}
create cali{number}0all-ipam-pools hash:net family {kind} maxelem 1048576
add cali{number}0all-ipam-pools {pool}
"
    );
    command::run_with_input("ipset restore", &text).map(drop)
}

/// Takes the sets away; rules that ask them have gone before.
pub(super) fn clear() -> Result<()> {
    if Path::new("/sys/module/ip_set").exists() {
        command::run("ipset destroy")?;
    }
    Ok(())
}

/// Returns Felix's rules for one pod with one policy and no host endpoint; Felix has a hash as each one's comment.
fn rules(inner: Family) -> String {
    let number = inner.number();
    let set = format!("cali{number}0s:clients");
    let (masq, all) = (
        format!("cali{number}0masq-ipam-pools"),
        format!("cali{number}0all-ipam-pools"),
    );
    format!(
        "\
*raw
:cali-PREROUTING - [0:0]
:cali-from-host-endpoint - [0:0]
-A PREROUTING -j cali-PREROUTING
-A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i veth+ -j MARK --set-xmark 0x40000/0x40000
-A cali-PREROUTING -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
-A cali-PREROUTING -m mark --mark 0x0/0x40000 -j cali-from-host-endpoint
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
*filter
:cali-FORWARD - [0:0]
:cali-from-hep-forward - [0:0]
:cali-from-wl-dispatch - [0:0]
:cali-fw-veth0 - [0:0]
:cali-pi-policy - [0:0]
:cali-pri-kns.default - [0:0]
:cali-pro-kns.default - [0:0]
:cali-to-hep-forward - [0:0]
:cali-to-wl-dispatch - [0:0]
:cali-tw-veth0 - [0:0]
:cali-cidr-block - [0:0]
-A FORWARD -j cali-FORWARD
-A FORWARD -m comment --comment \"Policy explicitly accepted packet.\" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A FORWARD -j MARK --set-xmark 0x10000/0x10000
-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -m mark --mark 0x0/0x10000 -j cali-from-hep-forward
-A cali-FORWARD -i veth+ -j cali-from-wl-dispatch
-A cali-FORWARD -o veth+ -j cali-to-wl-dispatch
-A cali-FORWARD -j cali-to-hep-forward
-A cali-FORWARD -j cali-cidr-block
-A cali-from-wl-dispatch -i veth0 -g cali-fw-veth0
-A cali-from-wl-dispatch -m comment --comment \"Unknown interface\" -j DROP
-A cali-to-wl-dispatch -o veth0 -g cali-tw-veth0
-A cali-to-wl-dispatch -m comment --comment \"Unknown interface\" -j DROP
-A cali-fw-veth0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-fw-veth0 -m conntrack --ctstate INVALID -j DROP
-A cali-fw-veth0 -j MARK --set-xmark 0x0/0x10000
-A cali-fw-veth0 -p udp -m comment --comment \"Drop VXLAN encapped packets originating in workloads\" -m multiport --dports 4789 -j DROP
-A cali-fw-veth0 -p 4 -m comment --comment \"Drop IPinIP encapped packets originating in workloads\" -j DROP
-A cali-fw-veth0 -j cali-pro-kns.default
-A cali-fw-veth0 -m comment --comment \"Return if profile accepted\" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-fw-veth0 -m comment --comment \"Drop if no profiles matched\" -j DROP
-A cali-tw-veth0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-tw-veth0 -m conntrack --ctstate INVALID -j DROP
-A cali-tw-veth0 -j MARK --set-xmark 0x0/0x10000
-A cali-tw-veth0 -m comment --comment \"Start of policies\" -j MARK --set-xmark 0x0/0x20000
-A cali-tw-veth0 -m mark --mark 0x0/0x20000 -j cali-pi-policy
-A cali-tw-veth0 -m comment --comment \"Return if policy accepted\" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-tw-veth0 -m comment --comment \"Drop if no policies passed packet\" -m mark --mark 0x0/0x20000 -j DROP
-A cali-tw-veth0 -j cali-pri-kns.default
-A cali-tw-veth0 -m comment --comment \"Return if profile accepted\" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-tw-veth0 -m comment --comment \"Drop if no profiles matched\" -j DROP
-A cali-pi-policy -p tcp -m set --match-set {set} src -m multiport --dports {TCP} -j MARK --set-xmark 0x10000/0x10000
-A cali-pi-policy -p udp -m set --match-set {set} src -m multiport --dports {UDP} -j MARK --set-xmark 0x10000/0x10000
-A cali-pi-policy -p udp -m set --match-set {set} src -m multiport --dports 5001 -j MARK --set-xmark 0x10000/0x10000
-A cali-pi-policy -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-pri-kns.default -j MARK --set-xmark 0x10000/0x10000
-A cali-pri-kns.default -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-pro-kns.default -j MARK --set-xmark 0x10000/0x10000
-A cali-pro-kns.default -m mark --mark 0x10000/0x10000 -j RETURN
COMMIT
*nat
:cali-POSTROUTING - [0:0]
:cali-nat-outgoing - [0:0]
-A POSTROUTING -j cali-POSTROUTING
-A cali-POSTROUTING -j cali-nat-outgoing
-A cali-nat-outgoing -m set --match-set {masq} src -m set ! --match-set {all} dst -j MASQUERADE --random-fully
COMMIT
*mangle
:cali-PREROUTING - [0:0]
:cali-from-host-endpoint - [0:0]
-A PREROUTING -j cali-PREROUTING
-A cali-PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-PREROUTING -j cali-from-host-endpoint
-A cali-PREROUTING -m comment --comment \"Host endpoint policy accepted packet.\" -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
"
    )
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    tracked: Tracked,
    /// Rules for new connections and flows, and rules that drop.
    rules: Counts,
}

fn policed(host: &Host, inner: Family, when: Rules) -> Result<()> {
    let change = Change {
        when,
        make: &|| iptables::restore(None, inner, &rules(inner)),
        undo: &|| nft::flush(None),
    };
    let set_up = || {
        router::set_up()?;
        router::answer_by_host(CONTAINER, "veth0")?;
        sets(inner)?;
        change.before()?;
        // Flows of the other half may have had the same ports.
        conntrack::forget()
    };
    let compared = host.compare(inner, when, set_up, |host| seen(host, inner, &change))?;
    // CAST: some hundred.
    let all = CONNECTIONS + FLOWS as u64;
    compared.each(|seen| {
        let counters = || format!("{:?}; counters: {}", seen.rules, seen.arrived.counters());
        seen.made.require_all().with_context(counters)?;
        let accepted: u64 = counts(&seen.rules, "--dports");
        let dropped: u64 = counts(&seen.rules, "-j DROP");
        ensure!(
            accepted == all && dropped == 0 && seen.tracked.entries == all,
            "policies accept {accepted} of {all}, and rules drop {dropped}; {:?}; {:?}",
            seen.tracked,
            seen.rules
        );
        seen.arrived.require_whole()
    })?;
    compared.require_same(|seen| &seen.rules)?;
    compared.require_same(|seen| &seen.tracked)?;
    let (on, off) = (&compared.on, &compared.off);
    on.arrived.require_looks_of(&off.arrived)?;
    on.arrived.require_split()
}

fn counts(rules: &Counts, part: &str) -> u64 {
    let rules = rules.iter().filter(|(rule, _)| rule.contains(part));
    rules.map(|(_, pkts)| pkts).sum()
}

fn seen(host: &Host, inner: Family, change: &Change<'_>) -> Result<Seen> {
    let services = Services::of_container(inner, [TCP, UDP], [TCP, UDP])?;
    let earlier = Tracked::read(None, &[])?;
    let elephant = Elephant::plain(host, inner)?;
    let (arrived, (made, rules, tracked)) = elephant.run(host.datagrams / 4, |live| {
        live.beside(change, || {
            let made = services.make()?;
            Ok((made, counted(inner)?, Tracked::read(None, &[TCP, UDP])?))
        })
    })?;
    Ok(Seen {
        arrived,
        made,
        tracked: tracked.since(&earlier),
        rules,
    })
}

fn counted(inner: Family) -> Result<Counts> {
    let ports = [TCP, UDP].map(|port| format!("--dports {port}"));
    let mut rules = iptables_counters::counted(None, inner, "filter", |rule| {
        rule.contains("-j DROP") || ports.iter().any(|port| rule.contains(port))
    })?;
    rules.extend(iptables_counters::counted(None, inner, "raw", |rule| {
        rule.contains("-j DROP")
    })?);
    Ok(rules)
}
