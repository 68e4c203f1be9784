// SPDX-License-Identifier: GPL-2.0

//! The kernel's own segment routing as the peer: it takes off what we put on, and what both put on is the same.

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use etherparse::{Ipv4Header, PacketBuilder};
use mflow_hike::config::path::{Dscp, FlowLabel, Mode};
use mflow_hike::{
    ChainId, Class, Destination, Direction, Engine, Flow, Hike, Marking, Monitor, Path,
};

use crate::hike::network::{
    attach, mac, sids, Network, DST, DST_V4, DST_V6, EGRESS, INGRESS, LEFT, RIGHT, SRC, SRC_V4,
    SRC_V6, TUNNEL_SOURCE, WAY1,
};
use crate::hike::{instance, Case};
use crate::machine::command;
use crate::network::packet_socket::PacketSocket;
use crate::network::{netns, topology};

pub(crate) const HOP_LIMIT: u8 = 64;
pub(crate) const ETHERNET_BYTES: usize = 14;
pub(crate) const PORT: u16 = 9;
/// The bytes at the end of each frame, by which it is found again whatever is in front of them.
pub(crate) const MARK: [u8; 24] = *b"a payload that is looked";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "peer/encapsulates",
            proves: "what enc puts in front of a packet is what the kernel's seg6 puts there, and the kernel takes it off again: byte by byte",
            run: |_| encapsulates(),
        },
        Case {
            name: "peer/monitored",
            proves: "packets that the kernel has encapsulated are counted to the last one where they leave the domain, by their SIDs",
            run: |_| monitored(),
        },
    ]
}

/// One way to encapsulate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) v6: bool,
    pub(crate) mode: Mode,
    pub(crate) sids: u16,
}

pub(crate) fn shapes() -> impl Iterator<Item = Shape> {
    [true, false].into_iter().flat_map(|v6| {
        [Mode::Encaps, Mode::Reduced]
            .into_iter()
            .flat_map(move |mode| {
                [1, 2, 3, 10]
                    .into_iter()
                    .map(move |sids| Shape { v6, mode, sids })
            })
    })
}

fn encapsulates() -> Result<()> {
    let _network = Network::up()?;
    topology::ip_in(INGRESS, &format!("sr tunsrc set {TUNNEL_SOURCE}"))?;
    let wire = Wire::open()?;
    for engine in [Engine::Compiled, Engine::TailCalls] {
        let mut hike = instance(engine)?;
        let chain = hike.add_chain(&"enc,fw-fib".parse()?)?;
        // The model says that both do the same.
        let shapes = || shapes().filter(move |shape| engine == Engine::Compiled || shape.sids == 3);
        for shape in shapes() {
            compare(&mut hike, chain, &wire, shape)
                .with_context(|| format!("{engine:?}, {shape:?}"))?;
        }
        // An option in front of the SRH is the kernel's to skip.
        for shape in shapes() {
            let path = Path {
                flow_id: (shape.sids < 10).then_some(0xabcde),
                flow_label: FlowLabel::PerFlow,
                ..path(shape)
            };
            let seen = send_with(&mut hike, chain, &wire, shape, &path)
                .with_context(|| format!("{engine:?}, {shape:?} with an option"))?;
            ensure!(
                seen.delivered == delivered(shape, HOP_LIMIT - 2)?,
                "{shape:?} with an option: another packet was delivered"
            );
        }
    }
    Ok(())
}

/// The places where frames are looked at.
pub(crate) struct Wire {
    pub(crate) src: PacketSocket,
    way1: PacketSocket,
    pub(crate) dst: PacketSocket,
    /// Without it, dst would answer that nobody listens, and send the packet back for that.
    _sink: UdpSocket,
}

/// The bytes of a packet at the first waypoint, and at its end.
pub(crate) struct Seen {
    pub(crate) on_the_way: Vec<u8>,
    pub(crate) delivered: Vec<u8>,
}

impl Wire {
    pub(crate) fn open() -> Result<Self> {
        Ok(Self {
            src: PacketSocket::open(SRC, RIGHT)?,
            way1: PacketSocket::open(WAY1, LEFT)?,
            dst: PacketSocket::open(DST, LEFT)?,
            _sink: netns::within(DST, || Ok(UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT))?))?,
        })
    }

    /// Sends a frame from src, and returns what is seen of it.
    pub(crate) fn carry(&self, frame: &[u8]) -> Result<Seen> {
        self.see(|| self.src.send(frame))
    }

    /// Runs `send`, and returns what is seen of the packet that it sends.
    pub(crate) fn see(&self, send: impl FnOnce() -> Result<()>) -> Result<Seen> {
        send()?;
        let delivered = self.dst.receive(&MARK).context("at the end")?;
        // The kernel's End writes into the packet that a capture shares, so that is read when the packet has passed.
        let on_the_way = self.way1.receive(&MARK).context("at the first waypoint")?;
        Ok(Seen {
            on_the_way,
            delivered,
        })
    }
}

/// Returns the path that does what the kernel does: hop limit and class are the packet's, or the kernel's default over IPv4.
pub(crate) fn path(shape: Shape) -> Path {
    Path {
        mode: shape.mode,
        hop_limit: HOP_LIMIT,
        dscp: if shape.v6 {
            Dscp::Copied
        } else {
            Dscp::Fixed(0)
        },
        flow_label: FlowLabel::Fixed(0),
        ..Path::new(TUNNEL_SOURCE, sids(shape.sids, shape.v6))
    }
}

pub(crate) fn destination(shape: Shape) -> IpAddr {
    if shape.v6 {
        DST_V6.into()
    } else {
        DST_V4.into()
    }
}

fn compare(hike: &mut Hike, chain: ChainId, wire: &Wire, shape: Shape) -> Result<()> {
    let kernels = by_kernel(shape, |()| wire.carry(&frame(shape, 0, HOP_LIMIT)?))?;
    ensure!(
        kernels.delivered == delivered(shape, HOP_LIMIT - 1)?,
        "the kernel alone delivers another packet than was sent"
    );
    let ours = send_with(hike, chain, wire, shape, &path(shape))?;
    // Inside, ours has passed a hop: RFC 2473 says so, and the kernel leaves it to the outer header.
    let inner_at = kernels.on_the_way.len() - (frame(shape, 0, 1)?.len() - ETHERNET_BYTES);
    let inner = &frame(shape, 0, HOP_LIMIT - 1)?[ETHERNET_BYTES..];
    let expected = [&kernels.on_the_way[..inner_at], inner].concat();
    ensure!(
        ours.on_the_way == expected,
        "on the wire\n{:02x?}\nand not\n{expected:02x?}",
        ours.on_the_way
    );
    ensure!(
        ours.delivered == delivered(shape, HOP_LIMIT - 2)?,
        "another packet was delivered than was sent"
    );
    Ok(())
}

/// Makes the kernel of ingress encapsulate packets while `work` runs.
pub(crate) fn by_kernel<T>(shape: Shape, work: impl FnOnce(()) -> Result<T>) -> Result<T> {
    let mode = match shape.mode {
        Mode::Encaps => "encap",
        Mode::Reduced => "encap.red",
    };
    let sids: Vec<String> = sids(shape.sids, shape.v6)
        .iter()
        .map(|sid| sid.to_string())
        .collect();
    let bits = if shape.v6 { 128 } else { 32 };
    let route = format!("route {{}} {}/{bits}", destination(shape));
    let add = route.replace("{}", "add");
    topology::ip_in(
        INGRESS,
        &format!(
            "{add} encap seg6 mode {mode} segs {} dev {RIGHT}",
            sids.join(",")
        ),
    )?;
    let done = work(());
    topology::ip_in(INGRESS, &route.replace("{}", "delete"))?;
    done
}

/// Makes an instance at ingress encapsulate one packet.
fn send_with(
    hike: &mut Hike,
    chain: ChainId,
    wire: &Wire,
    shape: Shape,
    path: &Path,
) -> Result<Seen> {
    let path = hike.add_path(path)?;
    let to = Destination::Address(destination(shape));
    let class = Class {
        chain,
        path: Some(path),
        lanes: None,
    };
    hike.set_class(to, class)?;
    attach(hike, INGRESS)?;
    let seen = wire.carry(&frame(shape, 0, HOP_LIMIT)?);
    netns::within(INGRESS, || hike.detach(LEFT))?;
    hike.remove_class(to)?;
    hike.remove_path(path)?;
    seen
}

/// Returns the frame that src sends.
pub(crate) fn frame(shape: Shape, link: usize, hop_limit: u8) -> Result<Vec<u8>> {
    let ethernet = PacketBuilder::ethernet2(mac(link, 1), mac(link, 2));
    let mut frame = Vec::new();
    if shape.v6 {
        ethernet
            .ipv6(SRC_V6.octets(), DST_V6.octets(), hop_limit)
            .udp(PORT, PORT)
            .write(&mut frame, &MARK)?;
        // ECN and DSCP, which are the outer header's, too: congestion was met, and expedited forwarding.
        frame[ETHERNET_BYTES] |= 46 >> 2;
        frame[ETHERNET_BYTES + 1] |= (46 << 6) | 3 << 4;
    } else {
        ethernet
            .ip(etherparse::IpHeaders::Ipv4(
                Ipv4Header::new(
                    0,
                    hop_limit,
                    etherparse::IpNumber::UDP,
                    SRC_V4.octets(),
                    DST_V4.octets(),
                )?,
                etherparse::Ipv4Extensions::default(),
            ))
            .udp(PORT, PORT)
            .write(&mut frame, &MARK)?;
    }
    Ok(frame)
}

/// Returns the frame that dst receives.
pub(crate) fn delivered(shape: Shape, hop_limit: u8) -> Result<Vec<u8>> {
    frame(shape, 4, hop_limit)
}

fn monitored() -> Result<()> {
    const PACKETS: u64 = 200;
    let _network = Network::up()?;
    topology::ip_in(INGRESS, &format!("sr tunsrc set {TUNNEL_SOURCE}"))?;
    let wire = Wire::open()?;
    let mut hike = instance(Engine::Compiled)?;
    let class = Class {
        chain: hike.add_chain(&"mon-out,fw-kernel".parse()?)?,
        path: None,
        lanes: None,
    };
    hike.set_class("fc00:3::/32".parse()?, class)?;
    netns::within(EGRESS, || hike.attach(LEFT))?;
    let monitor = Monitor {
        period: Duration::from_secs(3_600),
        marking: Marking::DscpBit(0),
    };
    for shape in shapes() {
        let flow = Flow::of(&path(shape))?;
        hike.add_monitor(&flow, Direction::Out, &monitor)?;
        by_kernel(shape, |()| {
            for _ in 0..PACKETS {
                wire.src.send(&frame(shape, 0, HOP_LIMIT)?)?;
            }
            command::wait_until("all packets are counted", || {
                let counted = hike.counts(&flow, Direction::Out)?;
                Ok(counted.blocks().map(|(_, pkts)| pkts).sum::<u64>() == PACKETS)
            })
        })
        .with_context(|| format!("{shape:?}: {:?}", hike.counts(&flow, Direction::Out)))?;
        hike.remove_monitor(&flow, Direction::Out)?;
    }
    Ok(())
}
