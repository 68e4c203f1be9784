// SPDX-License-Identifier: GPL-2.0

//! A pod of a service mesh: rules send all connections to a sidecar, a real proxy, which connects to the application and answers for it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use anyhow::{ensure, Context as _, Result};

use super::conntrack_ports::Tracked;
use super::dialogue::{self, Answers, Dialogues, DIALOGUES};
use super::mesh_rules::{self, Interception, INBOUND, USER};
use crate::hosts::elephant::receiver::Arrived;
use crate::hosts::elephant::{unspecified, Elephant};
use crate::hosts::firewalls::iptables_counters::{self, Counts};
use crate::hosts::host::{Change, Host, Rules};
use crate::hosts::Case;
use crate::machine::command::Program;
use crate::machine::{cpu, proc_net};
use crate::network::topology::{self, Family, CONTAINER};
use crate::network::{netns, nft};

/// The application's port.
const WEB: u16 = 8_080;
const CONFIGURATION: &str = "/tmp/sidecar.cfg";
/// Other ports than those of clients: a connection with the client's address must not look like one of the client's own.
const PORTS: &str = "20000 30000";

pub(super) fn cases() -> Vec<Case> {
    let case = |name, interception, inner, rules| {
        let has = match (interception, rules) {
            (Interception::Redirect, Rules::First) => {
                "a sidecar of Istio's in the container, to which rules redirect"
            }
            (Interception::Redirect, Rules::Later) => {
                "a sidecar of Istio's, whose rules are made when splitting is on already"
            }
            (Interception::Redirect, Rules::During) => {
                "a sidecar of Istio's, whose rules are made, taken away and made again while a flow is split"
            }
            (Interception::Tproxy, _) => {
                "a sidecar of Istio's in the container, transparent to the application"
            }
        };
        Case::new(
            name,
            has,
            "connections with data go through a real proxy beside a split flow: the application's answers are right, it sees the address \
             that it sees with enabled 0, and rules and connection tracking count the same",
            move |host| through_sidecar(host, interception, inner, rules),
        )
    };
    use Interception::{Redirect, Tproxy};
    vec![
        case("mesh/redirect/v4", Redirect, Family::V4, Rules::First),
        case("mesh/redirect/v6", Redirect, Family::V6, Rules::First),
        case("mesh/redirect/later", Redirect, Family::V4, Rules::Later),
        case("mesh/redirect/during", Redirect, Family::V4, Rules::During),
        case("mesh/tproxy/v4", Tproxy, Family::V4, Rules::First),
        case("mesh/tproxy/v6", Tproxy, Family::V6, Rules::First),
    ]
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    answers: Answers,
    tracked: Tracked,
    rules: Counts,
}

fn through_sidecar(
    host: &Host,
    interception: Interception,
    inner: Family,
    rules: Rules,
) -> Result<()> {
    let change = Change {
        when: rules,
        make: &|| mesh_rules::set_up(interception, inner),
        undo: &|| nft::flush(CONTAINER),
    };
    let set_up = || {
        netns::within(CONTAINER, || {
            topology::sysctl("net/ipv4/ip_local_port_range", PORTS)
        })?;
        change.before()
    };
    let compared = host.compare(inner, rules, set_up, |host| {
        seen(host, interception, inner, &change)
    })?;
    let from = match interception {
        Interception::Redirect => passthrough(inner),
        Interception::Tproxy => inner.client(),
    };
    let head = dialogue::head(from, (inner.container(), WEB).into());
    let wanted = Answers::from([(head, DIALOGUES)]);
    compared.each(|seen| {
        ensure!(
            seen.answers == wanted,
            "answers are {:?}, and not {wanted:?}; {:?}; rules: {:?}; counters: {}",
            seen.answers,
            seen.tracked,
            seen.rules,
            seen.arrived.counters()
        );
        // One entry of the client's connection, and one of the proxy's.
        ensure!(
            seen.tracked.entries == 2 * DIALOGUES && seen.tracked.unreplied == 0,
            "{:?} is tracked of {DIALOGUES} connections",
            seen.tracked
        );
        seen.arrived.require_whole()
    })?;
    compared.require_same(|seen| &seen.tracked)?;
    compared.require_same(|seen| &seen.rules)?;
    let (on, off) = (&compared.on, &compared.off);
    on.arrived.require_looks_of(&off.arrived)?;
    on.arrived.require_split()
}

fn seen(
    host: &Host,
    interception: Interception,
    inner: Family,
    change: &Change<'_>,
) -> Result<Seen> {
    let _proxy = start(interception, inner)?;
    let application = netns::within(CONTAINER, || {
        Ok(TcpListener::bind((unspecified(inner), WEB))?)
    })?;
    let dialogues = Dialogues {
        at: (inner.container(), WEB).into(),
        application,
    };
    let hold = || {
        let answers = dialogues.hold()?;
        // Rules for addresses see the first packets of connections only.
        let rules = iptables_counters::counted(Some(CONTAINER), inner, "nat", |rule| {
            rule.contains("-p tcp") || rule.contains("-o lo -j RETURN")
        })?;
        Ok(Seen {
            arrived: Arrived::default(),
            answers,
            tracked: Tracked::read(Some(CONTAINER), &[WEB])?,
            rules,
        })
    };
    let elephant = Elephant::plain(host, inner)?;
    let (arrived, seen) = elephant.run(host.datagrams / 4, |live| live.beside(change, hold))?;
    Ok(Seen { arrived, ..seen })
}

/// Returns the proxy's source address where the application must not see the client's.
fn passthrough(inner: Family) -> IpAddr {
    match inner {
        Family::V4 => Ipv4Addr::new(127, 0, 0, 6).into(),
        Family::V6 => Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6).into(),
    }
}

/// Starts the proxy. It connects to the client's original destination. haproxy learns that with IPv4 only, so for redirected IPv6 the
/// application's address is configured.
fn start(interception: Interception, inner: Family) -> Result<Program> {
    let any = match inner {
        Family::V4 => "0.0.0.0",
        Family::V6 => "[::]",
    };
    // With `Tproxy` it binds foreign addresses, so it stays root. Rules recognise it by its group.
    let (who, bind, source) = match interception {
        Interception::Redirect => (
            format!("uid {USER}\ngid {USER}"),
            "",
            match passthrough(inner) {
                IpAddr::V4(address) => address.to_string(),
                IpAddr::V6(address) => format!("[{address}]"),
            },
        ),
        Interception::Tproxy => (
            format!("gid {USER}"),
            " transparent",
            format!("{any} usesrc clientip"),
        ),
    };
    let server = match (interception, inner) {
        (Interception::Redirect, Family::V6) => format!("[{}]:{WEB}", inner.container()),
        _ => "*".to_owned(),
    };
    let v6only = if inner == Family::V6 { " v6only" } else { "" };
    let text = format!(
        "global\n{who}\nnbthread 1\nmaxconn 400\n\
         defaults\nmode tcp\ntimeout connect 3s\ntimeout client 10s\ntimeout server 10s\n\
         listen inbound\nbind {any}:{INBOUND}{v6only}{bind}\nsource {source}\nserver application {server}\n"
    );
    fs::write(CONFIGURATION, text).context(CONFIGURATION)?;
    let line = format!("haproxy -db -f {CONFIGURATION}");
    let proxy = Program::start_heard(Some(CONTAINER), cpu::READER, &line)?;
    proc_net::until_listens(proxy, Some(CONTAINER), INBOUND)
}
