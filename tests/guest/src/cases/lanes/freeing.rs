// SPDX-License-Identifier: GPL-2.0

//! The CPU that frees datagrams that lanes have built: the lane's, and another one's if the lane has no time.

use std::net::{SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use super::build::{connected, leaves_building};
use crate::cases::{Case, Run};
use crate::machine::{command, cpu, sockopt};
use crate::mflow::{Knobs, Stats};
use crate::network::netns;
use crate::network::topology::{self, Family, CLIENT};
use crate::traffic::datagrams::receiver;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;

/// The port of both ends of the flow, and those of other flows.
const PORT: u16 = 5_011;
const OTHER_PORTS: RangeInclusive<u16> = 5_012..=5_043;

/// Datagrams that are sent in a row, the pause behind them, and eight times the memory that the list of one CPU may have.
const BURST: u64 = 64;
const PAUSE: Duration = Duration::from_millis(2);
const MANY_BYTES: u32 = 8 << 20;
/// The most datagrams that are sent for that, and the longest wait for one.
const MOST_PKTS: u64 = 1 << 16;
const WAIT: Duration = Duration::from_secs(20);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "freeing/lane",
            "what lanes have built they free when it has been read, the last of it too, and nothing is lost or reordered",
            Run::Always,
            by_lane,
        ),
        Case::of_module(
            "freeing/elsewhere",
            "where a lane that is not polled has more to free than its CPU may keep, the NIC's CPU frees it when a packet of any flow comes",
            Run::Plain,
            elsewhere,
        ),
    ]
}

fn by_lane(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(2, 64)
    };
    // It waits until nothing is left to be freed.
    let outcome = rig.unnoticed(&rig.datagrams(), &knobs, |_| Ok(()))?;
    outcome.judge(|outcome| {
        let (freed, built) = (
            outcome.counter("freed_pkts")?,
            outcome.counter("request_pkts")?,
        );
        ensure!(
            freed >= built / 2,
            "of {built} packets that lanes built they freed {freed}"
        );
        Ok(())
    })
}

/// Once the last datagram of the flow has come, nothing polls the lane until a timer fires. So the list of its CPU becomes full.
fn elsewhere(rig: &Rig) -> Result<Option<Outcome>> {
    if !leaves_building("eth0")? {
        return Ok(None);
    }
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(1, 16).eager()
    };
    rig.prepare_pinned(&rig.datagrams(), &knobs)?;
    let (from, to) = (Family::V4.client(), topology::end_of_tunnel()?);
    let ends = |port| -> Result<(UdpSocket, UdpSocket)> {
        let (client, host) = (SocketAddr::from((from, port)), SocketAddr::from((to, port)));
        let reader = connected(host, client)?;
        reader.set_read_timeout(Some(WAIT))?;
        receiver::make_room(&reader)?;
        Ok((netns::within(CLIENT, || connected(client, host))?, reader))
    };
    let (sender, reader) = ends(PORT)?;
    // With four queues, some of these come by the flow's.
    let others = OTHER_PORTS.map(ends).collect::<Result<Vec<_>>>()?;
    // The reader leaves nothing to its own CPU.
    cpu::pin(cpu::READER)?;
    command::wait_until("the NIC's CPU frees datagrams for the lane", || {
        let sent = fill(&sender, &reader)?;
        for _ in 0..sent {
            reader.recv(&mut [0]).context("a datagram is missing")?;
        }
        let freed = || -> Result<u64> { Stats::read()?.get("freed_for_lanes_pkts") };
        let before = freed()?;
        for (sender, reader) in &others {
            sender.send(&[0])?;
            reader
                .recv(&mut [0])
                .context("the other flow's datagram is missing")?;
        }
        Ok(freed()? > before)
    })?;
    rig.settle()?;
    Ok(None)
}

/// Sends datagrams until so much waits for the reader, and waits until lanes have nothing to do. Returns their number.
fn fill(sender: &UdpSocket, reader: &UdpSocket) -> Result<u64> {
    let mut sent = 0;
    while sockopt::receive_memory(reader)?.bytes < MANY_BYTES {
        ensure!(sent < MOST_PKTS, "{sent} datagrams do not fill the socket");
        for _ in 0..BURST {
            sender.send(&[0])?;
        }
        sent += BURST;
        // The NIC's ring has room for the next.
        thread::sleep(PAUSE);
    }
    command::wait_until("lanes have carried all datagrams", || {
        let stats = Stats::read()?;
        Ok(stats.get("ring_bytes")? == 0 && stats.get("parked_pkts")? == 0)
    })?;
    Ok(sent)
}
