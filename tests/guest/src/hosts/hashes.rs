// SPDX-License-Identifier: GPL-2.0

//! Programs and queues that go by a packet's hash: sockets that a program chooses among, and RPS on the NIC, which makes hashes of its
//! own for all that comes.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use etherparse::PacketBuilder;
use mflow_protocol::network::{
    mac_bytes, CLIENT, CLIENT_HOST, CLIENT_MAC, CONTAINER, CONTAINER_MAC, SERVER_HOST, VNI,
    VXLAN_PORT,
};
use socket2::{Domain, Socket, Type};

use super::elephant::receiver::seeing;
use super::elephant::{Elephant, Fate, PORT};
use super::host::{Host, Rules};
use super::Case;
use crate::machine::sockopt;
use crate::machine::{cpu, threads};
use crate::network::topology::{self, Family};
use crate::network::{bpf, netns};

const SWEPT_PORT: u16 = 5_012;
/// Source ports of the tunnel that come beside the elephant, each once: each has another hash.
const FIRST_SWEPT: u16 = 10_000;
const SWEPT: u16 = 3_000;
/// The number of packets that come in a millisecond.
const BURST: u16 = 4;
const TICK: Duration = Duration::from_millis(1);
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "hashes/sockets",
            "a BPF program that chooses among sockets by hash",
            "a program that chooses among sockets by hash gives a split flow to the one that it gives it to with enabled 0",
            chosen_by_hash,
        ),
        Case::new(
            "hashes/sweep",
            "RPS on the NIC, and thousands of other flows",
            "RPS on the NIC makes hashes for thousands of other flows: a split flow does not notice, and each of them arrives",
            swept,
        ),
    ]
}

fn chosen_by_hash(host: &Host) -> Result<()> {
    let compared = host.compare(
        Family::V4,
        Rules::First,
        || Ok(()),
        |host| {
            let sockets = netns::within(topology::CONTAINER, || {
                let sockets = [shared()?, shared()?];
                bpf::choose_by_hash(&sockets[0])?;
                Ok(sockets)
            })?;
            let elephant = Elephant {
                from: Family::V4.client(),
                to: vec![SocketAddr::from((CONTAINER, PORT))],
                sockets: sockets.into(),
                pps: host.elephant_pps,
                fate: Fate::Split,
            };
            Ok(elephant.run(host.datagrams, |_| Ok(()))?.0)
        },
    )?;
    compared.off.require_whole()?;
    compared.on.require_whole()?;
    compared.on.require_looks_of(&compared.off)?;
    compared.on.require_split()
}

/// Returns a socket of the elephant's port that others may have, too.
fn shared() -> Result<UdpSocket> {
    let address = SocketAddr::from((CONTAINER, PORT));
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    seeing(socket.into())
}

fn swept(host: &Host) -> Result<()> {
    let set_up = || topology::rps("eth0", cpu::LANE_MASK);
    let compared = host.compare(Family::V4, Rules::First, set_up, |host| {
        let swept = netns::within(topology::CONTAINER, || {
            Ok(UdpSocket::bind((CONTAINER, SWEPT_PORT))?)
        })?;
        let (arrived, (taken, ())) =
            Elephant::plain(host, Family::V4)?.run(host.datagrams, |_| {
                threads::beside(
                    |stop| count(&swept, stop),
                    || netns::within(topology::CLIENT, sweep),
                )
            })?;
        Ok((
            arrived,
            taken + u64::from(sockopt::receive_memory(&swept)?.drops),
        ))
    });
    // Also after a failure: the NIC stays.
    topology::rps("eth0", "0")?;
    let compared = compared?;
    for (enabled, (arrived, taken)) in [&compared.off, &compared.on].into_iter().enumerate() {
        ensure!(
            *taken == u64::from(SWEPT),
            "with enabled {enabled} {taken} of {SWEPT} packets of other flows came to their socket: {}",
            arrived.counters()
        );
        arrived.require_whole()?;
    }
    compared.on.0.require_split()?;
    compared.on.0.require_nothing_given_up()
}

fn count(socket: &UdpSocket, stop: &AtomicBool) -> Result<u64> {
    cpu::pin(cpu::READER)?;
    socket.set_read_timeout(Some(LOOK))?;
    let mut taken = 0;
    loop {
        let last = stop.load(Ordering::Relaxed);
        while socket.recv(&mut [0; 64]).is_ok() {
            taken += 1;
        }
        if last {
            return Ok(taken);
        }
    }
}

/// Sends a packet of the tunnel from each of many ports.
fn sweep() -> Result<()> {
    cpu::pin(cpu::SENDER)?;
    let packet = packet()?;
    for port in FIRST_SWEPT..FIRST_SWEPT + SWEPT {
        let socket = UdpSocket::bind((CLIENT_HOST, port))?;
        socket.send_to(&packet, (SERVER_HOST, VXLAN_PORT))?;
        if port % BURST == 0 {
            thread::sleep(TICK);
        }
    }
    Ok(())
}

/// Returns what is in a packet of the tunnel: its header, and a frame for the container.
fn packet() -> Result<Vec<u8>> {
    let [from, to] = [CLIENT_MAC, CONTAINER_MAC].map(mac_bytes);
    let (from, to) = from.zip(to).context("an address")?;
    let mut packet = vec![0x08, 0, 0, 0];
    packet.extend((VNI << 8).to_be_bytes());
    PacketBuilder::ethernet2(from, to)
        .ipv4(CLIENT.octets(), CONTAINER.octets(), 64)
        .udp(4_000, SWEPT_PORT)
        .write(&mut packet, &[0; 16])?;
    Ok(packet)
}
