// SPDX-License-Identifier: GPL-2.0

//! Fast flows in one outer flow, of which one ends in a container and the others go on: to another host, or to a virtual machine
//! whose tap has no discipline, as libvirt has it. Lanes carry all, and nobody puts in order what goes on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use mflow_protocol::datagram::{self, MIN_BYTES};
use nix::poll::{poll, PollFd, PollFlags};

use crate::hosts::elephant::receiver::Arrived;
use crate::hosts::elephant::{Elephant, PORT};
use crate::hosts::host::{Host, Rules};
use crate::hosts::Case;
use crate::machine::{command, cpu, threads};
use crate::mflow::Stats;
use crate::network::packet_socket::PacketSocket;
use crate::network::topology::{self, Family, CLIENT};
use crate::network::virtual_nic;
use crate::traffic::datagrams::ledger::Ledger;
use crate::traffic::datagrams::sender::{SendOrder, Sender};

/// A host that the client reaches through the server; the server's route to it leads back to the client.
const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 1);
const TAP: &str = "tap0";
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 9);
const GUEST_MAC: &str = "02:00:00:00:07:09";
/// The flows that go on. On newer kernels an outer flow has only half of them.
const FLOWS: u16 = 8;
const POLL_MS: u16 = 20;
/// The longest time that a late reader has.
const AFTERWARDS: Duration = Duration::from_secs(3);
/// Room for all frames of the far host: the kernel keeps them until the reader comes.
const ROOM: usize = 64 << 20;
/// The bytes of a frame that hold its destination address: the last ones of the IPv4 header, which follows the Ethernet header.
const TO: std::ops::Range<usize> = 30..34;
/// Batches of each of two lanes, as they are under way when the first packet of the other flow is met, and as many that wait for them.
const MOST_OUT_OF_ORDER: u64 = 4 * 64;

pub(super) fn cases() -> Vec<Case> {
    let case = |name, has, proves, to_guest| {
        Case::new(name, has, proves, move |host| beside(host, to_guest))
    };
    vec![
        case(
            "networks/mixed/router",
            "flows that the host routes on, in the outer flow of one that ends here",
            "a flow that goes on to another host turns up in a split outer flow, which is not split any more within some batches",
            false,
        )
        .but("until the flow is not split any more, some packets that go on may change places"),
        case(
            "networks/mixed/guest",
            "a virtual machine at the bridge, with flows for it in the outer flow of one that ends here",
            "the same of a flow to a virtual machine whose tap has no discipline",
            true,
        )
        .but("until the flow is not split any more, some packets that go on may change places"),
    ]
}

/// The arrivals of the flow that ends here and of those that go on, and the number of times that splitting has stopped because
/// the path queues packets.
#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    onward: Onward,
    stopped: u64,
}

/// The record of each flow that goes on.
type Ledgers = BTreeMap<u16, Ledger>;

/// The datagrams that were sent and that have come, over all flows that go on.
#[derive(Clone, Copy, Debug)]
struct Onward {
    sent: u64,
    delivered: u64,
    reordered: u64,
}

impl Onward {
    fn of(sent: u64, ledgers: &Ledgers) -> Self {
        Self {
            sent,
            delivered: ledgers.values().map(Ledger::delivered).sum(),
            reordered: ledgers.values().map(Ledger::reordered).sum(),
        }
    }
}

fn beside(host: &Host, to_guest: bool) -> Result<()> {
    let set_up = || if to_guest { Ok(()) } else { route() };
    let compared = host.compare(Family::V4, Rules::First, set_up, |host| {
        if to_guest {
            at_guest(host)
        } else {
            at_far_host(host)
        }
    });
    // Also after a failure.
    if !to_guest {
        let _ = topology::ip(&format!("route del {FAR}/32"));
    }
    let compared = compared?;
    compared.each(|seen| {
        ensure!(
            seen.onward.delivered * 20 >= seen.onward.sent * 19,
            "of what goes on too little has come: {:?}",
            seen.onward
        );
        seen.arrived.require_all()
    })?;
    let (off, on) = (&compared.off, &compared.on);
    ensure!(off.onward.reordered == 0, "with enabled 0 {:?}", off.onward);
    ensure!(
        on.stopped >= 1 && on.onward.reordered <= MOST_OUT_OF_ORDER * on.stopped,
        "splitting has stopped {} time(s), and {:?}; counters: {}",
        on.stopped,
        on.onward,
        on.arrived.counters()
    );
    Ok(())
}

/// Runs an elephant to the container, and once it is split flows that `onward` measures.
fn run(host: &Host, onward: impl FnOnce() -> Result<Onward>) -> Result<Seen> {
    let mut elephant = Elephant::plain(host, Family::V4)?;
    elephant.pps /= 2.0;
    let (arrived, (onward, stopped)) = elephant.run(0, |_| {
        let stops = || Stats::read_if_loaded()?.map_or(Ok(0), |stats| stats.get("paths_async"));
        let before = stops()?;
        let onward = onward()?;
        Ok((onward, stops()? - before))
    })?;
    Ok(Seen {
        arrived,
        onward,
        stopped,
    })
}

/// Sends as many datagrams to an address as are wanted, and returns how many it has been.
fn send(host: &Host, to: Ipv4Addr) -> Result<u64> {
    let sender = Sender::start(SendOrder {
        from: Family::V4.client(),
        to: (PORT..PORT + FLOWS).map(|port| (to, port).into()).collect(),
        bytes: MIN_BYTES,
        rate: Some(host.elephant_pps / 2.0),
    });
    let enough = command::wait_until("all datagrams are sent", || {
        Ok(sender.sent() >= host.datagrams)
    });
    // Also after a failure.
    sender.stop_at(0);
    let sent = sender.join()?;
    enough.map(|()| sent.iter().sum())
}

/// Makes the server the client's router to where the server's route leads back to the client.
fn route() -> Result<()> {
    let bridge = topology::mac("br0")?;
    topology::ip(&format!(
        "addr add 10.0.2.1/24 dev br0\nroute replace {FAR}/32 via 192.168.50.1 dev eth0"
    ))?;
    topology::client_ip(&format!(
        "addr add 10.0.2.2/24 dev vxlan0
         neigh replace 10.0.2.1 lladdr {bridge} dev vxlan0
         route replace {FAR}/32 via 10.0.2.1 dev vxlan0"
    ))?;
    topology::sysctl("net/ipv4/ip_forward", "1")
}

/// The client's machine drops what comes back to it; its NIC has seen it.
fn at_far_host(host: &Host) -> Result<Seen> {
    run(host, || {
        let watcher = PacketSocket::open(CLIENT, "eth1")?;
        watcher.make_room(ROOM)?;
        let sent = send(host, FAR)?;
        let mut ledgers = Ledgers::default();
        // The other flow's frames go on meanwhile.
        let end = Instant::now() + AFTERWARDS;
        while Onward::of(sent, &ledgers).delivered < sent && Instant::now() < end {
            if let Some(frame) = watcher.next()? {
                note(&mut ledgers, &frame, FAR);
            }
        }
        Ok(Onward::of(sent, &ledgers))
    })
}

fn at_guest(host: &Host) -> Result<Seen> {
    let tap = virtual_nic::bridged_tap(TAP, GUEST_MAC)?;
    topology::client_ip(&format!(
        "neigh replace {GUEST} lladdr {GUEST_MAC} dev vxlan0"
    ))?;
    run(host, || {
        let (sent, ledgers) = read_beside(tap, || send(host, GUEST))?;
        Ok(Onward::of(sent, &ledgers))
    })
}

/// Reads a tap's frames for as long as something runs, and a little longer.
fn read_beside(mut tap: File, send: impl FnOnce() -> Result<u64>) -> Result<(u64, Ledgers)> {
    let read = |stop: &AtomicBool| {
        cpu::pin(cpu::READER)?;
        let mut ledgers = Ledgers::default();
        let mut frame = [0; 2_048];
        loop {
            let ended = stop.load(Ordering::Relaxed);
            let is_ready = poll(&mut [PollFd::new(tap.as_fd(), PollFlags::POLLIN)], POLL_MS)? > 0;
            if is_ready {
                let bytes = tap.read(&mut frame)?;
                note(&mut ledgers, &frame[..bytes], GUEST);
            } else if ended {
                return Ok(ledgers);
            }
        }
    };
    let (ledgers, sent) = threads::beside(read, send)?;
    Ok((sent, ledgers))
}

/// Notes a datagram that a frame has for this address.
fn note(ledgers: &mut Ledgers, frame: &[u8], to: Ipv4Addr) {
    if frame.get(TO) != Some(&to.octets()) {
        return;
    }
    let bytes = frame.len().checked_sub(MIN_BYTES);
    if let Some(head) = bytes.and_then(|start| datagram::decode(&frame[start..])) {
        ledgers.entry(head.flow).or_default().record(head.sequence);
    }
}
