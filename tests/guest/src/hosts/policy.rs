// SPDX-License-Identifier: GPL-2.0

//! Chains of rules as network plugins have them: state decides, what fits to no connection is dropped, a mark has addresses translated,
//! and each rule counts. On a host that routes, and on one whose bridge shows packets to the filter of IP.

use std::path::Path;

use anyhow::{ensure, Context as _, Result};

use super::elephant::receiver::Arrived;
use super::elephant::Elephant;
use super::host::{Host, Rules};
use super::new_flows::{Made, Services, CONNECTIONS, FLOWS};
use super::{router, Case};
use crate::machine::command;
use crate::network::nft::{self, Counted};
use crate::network::topology::{self, Family, CONTAINER};
use crate::traffic::datagrams::run::Datagrams;

const TCP: u16 = 6_301;
const UDP: u16 = 6_302;

/// The state comes first, then what the container may be sent; what is new gets a mark, and with it another source.
const ON_HOST: &str = "
table inet mflow {
    counter invalid { }
    counter opened { }
    counter elephant { }
    counter refused { }
    counter masqueraded { }
    chain forward {
        type filter hook forward priority filter;
        ct state invalid counter name invalid drop
        udp dport 5001 counter name elephant
        ct state established,related accept
        meta l4proto { tcp, udp } meta mark set meta mark or 0x4000 jump container
    }
    chain container {
        udp dport 5001 accept
        tcp dport 6301 counter name opened accept
        udp dport 6302 counter name opened accept
        counter name refused
    }
}
";
const MASQUERADE: &str = "
table inet mflow {
    chain behind {
        type nat hook postrouting priority srcnat;
        meta mark and 0x4000 == 0x4000 counter name masqueraded masquerade
    }
}
";
const IN_CONTAINER: &str = "
table inet mflow {
    counter invalid { }
    chain input {
        type filter hook input priority filter;
        ct state invalid counter name invalid drop
        ct state established,related accept
    }
}
";
/// One in this many packets may be counted more or less.
const MOST_ODD: u64 = 20;
const HEADERS: u64 = 28;
const HEADERS6: u64 = 48;

pub(super) fn cases() -> Vec<Case> {
    let proves = "chains that go by the state of connections see none that is invalid beside a split flow, and count all that passes";
    let case = |name, inner: Family, routes: bool| {
        let has = if routes {
            "a network plugin's chains on a router: by state, with marks, masquerading"
        } else {
            "a network plugin's chains, and a bridge that shows packets to IP's filter"
        };
        Case::new(name, has, proves, move |host| chains(host, inner, routes))
            .but("rules count datagrams that lanes have joined as one packet")
    };
    vec![
        case("policy/bridge", Family::V4, false),
        case("policy/router/v4", Family::V4, true),
        case("policy/router/v6", Family::V6, true),
    ]
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    counters: Counters,
    /// First packets of connections, and those for which a rule for addresses was asked.
    opened: u64,
    masqueraded: u64,
    elephant: Counted,
}

/// The number of packets that each rule has counted; none of them is joined from several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    invalid: u64,
    invalid_in_container: u64,
    refused: u64,
}

fn chains(host: &Host, inner: Family, routes: bool) -> Result<()> {
    let set_up = || {
        if routes {
            router::set_up()?;
            router::answer_by_host(CONTAINER, "veth0")?;
            nft::add(None, ON_HOST)?;
            nft::add(None, MASQUERADE)?;
        } else {
            command::run("modprobe br_netfilter")?;
            topology::sysctl("net/bridge/bridge-nf-call-iptables", "1")?;
            topology::sysctl("net/bridge/bridge-nf-call-ip6tables", "1")?;
            nft::add(None, ON_HOST)?;
        }
        nft::add(CONTAINER, IN_CONTAINER)
    };
    let compared = host.compare(inner, Rules::First, set_up, |host| seen(host, inner))?;
    let all = CONNECTIONS + FLOWS as u64;
    // Beyond these the elephant is one connection more. Rules see one or two packets more or less than that, split or not.
    let is_about = |count: u64, all: u64| count.abs_diff(all) <= all / MOST_ODD;
    let masqueraded = if routes { all + 1 } else { 0 };
    for (enabled, seen) in [&compared.off, &compared.on].into_iter().enumerate() {
        let counted = elephant_datagrams(seen, inner);
        seen.made
            .require_all()
            .with_context(|| format!("with enabled {enabled}, rules count {:?}", seen.counters))?;
        ensure!(
            seen.counters == Counters::default()
                && counted == seen.arrived.sent
                && is_about(seen.opened, all)
                && is_about(seen.masqueraded, masqueraded),
            "with enabled {enabled} rules count {:?}, {} of {all} connections, {} of {masqueraded} masqueraded, and {counted} of {} \
             datagrams of the elephant",
            seen.counters,
            seen.opened,
            seen.masqueraded,
            seen.arrived.sent
        );
        seen.arrived.require_whole()?;
    }
    compared
        .on
        .arrived
        .require_looks_of(&compared.off.arrived)?;
    compared.on.arrived.require_split()
}

/// Returns how many datagrams of the elephant a rule has seen: one that is joined to others has brought its bytes, and no headers.
fn elephant_datagrams(seen: &Seen, inner: Family) -> u64 {
    let headers = match inner {
        Family::V4 => HEADERS,
        Family::V6 => HEADERS6,
    };
    // CAST: a few bytes.
    (seen.elephant.bytes - seen.elephant.pkts * headers) / Datagrams::smallest(0, None).bytes as u64
}

fn seen(host: &Host, inner: Family) -> Result<Seen> {
    let services = Services::of_container(inner, [TCP, UDP], [TCP, UDP])?;
    let (arrived, made) =
        Elephant::plain(host, inner)?.run(host.datagrams / 4, |_| services.make())?;
    let pkts = |namespace: Option<&'static str>, name| -> Result<u64> {
        Ok(nft::counted(namespace, name)?.pkts)
    };
    Ok(Seen {
        arrived,
        made,
        counters: Counters {
            invalid: pkts(None, "invalid")?,
            invalid_in_container: pkts(Some(CONTAINER), "invalid")?,
            refused: pkts(None, "refused")?,
        },
        opened: pkts(None, "opened")?,
        masqueraded: pkts(None, "masqueraded")?,
        elephant: nft::counted(None, "elephant")?,
    })
}

/// Takes the filter off the host's bridges again; rules have gone before.
pub(super) fn clear() -> Result<()> {
    if Path::new("/proc/sys/net/bridge").exists() {
        command::run("rmmod br_netfilter")?;
    }
    Ok(())
}
