// SPDX-License-Identifier: GPL-2.0

//! Frames that lanes have hung onto packets are those that were sent: drawn segments of a connection come through the tunnel beside a flow
//! that is split, and the veth takes apart what has been joined (`skb_segment()`).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{bail, ensure, Result};
use etherparse::{
    IpHeaders, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder, TcpHeader,
    TcpOptionElement,
};
use mflow_protocol::guest::SEED;
use mflow_protocol::network::{mac_bytes, CLIENT_MAC, CONTAINER_MAC};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::joining::until_some_joined;
use crate::cases::{Case, Run};
use crate::machine::command;
use crate::mflow::{self, Knobs, Stats};
use crate::network::nft;
use crate::network::packet_socket::PacketSocket;
use crate::network::topology::{Family, CLIENT, CONTAINER};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Live as _;

/// More than the packets that a joiner knows.
const FLOWS: u16 = 12;
/// Nobody listens there, and nobody answers.
const PORT: u16 = 5_199;
const RULE: &str = "
table inet drawn {
    chain before {
        type filter hook prerouting priority raw;
        tcp dport 5199 drop
    }
}
";

/// Frames that are under way at a time: fewer than any queue on the way holds.
const BURST_FRAMES: usize = 200;
/// Full frames in the tunnel, without the longest headers and options.
const FULL_BYTES: usize = 1_300;
/// Memory of frames that are not read yet.
const ROOM: usize = 16 << 20;
/// The number of times that a receiver looks for frames in vain before they count as lost.
const PATIENCE: usize = 100;
/// The time between bursts, for which the stream goes on.
const BREATH: Duration = Duration::from_millis(5);
/// The time after which a split has begun. Until then the first packet of each inner flow is a fence, for which others wait, and the first
/// drawn segment arrives nowhere.
const START: Duration = Duration::from_millis(200);
/// The time for which a stream goes on without joins.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, inner| {
        Case::of_module(
            format!("join/frames/{name}"),
            "drawn segments that lanes have joined, or not, are those that were sent when they are taken apart",
            Run::Always,
            move |rig| drawn(rig, inner),
        )
        .about_splitting()
    };
    vec![
        case("v4", Family::V4),
        case("v6", Family::V6),
        Case::of_module(
            "join/flows",
            "streams that take turns on one lane are joined, each by itself",
            Run::Always,
            flows,
        )
        .about_splitting(),
        Case::of_module(
            "join/stream",
            "lanes build no packets of most segments of a stream, and with `join` 0 of all",
            Run::Always,
            stream,
        )
        .about_splitting(),
    ]
}

/// The reasons why a frame does not join.
const ALONE: [&str; 6] = ["off", "first", "driver", "full", "headers", "checksum"];

/// Sends streams that take turns on one lane, some of which share a place in its joiner.
fn flows(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.streams();
    plan.flows = FLOWS;
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(1, 64)
    };
    rig.strict(&plan, &knobs, |live| {
        // On the checking kernel streams take turns segment by segment.
        if rig.scale.brief {
            return Ok(());
        }
        // How many join is the streams' matter: a lane whose GRO has joined none of 64 packets tries again after thousands.
        until_some_joined(live)
    })
}

/// Returns how many packets lanes have built or joined, and how many of them they have joined.
fn lane_pkts(outcome: &Outcome) -> Result<(u64, u64)> {
    Ok((
        outcome.counter("lane_pkts")?,
        outcome.counter("joined_pkts")?,
    ))
}

fn stream(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(2, 64)
    };
    let outcome = rig.strict(&rig.streams(), &knobs, |_| Ok(()))?;
    let (all, joined) = lane_pkts(&outcome)?;
    let requests = outcome.counter("request_pkts")?;
    let mut answered = joined;
    for reason in ALONE {
        answered += outcome.counter(&format!("alone_{reason}_pkts"))?;
    }
    // The rest was under way, or came while `stats` was read.
    ensure!(
        answered.abs_diff(requests) <= 256,
        "of {requests} requests, {answered} joined or came alone for a reason"
    );
    // On the checking kernel few segments come at once. A lane whose GRO has joined none of the first tries again after thousands.
    // There `join/frames` shows joined ones.
    ensure!(
        rig.scale.brief || joined > all / 2,
        "{joined} of {all} packets were joined"
    );
    rig.unnoticed(&rig.streams(), &knobs, |live| {
        mflow::write("join", "0")?;
        let before = Stats::read()?.get("joined_pkts")?;
        live.flow_for(PAUSE)?;
        let joined = Stats::read()?.get("joined_pkts")? - before;
        // A poll that was under way.
        ensure!(joined < 256, "{joined} packets were joined with `join` 0");
        Ok(())
    })
}

fn drawn(rig: &Rig, inner: Family) -> Result<Outcome> {
    // Beside a stream, as GRO is tried rarely for a flow of datagrams, which it does not join.
    let mut plan = rig.streams();
    (plan.inner, plan.one_outer) = (inner, true);
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(2, 64)
    };
    let bursts = if rig.scale.brief { 10 } else { 60 };
    let mut hasher = DefaultHasher::new();
    (std::env::var(SEED).unwrap_or_default(), inner.number()).hash(&mut hasher);
    let mut connection = Connection::new(inner, hasher.finish());
    rig.unnoticed(&plan, &knobs, |live| {
        nft::add(CONTAINER, RULE)?;
        // Segments get their checksums where they are taken apart.
        command::run("ethtool -K veth0 tx off tso off gso off")?;
        let sender = PacketSocket::open(CLIENT, "vxlan0")?;
        let receiver = PacketSocket::open(CONTAINER, "eth0")?;
        receiver.make_room(ROOM)?;
        live.flow_for(START)?;
        let before = Stats::read()?.get("joined_pkts")?;
        let mut sent = 0;
        for _ in 0..bursts {
            let frames = connection.burst();
            sent += frames.len();
            carry(&sender, &receiver, &frames)?;
            live.flow_for(BREATH)?;
        }
        let joined = Stats::read()?.get("joined_pkts")? - before;
        // CAST: a small number.
        ensure!(
            joined > sent as u64 / 8,
            "{joined} of {sent} frames were joined: the flow is to be split, and many frames to continue the one before"
        );
        Ok(())
    })
}

/// Sends frames, and demands that exactly these come. They may overtake each other, as they end at no socket.
fn carry(sender: &PacketSocket, receiver: &PacketSocket, frames: &[Vec<u8>]) -> Result<()> {
    let mut expected: HashMap<&[u8], usize> = HashMap::new();
    for frame in frames {
        *expected.entry(frame).or_default() += 1;
        sender.send(frame)?;
    }
    let (mut missing, mut waits) = (frames.len(), 0);
    while missing > 0 {
        let Some(frame) = receiver.next()? else {
            waits += 1;
            ensure!(
                waits < PATIENCE,
                "{missing} of {} frames have not come, such as {}",
                frames.len(),
                expected
                    .iter()
                    .find(|(_, count)| **count > 0)
                    .map_or_else(String::new, |(frame, _)| header(frame))
            );
            continue;
        };
        if !is_drawn(&frame) {
            continue;
        }
        match expected.get_mut(frame.as_slice()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                missing -= 1;
            }
            _ => bail!(
                "a frame of {} bytes has come that was not sent, or not as often: {}; with this end was sent {}",
                frame.len(),
                header(&frame),
                frames
                    .iter()
                    .find(|sent| sent.ends_with(&frame[frame.len() - 16..]))
                    .map_or_else(|| "none".to_owned(), |sent| header(sent))
            ),
        }
    }
    Ok(())
}

fn mac(text: &str) -> [u8; 6] {
    mac_bytes(text).unwrap_or_default()
}

/// Returns the bytes of a frame's headers, as text.
fn header(frame: &[u8]) -> String {
    let bytes = frame.iter().skip(14).take(72);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether a frame is for the drawn connection's port.
fn is_drawn(frame: &[u8]) -> bool {
    let at = match frame.get(12..14) {
        Some([8, 0]) => match frame.get(14) {
            Some(first) => 14 + usize::from(first & 15) * 4,
            None => return false,
        },
        Some([0x86, 0xdd]) => 54,
        _ => return false,
    };
    let protocol = if at == 54 {
        frame.get(20)
    } else {
        frame.get(23)
    };
    protocol == Some(&6) && frame.get(at + 2..at + 4) == Some(&PORT.to_be_bytes())
}

/// A connection of which each frame continues the one before, unless it is drawn not to.
struct Connection {
    family: Family,
    random: Xoshiro256PlusPlus,
    sequence: u32,
    identifier: u16,
    stamp: u32,
    acknowledged: u32,
    has_fixed_identifier: bool,
    is_atomic: bool,
}

impl Connection {
    fn new(family: Family, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self {
            family,
            sequence: random.random(),
            identifier: random.random(),
            stamp: 1,
            acknowledged: random.random(),
            has_fixed_identifier: false,
            is_atomic: true,
            random,
        }
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.random_range(0..times) == 0
    }

    fn burst(&mut self) -> Vec<Vec<u8>> {
        self.is_atomic = self.random.random();
        self.has_fixed_identifier = self.is_atomic && self.random.random();
        (0..BURST_FRAMES).map(|_| self.frame()).collect()
    }

    /// Returns the next frame. One in ten or so does not continue the one before as it should.
    fn frame(&mut self) -> Vec<u8> {
        let mut bytes = FULL_BYTES;
        let mut tcp = TcpHeader::new(4_000, PORT, self.sequence, 501);
        tcp.ack = true;
        tcp.acknowledgment_number = self.acknowledged;
        let (mut hops, mut class) = (64, 0);
        let (mut pads, mut spoils) = (0, false);
        if self.one_in(10) {
            match self.random.random_range(0..16) {
                0 => tcp.psh = true,
                1 => tcp.fin = true,
                2 => tcp.urg = true,
                3 => tcp.ece = true,
                4 => tcp.cwr = true,
                5 => tcp.rst = true,
                6 => bytes = self.random.random_range(0..FULL_BYTES),
                7 => self.stamp += 1,
                8 => self.acknowledged += 1,
                9 => {
                    tcp.sequence_number = tcp
                        .sequence_number
                        .wrapping_add(self.random.random_range(0..4_000))
                }
                10 => hops = 63,
                11 => class = self.random.random_range(1..4),
                12 => pads = self.random.random_range(1..8),
                13 => spoils = true,
                14 => self.identifier = self.random.random(),
                _ => tcp.window_size = 502,
            }
        }
        let options = [
            TcpOptionElement::Noop,
            TcpOptionElement::Noop,
            TcpOptionElement::Timestamp(self.stamp, 7),
        ];
        // They fit.
        let _fits = tcp.set_options(&options);
        if !self.has_fixed_identifier {
            self.identifier = self.identifier.wrapping_add(1);
        }
        self.sequence = self
            .sequence
            .wrapping_add(u32::try_from(bytes).unwrap_or_default());
        let payload: Vec<u8> = (0..bytes).map(|_| self.random.random()).collect();
        let mut frame = Vec::with_capacity(payload.len() + 100);
        let builder =
            PacketBuilder::ethernet2(mac(CLIENT_MAC), mac(CONTAINER_MAC)).ip(self.ip(hops, class));
        // Memory takes all that is written.
        let _written = builder.tcp_header(tcp).write(&mut frame, &payload);
        frame.extend(vec![0; pads]);
        if spoils {
            let last = frame.len() - 1;
            frame[last] ^= 0x55;
        }
        frame
    }

    fn ip(&self, hops: u8, class: u8) -> IpHeaders {
        match (self.family.client(), self.family.container()) {
            (IpAddr::V4(client), IpAddr::V4(container)) => {
                let header =
                    Ipv4Header::new(0, hops, IpNumber::TCP, client.octets(), container.octets());
                // No payload is too long.
                let mut header = header.unwrap_or_default();
                (header.identification, header.dont_fragment) = (self.identifier, self.is_atomic);
                header.ecn = class.try_into().unwrap_or_default();
                IpHeaders::Ipv4(header, Default::default())
            }
            (IpAddr::V6(client), IpAddr::V6(container)) => {
                let header = Ipv6Header {
                    traffic_class: class,
                    flow_label: Ipv6FlowLabel::try_new(7).unwrap_or_default(),
                    hop_limit: hops,
                    next_header: IpNumber::TCP,
                    source: client.octets(),
                    destination: container.octets(),
                    ..Ipv6Header::default()
                };
                IpHeaders::Ipv6(header, Default::default())
            }
            _ => unreachable!("both ends are of one family"),
        }
    }
}
