// SPDX-License-Identifier: GPL-2.0

//! While something looks at the packets that the NIC receives, lanes join no datagrams. It sees each datagram as a packet of its own.

use std::ops::Range;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::datagram::{self, MIN_BYTES};
use mflow_protocol::network::VXLAN_PORT;

use crate::cases::{Case, Run};
use crate::mflow::{self, Knobs, Stats};
use crate::network::packet_socket::{Field, PacketSocket};
use crate::network::topology;
use crate::traffic::datagrams::ledger::Ledger;
use crate::traffic::datagrams::run::LiveDatagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Live as _;

const BATCH_PKTS: u32 = 64;
const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_LLDP: u32 = 0x88cc;
/// Datagrams after which each batch has ended that was under way before them, of two lanes and the NIC core's own one.
const SETTLE: u64 = 640;
/// Datagrams of a poll that was under way as long as its CPU was away.
const MOST_JOINED: u64 = 64;
/// Headers in front of a datagram: Ethernet, IPv4, UDP and VXLAN, then Ethernet, IPv4 and UDP.
const HEADER_BYTES: usize = 14 + 20 + 8 + 8 + 14 + 20 + 8;
const FRAME_BYTES: usize = HEADER_BYTES + MIN_BYTES;
/// The most datagrams by which a capture may see one before another that was sent earlier.
const MOST_APART: u64 = 8_192;
/// Memory of frames that are not read yet.
const ROOM: usize = 64 << 20;
/// The time that a number of datagrams may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Something that looks at the packets that the NIC receives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watcher {
    Capture,
    TrafficControl,
}

impl Watcher {
    /// Begins to look. A capture's socket is returned, and nobody reads it.
    fn begin(self) -> Result<Option<PacketSocket>> {
        match self {
            Self::Capture => PacketSocket::open_here("eth0").map(Some),
            Self::TrafficControl => topology::tc("qdisc add dev eth0 clsact").map(|()| None),
        }
    }

    fn end(self, socket: Option<PacketSocket>) -> Result<()> {
        drop(socket);
        match self {
            Self::Capture => Ok(()),
            Self::TrafficControl => topology::tc("qdisc del dev eth0 clsact"),
        }
    }
}

/// Numbers of datagrams that show something: of those to be joined before and after, and of those sent meanwhile.
#[derive(Clone, Copy)]
struct Numbers {
    least_joined: u64,
    watched: u64,
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "gro/watched/capture",
            "while a capture looks at the NIC's packets, lanes join no datagrams, and it sees each by itself and once; before and after \
             that they join them",
            Run::Always,
            |rig| watched(rig, Watcher::Capture),
        ),
        Case::of_module(
            "gro/watched/filter",
            "a packet socket whose filter lets no datagrams through, as that of LLDP, changes nothing; if it may let some through, lanes join \
             none",
            Run::Plain,
            filtered,
        ),
        Case::of_module(
            "gro/watched/tc",
            "while traffic control looks at the NIC's packets, lanes join no datagrams; before and after that they join them",
            Run::Plain,
            |rig| watched(rig, Watcher::TrafficControl),
        ),
    ]
}

fn watched(rig: &Rig, watcher: Watcher) -> Result<Outcome> {
    if watcher == Watcher::TrafficControl {
        // Before there is traffic: the first use in the system patches the kernel's code.
        topology::tc("qdisc replace dev lo clsact")?;
    }
    let plan = rig.datagrams();
    let port = plan.addresses()[0].port();
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(2, BATCH_PKTS)
    };
    let numbers = if rig.scale.brief {
        Numbers {
            least_joined: 32,
            watched: 600,
        }
    } else {
        Numbers {
            least_joined: 256,
            watched: 3_000,
        }
    };
    rig.unnoticed(&plan, &knobs, |live| {
        // Without our patches lists begin behind all that looks at the NIC's packets.
        if !mflow::is_patched()? {
            return Ok(());
        }
        until_joined(live, numbers).context("before")?;
        let socket = watcher.begin()?;
        let seen = while_watched(live, watcher, numbers, port);
        // Also after a failure: the NIC stays for the cases that follow.
        watcher.end(socket)?;
        seen?;
        ensure!(
            !is_watched()?,
            "`builders` says that the NIC is watched still"
        );
        until_joined(live, numbers).context("after")
    })
}

fn filtered(rig: &Rig) -> Result<Outcome> {
    let plan = rig.datagrams();
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(2, BATCH_PKTS)
    };
    let numbers = Numbers {
        least_joined: 256,
        watched: 3_000,
    };
    rig.unnoticed(&plan, &knobs, |live| {
        if !mflow::is_patched()? {
            return Ok(());
        }
        // It stays, as that of lldpd does.
        let lldp = PacketSocket::open_here("eth0")?;
        lldp.filter(Field::EtherType, ETHERTYPE_LLDP)?;
        until_joined(live, numbers).context("beside a filter that takes none")?;
        ensure!(
            !is_watched()?,
            "`builders` says that the NIC is watched, and a filter takes no datagrams"
        );
        // The second one takes none of these, but may take a list.
        let takers = [
            (Field::EtherType, ETHERTYPE_IPV4),
            (Field::Length, FRAME_BYTES as u32 + 1),
        ];
        for (field, number) in takers {
            let socket = PacketSocket::open_here("eth0")?;
            socket.filter(field, number)?;
            until_arrived(live, live.progress() + SETTLE)?;
            ensure!(is_watched()?, "`builders` says nothing of {field:?}");
            let before = joined()?;
            until_arrived(live, live.progress() + numbers.watched)?;
            let joined = joined()? - before;
            ensure!(
                joined <= MOST_JOINED,
                "{joined} datagrams were joined beside {field:?}"
            );
            drop(socket);
            until_joined(live, numbers).with_context(|| format!("after {field:?}"))?;
            live.wait_for("`builders` says nothing any more", LIMIT, || {
                Ok(!is_watched()?)
            })?;
        }
        Ok(())
    })
}

fn until_joined(live: &LiveDatagrams, numbers: Numbers) -> Result<()> {
    let wanted = joined()? + numbers.least_joined;
    live.wait_for("lanes have joined datagrams", LIMIT, || {
        Ok(joined()? >= wanted)
    })
}

fn while_watched(
    live: &LiveDatagrams,
    watcher: Watcher,
    numbers: Numbers,
    port: u16,
) -> Result<()> {
    let builders = mflow::read("builders")?;
    ensure!(is_watched()?, "`builders` says {builders:?}");
    // Batches under way go on as they have begun.
    until_arrived(live, live.progress() + SETTLE)?;
    let capture = match watcher {
        Watcher::Capture => Some(PacketSocket::open_here("eth0")?),
        Watcher::TrafficControl => None,
    };
    if let Some(capture) = &capture {
        capture.make_room(ROOM)?;
    }
    // What is sent from here on comes to the capture.
    live.send_more(SETTLE)?;
    let (first, before) = (live.progress(), joined()?);
    live.send_more(numbers.watched)?;
    let end = live.progress();
    until_arrived(live, end)?;
    let joined = joined()? - before;
    ensure!(
        joined <= MOST_JOINED,
        "{joined} of {} datagrams were joined",
        end - first
    );
    capture.map_or(Ok(()), |capture| require_each(&capture, first..end, port))
}

/// Waits until this many datagrams have arrived since the run began.
fn until_arrived(live: &LiveDatagrams, wanted: u64) -> Result<()> {
    live.wait_for("datagrams have arrived", LIMIT, || {
        Ok(live.arrivals() >= wanted)
    })
}

fn joined() -> Result<u64> {
    Stats::read()?.get("joined_pkts")
}

fn is_watched() -> Result<bool> {
    let builders = mflow::read("builders")?;
    Ok(builders.lines().any(|line| line == "eth0 watched"))
}

/// Reads frames until these datagrams, which have arrived, have been seen. Each has to be a frame of its own, and to be seen once.
fn require_each(capture: &PacketSocket, wanted: Range<u64>, port: u16) -> Result<()> {
    let mut seen = Ledger::default();
    let mut missing = wanted.end - wanted.start;
    while missing > 0 {
        ensure!(
            seen.end() < wanted.end + MOST_APART,
            "{missing} of the datagrams {wanted:?} were not seen"
        );
        let frame = capture.next()?;
        let frame = frame.with_context(|| format!("{missing} of {wanted:?} were not seen"))?;
        if !is_for(&frame, port) {
            continue;
        }
        ensure!(
            frame.len() == FRAME_BYTES,
            "a frame of {} bytes was seen, and one with a datagram has {FRAME_BYTES}",
            frame.len()
        );
        let head = datagram::decode(&frame[HEADER_BYTES..]).context("a frame is not as sent")?;
        if wanted.contains(&head.sequence) && !seen.has(head.sequence) {
            missing -= 1;
        }
        seen.record(head.sequence);
    }
    ensure!(
        seen.duplicate() == 0,
        "{} datagrams were seen twice",
        seen.duplicate()
    );
    Ok(())
}

/// Returns whether a frame has UDP for this port in the tunnel.
fn is_for(frame: &[u8], port: u16) -> bool {
    let has = |at: usize, bytes: &[u8]| frame.get(at..at + bytes.len()) == Some(bytes);
    has(36, &VXLAN_PORT.to_be_bytes()) && has(73, &[17]) && has(86, &port.to_be_bytes())
}
