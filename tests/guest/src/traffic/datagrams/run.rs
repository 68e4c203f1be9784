// SPDX-License-Identifier: GPL-2.0

//! One run of numbered datagrams: a sender and a receiver, and what the two know together.

use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::datagram::MIN_BYTES;

use super::disguise::Disguise;
use super::receiver::{Received, Receiver};
use super::sender::{SendOrder, Sender};
use crate::drops::Drops;
use crate::machine::clock::now_ns;
use crate::mflow;
use crate::traffic::outcome::Outcome;
use crate::traffic::scale::Scale;
use crate::traffic::{Live, Load, Mark, Plan, LOOK, STUCK};

/// The first port the container listens on.
const PORT: u16 = 5001;
/// The number of looks in a row without an arrival after which missing datagrams count as lost: two seconds of our own time,
/// whatever the clock says of a guest that was away.
const DRAIN_LOOKS: usize = 400;
/// The same where packets are lost anyway, and late ones do not matter.
const LOSSY_LOOKS: usize = 40;
/// Datagrams from this size on count as large, and the part of the rate that is offered of them: copying and checking
/// them costs both ends more than frames alone tell.
const LARGE_BYTES: usize = 512;
const LARGE_SHARE: f64 = 0.5;
const LARGEST_BYTES: usize = 32_768;

/// Flows of numbered datagrams over UDP.
#[derive(Clone, Debug)]
pub(crate) struct Datagrams {
    /// True if all flows go to one socket; else each goes to its own.
    pub(crate) one_socket: bool,
    pub(crate) bytes: usize,
    /// Datagrams to send after the mark, over all flows.
    pub(crate) count: u64,
    /// Frames per second on the wire, over all flows; `None`: as fast as the client can.
    pub(crate) frames_per_s: Option<f64>,
    /// The tunnel whose header some datagrams of a single flow begin with, if so.
    pub(crate) disguise: Option<Disguise>,
}

impl Datagrams {
    pub(crate) fn smallest(count: u64, frames_per_s: Option<f64>) -> Self {
        Self {
            one_socket: false,
            bytes: MIN_BYTES,
            count,
            frames_per_s,
            disguise: None,
        }
    }

    pub(crate) fn sized(self, bytes: usize) -> Self {
        let share = if bytes < LARGE_BYTES {
            1.0
        } else {
            LARGE_SHARE
        };
        // The largest are 46 packets each: a third of them are ten times the packets of the others.
        let fewer = if bytes < LARGEST_BYTES { 1 } else { 3 };
        Self {
            bytes,
            count: self.count / fewer,
            frames_per_s: self.frames_per_s.map(|rate| rate * share),
            ..self
        }
    }

    /// Runs the traffic of `plan` to where a receiver of the caller's gets it, and `during` while it flows, after the mark.
    pub(crate) fn measure_at(
        plan: &Plan<Self>,
        to: Vec<SocketAddr>,
        receiver: Receiver,
        during: impl FnOnce(&mut LiveDatagrams) -> Result<()>,
    ) -> Result<Outcome> {
        let (split_before, drops_before) = (mflow::flows_split()?, Drops::read());
        let mut live = LiveDatagrams::start_at(plan, to, receiver);
        let measured = live.run(split_before, during);
        // Also after a failure: no thread may outlive the run.
        let arrived = live.end();
        let (measured, arrived) = (measured?, arrived?);
        Ok(Outcome {
            offered_per_s: measured.offered_per_s,
            frames: measured.frames,
            tail_wait_us: measured.tail_wait_us,
            softnet_pkts: measured.softnet_pkts,
            mflow: measured.mflow,
            drops: Drops::read().since(&drops_before),
            ..arrived
        })
    }
}

impl Plan<Datagrams> {
    pub(crate) fn receive(&self) -> Result<Receiver> {
        let mut bind = self.addresses();
        bind.dedup();
        Receiver::start(&bind, self.flows, self.load.bytes)
    }

    fn frames_per_datagram(&self) -> usize {
        let mtu = self.outer.overlay_mtu();
        self.inner.frames(self.load.bytes, mtu)
    }

    /// Returns the container's address of each flow.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let container = self.inner.container();
        (0..self.flows)
            .map(|flow| {
                (
                    container,
                    PORT + if self.load.one_socket { 0 } else { flow },
                )
                    .into()
            })
            .collect()
    }
}

pub(crate) struct LiveDatagrams {
    sender: Sender,
    receiver: Option<Receiver>,
    plan: Plan<Datagrams>,
}

impl Live for LiveDatagrams {
    fn progress(&self) -> u64 {
        self.sender.sent()
    }

    fn arrivals(&self) -> u64 {
        self.receiver.as_ref().map_or(0, Receiver::arrivals)
    }

    fn ended(&self) -> bool {
        self.sender.ended()
    }

    fn outer_flows(&self) -> u16 {
        self.plan.outer_flows()
    }
}

impl LiveDatagrams {
    pub(crate) fn send_more(&self, count: u64) -> Result<()> {
        let wanted = self.sender.sent() + count;
        self.wait_while_moving(|| self.sender.sent() >= wanted || self.ended())?;
        ensure!(self.sender.sent() >= wanted, "the sender stopped sending");
        Ok(())
    }

    /// Returns how many datagrams have arrived that were not corrupt.
    pub(crate) fn good(&self) -> u64 {
        self.receiver.as_ref().map_or(0, Receiver::good)
    }

    /// Moves the reader to another CPU from now on.
    pub(crate) fn move_reader(&self, cpu: usize) -> Result<()> {
        let receiver = self.receiver.as_ref().context("nobody reads")?;
        receiver.move_to(cpu)
    }

    /// Starts to receive, and to send until it is told to stop.
    pub(crate) fn start(plan: &Plan<Datagrams>) -> Result<Self> {
        Ok(Self::start_at(plan, plan.addresses(), plan.receive()?))
    }

    fn start_at(plan: &Plan<Datagrams>, to: Vec<SocketAddr>, receiver: Receiver) -> Self {
        let rate = plan.load.frames_per_s;
        let order = SendOrder {
            from: plan.inner.client(),
            to,
            bytes: plan.load.bytes,
            rate: rate.map(|rate| rate / plan.frames_per_datagram() as f64),
        };
        Self {
            receiver: Some(receiver),
            sender: Sender::start_disguised(order, plan.load.disguise),
            plan: plan.clone(),
        }
    }

    /// Ends both ends, and returns what arrived at the sockets that are open.
    pub(crate) fn end(self) -> Result<Outcome> {
        self.sender.stop_at(0);
        let sent = self.sender.join();
        let received = self
            .receiver
            .map_or_else(|| Ok(Received::default()), Receiver::stop);
        Ok(received?.outcome(sent?.iter().sum()))
    }

    /// Stops sending, and waits until all has arrived, or nothing has for long; where packets may be lost, for less.
    pub(crate) fn drain(&self, loses: bool) -> Result<()> {
        self.sender.stop_at(0);
        self.wait_while_moving(|| self.ended())?;
        let looks = if loses { LOSSY_LOOKS } else { DRAIN_LOOKS };
        wait_quiet_for(looks, || self.arrivals(), self.sender.sent());
        Ok(())
    }

    /// Closes the receiving sockets, and returns what arrived there, without what was lost.
    pub(crate) fn close(&mut self) -> Result<Outcome> {
        let receiver = self.receiver.take();
        let received = receiver.map_or_else(|| Ok(Received::default()), Receiver::stop)?;
        Ok(received.outcome(0))
    }

    pub(crate) fn reopen(&mut self) -> Result<()> {
        self.receiver = Some(self.plan.receive()?);
        Ok(())
    }

    /// Waits for what the sender has to bring about; fails if it stands still for long.
    fn wait_while_moving(&self, done: impl Fn() -> bool) -> Result<()> {
        let (mut last, mut since) = (self.sender.sent(), Instant::now());
        while !done() {
            let now = self.sender.sent();
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

    fn run(
        &mut self,
        split_before: u64,
        during: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Outcome> {
        self.warm_up(self.plan.split, split_before)?;
        if let Some(receiver) = &self.receiver {
            receiver.mark();
        }
        let mark = Mark::set()?;
        let (before, mark_ns, sequence) = (self.sender.sent(), now_ns(), self.sender.sequence());

        during(self)?;

        let count = self.plan.load.count.div_ceil(u64::from(self.plan.flows));
        self.sender.stop_at(sequence + count);
        self.wait_while_moving(|| self.ended())
            .context("the sender hangs")?;
        let last_ns = self.sender.last_send_ns();
        let seconds = last_ns.saturating_sub(mark_ns) as f64 * 1e-9;
        let sent = self.sender.sent();
        wait_quiet(|| self.arrivals(), sent);

        let tail_ns = self.receiver.as_ref().map_or(0, |receiver| {
            receiver.last_arrival_ns().saturating_sub(last_ns)
        });
        Ok(Outcome {
            offered_per_s: ((sent - before) as f64 / seconds.max(1e-3)) as u64,
            frames: (sent - before) * self.plan.frames_per_datagram() as u64,
            tail_wait_us: tail_ns / 1000,
            ..mark.outcome()?
        })
    }
}

impl Load for Datagrams {
    type Live = LiveDatagrams;
    const GROUP: &'static str = "";
    const FLOW: &'static str = "flow";
    const UNNOTICED: &'static str = " without loss or reordering";

    fn plainest(scale: &Scale, frames_per_s: f64) -> Self {
        Self::smallest(scale.other, Some(frames_per_s))
    }

    fn main(self, scale: &Scale) -> Self {
        Self {
            count: scale.main,
            ..self
        }
    }

    fn send_at_least(&mut self, pkts: u64) {
        self.count = self.count.max(pkts);
    }

    fn prepare_ends(&self) -> Result<()> {
        Ok(())
    }

    fn measure(
        plan: &Plan<Self>,
        during: impl FnOnce(&mut LiveDatagrams) -> Result<()>,
    ) -> Result<Outcome> {
        Self::measure_at(plan, plan.addresses(), plan.receive()?, during)
    }

    fn require_whole(outcome: &Outcome) -> Result<()> {
        outcome.require_whole()
    }

    fn require_order(outcome: &Outcome) -> Result<()> {
        outcome.require_order()
    }
}

/// Waits until a count is `all`, or has stood still for long.
pub(crate) fn wait_quiet(count: impl Fn() -> u64, all: u64) {
    wait_quiet_for(DRAIN_LOOKS, count, all);
}

fn wait_quiet_for(most_looks: usize, count: impl Fn() -> u64, all: u64) {
    let (mut last, mut looks) = (count(), 0);
    while last < all && looks < most_looks {
        thread::sleep(LOOK);
        let now = count();
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
    }
}
