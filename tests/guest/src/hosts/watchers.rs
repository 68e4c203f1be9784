// SPDX-License-Identifier: GPL-2.0

//! Watchers of a NIC: captures with and without a ring, a mirror to another device, sockets that share packets out. Each sees every
//! packet of the wire once, as it came, and the flow does not notice. With our patches each lane shows them its own packets, so they
//! see the order of each lane, and not that of the wire.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use etherparse::{IpNumber, NetSlice, SlicedPacket, TransportSlice};
use mflow_protocol::datagram::{self, MIN_BYTES};
use mflow_protocol::network::VXLAN_PORT;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use super::elephant::Elephant;
use super::host::{Host, Rules};
use super::Case;
use crate::machine::{clock, command, cpu};
use crate::mflow;
use crate::network::packet_socket::PacketSocket;
use crate::network::tcpdump;
use crate::network::topology::{self, Family};
use crate::traffic::datagrams::ledger::Ledger;
use crate::traffic::streams::run::Streams;
use crate::traffic::tcp_counters::{noise, Counters};
use crate::traffic::Load as _;

/// Room for all that a case sends: the kernel keeps the frames until the reader comes.
const ROOM: usize = 64 << 20;
/// The headers of the tunnel and of Ethernet before it: 14, 20, 8 and 8 bytes.
const OUTER_BYTES: usize = 50;
const GROUP: u16 = 7;
/// The time by which the clock is set back: less than a second.
const SET_BACK: TimeSpec = TimeSpec::from_duration(Duration::from_millis(500));
/// The number of datagrams that are sent before that, and the most that may be under way when it happens, of some 2,000 datagrams
/// in that time.
const FEW: u64 = 200;
const MOST_AHEAD: u64 = 500;
/// Fewer segments prove nothing.
const LEAST_SEGMENTS: u64 = 500;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![Case::new(
        "watchers/copies/tcp",
        "a capture without a ring",
        "what a late reader gets of a stream has the checksum that was sent, and no byte of the stream is wrong",
        copies_of_stream,
    )];
    cases.push(Case::new(
        "watchers/stamps",
        "a reader that wants time stamps, and a clock that is set back",
        "when the clock is set back by half a second, the time stamps of a split flow follow it",
        stamps,
    ));
    for (inner, of_family) in [(Family::V4, ""), (Family::V6, "/v6")] {
        let case = |name: &str, has, proves, run: fn(&Host, Family) -> Result<()>| {
            Case::new(
                format!("watchers/{name}{of_family}"),
                has,
                proves,
                move |host| run(host, inner),
            )
        };
        cases.extend([
            case(
                "ring",
                "a capture with a ring on the NIC",
                "a capture with a ring on the NIC, begun before splitting: the flow is split, and does not notice",
                ring,
            ),
            case(
                "copies",
                "a capture without a ring",
                "a capture without a ring, which gets a copy of each packet, has all datagrams of a split flow as sent, each by itself, \
                 and without our patches in order",
                |host, inner| watched(host, inner, 1),
            ),
            case(
                "copies/any",
                "a capture of all devices",
                "a capture of all devices sees each datagram of a split flow once at the NIC, without our patches in order, and at the \
                 devices where it sees it with enabled 0",
                at_any_device,
            ),
            case(
                "mirror",
                "a mirror at the NIC's ingress",
                "a mirror at the NIC's ingress copies every packet of a split flow once, to a device that takes no lists and sums nothing",
                mirror,
            ),
            case(
                "shared",
                "sockets that share out the NIC's packets",
                "of the sockets that share out the NIC's packets one gets a split flow, whole, and without our patches in order",
                |host, inner| watched(host, inner, 2),
            ),
        ]);
    }
    cases
}

fn ring(host: &Host, inner: Family) -> Result<()> {
    let compared = host.compare(
        inner,
        Rules::First,
        || Ok(()),
        |host| {
            let _capture = tcpdump::start(None, "eth0", cpu::READER)?;
            Ok(Elephant::plain(host, inner)?
                .run(host.datagrams, |_| Ok(()))?
                .0)
        },
    )?;
    compared.off.require_whole()?;
    compared.on.require_whole()?;
    compared.on.require_split()
}

/// Returns whether a watcher of the NIC sees packets in the order of the wire: not those of lanes, if they come past it.
fn sees_order(enabled: usize) -> Result<bool> {
    Ok(enabled == 0 || !mflow::is_patched()?)
}

/// Demands that one of this many sockets at the NIC has got everything.
fn watched(host: &Host, inner: Family, sockets: u16) -> Result<()> {
    let compared = host.compare(
        inner,
        Rules::First,
        || Ok(()),
        |host| {
            let mut watchers = Vec::new();
            for _ in 0..sockets {
                let watcher = PacketSocket::open_here("eth0")?;
                watcher.make_room(ROOM)?;
                if sockets > 1 {
                    watcher.share(GROUP)?;
                }
                watchers.push(watcher);
            }
            let (arrived, ()) = Elephant::plain(host, inner)?.run(host.datagrams, |_| Ok(()))?;
            let copies = watchers.iter().map(datagrams).collect::<Result<Vec<_>>>()?;
            Ok((arrived, copies))
        },
    )?;
    for (enabled, (arrived, copies)) in [&compared.off, &compared.on].into_iter().enumerate() {
        let (sent, sees_order) = (arrived.sent, sees_order(enabled)?);
        let whole = |copies: &&Ledger| {
            copies.delivered() == sent
                && copies.duplicate() == 0
                && (copies.reordered() == 0 || !sees_order)
        };
        let none = |copies: &&Ledger| copies.delivered() == 0;
        ensure!(
            copies.iter().filter(whole).count() == 1 && copies.iter().filter(none).count() == copies.len() - 1,
            "with enabled {enabled} one watcher has to get all {sent} datagrams, and they got {:?}, of which out of order and twice {:?}",
            copies.iter().map(Ledger::delivered).collect::<Vec<_>>(),
            copies.iter().map(|copies| (copies.reordered(), copies.duplicate())).collect::<Vec<_>>()
        );
        arrived.require_whole()?;
    }
    compared.on.0.require_split()
}

/// Returns which datagrams of an elephant a socket has got in the overlay's packets.
fn datagrams(watcher: &PacketSocket) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    while let Some(frame) = watcher.next()? {
        record(&mut ledger, &frame);
    }
    Ok(ledger)
}

/// Records the datagram with which a frame ends, if there is one.
fn record(ledger: &mut Ledger, frame: &[u8]) {
    let start = frame.len().checked_sub(MIN_BYTES);
    if let Some(head) = start.and_then(|start| datagram::decode(&frame[start..])) {
        ledger.record(head.sequence);
    }
}

/// A device's datagrams as a capture sees them.
type Captured = BTreeMap<String, Ledger>;

fn at_any_device(host: &Host, inner: Family) -> Result<()> {
    let compared = host.compare(
        inner,
        Rules::First,
        || Ok(()),
        |host| {
            let watcher = PacketSocket::open_everywhere()?;
            watcher.make_room(ROOM)?;
            // Each device has a copy.
            let count = host.datagrams / 4;
            let (arrived, ()) = Elephant::plain(host, inner)?.run(count, |_| Ok(()))?;
            Ok((arrived, captured(&watcher)?))
        },
    )?;
    for (enabled, (arrived, captured)) in [&compared.off, &compared.on].into_iter().enumerate() {
        let at_nic = captured.get("eth0").context("nothing is seen at the NIC")?;
        let (delivered, reordered, duplicate) =
            (at_nic.delivered(), at_nic.reordered(), at_nic.duplicate());
        let sees_order = sees_order(enabled)?;
        ensure!(
            delivered == arrived.sent && duplicate == 0 && (reordered == 0 || !sees_order),
            "with enabled {enabled} of {} datagrams {delivered} are seen at the NIC, {reordered} out of order, {duplicate} twice",
            arrived.sent
        );
        arrived.require_whole()?;
    }
    let devices = |captured: &Captured| captured.keys().cloned().collect::<Vec<_>>();
    let (off, on) = (devices(&compared.off.1), devices(&compared.on.1));
    ensure!(
        on == off,
        "with enabled 1 datagrams are seen at {on:?}, with 0 at {off:?}"
    );
    compared.on.0.require_split()
}

/// Returns the datagrams of each device that has any.
fn captured(watcher: &PacketSocket) -> Result<Captured> {
    let mut by_index = BTreeMap::<usize, Ledger>::new();
    while let Some((frame, device)) = watcher.next_with_device()? {
        record(by_index.entry(device).or_default(), &frame);
    }
    let seen = by_index.into_iter();
    let seen = seen.filter(|(_, ledger)| ledger.delivered() > 0);
    seen.map(|(index, ledger)| Ok((topology::device_name(index)?, ledger)))
        .collect()
}

/// The late reader has what a lane's GRO has long since taken apart.
fn copies_of_stream(host: &Host) -> Result<()> {
    for enabled in [false, true] {
        host.fresh(Family::V4)?;
        let watcher = PacketSocket::open_here("eth0")?;
        watcher.make_room(ROOM)?;
        if enabled {
            mflow::write("enabled", "1")?;
        }
        beside_stream(host, &watcher, enabled)
            .with_context(|| format!("with enabled {}", u8::from(enabled)))?;
    }
    Ok(())
}

fn beside_stream(host: &Host, watcher: &PacketSocket, split: bool) -> Result<()> {
    let mut plan = host.rig.streams();
    (plan.one_outer, plan.split) = (true, split);
    plan.load.prepare_ends()?;
    let mut begun = Counters::default();
    let outcome = Streams::measure(&plan, |_| {
        begun = Counters::read()?;
        Ok(())
    })?;
    let passed = noise(&Counters::read()?.since(&begun), "TCPOFOQueue");
    // Not before: what is kept for long is what others could write to.
    let (good, bad) = segments(watcher)?;
    outcome.judge(|outcome| {
        // With enabled 0 neither order nor checksums are judged, nor is order before the flow is split: the tunnel has another queue for
        // packets of which there are copies, and what the NIC's GRO has joined has no checksum yet.
        if !split {
            return Ok(());
        }
        ensure!(
            passed == 0,
            "{passed} segments out of order since the flow was split: the tunnel queues those with a copy elsewhere than those without"
        );
        ensure!(
            bad == 0 && good >= LEAST_SEGMENTS,
            "{bad} of {} segments that the watcher got have a wrong checksum",
            good + bad
        );
        outcome.require_no_deadline()
    })?;
    Ok(())
}

/// Reads all that is kept, and counts segments with a right and with a wrong checksum.
fn segments(watcher: &PacketSocket) -> Result<(u64, u64)> {
    let (mut good, mut bad) = (0, 0);
    while let Some(frame) = watcher.next().context("a copy cannot be read")? {
        match has_good_checksum(&frame) {
            Some(true) => good += 1,
            Some(false) => bad += 1,
            None => {}
        }
    }
    Ok((good, bad))
}

/// Returns nothing of what is no segment to the container.
fn has_good_checksum(frame: &[u8]) -> Option<bool> {
    let packet = SlicedPacket::from_ethernet(frame.get(OUTER_BYTES..)?).ok()?;
    let Some(NetSlice::Ipv4(ip)) = packet.net else {
        return None;
    };
    let header = ip.header();
    if header.protocol() != IpNumber::TCP
        || IpAddr::from(header.destination_addr()) != Family::V4.container()
    {
        return None;
    }
    let payload = ip.payload().payload;
    let (segment, mut sum) = (payload.chunks(2), 6 + payload.len() as u64);
    let addresses = [header.source(), header.destination()];
    for pair in segment.chain(addresses.iter().flat_map(|address| address.chunks(2))) {
        sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    Some(sum == 0xffff)
}

/// Returns nothing for a frame that is no datagram of a tunnel, or has no checksum in the tunnel's header.
fn has_good_tunnel_checksum(frame: &[u8]) -> Option<bool> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(TransportSlice::Udp(udp)) = packet.transport else {
        return None;
    };
    let header = udp.to_header();
    if header.destination_port != VXLAN_PORT || header.checksum == 0 {
        return None;
    }
    let expected = match packet.net? {
        NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload()),
        NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()),
        _ => return None,
    };
    Some(expected.is_ok_and(|expected| expected == header.checksum))
}

fn stamps(host: &Host) -> Result<()> {
    let compared = host.compare(
        Family::V4,
        Rules::First,
        || Ok(()),
        |host| {
            let elephant = Elephant::plain(host, Family::V4)?;
            for socket in &elephant.sockets {
                setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
            }
            let ran = elephant.run(host.datagrams, |live| {
                live.send_more(FEW)?;
                clock::move_by(-SET_BACK)
            });
            // Also after a failure.
            clock::move_by(SET_BACK)?;
            Ok(ran?.0)
        },
    )?;
    compared.each(|arrived| {
        ensure!(
            arrived.ahead <= MOST_AHEAD,
            "of {} datagrams {} have a time stamp that is later than the clock: {}",
            arrived.sent,
            arrived.ahead,
            arrived.counters()
        );
        arrived.require_whole()
    })?;
    compared.on.require_split()
}

fn mirror(host: &Host, inner: Family) -> Result<()> {
    let set_up = || {
        topology::ip("link add queue0 type dummy\nlink set queue0 up")?;
        // As a NIC that sends lists of datagrams one by one, and sums nothing.
        command::run("ethtool -K queue0 tx off tx-gso-list off")?;
        topology::tc(
            "qdisc add dev eth0 clsact
             filter add dev eth0 ingress matchall action mirred egress mirror dev queue0",
        )
    };
    let compared = host.compare(inner, Rules::First, set_up, |host| {
        let before = (
            topology::received_pkts("eth0")?,
            topology::sent_pkts("queue0")?,
        );
        let watcher = PacketSocket::open_here("queue0")?;
        watcher.make_room(ROOM)?;
        let (arrived, ()) = Elephant::plain(host, inner)?.run(host.datagrams, |_| Ok(()))?;
        let mut sums = (0, 0);
        while let Some(frame) = watcher.next()? {
            match has_good_tunnel_checksum(&frame) {
                Some(true) => sums.0 += 1,
                Some(false) => sums.1 += 1,
                None => {}
            }
        }
        let (received, copied) = (
            topology::received_pkts("eth0")?,
            topology::sent_pkts("queue0")?,
        );
        Ok((arrived, received - before.0, copied - before.1, sums))
    })?;
    for (enabled, (arrived, received, copied, (good, bad))) in
        [&compared.off, &compared.on].into_iter().enumerate()
    {
        ensure!(
            copied == received,
            "with enabled {enabled} {copied} of {received} packets were mirrored"
        );
        ensure!(
            *bad == 0 && *good >= arrived.sent,
            "with enabled {enabled} {bad} copies have a wrong checksum in the tunnel's header, and {good} a right one"
        );
        arrived.require_whole()?;
    }
    compared.on.0.require_split()
}
