// SPDX-License-Identifier: GPL-2.0

//! A container whose namespace translates what comes in to other ports of its own, as a service mesh's REDIRECT and Docker's embedded
//! DNS do. Connection tracking thus has hooks of its own at the end of the way.

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{ensure, Result};

use super::conntrack_ports::Tracked;
use crate::hosts::elephant::receiver::Arrived;
use crate::hosts::elephant::{unspecified, Elephant};
use crate::hosts::host::{Change, Compared, Host, Rules};
use crate::hosts::new_flows::{Made, Services, CONNECTIONS, FLOWS};
use crate::hosts::Case;
use crate::network::topology::{Family, CLIENT, CONTAINER};
use crate::network::{conntrack, netns, nft};

const TCP: u16 = 6_101;
const UDP: u16 = 6_102;
const TCP_TO: u16 = 7_002;
const UDP_TO: u16 = 7_003;
/// The ports of an elephant that is translated, too, and of connections that stay.
const ELEPHANT: u16 = 6_103;
const KEPT: u16 = 6_104;
const KEPT_TO: u16 = 7_004;
const KEPT_CONNECTIONS: usize = 20;
/// The number of times that entries are forgotten, and of datagrams that are sent in between.
const TIMES: usize = 5;
const BETWEEN: u64 = 150;
const PATIENCE: Duration = Duration::from_millis(2_500);

const RULES: &str = "
table inet mflow {
    chain before {
        type nat hook prerouting priority dstnat;
        tcp dport 6101 redirect to :7002
        udp dport 6102 redirect to :7003
        udp dport 6103 redirect to :5001
        tcp dport 6104 redirect to :7004
    }
}
";

pub(in crate::hosts) fn cases() -> Vec<Case> {
    let case = |name, proves, inner: Family, rules| {
        let redirects = match rules {
            Rules::First => {
                "rules in the container that redirect to ports of its own, as a service mesh has"
            }
            Rules::Later => "such rules, made when splitting is on already",
            Rules::During => "such rules, made, taken away and made again while a flow is split",
        };
        Case::new(name, redirects, proves, move |host| {
            translated(host, inner, rules)
        })
    };
    let first = "rules that redirect are there before splitting is: new connections and datagrams beside a split flow are translated, \
                 and so are their answers";
    let during = "rules that redirect come while a flow is split: new connections and datagrams are translated, and the flow loses nothing \
                  and stays in order, also as the rules go and come again";
    vec![
        case("translation/v4", first, Family::V4, Rules::First),
        case("translation/v6", first, Family::V6, Rules::First),
        case(
            "translation/later",
            "the same where the rules come once splitting is on",
            Family::V4,
            Rules::Later,
        ),
        case("translation/during/v4", during, Family::V4, Rules::During),
        case("translation/during/v6", during, Family::V6, Rules::During),
        Case::new(
            "translation/during/forgotten",
            "such rules, and connection tracking that is told to forget all while a flow is split (`conntrack -F`)",
            "entries are forgotten while a translated flow is split: it loses nothing, connections that are there go on, and new \
             connections and datagrams are translated",
            forgotten,
        ),
    ]
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    tracked: Tracked,
}

fn translated(host: &Host, inner: Family, rules: Rules) -> Result<()> {
    let change = Change {
        when: rules,
        make: &|| nft::add(CONTAINER, RULES),
        undo: &|| nft::flush(CONTAINER),
    };
    let set_up = || change.before();
    let compared = host.compare(inner, rules, set_up, |host| seen(host, inner, &change))?;
    require_translated(&compared)
}

fn require_translated(compared: &Compared<Seen>) -> Result<()> {
    compared.off.made.require_all()?;
    // CAST: some hundred.
    let all = CONNECTIONS + FLOWS as u64;
    ensure!(
        compared.off.tracked.entries == all && compared.off.tracked.unreplied == 0,
        "of {all} connections and flows {:?} is tracked with enabled 0",
        compared.off.tracked
    );
    let (on, off) = (&compared.on, &compared.off);
    ensure!(
        on.made == off.made && on.tracked == off.tracked,
        "with enabled 1 {:?} and {:?}, with 0 {:?} and {:?}",
        on.made,
        on.tracked,
        off.made,
        off.tracked
    );
    off.arrived.require_whole()?;
    on.arrived.require_whole()?;
    on.arrived.require_split()
}

fn seen(host: &Host, inner: Family, change: &Change<'_>) -> Result<Seen> {
    let services = Services::of_container(inner, [TCP, UDP], [TCP_TO, UDP_TO])?;
    let elephant = Elephant::plain(host, inner)?;
    let (arrived, (made, tracked)) = elephant.run(host.datagrams / 4, |live| {
        live.beside(change, || use_all(&services))
    })?;
    Ok(Seen {
        arrived,
        made,
        tracked,
    })
}

fn use_all(services: &Services) -> Result<(Made, Tracked)> {
    let made = services.make()?;
    Ok((made, Tracked::read(Some(CONTAINER), &[TCP, UDP])?))
}

fn forgotten(host: &Host) -> Result<()> {
    let set_up = || nft::add(CONTAINER, RULES);
    let kept = RefCell::new(Vec::new());
    let compared = host.compare(Family::V4, Rules::First, set_up, |host| {
        let services = Services::of_container(Family::V4, [TCP, UDP], [TCP_TO, UDP_TO])?;
        let mut elephant = Elephant::plain(host, Family::V4)?;
        elephant.to = vec![(Family::V4.container(), ELEPHANT).into()];
        let (arrived, (made, tracked)) = elephant.run(host.datagrams / 4, |live| {
            let mut connections = connect_all()?;
            for _ in 0..TIMES {
                live.send_more(BETWEEN)?;
                netns::within(CONTAINER, conntrack::forget)?;
            }
            let alive = connections.iter_mut().filter_map(|one| ask(one).ok());
            kept.borrow_mut().push(alive.count());
            use_all(&services)
        })?;
        Ok(Seen {
            arrived,
            made,
            tracked,
        })
    })?;
    let kept = kept.into_inner();
    ensure!(
        kept == [KEPT_CONNECTIONS; 2],
        "of {KEPT_CONNECTIONS} connections {kept:?} go on when entries are forgotten, with enabled 0 and 1"
    );
    require_translated(&compared)
}

/// A connection from the client, and the application's end of it.
type Connection = [TcpStream; 2];

/// Makes connections that are translated, and that stay.
fn connect_all() -> Result<Vec<Connection>> {
    let listener = netns::within(CONTAINER, || {
        Ok(TcpListener::bind((unspecified(Family::V4), KEPT_TO))?)
    })?;
    let to = (Family::V4.container(), KEPT).into();
    let connect = || -> Result<Connection> {
        let client = netns::within(CLIENT, || Ok(TcpStream::connect_timeout(&to, PATIENCE)?))?;
        let mut connection = [client, listener.accept()?.0];
        for end in &connection {
            end.set_read_timeout(Some(PATIENCE))?;
        }
        ask(&mut connection)?;
        Ok(connection)
    };
    (0..KEPT_CONNECTIONS).map(|_| connect()).collect()
}

/// Sends a question to the application, and its answer to the client.
fn ask([client, application]: &mut Connection) -> Result<()> {
    let mut bytes = [0; 16];
    client.write_all(&bytes)?;
    application.read_exact(&mut bytes)?;
    application.write_all(&bytes)?;
    Ok(client.read_exact(&mut bytes)?)
}
