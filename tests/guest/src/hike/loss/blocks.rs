// SPDX-License-Identifier: GPL-2.0

//! The loss that monitors report, block by block, against the packets that a filter in between has dropped.
//!
//! The filter knows the colours, and counts the packets that it drops of each. In the middle of a block, no packet of the block
//! before is on its way any more. So the packets by which that block's counter has grown since the last block of the same colour
//! were dropped of that very block.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{bail, ensure, Context as _, Result};
use mflow_hike::config::path::Mode;
use mflow_hike::{Class, Direction, Engine, Flow, Hike, Hook, Marking, Monitor, Path};
use mflow_protocol::guest::LossRow;
use nix::sys::socket::{setsockopt, sockopt};

use crate::hike::network::{
    attach, sids, Network, DST, DST_V6, EGRESS, INGRESS, LEFT, RIGHT, SRC, TUNNEL_SOURCE, WAY1,
    WAY2,
};
use crate::hike::{instance, instance_at, Case};
use crate::machine::command::wait_until;
use crate::machine::threads;
use crate::network::netns;

/// Blocks long enough for an emulated CPU that is away for a moment.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);
const BLOCKS: u64 = 2;
/// Blocks of which there are many in a second.
const SHORT: Duration = Duration::from_millis(10);
/// This many times as long as it should take to read them all: a busy host is late at times.
const MOST_TRIES: u64 = 5;
pub(crate) const PORT: u16 = 9_000;
/// The time for which the sender rests after every [`TOGETHER`] datagrams.
const REST: Duration = Duration::from_millis(5);
const TOGETHER: usize = 8;
/// More packets than are sent during the delay, however fast they come: the reordering drops nothing.
const MOST_DELAYED_PKTS: u32 = 100_000;
const PAYLOAD: [u8; 64] = [0; 64];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "loss/option",
            proves: "the loss of each block is what a filter has dropped of it, to the packet; colours in the option of RFC 9343",
            run: |_| exact(Setting { hook: Hook::Xdp, marking: Marking::Option, reordered: false, engine: Engine::Compiled }),
        },
        Case {
            name: "loss/class-reordered",
            proves: "the same with colours in the traffic class, with reordering between, and with tail calls",
            run: |_| exact(Setting { hook: Hook::Xdp, marking: Marking::DscpBit(0), reordered: true, engine: Engine::TailCalls }),
        },
        Case {
            name: "tcx/loss",
            proves: "the same of what a host sends itself, eight datagrams at a time that the kernel cuts apart behind the hook",
            run: |_| exact(Setting { hook: Hook::Tcx, marking: Marking::Option, reordered: false, engine: Engine::Compiled }),
        },
        Case {
            name: "loss/totals",
            proves: "of a flow whose blocks are gone long since, each packet is in the count of all blocks, at both ends",
            run: |_| totals(),
        },
    ]
}

/// The way in which loss is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// The hook at which packets enter the monitored domain.
    pub(crate) hook: Hook,
    pub(crate) marking: Marking,
    pub(crate) reordered: bool,
    pub(crate) engine: Engine,
}

fn exact(setting: Setting) -> Result<()> {
    let mut lost = 0;
    measure(setting, BLOCKS, |row| {
        ensure!(
            row.entered == row.left + row.dropped,
            "of block {}, {} entered and {} left, and the filter dropped {}",
            row.block,
            row.entered,
            row.left,
            row.dropped
        );
        ensure!(row.left > 0, "nothing of block {} was left", row.block);
        lost += row.dropped;
        Ok(())
    })?;
    ensure!(lost > 0, "the filter dropped nothing");
    Ok(())
}

/// Measures this many blocks, and says each.
pub(crate) fn measure(
    setting: Setting,
    blocks: u64,
    mut say: impl FnMut(LossRow) -> Result<()>,
) -> Result<()> {
    let _network = Network::up()?;
    let monitor = Monitor {
        period: PERIOD,
        marking: setting.marking,
    };
    let path = Path {
        mode: Mode::Encaps,
        flow_id: (setting.marking == Marking::Option).then_some(1),
        ..Path::new(TUNNEL_SOURCE, sids(3, true))
    };
    let flow = Flow::of(&path)?;
    let ingress = ingress(setting, &path, &flow, &monitor)?;
    let egress = egress(setting.engine, &flow, &monitor)?;
    filter(setting)?;
    let send = |stop: &AtomicBool| match setting.hook {
        Hook::Xdp => netns::within(SRC, || send_until(stop, send_one_by_one)),
        Hook::Tcx => netns::within(INGRESS, || send_until(stop, send_together)),
    };
    let watch = || {
        let (mut dropped_before, mut rows) = ([None; 2], 0);
        let first = now_in(&monitor).0;
        for block in first..first + MOST_TRIES * (blocks + 2) {
            sleep_until_middle_of(&monitor, block + 1);
            let dropped_now = dropped()?;
            let colour = usize::from(block.is_multiple_of(2));
            let in_time = now_in(&monitor).0 == block + 1;
            let before = dropped_before[colour].take();
            // Read later, the filter's counter tells of the next block of this colour, too.
            if !in_time {
                continue;
            }
            dropped_before[colour] = Some(dropped_now[colour]);
            if let Some(before) = before {
                say(LossRow {
                    block,
                    entered: ingress.counts(&flow, Direction::In)?.pkts(block),
                    left: egress.counts(&flow, Direction::Out)?.pkts(block),
                    dropped: dropped_now[colour] - before,
                })?;
                rows += 1;
            }
            if rows == blocks {
                return Ok(());
            }
        }
        bail!("{rows} of {blocks} blocks were read in time: this machine is too busy")
    };
    threads::beside(send, watch).map(|((), ())| ())
}

/// Sends datagrams for many more blocks than are kept.
fn totals() -> Result<()> {
    const DATAGRAMS: u64 = 400;
    let monitor = Monitor {
        period: SHORT,
        marking: Marking::DscpBit(0),
    };
    let setting = Setting {
        hook: Hook::Xdp,
        marking: monitor.marking,
        reordered: false,
        engine: Engine::Compiled,
    };
    let _network = Network::up()?;
    let path = Path::new(TUNNEL_SOURCE, sids(3, true));
    let flow = Flow::of(&path)?;
    let ingress = ingress(setting, &path, &flow, &monitor)?;
    let egress = egress(setting.engine, &flow, &monitor)?;
    let _sink = netns::within(DST, || Ok(UdpSocket::bind((DST_V6, PORT))?))?;
    netns::within(SRC, || {
        let socket = UdpSocket::bind("[::]:0")?;
        socket.connect((DST_V6, PORT))?;
        for _ in 0..DATAGRAMS {
            socket.send(&PAYLOAD)?;
            thread::sleep(SHORT / 2);
        }
        Ok(())
    })?;
    wait_until("all datagrams are counted where they leave", || {
        let counts = egress.counts(&flow, Direction::Out)?;
        Ok(counts.total_pkts() == DATAGRAMS)
    })?;
    let counts = ingress.counts(&flow, Direction::In)?;
    let kept: u64 = counts.blocks().map(|(_, pkts)| pkts).sum();
    ensure!(
        counts.total_pkts() == DATAGRAMS && kept < DATAGRAMS,
        "of {DATAGRAMS} datagrams {} are counted in all, and {kept} in the blocks that are kept",
        counts.total_pkts()
    );
    Ok(())
}

pub(crate) fn ingress(
    setting: Setting,
    path: &Path,
    flow: &Flow,
    monitor: &Monitor,
) -> Result<Hike> {
    let mut hike = instance_at(setting.hook, setting.engine)?;
    let class = Class {
        chain: hike.add_chain(&"enc,mon-in,fw-fib".parse()?)?,
        path: Some(hike.add_path(path)?),
        lanes: None,
    };
    hike.set_class(DST_V6.to_string().parse()?, class)?;
    hike.add_monitor(flow, Direction::In, monitor)?;
    match setting.hook {
        Hook::Xdp => attach(&mut hike, INGRESS)?,
        Hook::Tcx => {
            // A device that knows no such tunnels: the kernel cuts what is in them.
            netns::run(
                INGRESS,
                &format!("ethtool -K {RIGHT} tx-ipxip6-segmentation off"),
            )?;
            netns::within(INGRESS, || hike.attach(RIGHT))?;
        }
    }
    Ok(hike)
}

pub(crate) fn egress(engine: Engine, flow: &Flow, monitor: &Monitor) -> Result<Hike> {
    let mut hike = instance(engine)?;
    let class = Class {
        chain: hike.add_chain(&"mon-out,fw-kernel".parse()?)?,
        path: None,
        lanes: None,
    };
    hike.set_class("fc00:3::/32".parse()?, class)?;
    hike.add_monitor(flow, Direction::Out, monitor)?;
    netns::within(EGRESS, || hike.attach(LEFT))?;
    Ok(hike)
}

/// Makes the first waypoint drop every fifth packet of one colour, and every seventh of the other.
pub(crate) fn filter(setting: Setting) -> Result<()> {
    // Where the colour is, from the IPv6 header on: the L bit, or the lowest bit of DSCP.
    let colour = match setting.marking {
        Marking::Option => "match u8 0x08 0x08 at 46",
        Marking::DscpBit(_) => "match u8 0x40 0x40 at 1",
    };
    let to_sids = "match ip6 dst fc00::/16";
    let add = format!("filter add dev {RIGHT} egress protocol ipv6 prio");
    for line in [
        format!("qdisc add dev {RIGHT} clsact"),
        format!("{add} 1 u32 {to_sids} {colour} action pass random determ drop 5"),
        format!("{add} 2 u32 {to_sids} action pass random determ drop 7"),
    ] {
        netns::run(WAY1, &format!("tc {line}"))?;
    }
    if setting.reordered {
        netns::run(
            WAY2,
            &format!("tc qdisc add dev {RIGHT} root netem limit {MOST_DELAYED_PKTS} delay 8ms 6ms"),
        )?;
    }
    Ok(())
}

/// Returns how many packets of odd and of even blocks the filter has dropped.
pub(crate) fn dropped() -> Result<[u64; 2]> {
    let said = netns::run(WAY1, &format!("tc -s filter show dev {RIGHT} egress"))?;
    let counts = said.split("(dropped ").skip(1).map(|rest| {
        let count = rest.split(',').next().unwrap_or_default();
        count
            .parse()
            .with_context(|| format!("tc says `{count}` were dropped"))
    });
    let counts = counts.collect::<Result<Vec<u64>>>()?;
    <[u64; 2]>::try_from(counts).map_err(|counts| anyhow::anyhow!("tc says {counts:?} of {said}"))
}

/// Sends datagrams until it is told to stop.
fn send_until(stop: &AtomicBool, some: fn(&UdpSocket) -> Result<()>) -> Result<()> {
    let sink = netns::within(DST, || Ok(UdpSocket::bind((DST_V6, PORT))?))?;
    let socket = UdpSocket::bind("[::]:0")?;
    socket.connect((DST_V6, PORT))?;
    // ORDERING: Nothing else depends on it.
    while !stop.load(Ordering::Relaxed) {
        some(&socket)?;
        thread::sleep(REST);
    }
    drop(sink);
    Ok(())
}

fn send_one_by_one(socket: &UdpSocket) -> Result<()> {
    for _ in 0..TOGETHER {
        socket.send(&PAYLOAD)?;
    }
    Ok(())
}

/// Sends as many in one packet, which is cut on its way out.
fn send_together(socket: &UdpSocket) -> Result<()> {
    // CAST: 64.
    setsockopt(socket, sockopt::UdpGsoSegment, &(PAYLOAD.len() as i32)).context("UDP_SEGMENT")?;
    let sent = socket.send(&PAYLOAD.repeat(TOGETHER))?;
    ensure!(sent == PAYLOAD.len() * TOGETHER, "{sent} bytes were sent");
    Ok(())
}

/// Returns the block of now, and how far it is.
fn now_in(monitor: &Monitor) -> (u64, Duration) {
    let now = SystemTime::now();
    let block = monitor.block_at(now);
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let whole_ns = since.unwrap_or_default().as_nanos() % PERIOD.as_nanos();
    // CAST: less than a period.
    (block, Duration::from_nanos(whole_ns as u64))
}

fn sleep_until_middle_of(monitor: &Monitor, block: u64) {
    loop {
        let (now, into) = now_in(monitor);
        if now > block || (now == block && into >= PERIOD / 2) {
            return;
        }
        // Short naps: the clock is what counts.
        thread::sleep(PERIOD / 100);
    }
}
