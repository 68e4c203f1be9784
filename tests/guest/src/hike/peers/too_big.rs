// SPDX-License-Identifier: GPL-2.0

//! Packets that are too big for a path: the kernel of their source is told, believes it, and sends smaller ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};
use etherparse::PacketBuilder;
use mflow_hike::config::path::Mode;
use mflow_hike::{Class, Destination, Engine, Hike, Path, Route};
use nix::net::if_::if_nametoindex;

use super::kernel::{destination, frame, Shape, ETHERNET_BYTES, MARK, PORT};
use crate::hike::network::{
    attach, mac, sids, Network, DST, DST_V6, INGRESS, LEFT, RIGHT, SRC, SRC_V6, TUNNEL_SOURCE,
};
use crate::hike::{instance, Case};
use crate::machine::command;
use crate::network::bpf::{Xdp, XdpMode};
use crate::network::packet_socket::PacketSocket;
use crate::network::{netns, topology};

const LINK_MTU: u16 = 1_500;
/// The MTU at the narrow place, and the part of it that is left beside the outer headers of three SIDs.
const NARROW_MTU: u16 = 1_400;
const INNER_MTU: u16 = NARROW_MTU - 96;
/// Bytes of the packets that are too big with the outer headers at the narrow place, and fit all links.
const PACKET_BYTES: usize = 1_380;
const IPV6_BYTES: usize = 40;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const ICMP_BYTES: usize = 8;
/// Bytes of answers with their quotes: RFC 4443, 2.4 (c), and RFC 1812, 4.3.2.3.
const ANSWER_V6_BYTES: usize = 1_280;
const ANSWER_V4_BYTES: usize = 576;
/// Sources of answers over IPv4: the address of ingress on the link, and on kernels that do not tell it that of RFC 7600, 4.8.
const ANSWERS_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 2), Ipv4Addr::new(192, 0, 0, 8)];
const PATIENCE: Duration = Duration::from_secs(10);
/// Frames and pauses that are let pass before an answer.
const LOOKS: usize = 100;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "peer/too-big",
        proves: "the source of a packet that is too big for a path, or for the link behind it, is told the MTU that is left, and what it sends next arrives; errors are not answered",
        run: |_| {
            for engine in [Engine::Compiled, Engine::TailCalls] {
                for place in PLACES {
                    too_big(engine, place).with_context(|| format!("{engine:?}, {place:?}"))?;
                }
            }
            Ok(())
        },
    }]
}

/// A narrow place.
#[derive(Clone, Copy, Debug)]
struct Place {
    chain: &'static str,
    path_mtu: u16,
    link_mtu: u16,
}

const PLACES: [Place; 3] = [
    Place {
        chain: "enc,fw-fib",
        path_mtu: NARROW_MTU,
        link_mtu: LINK_MTU,
    },
    Place {
        chain: "enc,fw-fib",
        path_mtu: LINK_MTU,
        link_mtu: NARROW_MTU,
    },
    Place {
        chain: "enc,fw-table",
        path_mtu: LINK_MTU,
        link_mtu: NARROW_MTU,
    },
];

fn too_big(engine: Engine, place: Place) -> Result<()> {
    let _network = Network::up()?;
    // Unlike a NIC, a veth sends nothing back unless its other end has a program (drivers/net/veth.c: veth_xdp_flush).
    let _program = netns::within(SRC, || Xdp::attach(RIGHT, XdpMode::Native))?;
    topology::ip_in(INGRESS, &format!("link set {RIGHT} mtu {}", place.link_mtu))?;
    let mut hike = instance(engine)?;
    attach(&mut hike, INGRESS)?;
    let route = Route {
        port: netns::within(INGRESS, || Ok(if_nametoindex(RIGHT)?))?,
        mtu: place.link_mtu,
        source: mac(1, 1),
        destination: mac(1, 2),
    };
    hike.set_route("fc00::/16".parse()?, &route)?;
    let chain = hike.add_chain(&place.chain.parse()?)?;
    for v6 in [true, false] {
        // What is done with such packets is what paths do that say nothing of it.
        let path = Path {
            mtu: place.path_mtu,
            ..Path::new(TUNNEL_SOURCE, sids(3, v6))
        };
        let class = Class {
            path: Some(hike.add_path(&path)?),
            ..Class::of(chain)
        };
        hike.set_class(Destination::Address(destination(shape(v6))), class)?;
    }
    let link = PacketSocket::open(SRC, RIGHT)?;
    for v6 in [true, false] {
        told(&hike, &link, v6).with_context(|| if v6 { "IPv6" } else { "IPv4" })?;
    }
    error_is_not_answered(&hike, &link)?;
    kernel_answers_the_last_hop(&hike, &link)?;
    netns::within(INGRESS, || hike.detach(LEFT))
}

fn shape(v6: bool) -> Shape {
    Shape {
        v6,
        mode: Mode::Encaps,
        sids: 3,
    }
}

/// Returns how many packets have had a reason.
fn count(hike: &Hike, name: &str) -> Result<u64> {
    let reasons = hike.reasons()?;
    let found = reasons.iter().find(|(reason, _)| reason.name == name);
    let (_, pkts) = found.with_context(|| format!("no reason {name}"))?;
    Ok(*pkts)
}

/// Sends what is too big, until its source knows; then the same arrives.
fn told(hike: &Hike, link: &PacketSocket, v6: bool) -> Result<()> {
    let to = destination(shape(v6));
    let any: IpAddr = match v6 {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    };
    let at = |node| netns::within(node, || Ok(UdpSocket::bind((any, PORT))?));
    let (sender, receiver) = (at(SRC)?, at(DST)?);
    receiver.set_read_timeout(Some(PATIENCE))?;
    let before = count(hike, "enc-too-big-told")?;
    let headers = UDP_BYTES + if v6 { IPV6_BYTES } else { IPV4_BYTES };
    let lost = vec![1; PACKET_BYTES - headers];
    sender.send_to(&lost, (to, PORT))?;
    let answer = answer(link, v6).with_context(|| format!("{:?}", hike.reasons()))?;
    let expected = match v6 {
        true => ANSWER_V6_BYTES,
        false => ANSWER_V4_BYTES,
    };
    ensure!(
        answer.len() == ETHERNET_BYTES + expected,
        "the answer has {} bytes",
        answer.len()
    );
    ensure!(
        answered_by(&answer, v6),
        "another one has answered: {answer:02x?}"
    );
    let get = format!("ip {} route get {to}", if v6 { "-6" } else { "-4" });
    let mtu = format!("mtu {INNER_MTU}");
    command::wait_until("the source believes it", || {
        Ok(netns::run(SRC, &get)?.contains(&mtu))
    })
    .with_context(|| format!("{:?}", netns::run(SRC, &get)))?;
    let arrives = vec![2; lost.len()];
    sender.send_to(&arrives, (to, PORT))?;
    let mut received = [0; 2 * PACKET_BYTES];
    let (bytes, _) = receiver
        .recv_from(&mut received)
        .with_context(|| format!("what the source sends next: {:?}", hike.reasons()))?;
    ensure!(
        received[..bytes] == arrives,
        "{bytes} bytes arrived that begin with {}",
        received[0]
    );
    let told = count(hike, "enc-too-big-told")? - before;
    ensure!(told == 1, "the source was told {told} times");
    Ok(())
}

/// Waits for an answer that says that a packet was too big.
fn answer(link: &PacketSocket, v6: bool) -> Result<Vec<u8>> {
    for _ in 0..LOOKS {
        let Some(frame) = link.next()? else {
            continue;
        };
        let ip = &frame[ETHERNET_BYTES..];
        // The protocol, and the type of ICMP.
        let is_it = match v6 {
            true => ip[0] >> 4 == 6 && ip[6] == 58 && ip[IPV6_BYTES] == 2,
            false => ip[0] >> 4 == 4 && ip[9] == 1 && ip[IPV4_BYTES] == 3,
        };
        if is_it {
            return Ok(frame);
        }
    }
    bail!("no answer came")
}

/// Returns whether the answer is that of ingress.
fn answered_by(answer: &[u8], v6: bool) -> bool {
    let ip = &answer[ETHERNET_BYTES..];
    match v6 {
        true => ip[8..24] == TUNNEL_SOURCE.octets(),
        false => ANSWERS_V4
            .iter()
            .any(|address| ip[12..16] == address.octets()),
    }
}

/// Sends an error that is too big: RFC 4443, 2.4 (e.1).
fn error_is_not_answered(hike: &Hike, link: &PacketSocket) -> Result<()> {
    let before = [
        count(hike, "enc-too-big-end")?,
        count(hike, "enc-too-big-told")?,
    ];
    let unreachable = PacketBuilder::ethernet2(mac(0, 1), mac(0, 2))
        .ipv6(SRC_V6.octets(), DST_V6.octets(), 64)
        .icmpv6_raw(1, 0, [0; 4]);
    let mut error = Vec::new();
    unreachable.write(&mut error, &[0; PACKET_BYTES - IPV6_BYTES - ICMP_BYTES])?;
    link.send(&error)?;
    command::wait_until("the error is dropped", || {
        Ok(count(hike, "enc-too-big-end")? == before[0] + 1)
    })
    .with_context(|| format!("{:?}", hike.reasons()))?;
    ensure!(
        count(hike, "enc-too-big-told")? == before[1],
        "an error was answered"
    );
    Ok(())
}

/// Sends a packet that would not leave ingress alive: the kernel has it, and answers.
fn kernel_answers_the_last_hop(hike: &Hike, link: &PacketSocket) -> Result<()> {
    let before = count(hike, "enc-hop-limit")?;
    link.send(&frame(shape(true), 0, 1)?)?;
    let answer = link
        .receive(&MARK)
        .with_context(|| format!("{:?}", hike.reasons()))?;
    let kind = answer[ETHERNET_BYTES + IPV6_BYTES];
    ensure!(
        kind == 3,
        "ICMPv6 of type {kind} came, and not Time Exceeded"
    );
    ensure!(
        count(hike, "enc-hop-limit")? == before + 1,
        "it was not left to the kernel: {:?}",
        hike.reasons()
    );
    Ok(())
}
