// SPDX-License-Identifier: GPL-2.0

//! Datagrams of which the first fragment waits for the second one for long. Meanwhile the window has been used up many times,
//! and the flow has stopped and begun to be split again: the batch of the first fragment had its turn long ago.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use etherparse::{EtherType, IpFragOffset, IpNumber, Ipv4Header, UdpHeader};
use mflow_protocol::network::{self, mac_bytes, CLIENT_MAC, CONTAINER_MAC};

use crate::cases::{Case, Run};
use crate::machine::threads;
use crate::mflow::{self, Knobs};
use crate::network::netns;
use crate::network::packet_socket::PacketSocket;
use crate::network::topology::{CLIENT, CONTAINER};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Load as _};

const PORT: u16 = 6_005;
/// Datagrams in fragments, each time: few, as the kernel forgets those between whose fragments many others come.
const DATAGRAMS: u16 = 16;
/// Bytes of each fragment behind the header of IP; the first one has the header of UDP.
const FRAGMENT_BYTES: usize = 64;
const UDP_BYTES: usize = 8;
/// Several windows of batches, each a packet.
const WAIT: Duration = Duration::from_millis(500);
/// A little less than the kernel keeps a first fragment.
const LONG_WAIT: Duration = Duration::from_secs(25);
const LONGEST_STOP: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(20);

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "drops/old-tags",
        "first fragments wait for their second ones for longer than the window lasts, while the flow stops and begins again: it stops \
         at once, and all arrive",
        Run::Always,
        old_tags,
    )]
}

fn old_tags(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.one_outer = true;
    rig.prepare(&plan, &Knobs::of(2, 1))?;
    let wait = if rig.scale.is_full() { LONG_WAIT } else { WAIT };
    let socket = netns::within(CONTAINER, || Ok(UdpSocket::bind(("0.0.0.0", PORT))?))?;
    socket.set_nonblocking(true)?;
    let frames = PacketSocket::open(CLIENT, "vxlan0")?;
    let (before, across) = (0..DATAGRAMS, DATAGRAMS..2 * DATAGRAMS);
    let mut arrived = 0;
    let outcome = Datagrams::measure(&plan, |live| {
        for number in 0..2 * DATAGRAMS {
            frames.send(&fragment(number, false)?)?;
        }
        live.flow_for(wait)?;
        for number in before {
            frames.send(&fragment(number, true)?)?;
        }
        let stopping = Instant::now();
        mflow::write("enabled", "0")?;
        let stop = stopping.elapsed();
        ensure!(
            stop < LONGEST_STOP,
            "the flow was split for {} ms more",
            stop.as_millis()
        );
        let split_before = mflow::flows_split()?;
        mflow::write("enabled", "1")?;
        live.wait_split_since(split_before)?;
        for number in across {
            frames.send(&fragment(number, true)?)?;
        }
        threads::until_ok(LIMIT, || {
            while socket.recv(&mut [0; 2 * FRAGMENT_BYTES]).is_ok() {
                arrived += 1;
            }
            ensure!(
                arrived == 2 * DATAGRAMS,
                "{arrived} of {} datagrams in fragments have arrived",
                2 * DATAGRAMS
            );
            Ok(())
        })
    })?;
    outcome.judge(|outcome| {
        rig.settle()?;
        outcome.require_whole()?;
        let late = outcome.counter("late_pkts")? + outcome.counter("unknown_tags")?;
        ensure!(
            outcome.reordered <= late,
            "{} datagrams out of order, but only {late} packets were late",
            outcome.reordered
        );
        Ok(())
    })
}

/// Returns the first or the last of the two fragments of a datagram, as the client sends it into the overlay.
fn fragment(number: u16, is_last: bool) -> Result<Vec<u8>> {
    let (from, to) = (network::CLIENT.octets(), network::CONTAINER.octets());
    // CAST: a small constant.
    let mut ip = Ipv4Header::new(FRAGMENT_BYTES as u16, 64, IpNumber::UDP, from, to)?;
    // The kernel numbers fragments only, and no other datagram of the client has any.
    ip.identification = number + 1;
    ip.dont_fragment = false;
    ip.more_fragments = !is_last;
    // CAST: a small constant.
    let place = if is_last {
        FRAGMENT_BYTES as u16 / 8
    } else {
        0
    };
    ip.fragment_offset = IpFragOffset::try_new(place)?;
    ip.header_checksum = ip.calc_header_checksum();
    let mut frame = Vec::new();
    for mac in [CONTAINER_MAC, CLIENT_MAC] {
        frame.extend(mac_bytes(mac).context("an Ethernet address")?);
    }
    frame.extend(EtherType::IPV4.0.to_be_bytes());
    ip.write(&mut frame)?;
    if is_last {
        frame.extend([0; FRAGMENT_BYTES]);
    } else {
        let udp = UdpHeader::without_ipv4_checksum(PORT, PORT, 2 * FRAGMENT_BYTES - UDP_BYTES)?;
        udp.write(&mut frame)?;
        frame.extend([0; FRAGMENT_BYTES - UDP_BYTES]);
    }
    Ok(frame)
}
