// SPDX-License-Identifier: GPL-2.0

//! Packets in several buffers, as test runs make them of frames that are longer than a page has room for: each program treats all of the
//! packet, and what a port cannot send so is left to the kernel.

use std::net::{IpAddr, Ipv6Addr};

use anyhow::{ensure, Context as _, Result};
use aya::maps::{HashMap, Map, MapData};
use aya::programs::{TestRun as _, TestRunOptions};
use mflow_hike::{Behaviour, Class, Destination, Engine, Hike, Path, Route};
use nix::net::if_::if_nametoindex;

use super::classes::frame;
use crate::hike::{instance, Case};
use crate::machine::command;
use crate::network::{netns, topology};

const NODE: &str = "buffers";
const DEVICE: &str = "wide0";
/// The largest packet of jumbo frames, and a payload for which a packet needs several buffers.
const MTU: u16 = 9_000;
const PAYLOAD_BYTES: usize = 8_000;
const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
/// An answer to the source of what is too big, and its headers in front of what it quotes: RFC 4443, 2.4 (c).
const ANSWER_BYTES: usize = 1_280;
const ANSWER_HEADER_BYTES: usize = IPV6_BYTES + 8;
/// The outer headers of a path with one SID: IPv6 and an SRH.
const OUTER_BYTES: usize = IPV6_BYTES + 24;
const MOST_BYTES: usize = 10_000;
const TO: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const SID: Ipv6Addr = Ipv6Addr::new(0xfc00, 1, 0, 0, 0, 0, 0, 1);
/// `enum xdp_action`.
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "tables/buffers",
        proves: "packets in several buffers take chains as a whole: their length is that of all buffers, a port that does not send such packets leaves them to the kernel, and the source of one that is too big is told in one buffer",
        run: |_| {
            netns::add(NODE)?;
            let done = netns::within(NODE, || {
                buffers(Engine::Compiled)?;
                buffers(Engine::TailCalls)
            });
            netns::delete(NODE)?;
            done
        },
    }]
}

/// Returns a packet with this payload, of which the header says that it has as much.
fn packet(payload_bytes: usize, said_bytes: usize) -> Result<Vec<u8>> {
    let mut packet = frame(TO);
    packet[ETHERNET_BYTES + 4..][..2].copy_from_slice(&u16::try_from(said_bytes)?.to_be_bytes());
    packet.extend((0..payload_bytes).map(byte_at));
    Ok(packet)
}

/// Returns a byte of the payload: of a period that no buffer has.
fn byte_at(place: usize) -> u8 {
    // CAST: less than 251.
    (place % 251) as u8
}

/// The result of a test run: what is done, why, and the frame that is left.
struct Done {
    action: u32,
    reason: &'static str,
    frame: Vec<u8>,
}

fn run(hike: &mut Hike, frame: &[u8]) -> Result<Done> {
    let before = hike.reasons()?;
    let mut out = vec![0; MOST_BYTES];
    let result = hike.dispatcher()?.test_run(TestRunOptions {
        data_in: Some(frame),
        data_out: Some(&mut out),
        ..TestRunOptions::default()
    })?;
    let after = hike.reasons()?;
    let mut both = after.iter().zip(&before);
    let grown = both.find(|(after, before)| after.1 > before.1);
    out.truncate(usize::try_from(result.data_size_out)?);
    Ok(Done {
        action: result.return_value,
        reason: grown.context("it was not counted")?.0 .0.name,
        frame: out,
    })
}

fn buffers(engine: Engine) -> Result<()> {
    topology::ip_in(
        NODE,
        &format!(
            "link add {DEVICE} mtu {MTU} type veth peer name other0 mtu {MTU}
             link set {DEVICE} up
             link set other0 up"
        ),
    )?;
    command::run("ethtool -K other0 gro on")?;
    let mut hike = instance(engine)?;
    let port = if_nametoindex(DEVICE)?;
    hike.add_port(port)?;
    let route = Route {
        port,
        mtu: MTU,
        source: [2; 6],
        destination: [4; 6],
    };
    hike.set_route("::/0".parse()?, &route)?;
    let path = Path {
        mtu: MTU,
        ..Path::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), [SID])
    };
    let chain = hike.add_chain(&"enc,fw-table".parse()?)?;
    let class = Class {
        path: Some(hike.add_path(&path)?),
        ..Class::of(chain)
    };
    hike.set_class(Destination::Address(TO), class)?;
    let sent = packet(PAYLOAD_BYTES, PAYLOAD_BYTES)?;
    let done = run(&mut hike, &sent)?;
    ensure!(
        (done.action, done.reason) == (XDP_REDIRECT, "forwarded"),
        "it is {}",
        done.reason
    );
    let expected = sent.len() + OUTER_BYTES;
    let payload = sent.get(ETHERNET_BYTES + IPV6_BYTES..);
    ensure!(
        done.frame.len() == expected && done.frame.ends_with(payload.context("no payload")?),
        "{} bytes came out, and not {expected}; or they are others",
        done.frame.len()
    );
    let encapsulated = done.frame;
    // Longer than all buffers.
    let done = run(&mut hike, &packet(PAYLOAD_BYTES, PAYLOAD_BYTES + 1)?)?;
    ensure!(
        (done.action, done.reason) == (XDP_PASS, "headers-apart"),
        "one that says to be longer is {}",
        done.reason
    );
    // What was put on is taken off.
    taken_off(&mut hike, &encapsulated, &sent)?;
    // A driver that sends no such packets.
    let wide = MapData::from_pin(hike.folder().join("wide_ports"))?;
    let mut wide: HashMap<MapData, u32, u32> = Map::from_map_data(wide)?.try_into()?;
    wide.remove(&port)
        .context("the kernel does not know that a veth sends them")?;
    let done = run(&mut hike, &sent)?;
    ensure!(
        (done.action, done.reason) == (XDP_PASS, "fw-buffers"),
        "without a port for it, it is {}",
        done.reason
    );
    let small = run(&mut hike, &packet(100, 100)?)?;
    ensure!(
        small.reason == "forwarded",
        "a small one is {}",
        small.reason
    );
    told(&mut hike, class, &path, &sent)?;
    topology::ip_in(NODE, &format!("link delete {DEVICE}"))
}

/// Holds that the source of a packet that is too big for a path is told so, with the beginning of the packet and nothing behind.
fn told(hike: &mut Hike, class: Class, path: &Path, sent: &[u8]) -> Result<()> {
    let narrow = Path {
        mtu: 1_500,
        ..path.clone()
    };
    let narrow = Some(hike.add_path(&narrow)?);
    let class = Class {
        path: narrow,
        ..class
    };
    hike.set_class(Destination::Address(TO), class)?;
    let done = run(hike, sent)?;
    ensure!(
        (done.action, done.reason) == (XDP_TX, "enc-too-big-told"),
        "one that is too big for its path is {}",
        done.reason
    );
    ensure!(
        done.frame.len() == ETHERNET_BYTES + ANSWER_BYTES,
        "the answer has {} bytes",
        done.frame.len()
    );
    let quoted = &done.frame[ETHERNET_BYTES + ANSWER_HEADER_BYTES..];
    ensure!(
        quoted == &sent[ETHERNET_BYTES..][..quoted.len()],
        "it quotes another packet"
    );
    Ok(())
}

/// Holds that a packet is the one that was sent when its outer headers are gone, but for the hop that each of both ends is.
fn taken_off(hike: &mut Hike, encapsulated: &[u8], sent: &[u8]) -> Result<()> {
    let mut encapsulated = encapsulated.to_vec();
    encapsulated[..6].copy_from_slice(&sent[..6]);
    let end = Behaviour::End {
        flavours: mflow_hike::Flavours {
            usd: true,
            ..Default::default()
        },
    };
    let class = Class::of(hike.add_chain(&"end,fw-table".parse()?)?);
    let behaviour = hike.add_behaviour(&end)?;
    let sid = Destination::Address(SID.into());
    hike.set_local_sid(sid, class, behaviour)?;
    let done = run(hike, &encapsulated)?;
    ensure!(
        (done.action, done.reason) == (XDP_REDIRECT, "forwarded"),
        "it is {} when it comes back",
        done.reason
    );
    let mut expected = sent[ETHERNET_BYTES..].to_vec();
    expected[7] -= 2;
    ensure!(
        done.frame.get(ETHERNET_BYTES..) == Some(&expected[..]),
        "another packet was inside"
    );
    Ok(())
}
