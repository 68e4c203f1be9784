// SPDX-License-Identifier: GPL-2.0

//! One run of TCP streams: warm up until the flows are split, mark, measure, end every stream, and hold the two ends' books
//! together.
//!
//! ```text
//!   start ── warm-up ── mark ── count bytes, and something may happen meanwhile ── FIN ── last byte read ── end
//!                        └──────── the module's counters, stalls and rates are of this part ──────────┘
//!   └────────────── every byte in its place, and TCP's counters, are of everything ───────────────────┘
//! ```

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};

use super::counters::{noise, Counters};
use super::read_style::Style;
use super::readers::Readers;
use super::writers::{Writers, Writing};
use crate::mflow::{self, Stats};
use crate::outcome::Outcome;
use crate::softnet::Softnet;
use crate::topology::Family;

/// The port of the first stream.
pub(crate) const PORT: u16 = 5101;
/// How long a flow may take until it is split.
const SPLIT_LIMIT: Duration = Duration::from_secs(20);
/// How long a run may stand still before it is given up.
const STUCK: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);

/// What a run sends.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How many streams there are, each over a connection of its own.
    pub(crate) flows: u16,
    /// Address family inside the overlay.
    pub(crate) inner: Family,
    /// Address family of the outer packets.
    pub(crate) outer: Family,
    /// Bytes to send after the mark, over all flows.
    pub(crate) bytes: u64,
    /// How the streams are written.
    pub(crate) writing: Writing,
    /// How they are read.
    pub(crate) style: Style,
    /// How many flows of outer packets must be split before the mark; 0 without the module.
    pub(crate) split: u16,
    /// What the client adds to the port of the server, if somebody on the way takes it off again.
    pub(crate) port_shift: u16,
}

impl Plan {
    /// Returns the servers' addresses, with ports that are `shift` above those where they listen.
    fn addresses(&self, shift: u16) -> Vec<SocketAddr> {
        let container = self.inner.container();
        (0..self.flows)
            .map(|flow| (container, PORT + shift + flow).into())
            .collect()
    }
}

/// A run under way, for what happens in its middle.
pub(crate) struct Live<'a> {
    writers: &'a Writers,
    readers: &'a Readers,
    plan: &'a Plan,
}

impl Live<'_> {
    /// Lets bytes flow for some time, longer if none do; fails if there are none for long.
    pub(crate) fn flow_for(&self, time: Duration) -> Result<()> {
        let before = self.readers.progress().bytes();
        thread::sleep(time);
        self.wait_for("bytes arrive", || {
            Ok(self.readers.progress().bytes() > before)
        })
    }

    /// Waits until all flows that shall be have begun to be split since [`mflow::flows_split`] was `before`.
    pub(crate) fn wait_split_since(&self, before: u64) -> Result<()> {
        let start = Instant::now();
        loop {
            let split = mflow::flows_split()?.saturating_sub(before);
            if split >= u64::from(self.plan.split) {
                return Ok(());
            }
            ensure!(
                !self.writers.ended(),
                "a stream ended before its flow was split"
            );
            if start.elapsed() > SPLIT_LIMIT {
                bail!(
                    "{split} of {} flows were split after {} s of traffic",
                    self.plan.split,
                    SPLIT_LIMIT.as_secs()
                );
            }
            thread::sleep(LOOK);
        }
    }

    fn wait_for(&self, what: &str, condition: impl Fn() -> Result<bool>) -> Result<()> {
        let start = Instant::now();
        while !condition()? {
            ensure!(!self.writers.ended(), "a stream ended before {what}");
            ensure!(
                start.elapsed() < STUCK,
                "waited {} s in vain until {what}",
                STUCK.as_secs()
            );
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// What is known at the mark.
struct Mark {
    time: Instant,
    frames: u64,
    softnet: Softnet,
    stats: Option<Stats>,
}

impl Mark {
    fn read() -> Result<Self> {
        Ok(Self {
            time: Instant::now(),
            frames: nic_packets()?,
            softnet: Softnet::read()?,
            stats: mflow::loaded().then(Stats::read).transpose()?,
        })
    }

    /// Returns what has happened since.
    fn outcome(&self, counters: &Counters, stall_ns: u64) -> Result<Outcome> {
        let seconds = self.time.elapsed().as_secs_f64();
        let frames = nic_packets()?.saturating_sub(self.frames);
        let tcp = Counters::read()?.since(counters);
        let mflow = match (&self.stats, mflow::loaded()) {
            (Some(before), true) => Stats::read()?.since(before),
            _ => Default::default(),
        };
        Ok(Outcome {
            sent: frames,
            delivered: frames,
            lost: noise(&tcp, "RetransSegs"),
            reordered: noise(&tcp, "TCPOFOQueue"),
            // CAST: packets per second.
            offered_per_s: (frames as f64 / seconds.max(1e-3)) as u64,
            frames,
            longest_stall_us: stall_ns / 1000,
            softnet_pkts: Softnet::read()?.since(&self.softnet).processed,
            mflow,
            tcp,
            ..Outcome::default()
        })
    }
}

/// Runs the streams of `plan`, and `during` while they flow, after the mark. Fails if a byte is not where it belongs.
pub(crate) fn measure(
    plan: &Plan,
    during: impl FnOnce(&mut Live<'_>) -> Result<()>,
) -> Result<Outcome> {
    let split_before = mflow::flows_split()?;
    let counters = Counters::read()?;
    let readers = Readers::start(plan.addresses(0), plan.style)?;
    let progress = readers.progress_handle();
    let writers = Writers::start(plan.addresses(plan.port_shift), plan.writing);
    let mark = run(plan, &writers, &readers, split_before, during);
    if mark.is_err() {
        // No thread may outlive the run.
        writers.stop_at(0);
    }
    let written = writers.join();
    let read = readers.join();
    // The readers see first what goes wrong with a stream; the others notice that it has ended.
    let (read, mark, written) = (read?, mark?, written?);
    ensure!(
        read == written,
        "{written} bytes were written, and {read} read"
    );
    Ok(Outcome {
        stream_bytes: read,
        ..mark.outcome(&counters, progress.longest_stall_ns())?
    })
}

fn run(
    plan: &Plan,
    writers: &Writers,
    readers: &Readers,
    split_before: u64,
    during: impl FnOnce(&mut Live<'_>) -> Result<()>,
) -> Result<Mark> {
    let mut live = Live {
        writers,
        readers,
        plan,
    };
    live.wait_for("the first bytes arrive", || {
        Ok(readers.progress().bytes() > 0)
    })?;
    if plan.split > 0 {
        live.wait_split_since(split_before)?;
    }
    readers.progress().mark();
    let mark = Mark::read()?;
    let before = writers.written();

    during(&mut live)?;

    writers.stop_at((before + plan.bytes).div_ceil(u64::from(plan.flows)));
    Ok(mark)
}

/// Packets that the server's NIC has received.
fn nic_packets() -> Result<u64> {
    let path = "/sys/class/net/eth0/statistics/rx_packets";
    let text = fs::read_to_string(path).context(path)?;
    text.trim().parse().context(path)
}
