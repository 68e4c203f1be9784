// SPDX-License-Identifier: GPL-2.0

//! A transparent proxy in the container: a rule gives packets for addresses that are not its own to sockets of the proxy, which see
//! where the packets were for.

mod stray;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

use anyhow::{ensure, Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use super::elephant::receiver::{seeing, Arrived};
use super::elephant::{unspecified, Elephant, Fate};
use super::host::{Change, Host, Rules};
use super::new_flows::{Made, Server, Services, CONNECTIONS};
use super::Case;
use crate::machine::proc_net;
use crate::network::topology::{self, Family, CONTAINER};
use crate::network::{netns, nft};

const TCP: u16 = 6_201;
const UDP: u16 = 6_202;
/// Nobody comes between.
const ECHO: u16 = 6_203;
/// The proxy's own ports.
const TCP_PROXY: u16 = 7_201;
const UDP_PROXY: u16 = 7_202;

const RULES: &str = "
table inet mflow {
    chain before {
        type filter hook prerouting priority mangle;
        meta l4proto tcp tcp dport 6201 tproxy to :7201 meta mark set 1 accept
        meta l4proto udp udp dport 6202 tproxy to :7202 meta mark set 1 accept
    }
}
";

/// A rule that gives the proxy an elephant for the container's own address, too.
const RULE_FOR_OWN: &str = "
add rule inet mflow before meta l4proto udp udp dport 5001 tproxy to :7202 meta mark set 1 accept
";

pub(super) fn cases() -> Vec<Case> {
    let case = |name, inner: Family| {
        Case::new(
            name,
            "a transparent proxy in the container",
            "a transparent proxy gets all datagrams of a split flow and all new connections, and sees where they were for",
            move |host| proxied(host, inner),
        )
    };
    let during = |name, inner: Family| {
        Case::new(
            name,
            "such a proxy, whose rules are made, taken away and made again while a flow is split",
            "a transparent proxy gets all new connections and those datagrams of a split flow that are sent while its rules are there; the \
             socket that the flow is for gets the others",
            move |host| proxied_during(host, inner),
        )
    };
    let cookies = |name, inner: Family| {
        Case::new(
            name,
            "a transparent proxy in the container",
            "a transparent proxy gets all new connections beside a split flow if it remembers none that begins, and checks cookies",
            move |host| proxied_by_cookies(host, inner),
        )
    };
    let mut cases = vec![
        case("tproxy/v4", Family::V4),
        case("tproxy/v6", Family::V6),
        during("tproxy/during/v4", Family::V4),
        during("tproxy/during/v6", Family::V6),
        cookies("tproxy/cookies/v4", Family::V4),
        cookies("tproxy/cookies/v6", Family::V6),
    ];
    cases.extend(stray::cases());
    cases
}

/// Returns an address that no host has.
fn far(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, 9, 9).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 9).into(),
    }
}

fn set_up() -> Result<()> {
    nft::add(CONTAINER, RULES)?;
    set_up_routes()
}

fn set_up_routes() -> Result<()> {
    for family in ["-4", "-6"] {
        netns::run(
            CONTAINER,
            &format!("ip {family} rule add fwmark 1 lookup 100"),
        )?;
    }
    topology::container_ip(
        "route add local 0.0.0.0/0 dev lo table 100
         route add local ::/0 dev lo table 100",
    )?;
    topology::client_ip(
        "route add 10.0.9.0/24 via 10.0.1.2 dev vxlan0
         route add fd00:9::/64 via fd00:1::2 dev vxlan0",
    )
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
}

fn proxied(host: &Host, inner: Family) -> Result<()> {
    proxied_on(host, inner, set_up, || Ok(()))
}

/// Does the same where the container answers each SYN with a cookie.
fn proxied_by_cookies(host: &Host, inner: Family) -> Result<()> {
    let set_up = || {
        set_up()?;
        netns::within(CONTAINER, || {
            topology::sysctl("net/ipv4/tcp_syncookies", "2")
        })
    };
    proxied_on(host, inner, set_up, || {
        let text = proc_net::read(Some(CONTAINER), "netstat")?;
        let mut counters = proc_net::counters(&text, "TcpExt")?;
        let sent = counters.find(|(name, _)| *name == "SyncookiesSent");
        let (_, sent) = sent.context("SyncookiesSent is not counted")?;
        ensure!(
            sent >= CONNECTIONS,
            "{sent} cookies were sent for {CONNECTIONS} connections: they began in another way"
        );
        Ok(())
    })
}

/// Demands all of a host that is set up like this, and of what `check` finds in the container of each half.
fn proxied_on(
    host: &Host,
    inner: Family,
    set_up: impl Fn() -> Result<()>,
    check: impl Fn() -> Result<()>,
) -> Result<()> {
    let compared = host.compare(inner, Rules::First, set_up, |host| {
        let seen = seen(host, inner)?;
        check().map(|()| seen)
    })?;
    let to = SocketAddr::from((far(inner), UDP));
    for (enabled, seen) in [&compared.off, &compared.on].into_iter().enumerate() {
        let proxied = seen.arrived.count(|look| look.to == Some(to));
        let Made {
            connections,
            syns_again,
            ..
        } = seen.made;
        ensure!(
            connections == CONNECTIONS
                && syns_again == 0
                && proxied + seen.arrived.refused == seen.arrived.sent,
            "with enabled {enabled} {connections} of {CONNECTIONS} connections to the proxy were made, {syns_again} SYNs sent again, \
             and {proxied} of {} datagrams had their own address; counters: {}",
            seen.arrived.sent,
            seen.arrived.counters()
        );
        seen.arrived.require_whole()?;
    }
    compared.on.arrived.require_split()
}

fn proxied_during(host: &Host, inner: Family) -> Result<()> {
    let change = Change {
        when: Rules::During,
        make: &|| nft::add(CONTAINER, &[RULES, RULE_FOR_OWN].concat()),
        undo: &|| nft::flush(CONTAINER),
    };
    let set_up = || set_up_routes().and_then(|()| change.before());
    let compared = host.compare(inner, change.when, set_up, |host| {
        let (services, proxy) = proxy(inner)?;
        let mut elephant = Elephant::plain(host, inner)?;
        elephant.sockets.push(proxy);
        let (arrived, made) = elephant.run(host.datagrams / 4, |live| {
            live.beside(&change, || services.make())
        })?;
        Ok(Seen { arrived, made })
    })?;
    compared.each(|seen| {
        seen.made.require_all()?;
        seen.arrived.require_spans(|look| look.socket == 1)?;
        seen.arrived.require_whole()
    })?;
    let (on, off) = (&compared.on.arrived, &compared.off.arrived);
    on.require_looks_of(off)?;
    on.require_split()
}

fn seen(host: &Host, inner: Family) -> Result<Seen> {
    let (services, proxy) = proxy(inner)?;
    let elephant = proxied_elephant(host, inner, proxy);
    let (arrived, made) = elephant.run(host.datagrams, |_| services.make())?;
    Ok(Seen { arrived, made })
}

/// Returns an elephant that a rule gives to this socket of the proxy.
fn proxied_elephant(host: &Host, inner: Family, proxy: UdpSocket) -> Elephant {
    Elephant {
        from: inner.client(),
        to: vec![(far(inner), UDP).into()],
        sockets: vec![proxy],
        pps: host.elephant_pps,
        fate: Fate::Split,
    }
}

/// Returns services, of which connections go by the proxy, and the proxy's socket for datagrams.
fn proxy(inner: Family) -> Result<(Services, UdpSocket)> {
    let any = unspecified(inner);
    let (listener, proxy, echo) = netns::within(CONTAINER, || {
        let listener: TcpListener = transparent(Type::STREAM, (any, TCP_PROXY).into())?.into();
        let proxy: UdpSocket = transparent(Type::DGRAM, (any, UDP_PROXY).into())?.into();
        Ok((listener, seeing(proxy)?, UdpSocket::bind((any, ECHO))?))
    })?;
    let at = |port| SocketAddr::from((far(inner), port));
    let services = Services {
        client: inner.client(),
        connect: at(TCP),
        // Flows without a proxy, beside it.
        send: (inner.container(), ECHO).into(),
        rounds: 1,
        servers: vec![Server {
            namespace: CONTAINER,
            listener,
            told: at(TCP),
            echo,
        }],
    };
    Ok((services, proxy))
}

/// Returns a socket that may have what is for others' addresses.
fn transparent(kind: Type, address: SocketAddr) -> Result<Socket> {
    let protocol = if kind == Type::STREAM {
        Protocol::TCP
    } else {
        Protocol::UDP
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv4() {
        setsockopt(&socket, sockopt::IpTransparent, &true)?;
    } else {
        socket.set_ip_transparent_v6(true)?;
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    if kind == Type::STREAM {
        socket.listen(1024)?;
    }
    Ok(socket)
}
