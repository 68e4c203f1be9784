// SPDX-License-Identifier: GPL-2.0

//! Programs where packets leave, with the kernel's own segment routing as the peer: what the host sends itself, offloads included, and what
//! its kernel forwards.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use mflow_hike::config::path::{Dscp, FlowLabel, Mode};
use mflow_hike::{
    ChainId, Class, Destination, Direction, Engine, Flow, Hike, Hook, Marking, Monitor, Path,
};
use nix::net::if_::if_nametoindex;

use super::kernel::{
    by_kernel, delivered, destination, frame, path, shapes, Seen, Shape, Wire, ETHERNET_BYTES,
    HOP_LIMIT, MARK, PORT,
};
use crate::hike::network::{
    mac, sids, text, Network, DST, DST_V4, DST_V6, INGRESS, LEFT, RIGHT, TUNNEL_SOURCE, WAY1,
};
use crate::hike::{instance_at, Case};
use crate::machine::threads;
use crate::network::packet_socket::PacketSocket;
use crate::network::{netns, topology};

/// An address of ingress, on the link that packets leave by.
const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 1);
/// Its addresses on the other link, which all others know the way to.
const LEFT_V6: &str = "fd00::2";
const LEFT_V4: &str = "10.9.0.2";
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// A second link between ingress and the first waypoint.
const SIDE: &str = "side";
const STREAM_PORT: u16 = 9_002;
/// The number of bytes that one stream carries, and the size of its pieces, which is not a multiple of anything.
const STREAM_BYTES: usize = 3_000_000;
const PIECE_BYTES: usize = 70_001;
/// The MTU of the links, and the part of it that is left for packets inside a tunnel: as for any tunnel, a route says so.
const LINK_MTU: u16 = 1_500;
const INNER_MTU: u16 = 1_400;
/// Segments that TCP may leave to a device at once: what devices have to begin with.
const GSO_SEGS: u32 = 65_535;
const PATIENCE: Duration = Duration::from_secs(60);
/// Room for what comes while the reader is away.
const ROOM_BYTES: usize = 32 << 20;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "tcx/forwarded",
            proves: "what enc puts in front of packets that the kernel forwards is what its seg6 puts there, and the kernel takes it off again: byte by byte",
            run: |_| forwarded(),
        },
        Case {
            name: "tcx/own",
            proves: "the same of datagrams that a host sends that is no router, whether their checksums are left to the device or not",
            run: |_| own(),
        },
        Case {
            name: "tcx/redirected",
            proves: "what leaves by another device waits until its neighbour is known, and takes no second chain there",
            run: |_| {
                redirected(Engine::Compiled)?;
                redirected(Engine::TailCalls)
            },
        },
        Case {
            name: "tcx/streams",
            proves: "TCP of the host comes through, segmented by the device, by the kernel or by TCP; each segment is encapsulated, fits and is counted",
            run: |_| streams(),
        },
    ]
}

/// Makes an instance where packets leave ingress, with a chain.
fn leaving(engine: Engine, chain: &str) -> Result<(Hike, ChainId)> {
    let mut hike = instance_at(Hook::Tcx, engine)?;
    let chain = hike.add_chain(&chain.parse()?)?;
    Ok((hike, chain))
}

/// Runs `work` while packets to one destination take the chain and the path.
fn with_class<T>(
    hike: &mut Hike,
    chain: ChainId,
    path: &Path,
    to: IpAddr,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let path = hike.add_path(path)?;
    let to = Destination::Address(to);
    let class = Class {
        path: Some(path),
        ..Class::of(chain)
    };
    hike.set_class(to, class)?;
    netns::within(INGRESS, || hike.attach(RIGHT))?;
    let done = work();
    netns::within(INGRESS, || hike.detach(RIGHT))?;
    hike.remove_class(to)?;
    hike.remove_path(path)?;
    done
}

fn forwarded() -> Result<()> {
    let _network = Network::up()?;
    topology::ip_in(INGRESS, &format!("sr tunsrc set {TUNNEL_SOURCE}"))?;
    let wire = Wire::open()?;
    let mut instances = Vec::new();
    for (engine, chain) in [
        (Engine::Compiled, "enc,fw-fib"),
        // All that ingress sends goes to the same neighbour.
        (Engine::Compiled, "enc,fw-kernel"),
        (Engine::TailCalls, "enc,fw-fib"),
    ] {
        instances.push((engine, leaving(engine, chain)?));
    }
    for shape in shapes() {
        let kernels = by_kernel(shape, |()| wire.carry(&frame(shape, 0, HOP_LIMIT)?))?;
        // The kernel has counted the hop before it encapsulates; its own seg6 leaves that to the outer header alone.
        let path = Path {
            hop_limit: HOP_LIMIT - 1,
            ..path(shape)
        };
        let inner = &frame(shape, 0, HOP_LIMIT - 1)?[ETHERNET_BYTES..];
        let inner_at = kernels.on_the_way.len() - inner.len();
        let expected = Seen {
            on_the_way: [&kernels.on_the_way[..inner_at], inner].concat(),
            delivered: delivered(shape, HOP_LIMIT - 2)?,
        };
        for (place, (engine, (hike, chain))) in instances.iter_mut().enumerate() {
            // The model says that all do the same.
            if place > 0 && shape.sids != 3 {
                continue;
            }
            let ours = with_class(hike, *chain, &path, destination(shape), || {
                wire.carry(&frame(shape, 0, HOP_LIMIT)?)
            })?;
            same(&ours, &expected).with_context(|| format!("{engine:?}, {shape:?}"))?;
        }
    }
    Ok(())
}

/// Takes the number of an IPv4 packet away, of which each has its own, and the checksum that has it.
fn numbered(shape: Shape, mut seen: Seen) -> Seen {
    if !shape.v6 {
        for frame in [&mut seen.on_the_way, &mut seen.delivered] {
            let ip_at = frame.len() - (IPV4_BYTES + UDP_BYTES + MARK.len());
            frame[ip_at + 4..ip_at + 6].fill(0);
            frame[ip_at + 10..ip_at + 12].fill(0);
        }
    }
    seen
}

fn same(ours: &Seen, expected: &Seen) -> Result<()> {
    for (place, ours, expected) in [
        ("on the wire", &ours.on_the_way, &expected.on_the_way),
        ("at the end", &ours.delivered, &expected.delivered),
    ] {
        ensure!(
            ours == expected,
            "{place}\n{ours:02x?}\nand not\n{expected:02x?}"
        );
    }
    Ok(())
}

fn own() -> Result<()> {
    let _network = Network::up()?;
    topology::ip_in(INGRESS, &format!("sr tunsrc set {TUNNEL_SOURCE}"))?;
    let sockets = netns::within(INGRESS, || {
        // Else each socket has a label of its own.
        topology::sysctl("net/ipv6/auto_flowlabels", "0")?;
        // A host that is no router: what it sends itself is all that it may send.
        for family in ["ipv4", "ipv6"] {
            topology::sysctl(&format!("net/{family}/conf/all/forwarding"), "0")?;
            topology::sysctl(&format!("net/{family}/conf/lo/forwarding"), "1")?;
        }
        let v6 = UdpSocket::bind((TUNNEL_SOURCE, PORT))?;
        Ok((v6, UdpSocket::bind((OWN_V4, PORT))?))
    })?;
    let wire = Wire::open()?;
    let send = |shape: Shape| {
        let socket = if shape.v6 { &sockets.0 } else { &sockets.1 };
        wire.see(|| {
            socket.send_to(&MARK, (destination(shape), PORT))?;
            Ok(())
        })
    };
    let (mut hike, chain) = leaving(Engine::Compiled, "enc,fw-fib")?;
    for checksums in ["on", "off"] {
        netns::run(INGRESS, &format!("ethtool -K {RIGHT} tx {checksums}"))?;
        for shape in shapes().filter(|shape| checksums == "on" || shape.sids == 3) {
            let kernels = by_kernel(shape, |()| send(shape))?;
            let path = path(shape);
            let ours = with_class(&mut hike, chain, &path, destination(shape), || send(shape))?;
            same(&numbered(shape, ours), &numbered(shape, kernels))
                .with_context(|| format!("{shape:?}, checksums of the device {checksums}"))?;
        }
    }
    Ok(())
}

fn redirected(engine: Engine) -> Result<()> {
    const PACKETS: u64 = 3;
    let _network = Network::up()?;
    let wire = Wire::open()?;
    topology::ip_in(
        INGRESS,
        &format!(
            "link add {SIDE} type veth peer name {SIDE} netns {WAY1}
             address add fd00:9::1/64 dev {SIDE} nodad
             link set {SIDE} up
             route add fc00:1::/32 via fd00:9::2 dev {SIDE}"
        ),
    )?;
    topology::ip_in(
        WAY1,
        &format!("address add fd00:9::2/64 dev {SIDE} nodad\nlink set {SIDE} up"),
    )?;
    let side = PacketSocket::open(WAY1, SIDE)?;
    let shape = Shape {
        v6: true,
        mode: Mode::Encaps,
        sids: 2,
    };
    let (mut hike, chain) = leaving(engine, "enc,fw-fib")?;
    let dropping = Class::of(hike.add_chain(&"drop".parse()?)?);
    hike.set_class("fc00::/16".parse()?, dropping)?;
    netns::within(INGRESS, || {
        hike.add_port(if_nametoindex(SIDE)?)?;
        hike.attach(SIDE)
    })?;
    // What a VLAN's device has tagged is for no chain below it.
    topology::ip_in(
        INGRESS,
        &format!(
            "link add link {RIGHT} name tagged type vlan id 5
             address add fd00:5::1/64 dev tagged nodad
             link set tagged up
             neighbour add fd00:5::2 lladdr {} dev tagged",
            text(mac(1, 2))
        ),
    )?;
    hike.set_class("fd00:5::/64".parse()?, dropping)?;
    let left = PacketSocket::open(WAY1, LEFT)?;
    with_class(&mut hike, chain, &path(shape), DST_V6.into(), || {
        netns::within(INGRESS, || {
            UdpSocket::bind("[fd00:5::1]:0")?.send_to(&MARK, "[fd00:5::2]:9")?;
            Ok(())
        })?;
        left.receive(&MARK).context("with a tag")?;
        for _ in 0..PACKETS {
            wire.src.send(&frame(shape, 0, HOP_LIMIT)?)?;
            side.receive(&MARK).context("at the second link")?;
            wire.dst.receive(&MARK).context("at the end")?;
        }
        Ok(())
    })?;
    for (reason, packets) in hike.reasons()? {
        let expected = match reason.name {
            "forwarded" => PACKETS,
            // Neighbours ask for each other, and all of them at once.
            "no-class" | "not-ip" | "other-host" => packets,
            _ => 0,
        };
        ensure!(packets == expected, "{packets} packets {}", reason.name);
    }
    Ok(())
}

/// The part of the system that cuts a stream into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cuts {
    /// Nobody: a veth hands it over as it is.
    Device,
    /// The kernel, in front of a device that does not know such tunnels.
    Kernel,
    Tcp,
}

fn streams() -> Result<()> {
    let _network = Network::up()?;
    for to in [IpAddr::V6(DST_V6), IpAddr::V4(DST_V4)] {
        let (via, from) = match to {
            IpAddr::V6(_) => ("fd00:1::2", LEFT_V6),
            IpAddr::V4(_) => ("10.9.1.2", LEFT_V4),
        };
        topology::ip_in(
            INGRESS,
            &format!("route add {to} via {via} dev {RIGHT} src {from} mtu {INNER_MTU}"),
        )?;
        for (cuts, knows_tunnels, gso_segs) in [
            (Cuts::Device, "on", GSO_SEGS),
            (Cuts::Kernel, "off", GSO_SEGS),
            (Cuts::Tcp, "on", 1),
        ] {
            netns::run(
                INGRESS,
                &format!("ethtool -K {RIGHT} tx-ipxip6-segmentation {knows_tunnels}"),
            )?;
            let link = format!("link set dev {RIGHT} gso_max_segs {gso_segs}");
            topology::ip_in(INGRESS, &link)?;
            let engine = if cuts == Cuts::Tcp {
                Engine::TailCalls
            } else {
                Engine::Compiled
            };
            one_stream(engine, to, cuts)
                .with_context(|| format!("{engine:?}, to {to}, cut by {cuts:?}"))?;
        }
    }
    Ok(())
}

fn one_stream(engine: Engine, to: IpAddr, cuts: Cuts) -> Result<()> {
    let path = Path {
        mode: Mode::Encaps,
        dscp: Dscp::Copied,
        flow_label: FlowLabel::PerFlow,
        flow_id: Some(7),
        mtu: LINK_MTU,
        ..Path::new(TUNNEL_SOURCE, sids(2, to.is_ipv6()))
    };
    let flow = Flow::of(&path)?;
    let monitor = Monitor {
        period: Duration::from_secs(3_600),
        marking: Marking::Option,
    };
    let (mut hike, chain) = leaving(engine, "enc,mon-in,fw-fib")?;
    hike.add_monitor(&flow, Direction::In, &monitor)?;
    let socket = PacketSocket::open(WAY1, LEFT)?;
    socket.make_room(ROOM_BYTES)?;
    let watch = |stop: &AtomicBool| watch(&socket, to, stop);
    let (seen, ()) = with_class(&mut hike, chain, &path, to, || {
        threads::beside(watch, || carry(to))
    })?;
    let segments: u64 = hike
        .counts(&flow, Direction::In)?
        .blocks()
        .map(|(_, pkts)| pkts)
        .sum();
    let reasons = hike.reasons()?;
    let packets = |name: &str| {
        let counted = reasons.iter().find(|(reason, _)| reason.name == name);
        counted.map_or(0, |(_, packets)| *packets)
    };
    let forwarded = packets("forwarded");
    let others: u64 = reasons
        .iter()
        .filter(|(reason, _)| !["forwarded", "no-class", "other-host"].contains(&reason.name))
        .map(|(_, packets)| packets)
        .sum();
    let told =
        format!("{seen:?}, {forwarded} packets forwarded as {segments} segments, {others} others");
    ensure!(
        seen.plain == 0 && others == 0,
        "not all was encapsulated: {told}"
    );
    // A segment has 1,340 bytes of the stream at most.
    ensure!(
        segments > STREAM_BYTES as u64 / u64::from(INNER_MTU),
        "{told}"
    );
    match cuts {
        Cuts::Device => ensure!(
            seen.tunnelled == forwarded
                && seen.longest > usize::from(LINK_MTU)
                && forwarded < segments,
            "the device did not get it whole: {told}"
        ),
        Cuts::Kernel => ensure!(
            seen.tunnelled == segments
                && seen.longest <= usize::from(LINK_MTU)
                && forwarded < segments,
            "it was not cut by the kernel into what was counted: {told}"
        ),
        Cuts::Tcp => ensure!(
            seen.tunnelled == segments
                && seen.longest <= usize::from(LINK_MTU)
                && forwarded == segments,
            "it was not cut by TCP: {told}"
        ),
    }
    Ok(())
}

/// The packets that came to the first waypoint.
#[derive(Debug, Default)]
struct Came {
    tunnelled: u64,
    /// Packets of the stream without a tunnel.
    plain: u64,
    /// The longest IP packet.
    longest: usize,
}

/// Counts what comes until nothing more does after it is told to stop.
fn watch(socket: &PacketSocket, to: IpAddr, stop: &AtomicBool) -> Result<Came> {
    let mut came = Came::default();
    loop {
        let Some(frame) = socket.next()? else {
            // ORDERING: Nothing else depends on it.
            if stop.load(Ordering::Relaxed) {
                return Ok(came);
            }
            continue;
        };
        let ip = &frame[ETHERNET_BYTES..];
        let is = |at: usize, address: IpAddr| match address {
            IpAddr::V6(address) => ip.get(at..at + 16) == Some(&address.octets()[..]),
            IpAddr::V4(address) => ip.get(at..at + 4) == Some(&address.octets()[..]),
        };
        let is_v6 = frame[12..14] == [0x86, 0xdd];
        if is_v6 && is(8, TUNNEL_SOURCE.into()) && ip[6] == 60 {
            came.tunnelled += 1;
            came.longest = came.longest.max(ip.len());
        } else if is_v6 == to.is_ipv6() && is(if is_v6 { 24 } else { 16 }, to) {
            came.plain += 1;
        }
    }
}

/// Sends a stream from ingress to the end of the network, where each byte has to be what was sent.
fn carry(to: IpAddr) -> Result<()> {
    let any: IpAddr = if to.is_ipv6() {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let listener = netns::within(DST, || Ok(TcpListener::bind((any, STREAM_PORT))?))?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&listener));
        let sent = netns::within(INGRESS, || {
            let to = SocketAddr::new(to, STREAM_PORT);
            let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
            stream.set_write_timeout(Some(PATIENCE))?;
            let bytes: Vec<u8> = (0..STREAM_BYTES).map(byte_at).collect();
            let start = Instant::now();
            for piece in bytes.chunks(PIECE_BYTES) {
                // Of segments that are lost again and again, one gets through now and then.
                ensure!(start.elapsed() < PATIENCE, "the stream hardly moves");
                stream.write_all(piece)?;
            }
            Ok(())
        });
        if sent.is_err() {
            // So that nobody waits for what does not come.
            let _woken = netns::within(DST, || {
                Ok(TcpStream::connect_timeout(
                    &listener.local_addr()?,
                    PATIENCE,
                )?)
            });
        }
        let received = threads::result(receiver.join());
        sent.and(received)
    })
}

fn receive(listener: &TcpListener) -> Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let wrong = bytes
        .iter()
        .enumerate()
        .position(|(at, byte)| *byte != byte_at(at));
    ensure!(
        bytes.len() == STREAM_BYTES && wrong.is_none(),
        "{} bytes came; the first wrong one: {wrong:?}",
        bytes.len()
    );
    Ok(())
}

/// Returns a byte of the stream: of a period that no segment has.
fn byte_at(place: usize) -> u8 {
    // CAST: less than 251.
    (place % 251) as u8
}
