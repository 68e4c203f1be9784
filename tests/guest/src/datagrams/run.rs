// SPDX-License-Identifier: GPL-2.0

//! One run of traffic: warm up until the flows are split, mark, measure, drain, and hold the two ends' books together.
//!
//! ```text
//!   start ── warm-up ── mark ── count datagrams, and something may happen meanwhile ── stop ── drain ── end
//!                        └──────────── counters, stalls and rates are of this part ────────────┘
//!   └──────────────────────── order, loss and integrity are of everything ─────────────────────────────┘
//! ```

use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};

use crate::datagrams::receiver::{Books, Receiver};
use crate::datagrams::sender::{now_ns, Order, Sender};
use crate::mflow::{self, Knobs, Stats};
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::softnet::Softnet;
use crate::topology::{self, Family};
use mflow_protocol::datagram;

/// The first port the container listens on.
const PORT: u16 = 5001;
/// How long a flow may take until it is split.
const SPLIT_LIMIT: Duration = Duration::from_secs(20);
/// How often in a row nothing must have arrived until what is missing counts as lost: two seconds of our own time, whatever
/// the clock says of a guest that was away.
const DRAIN_LOOKS: usize = 400;
/// How long a run may stand still before it is given up.
const STUCK: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

/// What a run sends.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How many flows there are.
    pub(crate) flows: u16,
    /// Whether all flows go to one socket, or each to its own.
    pub(crate) one_socket: bool,
    /// Bytes per datagram.
    pub(crate) bytes: usize,
    /// Address family inside the overlay.
    pub(crate) inner: Family,
    /// Address family of the outer packets.
    pub(crate) outer: Family,
    /// Datagrams to send after the mark, over all flows.
    pub(crate) count: u64,
    /// Frames per second on the wire, over all flows; `None`: as fast as the client can.
    pub(crate) frames_per_s: Option<f64>,
    /// Whether the module is there and the flows must be split before the mark.
    pub(crate) split: bool,
}

impl Plan {
    fn frames_per_datagram(&self) -> usize {
        self.inner.frames(self.bytes, self.outer.overlay_mtu())
    }

    fn addresses(&self) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        let container = self.inner.container();
        let to: Vec<SocketAddr> = (0..self.flows)
            .map(|flow| (container, PORT + if self.one_socket { 0 } else { flow }).into())
            .collect();
        let mut bind = to.clone();
        bind.dedup();
        (to, bind)
    }
}

/// A run under way, for what happens in its middle.
pub(crate) struct Live<'a> {
    sender: &'a Sender,
    receiver: &'a mut Option<Receiver>,
    plan: &'a Plan,
}

impl Live<'_> {
    /// Lets traffic flow for some time, longer if none does; fails if there is none for long.
    pub(crate) fn flow_for(&self, time: Duration) -> Result<()> {
        let (before, start) = (self.sender.sent(), Instant::now());
        thread::sleep(time);
        while self.sender.sent() == before {
            ensure!(
                !self.sender.ended() && start.elapsed() < STUCK,
                "the sender stopped sending"
            );
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits until so many more datagrams have been sent.
    pub(crate) fn send_more(&self, count: u64) -> Result<()> {
        let wanted = self.sent() + count;
        wait_while_moving(
            || self.sent(),
            || self.sent() >= wanted || self.sender.ended(),
        )?;
        ensure!(self.sent() >= wanted, "the sender stopped sending");
        Ok(())
    }

    /// Waits until every flow has begun to be split since [`mflow::flows_split`] was `before`.
    pub(crate) fn wait_split_since(&self, before: u64) -> Result<()> {
        let start = Instant::now();
        loop {
            let split = mflow::flows_split()?.saturating_sub(before);
            if split >= u64::from(self.plan.flows) {
                return Ok(());
            }
            if self.sender.ended() {
                bail!("the sender ended before its flows were split");
            }
            if start.elapsed() > SPLIT_LIMIT {
                bail!(
                    "{split} of {} flows were split after {} s of traffic",
                    self.plan.flows,
                    SPLIT_LIMIT.as_secs()
                );
            }
            thread::sleep(LOOK);
        }
    }

    /// Closes the receiving sockets; what they received is forgotten.
    pub(crate) fn close(&mut self) -> Result<()> {
        if let Some(receiver) = self.receiver.take() {
            receiver.stop()?;
        }
        Ok(())
    }

    /// Opens receiving sockets again.
    pub(crate) fn reopen(&mut self) -> Result<()> {
        *self.receiver = Some(start_receiver(self.plan)?);
        Ok(())
    }

    /// Returns how many datagrams have arrived since the sockets were opened.
    pub(crate) fn arrivals(&self) -> u64 {
        self.receiver.as_ref().map_or(0, Receiver::arrivals)
    }

    /// Returns how many datagrams have been sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sender.sent()
    }
}

/// Opens the receiving sockets of a plan.
pub(crate) fn start_receiver(plan: &Plan) -> Result<Receiver> {
    Receiver::start(plan.addresses().1, plan.flows, plan.bytes)
}

/// Runs the traffic of `plan`, and `during` while it flows, after the mark.
pub(crate) fn measure(
    plan: &Plan,
    during: impl FnOnce(&mut Live<'_>) -> Result<()>,
) -> Result<Outcome> {
    let frames = plan.frames_per_datagram();
    let split_before = mflow::flows_split()?;
    let mut receiver = Some(start_receiver(plan)?);
    let sender = Sender::start(Order {
        from: plan.inner.client(),
        to: plan.addresses().0,
        bytes: plan.bytes,
        rate: plan.frames_per_s.map(|rate| rate / frames as f64),
    });
    let measured = measure_running(plan, &sender, &mut receiver, split_before, during);
    // Also after a failure: no thread may outlive the run.
    sender.stop_at(0);
    let sent = sender.join();
    let books = receiver.map_or_else(|| Ok(Books::default()), Receiver::stop);
    let mut outcome = measured?;
    let (sent, books) = (sent?, books?);
    outcome.frames *= frames as u64;
    outcome.sent = sent.iter().sum();
    outcome.corrupt = books.corrupt;
    outcome.longest_stall_us = books.longest_stall_ns / 1000;
    outcome.longest_wait_us = books.longest_wait_ns / 1000;
    for flow in &books.flows {
        outcome.delivered += flow.delivered();
        outcome.reordered += flow.reordered();
        outcome.duplicate += flow.duplicate();
    }
    outcome.lost = outcome.sent.saturating_sub(outcome.delivered);
    Ok(outcome)
}

fn measure_running(
    plan: &Plan,
    sender: &Sender,
    receiver: &mut Option<Receiver>,
    split_before: u64,
    during: impl FnOnce(&mut Live<'_>) -> Result<()>,
) -> Result<Outcome> {
    let mut live = Live {
        sender,
        receiver,
        plan,
    };
    wait_first(&live)?;
    if plan.split {
        live.wait_split_since(split_before)?;
    }
    if let Some(receiver) = live.receiver {
        receiver.mark();
    }
    let stats = read_stats()?;
    let softnet = Softnet::read()?;
    let (mark, mark_ns, mark_sequence) = (sender.sent(), now_ns(), sender.sequence());

    during(&mut live)?;

    sender.stop_at(mark_sequence + plan.count.div_ceil(u64::from(plan.flows)));
    wait_while_moving(|| sender.sent(), || sender.ended()).context("the sender hangs")?;
    let seconds = (sender.last_send_ns().saturating_sub(mark_ns)) as f64 * 1e-9;
    wait_quiet(|| live.arrivals(), live.sent());

    let mut outcome = Outcome {
        offered_per_s: ((sender.sent() - mark) as f64 / seconds.max(1e-3)) as u64,
        frames: sender.sent() - mark,
        softnet_pkts: Softnet::read()?.since(&softnet).processed,
        ..Outcome::default()
    };
    if let (Some(before), Some(after)) = (stats, read_stats()?) {
        outcome.mflow = after.since(&before);
    }
    if let Some(receiver) = live.receiver {
        let wait = receiver
            .last_arrival_ns()
            .saturating_sub(sender.last_send_ns());
        outcome.tail_wait_us = wait / 1000;
    }
    Ok(outcome)
}

fn wait_first(live: &Live<'_>) -> Result<()> {
    let start = Instant::now();
    while live.arrivals() == 0 {
        ensure!(
            start.elapsed() < Duration::from_secs(10),
            "nothing arrives: {} datagrams sent, none received",
            live.sent()
        );
        ensure!(!live.sender.ended(), "the sender ended at once");
        thread::sleep(LOOK);
    }
    Ok(())
}

fn wait_while_moving(progress: impl Fn() -> u64, done: impl Fn() -> bool) -> Result<()> {
    let (mut last, mut since) = (progress(), Instant::now());
    while !done() {
        let now = progress();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        ensure!(
            since.elapsed() < STUCK,
            "no progress for {} s",
            STUCK.as_secs()
        );
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Waits until a count is `all`, or has stood still for long.
pub(crate) fn wait_quiet(count: impl Fn() -> u64, all: u64) {
    let (mut last, mut looks) = (count(), 0);
    while last < all && looks < DRAIN_LOOKS {
        thread::sleep(LOOK);
        let now = count();
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
    }
}

fn read_stats() -> Result<Option<Stats>> {
    mflow::loaded().then(Stats::read).transpose()
}

/// Options of `stream`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Datagrams to send.
    #[arg(long, default_value_t = 100_000)]
    count: u64,
    /// Bytes per datagram.
    #[arg(long, default_value_t = datagram::MIN_BYTES, value_parser = bytes_in_range)]
    bytes: usize,
    /// Flows to send at once.
    #[arg(long, default_value_t = 1)]
    flows: u16,
    /// Frames per second on the wire (default: as fast as the client can).
    #[arg(long)]
    frames_per_s: Option<f64>,
    /// Split the flows over this many lanes (1, 2 or 4); 0: the vanilla stack.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=4))]
    lanes: u8,
    /// Packets per batch.
    #[arg(long, default_value_t = 256)]
    batch_pkts: u32,
    /// How long the merger waits for a lane, in microseconds.
    #[arg(long, default_value_t = mflow::STRICT_TIMEOUT_US)]
    merge_timeout_us: u32,
    /// Address family inside the overlay.
    #[arg(long, value_enum, default_value_t)]
    inner: Family,
    /// Address family of the outer packets.
    #[arg(long, value_enum, default_value_t)]
    outer: Family,
}

fn bytes_in_range(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if (datagram::MIN_BYTES..=datagram::MAX_BYTES).contains(&bytes) => Ok(bytes),
        _ => Err(format!(
            "must be a number from {} to {}",
            datagram::MIN_BYTES,
            datagram::MAX_BYTES
        )),
    }
}

/// Runs `stream`: exits 0 if everything arrived whole and in order.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    topology::up(options.outer)?;
    Rig::wait_ready(options.outer)?;
    let split = options.lanes > 0;
    mflow::unload()?;
    if split {
        mflow::load(&Knobs {
            lanes: usize::from(options.lanes),
            batch_pkts: options.batch_pkts,
            merge_timeout_us: options.merge_timeout_us,
            ..Knobs::default()
        })?;
    }
    let plan = Plan {
        flows: options.flows,
        one_socket: false,
        bytes: options.bytes,
        inner: options.inner,
        outer: options.outer,
        count: options.count,
        frames_per_s: options.frames_per_s,
        split,
    };
    let outcome = measure(&plan, |_| Ok(()))?;
    println!("{}", serde_json::to_string_pretty(&outcome)?);
    outcome.require_whole()?;
    outcome.require_order()?;
    Ok(ExitCode::SUCCESS)
}
