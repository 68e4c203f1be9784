// SPDX-License-Identifier: GPL-2.0

//! The rig of a test run: which stack is tested, how much traffic it gets, and which rate the vanilla stack carries.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Result};

use crate::machine::threads;
use crate::mflow::{self, Knobs, Mode, Stats};
use crate::network::topology::{self, Family};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::scale::{Scale, MOST_JOINED_PKTS};
use crate::traffic::streams::run::Streams;
use crate::traffic::{Load, Plan};

/// The rate that is offered where nothing may be lost, as a share of the rate that the vanilla stack carries without loss.
const SHARE: f64 = 0.6;
const CALIBRATION: u64 = 6_000;
/// The lowest rate at which a test says anything about a split flow.
const LEAST_FRAMES_PER_S: f64 = 1_000.0;
/// The time after the end of the traffic for which packets may stay parked: the CPU that delivers them may be away for seconds.
const SETTLE: Duration = Duration::from_secs(20);
/// The number of seconds after which a flow whose path queues packets is tried again. Each later try waits for twice as long as
/// the one before.
const NEXT_TRY_S: u64 = 5;

pub(crate) struct Rig {
    /// True if the module is tested. Otherwise the vanilla stack is tested, with the same traffic.
    pub(crate) mflow: bool,
    pub(crate) scale: Scale,
    /// Frames per second of small datagrams that the vanilla stack carries without loss, less a margin.
    frames_per_s: f64,
    /// The time when this rig was made.
    made: Instant,
    /// The age of the rig, in milliseconds, when the case began to build its network.
    prepared_ms: AtomicU64,
}

impl Rig {
    pub(crate) fn new(mflow: bool, scale: Scale) -> Result<Self> {
        Self::calibrated(mflow, scale, CALIBRATION)
    }

    /// Makes a rig, and finds its rate with this many datagrams. A few are enough for cases that offer much less than that rate.
    pub(crate) fn calibrated(mflow: bool, scale: Scale, datagrams: u64) -> Result<Self> {
        mflow::unload()?;
        topology::up(Family::V4)?;
        Self::wait_ready(Family::V4)?;
        let frames_per_s = SHARE * calibrate(datagrams)?;
        Ok(Self {
            mflow,
            scale,
            frames_per_s,
            made: Instant::now(),
            prepared_ms: AtomicU64::new(0),
        })
    }

    fn age_ms(&self) -> u64 {
        // CAST: an hour or so.
        self.made.elapsed().as_millis() as u64
    }

    /// Returns whether flows are split: the modes of FALCON split none.
    pub(crate) fn splits(&self) -> bool {
        self.mflow && Mode::usual() == Mode::Mflow
    }

    /// Returns the largest number of datagrams that may be joined into one packet behind the lanes.
    pub(crate) fn most_joined(&self) -> u64 {
        if self.splits() {
            MOST_JOINED_PKTS
        } else {
            1
        }
    }

    pub(crate) fn frames_per_s(&self) -> f64 {
        self.frames_per_s
    }

    pub(crate) fn offer_less(&mut self) {
        self.frames_per_s *= 0.7;
    }

    /// Returns the plan of the plainest case: one flow, IPv4 in IPv4.
    pub(crate) fn plan<L: Load>(&self) -> Plan<L> {
        let load = L::plainest(&self.scale, self.frames_per_s);
        Plan {
            split: self.mflow,
            ..Plan::one_flow(Family::V4, load)
        }
    }

    /// Returns the plainest plan of datagrams, which have 16 bytes.
    pub(crate) fn datagrams(&self) -> Plan<Datagrams> {
        self.plan()
    }

    pub(crate) fn streams(&self) -> Plan<Streams> {
        self.plan()
    }

    /// Builds a fresh network and loads the module again, if it is tested.
    pub(crate) fn prepare<L: Load>(&self, plan: &Plan<L>, knobs: &Knobs) -> Result<()> {
        mflow::unload()?;
        self.prepared_ms.store(self.age_ms(), Ordering::Relaxed);
        topology::up(plan.outer)?;
        Self::wait_ready(plan.outer)?;
        if self.mflow {
            mflow::load(knobs)?;
        }
        if plan.one_outer {
            topology::one_outer_flow(plan.outer)?;
        }
        plan.load.prepare_ends()
    }

    /// Prepares as [`prepare`](Self::prepare) does, with all queues of both NICs on the NICs' CPUs.
    pub(crate) fn prepare_pinned<L: Load>(&self, plan: &Plan<L>, knobs: &Knobs) -> Result<()> {
        self.prepare(plan, knobs)?;
        topology::pin_nics()?;
        // An interrupt moves to its new CPU only when it comes next. These packets make it come before those of the test.
        Self::wait_ready(plan.outer)
    }

    /// Runs traffic on a fresh network; `during` happens meanwhile.
    pub(crate) fn measure<L: Load>(
        &self,
        plan: &Plan<L>,
        knobs: &Knobs,
        during: impl FnOnce(&mut L::Live) -> Result<()>,
    ) -> Result<Outcome> {
        self.prepare(plan, knobs)?;
        L::measure(plan, during)
    }

    /// Runs traffic as [`measure`](Self::measure) does, and fails if anything is lost, reordered or given up.
    pub(crate) fn unnoticed<L: Load>(
        &self,
        plan: &Plan<L>,
        knobs: &Knobs,
        during: impl FnOnce(&mut L::Live) -> Result<()>,
    ) -> Result<Outcome> {
        self.measure(plan, knobs, during)?
            .judge(|outcome| self.require_unnoticed::<L>(outcome))
    }

    /// Runs traffic as [`measure`](Self::measure) does, and fails if anything is lost, reordered or given up, or if a lane does
    /// not carry its share.
    pub(crate) fn strict<L: Load>(
        &self,
        plan: &Plan<L>,
        knobs: &Knobs,
        during: impl FnOnce(&mut L::Live) -> Result<()>,
    ) -> Result<Outcome> {
        self.measure(plan, knobs, during)?
            .judge(|outcome| self.require_strict(plan, knobs, outcome))
    }

    /// Fails if anything was lost, reordered or given up, or if a lane did not carry its share.
    pub(crate) fn require_strict<L: Load>(
        &self,
        plan: &Plan<L>,
        knobs: &Knobs,
        outcome: &Outcome,
    ) -> Result<()> {
        self.require_unnoticed::<L>(outcome)?;
        if self.mflow {
            outcome.require_split(knobs, plan.outer_flows())?;
        }
        Ok(())
    }

    /// Fails if anything was lost or reordered, or if the merger gave anything up.
    pub(crate) fn require_unnoticed<L: Load>(&self, outcome: &Outcome) -> Result<()> {
        L::require_whole(outcome)?;
        L::require_order(outcome)?;
        if self.mflow {
            outcome.require_no_deadline()?;
        }
        self.settle()
    }

    /// Fails if a flow has been split since the module was loaded, or if flows were not tried, or were tried too often.
    /// `counter` is named after the reason that keeps flows whole, and counts the tries.
    pub(crate) fn require_held(&self, counter: &str) -> Result<()> {
        if !self.splits() {
            return self.settle();
        }
        let stats = Stats::read()?;
        let (split, tries) = (stats.get("flows_split")?, stats.get(counter)?);
        ensure!(
            split == 0,
            "flows were split {split} time(s) on a path that does not suit, and {counter} is {tries}"
        );
        let most = most_tries((self.age_ms() - self.prepared_ms.load(Ordering::Relaxed)) / 1000);
        ensure!(
            (1..=most).contains(&tries),
            "{counter} is {tries}, but the path is to be tried, and {most} times at most"
        );
        self.settle()
    }

    /// Waits until mflow, if it is tested, has counted all packets and holds none. After a run no packet may stay parked or in a
    /// ring.
    pub(crate) fn settle(&self) -> Result<()> {
        if !self.mflow {
            return Ok(());
        }
        threads::until_ok(SETTLE, || {
            let stats = Stats::read()?;
            for gauge in [
                "parked_pkts",
                "parked_bytes",
                "ring_bytes",
                "returned_bytes",
            ] {
                let left = stats.get(gauge)?;
                ensure!(left == 0, "{gauge} is still {left}");
            }
            Ok(())
        })
    }

    pub(crate) fn wait_ready(outer: Family) -> Result<()> {
        let outcome = vanilla(outer, Datagrams::smallest(10, Some(1_000.0)))?;
        ensure!(outcome.delivered > 0, "nothing arrives");
        Ok(())
    }
}

/// Returns how often a flow whose path does not suit may have been tried in this many seconds, at most.
fn most_tries(seconds: u64) -> u64 {
    1 + u64::from((seconds / NEXT_TRY_S + 1).ilog2())
}

/// Sends datagrams without demanding that their flow is split.
fn vanilla(outer: Family, load: Datagrams) -> Result<Outcome> {
    Datagrams::measure(&Plan::one_flow(outer, load), |_| Ok(()))
}

/// Returns the highest rate at which the vanilla stack loses nothing.
fn calibrate(datagrams: u64) -> Result<f64> {
    let mut frames_per_s = None;
    loop {
        let outcome = vanilla(Family::V4, Datagrams::smallest(datagrams, frames_per_s))?;
        // CAST: rates are far from where f64 loses digits.
        let rate = outcome.offered_per_s as f64;
        if outcome.lost == 0 {
            return Ok(rate);
        }
        if rate < LEAST_FRAMES_PER_S {
            bail!("the vanilla stack loses packets at {rate} frames/s already: this host is too busy to test on");
        }
        frames_per_s = Some(rate * 0.8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_ever_rarer() {
        let at = [0, 4, 5, 14, 15, 34, 35].map(most_tries);
        assert_eq!(at, [1, 1, 2, 2, 3, 3, 4]);
    }
}
