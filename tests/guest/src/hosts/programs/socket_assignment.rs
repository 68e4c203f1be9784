// SPDX-License-Identifier: GPL-2.0

//! A program at the container's device that gives packets to the sockets of a proxy, as Cilium's does for layer-7 policies.

use std::cell::RefCell;
use std::net::{SocketAddr, UdpSocket};

use anyhow::{ensure, Context as _, Result};

use super::tc_program::{Code, Offsets, OK, SHOT};
use crate::hosts::elephant::receiver::{seeing, Arrived};
use crate::hosts::elephant::{unspecified, Elephant, Fate};
use crate::hosts::host::{Host, Rules};
use crate::hosts::new_flows::{Made, Server, Services};
use crate::hosts::Case;
use crate::network::netns;
use crate::network::topology::{Family, CONTAINER};

const TCP: u16 = 6_501;
const UDP: u16 = 6_502;
/// The port that bypasses the proxy.
const ECHO: u16 = 6_503;
/// The proxy's own ports.
const TCP_PROXY: u16 = 7_501;
const UDP_PROXY: u16 = 7_502;

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

pub(super) fn cases() -> Vec<Case> {
    let case = |name, inner| {
        Case::new(
            name,
            "a BPF program at the container's device that assigns packets to a proxy's sockets",
            "a proxy gets all datagrams of a split flow and all new connections that a program assigns to it, and sees where they were for",
            move |host| assigned(host, inner),
        )
    };
    vec![
        case("bpf/assign/v4", Family::V4),
        case("bpf/assign/v6", Family::V6),
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
}

fn assigned(host: &Host, inner: Family) -> Result<()> {
    let program = RefCell::new(None);
    let set_up = || {
        *program.borrow_mut() = None;
        *program.borrow_mut() = Some(code(inner).attach(Some(CONTAINER), "eth0", "ingress")?);
        Ok(())
    };
    let compared = host.compare(inner, Rules::First, set_up, |host| seen(host, inner))?;
    let to = SocketAddr::from((inner.container(), UDP));
    compared.each(|seen| {
        let counters = || format!("counters: {}", seen.arrived.counters());
        seen.made.require_all().with_context(counters)?;
        let assigned = seen.arrived.count(|look| look.to == Some(to));
        ensure!(
            assigned + seen.arrived.refused == seen.arrived.sent,
            "the proxy got {assigned} of {} datagrams: {:?}",
            seen.arrived.sent,
            seen.arrived.looks
        );
        seen.arrived.require_whole()
    })?;
    let (on, off) = (&compared.on.arrived, &compared.off.arrived);
    on.require_looks_of(off)?;
    on.require_split()
}

fn seen(host: &Host, inner: Family) -> Result<Seen> {
    let any = unspecified(inner);
    let proxy = netns::within(CONTAINER, || seeing(UdpSocket::bind((any, UDP_PROXY))?))?;
    let address = inner.container();
    let mut server = Server::bind(CONTAINER, address, TCP_PROXY, ECHO)?;
    server.told = (address, TCP).into();
    let services = Services {
        client: inner.client(),
        connect: (address, TCP).into(),
        send: (address, ECHO).into(),
        rounds: 1,
        servers: vec![server],
    };
    let elephant = Elephant {
        from: inner.client(),
        to: vec![(address, UDP).into()],
        sockets: vec![proxy],
        pps: host.elephant_pps,
        fate: Fate::Split,
    };
    let (arrived, made) = elephant.run(host.datagrams / 4, |_| services.make())?;
    Ok(Seen { arrived, made })
}
