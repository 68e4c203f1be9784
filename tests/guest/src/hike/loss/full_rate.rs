// SPDX-License-Identifier: GPL-2.0

//! The same loss, of packets that come as fast as they can be sent, over the borders of blocks, with reordering in between.
//!
//! A machine that sends flat out does not read counters in time. So packets come until some are on both sides of a border, and then
//! none: when nothing is under way any more, what the filter's counter of a colour has grown by was dropped of the block of this
//! colour. If the sender was kept from running for so long that there are more blocks, it was dropped of two of them together.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{bail, ensure, Result};
use mflow_hike::config::flow::Counts;
use mflow_hike::{Direction, Engine, Flow, Hike, Hook, Marking, Monitor, Path};

use super::blocks::{self, Setting, PERIOD, PORT};
use crate::hike::network::{
    sids, Network, DST, DST_V6, EGRESS, INGRESS, SRC, TUNNEL_SOURCE, WAY1, WAY2,
};
use crate::hike::Case;
use crate::machine::cpu;
use crate::network::netns;

/// Over one of each kind: from odd to even, and back.
const BORDERS: usize = 2;
/// On each side of a border, at least.
const PKTS: u64 = 250;
/// A monitor has the last four: one more may begin while packets are on their way.
const MOST_BLOCKS: u64 = 3;
const MOST_TRIES: usize = 4 * BORDERS;
/// Between two looks: several times as long as packets need through the domain.
const STILL: Duration = Duration::from_millis(100);
/// So often in a row nothing has changed where packets are missing for good.
const LOOKS_IN_VAIN: u32 = 10;
const MOST_LOOKS: u32 = 50;
/// Datagrams between two looks at the clock.
const TOGETHER: u64 = 8;
const PAYLOAD_BYTES: usize = 64;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "loss/full-rate",
        proves: "the same where packets come as fast as they can be sent, over the borders of blocks, with reordering between",
        run: |_| at_full_rate(),
    }]
}

fn at_full_rate() -> Result<()> {
    let setting = Setting {
        hook: Hook::Xdp,
        marking: Marking::Option,
        reordered: true,
        engine: Engine::Compiled,
    };
    let _network = Network::up()?;
    let monitor = Monitor {
        period: PERIOD,
        marking: setting.marking,
    };
    let path = Path {
        flow_id: Some(1),
        ..Path::new(TUNNEL_SOURCE, sids(3, true))
    };
    let flow = Flow::of(&path)?;
    let domain = Domain {
        ingress: blocks::ingress(setting, &path, &flow, &monitor)?,
        egress: blocks::egress(setting.engine, &flow, &monitor)?,
        flow,
    };
    blocks::filter(setting)?;
    let sink = netns::within(DST, || Ok(UdpSocket::bind((DST_V6, PORT))?))?;
    sink.set_nonblocking(true)?;
    let (mut borders, mut late, mut number) = (0, 0, 0);
    for _ in 0..MOST_TRIES {
        let before = domain.seen()?;
        let (blocks, few) = netns::within(SRC, || send_over_border(&monitor, &mut number))?;
        let after = domain.still(&before, &blocks)?;
        late += overtaken(&sink)?;
        if !few {
            continue;
        }
        for fate in after.since(&before, &blocks) {
            ensure!(
                fate.is_exact(),
                "of one colour in {blocks:?}: {fate:?}{}",
                lost_elsewhere()?
            );
            ensure!(
                fate.left > 0 && fate.dropped > 0,
                "of one colour in {blocks:?}, nothing was left or dropped: {fate:?}"
            );
        }
        borders += 1;
        if borders == BORDERS {
            ensure!(late > 0, "no datagram was overtaken");
            return Ok(());
        }
    }
    bail!(
        "{borders} of {BORDERS} borders had {PKTS} packets on both sides: this machine is too busy"
    )
}

/// The instances that count packets where they enter and leave, and the flow of these packets.
struct Domain {
    ingress: Hike,
    egress: Hike,
    flow: Flow,
}

/// The packets that were counted and dropped until a moment.
#[derive(PartialEq)]
struct Seen {
    entered: Counts,
    left: Counts,
    /// Of odd and of even blocks.
    dropped: [u64; 2],
}

/// The fate of the packets of a colour.
#[derive(Debug, Default)]
struct Fate {
    entered: u64,
    left: u64,
    dropped: u64,
}

impl Domain {
    fn seen(&self) -> Result<Seen> {
        Ok(Seen {
            entered: self.ingress.counts(&self.flow, Direction::In)?,
            left: self.egress.counts(&self.flow, Direction::Out)?,
            dropped: blocks::dropped()?,
        })
    }

    /// Waits until nothing changes any more: sooner where no packet is missing.
    fn still(&self, before: &Seen, blocks: &RangeInclusive<u64>) -> Result<Seen> {
        let (mut last, mut alike) = (self.seen()?, 0);
        for _ in 0..MOST_LOOKS {
            thread::sleep(STILL);
            let now = self.seen()?;
            alike = if now == last { alike + 1 } else { 0 };
            let whole = now.since(before, blocks).iter().all(Fate::is_exact);
            if alike >= if whole { 1 } else { LOOKS_IN_VAIN } {
                return Ok(now);
            }
            last = now;
        }
        bail!("packets are still on their way long after the last one was sent")
    }
}

impl Seen {
    /// Returns what has become of the packets that entered in these blocks since `before`: of those of odd and of even ones.
    fn since(&self, before: &Self, blocks: &RangeInclusive<u64>) -> [Fate; 2] {
        let mut fates = [0, 1].map(|colour| Fate {
            dropped: self.dropped[colour] - before.dropped[colour],
            ..Fate::default()
        });
        for block in blocks.clone() {
            let fate = &mut fates[usize::from(block.is_multiple_of(2))];
            let added =
                |now: &Counts, then: &Counts| now.pkts(block).saturating_sub(then.pkts(block));
            fate.entered += added(&self.entered, &before.entered);
            fate.left += added(&self.left, &before.left);
        }
        fates
    }
}

impl Fate {
    fn is_exact(&self) -> bool {
        self.entered == self.left + self.dropped
    }
}

/// Sends without a rest until [`PKTS`] packets are on both sides of a border. Returns the blocks that they may be in, and whether
/// these are few enough for a monitor.
fn send_over_border(monitor: &Monitor, number: &mut u64) -> Result<(RangeInclusive<u64>, bool)> {
    // All that these packets lead to is done by the same CPU then, in turn: the rings between the namespaces do not overflow.
    cpu::pin(cpu::SENDER)?;
    let socket = UdpSocket::bind("[::]:0")?;
    socket.connect((DST_V6, PORT))?;
    let first = monitor.block_at(SystemTime::now());
    let (mut last, mut in_last, mut in_one_before) = (first, 0, 0);
    while in_last < PKTS || in_one_before < PKTS {
        let block = monitor.block_at(SystemTime::now());
        if block > last {
            in_one_before = if block == last + 1 { in_last } else { 0 };
            (last, in_last) = (block, 0);
        }
        if last - first >= MOST_BLOCKS {
            return Ok((first..=last + 1, false));
        }
        for _ in 0..TOGETHER {
            let mut payload = [0; PAYLOAD_BYTES];
            payload[..8].copy_from_slice(&number.to_be_bytes());
            socket.send(&payload)?;
            *number += 1;
        }
        in_last += TOGETHER;
    }
    Ok((first..=last + 1, true))
}

/// Reads what has arrived, as far as there was room for it; returns how many datagrams came behind one that was sent later.
fn overtaken(sink: &UdpSocket) -> Result<u64> {
    let (mut latest, mut overtaken) = (0, 0);
    let mut payload = [0; PAYLOAD_BYTES];
    loop {
        match sink.recv(&mut payload) {
            Ok(PAYLOAD_BYTES) => {
                let number = u64::from_be_bytes(payload[..8].try_into()?);
                overtaken += u64::from(number < latest);
                latest = latest.max(number);
            }
            Ok(bytes) => bail!("a datagram of {bytes} bytes arrived"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(overtaken),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns which devices on the way have dropped packets.
fn lost_elsewhere() -> Result<String> {
    let mut said = String::new();
    for node in [INGRESS, WAY1, WAY2, EGRESS] {
        let table = netns::run(node, "cat /proc/net/dev")?;
        for line in table.lines() {
            let Some((device, counts)) = line.split_once(':') else {
                continue;
            };
            // As include/linux/if_link.h has them: of each direction bytes, packets, errors, dropped, and four more.
            let counts: Vec<&str> = counts.split_whitespace().collect();
            for (direction, column) in [("received", 3), ("sent", 11)] {
                let pkts = counts.get(column).copied().unwrap_or("0");
                if pkts != "0" {
                    write!(
                        said,
                        "; {node} {} dropped {pkts} {direction}",
                        device.trim()
                    )?;
                }
            }
        }
    }
    Ok(said)
}
