// SPDX-License-Identifier: GPL-2.0

//! A program that gives packets to the sockets of a proxy, as Cilium's does for layer-7 policies: at the container's device, or for
//! sockets of the host at its NIC or where the tunnel ends.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process;

use anyhow::{ensure, Context as _, Result};

use super::tc_program::{Code, Offsets, OK, SHOT};
use crate::hosts::elephant::receiver::{seeing, Arrived};
use crate::hosts::elephant::{unspecified, Elephant, Fate};
use crate::hosts::host::{Compared, Host, Rules};
use crate::hosts::new_flows::{Made, Server, Services};
use crate::hosts::Case;
use crate::mflow;
use crate::network::bpf::Pinned;
use crate::network::netns;
use crate::network::topology::{self, Family, CONTAINER};

const TCP: u16 = 6_501;
const UDP: u16 = 6_502;
/// The port that bypasses the proxy.
const ECHO: u16 = 6_503;
/// The proxy's own ports.
const TCP_PROXY: u16 = 7_501;
const UDP_PROXY: u16 = 7_502;

/// The name of the first namespace while sockets are there.
const HOST: &str = "host";

/// Functions of the kernel.
const LOOKUP_TCP: u32 = 84;
const LOOKUP_UDP: u32 = 85;
const RELEASE: u32 = 86;
const ASSIGN: u32 = 124;
/// The caller's namespace.
const OWN_NAMESPACE: u32 = u32::MAX;
/// A segment opens a connection if, of SYN and ACK, only SYN is set.
const SYN: u32 = 0x02;
const SYN_AND_ACK: u32 = 0x12;

/// The device at whose ingress the program is; the sockets are in the same namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Container(Family),
    /// Packets of no tunnel are assigned before the module's hook.
    Nic,
    Tunnel,
}

impl At {
    fn family(self) -> Family {
        match self {
            Self::Container(family) => family,
            Self::Nic | Self::Tunnel => Family::V4,
        }
    }

    fn namespace(self) -> &'static str {
        match self {
            Self::Container(_) => CONTAINER,
            Self::Nic | Self::Tunnel => HOST,
        }
    }

    /// Returns the client's address and the one that it sends to, after the network has been set up for that.
    fn ends(self) -> Result<(IpAddr, IpAddr)> {
        let (server, client) = Family::V4.ends();
        Ok(match self {
            Self::Container(family) => (family.client(), family.container()),
            Self::Nic => (client, server),
            Self::Tunnel => (Family::V4.client(), topology::end_of_tunnel()?),
        })
    }

    fn fate(self) -> Fate {
        match self {
            Self::Container(_) | Self::Tunnel => Fate::Split,
            // It is not looked at.
            Self::Nic => Fate::Either,
        }
    }

    fn attach(self) -> Result<Pinned> {
        let (namespace, device) = match self {
            Self::Container(_) => (Some(CONTAINER), "eth0"),
            Self::Nic => (None, "eth0"),
            Self::Tunnel => (None, "vxlan0"),
        };
        code(self.family()).attach(namespace, device, "ingress")
    }
}

pub(super) fn cases() -> Vec<Case> {
    let case = |name, has, at: At| {
        Case::new(
            name,
            has,
            "a proxy gets all datagrams of a fast flow and all new connections that a program assigns to it, and sees where they were for",
            move |host| assigned(host, at),
        )
        .with_fate(at.fate())
    };
    let in_container =
        "a BPF program at the container's device that assigns packets to a proxy's sockets";
    vec![
        case("bpf/assign/v4", in_container, At::Container(Family::V4)),
        case("bpf/assign/v6", in_container, At::Container(Family::V6)),
        case(
            "bpf/assign/nic",
            "a BPF program at the NIC that assigns packets to sockets of the host",
            At::Nic,
        ),
        case(
            "bpf/assign/tunnel",
            "such a program where the tunnel ends at the host",
            At::Tunnel,
        ),
    ]
}

/// Returns a port as a little-endian CPU reads it in a packet.
fn port(number: u16) -> u32 {
    u32::from(number.to_be())
}

/// Returns a program that assigns the proxy's socket to each opening segment and each datagram.
fn code(family: Family) -> Code {
    let at = Offsets::of(family);
    // Where the tuple is on the stack: two addresses, two ports.
    let tuple = -(at.address_bytes + 8);
    let target = at.ports + 2;
    let mut code = Code::default();
    code.copy(6, 1);
    code.read(4, 7, 6, 76);
    code.read(4, 8, 6, 80);
    code.copy(2, 7);
    code.plus(2, i32::from(at.ports) + 8);
    code.go_if_greater(2, 8, "pass");
    code.read(2, 3, 7, 12);
    code.go_if(false, 3, at.kind, "pass");
    for place in (0..at.address_bytes).step_by(4) {
        code.read(4, 3, 7, at.addresses + place);
        code.write(4, 10, tuple + place, 3);
    }
    code.read(2, 3, 7, at.ports);
    let ports = tuple + at.address_bytes;
    code.write(2, 10, ports, 3);
    code.read(2, 4, 7, target);
    code.read(1, 3, 7, at.protocol);
    code.go_if(false, 3, 17, "tcp");
    code.go_if(false, 4, port(UDP), "pass");
    look_up(&mut code, (tuple, ports), UDP_PROXY, LOOKUP_UDP);
    code.go("found");
    code.name("tcp");
    code.go_if(false, 3, 6, "pass");
    code.go_if(false, 4, port(TCP), "pass");
    code.copy(2, 7);
    code.plus(2, i32::from(at.ports) + 20);
    code.go_if_greater(2, 8, "pass");
    code.read(1, 3, 7, at.ports + 13);
    code.add(0x57, 3, 0, 0, SYN_AND_ACK);
    code.go_if(false, 3, SYN, "pass");
    look_up(&mut code, (tuple, ports), TCP_PROXY, LOOKUP_TCP);
    code.name("found");
    code.go_if(true, 0, 0, "drop");
    code.copy(9, 0);
    code.copy(1, 6);
    code.copy(2, 9);
    code.set(3, 0);
    code.call(ASSIGN);
    code.copy(7, 0);
    code.copy(1, 9);
    code.call(RELEASE);
    code.go_if(false, 7, 0, "drop");
    code.name("pass");
    code.end(OK);
    code.name("drop");
    code.end(SHOT);
    code
}

/// Looks up the socket at the proxy's port of the packet's destination address.
fn look_up(code: &mut Code, (tuple, ports): (i16, i16), proxy: u16, function: u32) {
    code.write_number(2, 10, ports + 2, port(proxy));
    code.copy(1, 6);
    code.copy(2, 10);
    code.plus(2, i32::from(tuple));
    // CAST: some bytes.
    code.set(3, (ports + 4 - tuple) as u32);
    code.set(4, OWN_NAMESPACE);
    code.set(5, 0);
    code.call(function);
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    /// The address and port that the proxy's datagrams were for.
    to: SocketAddr,
}

fn assigned(host: &Host, at: At) -> Result<()> {
    if at.namespace() == HOST {
        netns::name(process::id(), HOST)?;
    }
    let compared = compare(host, at);
    // Also after a failure.
    if at.namespace() == HOST {
        netns::delete(HOST)?;
    }
    let compared = compared?;
    let (on, off) = (&compared.on.arrived, &compared.off.arrived);
    on.require_looks_of(off)?;
    if at.fate() == Fate::Split {
        return on.require_split();
    }
    let split = mflow::flows_split()?;
    ensure!(split == 0, "{split} flows were split");
    Ok(())
}

fn compare(host: &Host, at: At) -> Result<Compared<Seen>> {
    let (program, ends) = (RefCell::new(None), Cell::new(None));
    let set_up = || {
        *program.borrow_mut() = None;
        ends.set(Some(at.ends()?));
        *program.borrow_mut() = Some(at.attach()?);
        Ok(())
    };
    let compared = host.compare(at.family(), Rules::First, set_up, |host| {
        seen(host, at, ends.get().context("nothing is set up")?)
    })?;
    compared.each(|seen| {
        let counters = || format!("counters: {}", seen.arrived.counters());
        seen.made.require_all().with_context(counters)?;
        let assigned = seen.arrived.count(|look| look.to == Some(seen.to));
        ensure!(
            assigned + seen.arrived.refused == seen.arrived.sent,
            "the proxy got {assigned} of {} datagrams: {:?}",
            seen.arrived.sent,
            seen.arrived.looks
        );
        seen.arrived.require_whole()
    })?;
    Ok(compared)
}

fn seen(host: &Host, at: At, (client, address): (IpAddr, IpAddr)) -> Result<Seen> {
    let any = unspecified(at.family());
    let proxy = netns::within(at.namespace(), || {
        seeing(UdpSocket::bind((any, UDP_PROXY))?)
    })?;
    let mut server = Server::bind(at.namespace(), address, TCP_PROXY, ECHO)?;
    server.told = (address, TCP).into();
    let services = Services {
        client,
        connect: (address, TCP).into(),
        send: (address, ECHO).into(),
        rounds: 1,
        servers: vec![server],
    };
    let to = SocketAddr::from((address, UDP));
    let elephant = Elephant {
        from: client,
        to: vec![to],
        sockets: vec![proxy],
        pps: host.elephant_pps,
        fate: at.fate(),
    };
    let (arrived, made) = elephant.run(host.datagrams / 4, |_| services.make())?;
    Ok(Seen { arrived, made, to })
}
