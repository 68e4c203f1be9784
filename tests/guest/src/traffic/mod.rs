// SPDX-License-Identifier: GPL-2.0

//! One run of traffic through the overlay, whatever its flows carry: what it sends ([`Plan`]), what differs between
//! datagrams and byte streams ([`Load`]), and what a case can do while it runs ([`Live`]).
//!
//! ```text
//!   start ── warm-up ── mark ── send, and something may happen meanwhile ── stop ── drain ── end
//!                        └──────── counters, stalls and rates are of this part ───────┘
//!   └────────────────────── order, loss and integrity are of everything ──────────────────────┘
//! ```

pub(crate) mod command;
pub(crate) mod datagrams;
pub(crate) mod ftp;
pub(crate) mod hog;
pub(crate) mod nginx;
pub(crate) mod outcome;
pub(crate) mod rig;
pub(crate) mod scale;
pub(crate) mod sockperf;
pub(crate) mod streams;
pub(crate) mod tcp_counters;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};

use crate::machine::softnet::Softnet;
use crate::mflow::{self, Mode, Stats};
use crate::network::topology::Family;
use crate::traffic::outcome::Outcome;
use crate::traffic::scale::Scale;

/// The time that the first packet, and the split of all flows, may take.
const START: Duration = Duration::from_secs(20);
/// The time for which a run may stand still before it is given up.
pub(crate) const STUCK: Duration = Duration::from_secs(60);
pub(crate) const LOOK: Duration = Duration::from_millis(5);

#[derive(Clone, Debug)]
pub(crate) struct Plan<L> {
    pub(crate) flows: u16,
    pub(crate) inner: Family,
    pub(crate) outer: Family,
    /// True if all flows look like one flow from outside.
    pub(crate) one_outer: bool,
    /// True if the module is loaded and the flows must be split before the mark, or be in stages.
    pub(crate) split: bool,
    pub(crate) load: L,
}

impl<L> Plan<L> {
    /// Returns one flow, IPv4 inside, which need not be split.
    pub(crate) fn one_flow(outer: Family, load: L) -> Self {
        Self {
            flows: 1,
            inner: Family::V4,
            outer,
            one_outer: false,
            split: false,
            load,
        }
    }

    /// Returns how many flows of outer packets there are.
    pub(crate) fn outer_flows(&self) -> u16 {
        if self.one_outer {
            1
        } else {
            self.flows
        }
    }
}

pub(crate) trait Load: Clone + 'static {
    /// The handle through which a case acts on such a run while it is under way.
    type Live: Live;
    /// The prefix of the names of its cases.
    const GROUP: &'static str;
    /// The name that the cases give to one of its flows.
    const FLOW: &'static str;
    /// The words with which the cases say that nothing happened to it.
    const UNNOTICED: &'static str;

    fn plainest(scale: &Scale, frames_per_s: f64) -> Self;

    fn main(self, scale: &Scale) -> Self;

    fn send_at_least(&mut self, pkts: u64);

    /// Sets up what it needs at both ends of a network that has just been built.
    fn prepare_ends(&self) -> Result<()>;

    /// Runs the traffic of `plan`, and `during` while it flows, after the mark. Fails if it cannot say what happened.
    fn measure(
        plan: &Plan<Self>,
        during: impl FnOnce(&mut Self::Live) -> Result<()>,
    ) -> Result<Outcome>;

    fn require_whole(outcome: &Outcome) -> Result<()>;

    fn require_order(outcome: &Outcome) -> Result<()>;
}

/// A run under way, for what happens in its middle.
pub(crate) trait Live {
    /// Returns how far the run is: it flows as long as this grows.
    fn progress(&self) -> u64;

    fn arrivals(&self) -> u64;

    fn ended(&self) -> bool;

    /// Returns how many flows of outer packets there are.
    fn outer_flows(&self) -> u16;

    /// Waits until a condition holds; fails if the sender ends before.
    fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let start = Instant::now();
        while !condition()? {
            ensure!(!self.ended(), "the sender ended before {what}");
            ensure!(
                start.elapsed() < limit,
                "waited {} s in vain until {what}",
                limit.as_secs()
            );
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Lets traffic flow for some time, longer if none does; fails if there is none for long.
    fn flow_for(&self, time: Duration) -> Result<()> {
        let before = self.progress();
        thread::sleep(time);
        self.wait_for("traffic flows", STUCK, || Ok(self.progress() > before))
    }

    /// Waits until every flow has begun to be split since [`mflow::flows_split`] was `before`; in the modes of FALCON, until
    /// packets go from CPU to CPU.
    fn wait_split_since(&self, before: u64) -> Result<()> {
        if Mode::usual() != Mode::Mflow {
            return self.wait_staged();
        }
        let flows = u64::from(self.outer_flows());
        let split = || -> Result<u64> { Ok(mflow::flows_split()?.saturating_sub(before)) };
        self.wait_for("all flows are split", START, || Ok(split()? >= flows))
            .with_context(|| format!("{:?} of {flows} flows were split", split().ok()))
            .with_context(mflow::reasons)
    }

    /// Waits until packets go from CPU to CPU.
    fn wait_staged(&self) -> Result<()> {
        let before = mflow::staged_pkts()?;
        self.wait_for("packets go through stages", START, || {
            Ok(mflow::staged_pkts()? > before)
        })
    }

    /// Waits until something arrives and, if they have to be, all flows are split; then the mark can be set.
    fn warm_up(&self, split: bool, split_before: u64) -> Result<()> {
        self.wait_for("something arrives", START, || Ok(self.arrivals() > 0))?;
        if split {
            self.wait_split_since(split_before)?;
        }
        Ok(())
    }
}

/// The time when the mark was set, and the counters of the kernel and the module at that time.
pub(crate) struct Mark {
    pub(crate) time: Instant,
    softnet: Softnet,
    stats: Option<Stats>,
}

impl Mark {
    pub(crate) fn set() -> Result<Self> {
        Ok(Self {
            time: Instant::now(),
            softnet: Softnet::read()?,
            stats: Stats::read_if_loaded()?,
        })
    }

    /// Returns what they have counted since.
    pub(crate) fn outcome(&self) -> Result<Outcome> {
        Ok(Outcome {
            softnet_pkts: Softnet::read()?.since(&self.softnet).processed,
            mflow: mflow::added_since(self.stats.as_ref())?,
            ..Outcome::default()
        })
    }
}
