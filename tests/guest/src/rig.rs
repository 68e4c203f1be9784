// SPDX-License-Identifier: GPL-2.0

//! The rig of a test run: which stack is tested, how much traffic, and which rate that stack's baseline carries.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Result};

use crate::datagrams::run::{self, Live, Plan};
use crate::mflow::{self, Knobs, Stats};
use crate::outcome::Outcome;
use crate::streams;
use crate::streams::read_style::Style;
use crate::streams::writers::Writing;
use crate::topology::{self, Family};
use mflow_protocol::datagram::MIN_BYTES;

/// How much of the rate that the vanilla stack carries without loss is offered where nothing may be lost.
const SHARE: f64 = 0.6;
/// Datagrams per calibration run.
const CALIBRATION: u64 = 6_000;
/// Below this rate nothing could be said about a split flow.
const LEAST_FRAMES_PER_S: f64 = 1_000.0;
/// Copying and checking large datagrams costs both ends more than frames alone tell.
const LARGE_SHARE: f64 = 0.5;

/// How many datagrams a case sends after its mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// In the main case.
    pub(crate) main: u64,
    /// In every other.
    pub(crate) other: u64,
    /// Bytes that a stream over TCP has after its mark: in the main case of TCP.
    pub(crate) tcp_main_bytes: u64,
    /// And in every other.
    pub(crate) tcp_bytes: u64,
}

/// The rig.
pub(crate) struct Rig {
    /// Whether the module is tested, or the vanilla stack with the same traffic.
    pub(crate) mflow: bool,
    /// How much traffic.
    pub(crate) scale: Scale,
    /// Frames per second of small datagrams that the vanilla stack carries without loss, less a margin.
    frames_per_s: f64,
}

impl Rig {
    /// Sets the rig up and finds the rate to offer.
    pub(crate) fn new(mflow: bool, scale: Scale) -> Result<Self> {
        mflow::unload()?;
        topology::up(Family::V4)?;
        Self::wait_ready(Family::V4)?;
        let frames_per_s = SHARE * calibrate()?;
        Ok(Self {
            mflow,
            scale,
            frames_per_s,
        })
    }

    /// Returns the rate that is offered where nothing may be lost.
    pub(crate) fn frames_per_s(&self) -> f64 {
        self.frames_per_s
    }

    /// Lowers the rate that is offered.
    pub(crate) fn offer_less(&mut self) {
        self.frames_per_s *= 0.7;
    }

    /// Returns the plan of the plainest case: one flow of 16-byte datagrams, IPv4 in IPv4.
    pub(crate) fn plan(&self) -> Plan {
        self.plan_of(MIN_BYTES)
    }

    /// Returns the same for datagrams of another size.
    pub(crate) fn plan_of(&self, bytes: usize) -> Plan {
        let share = if bytes < 512 { 1.0 } else { LARGE_SHARE };
        Plan {
            flows: 1,
            one_socket: false,
            bytes,
            inner: Family::V4,
            outer: Family::V4,
            count: self.scale.other,
            frames_per_s: Some(share * self.frames_per_s),
            split: self.mflow,
        }
    }

    /// Builds a fresh network and loads the module anew, if it is tested.
    pub(crate) fn prepare(&self, plan: &Plan, knobs: &Knobs) -> Result<()> {
        self.prepare_network(plan.outer, knobs)
    }

    /// The same for any traffic over outer packets of this family.
    pub(crate) fn prepare_network(&self, outer: Family, knobs: &Knobs) -> Result<()> {
        mflow::unload()?;
        topology::up(outer)?;
        Self::wait_ready(outer)?;
        if self.mflow {
            mflow::load(knobs)?;
        }
        Ok(())
    }

    /// Runs traffic on a fresh network where nothing may be lost, reordered, or given up; `during` happens meanwhile.
    pub(crate) fn strict(
        &self,
        plan: &Plan,
        knobs: &Knobs,
        during: impl FnOnce(&mut Live<'_>) -> Result<()>,
    ) -> Result<Outcome> {
        self.prepare(plan, knobs)?;
        run::measure(plan, during)?.judge(|outcome| {
            outcome.require_whole()?;
            outcome.require_order()?;
            if self.mflow {
                outcome.require_no_deadline()?;
                outcome.require_split(knobs, plan.flows)?;
                settle()?;
            }
            Ok(())
        })
    }

    /// Returns the plan of the plainest case over TCP: one stream, written and read as usual, IPv4 in IPv4.
    pub(crate) fn tcp_plan(&self) -> streams::run::Plan {
        streams::run::Plan {
            flows: 1,
            inner: Family::V4,
            outer: Family::V4,
            bytes: self.scale.tcp_bytes,
            writing: Writing::Write,
            style: Style::Blocking,
            split: u16::from(self.mflow),
            port_shift: 0,
        }
    }

    /// Builds a fresh network and loads the module anew, if it is tested, with ends that do not send again for impatience.
    pub(crate) fn prepare_tcp(&self, plan: &streams::run::Plan, knobs: &Knobs) -> Result<()> {
        self.prepare_network(plan.outer, knobs)?;
        topology::patient_tcp()
    }

    /// Runs streams on a fresh network where TCP must not notice anything; `during` happens meanwhile.
    pub(crate) fn strict_tcp(
        &self,
        plan: &streams::run::Plan,
        knobs: &Knobs,
        during: impl FnOnce(&mut streams::run::Live<'_>) -> Result<()>,
    ) -> Result<Outcome> {
        self.prepare_tcp(plan, knobs)?;
        self.strict_tcp_here(plan, knobs, during)
    }

    /// The same on a network that the case has prepared.
    pub(crate) fn strict_tcp_here(
        &self,
        plan: &streams::run::Plan,
        knobs: &Knobs,
        during: impl FnOnce(&mut streams::run::Live<'_>) -> Result<()>,
    ) -> Result<Outcome> {
        streams::run::measure(plan, during)?.judge(|outcome| {
            outcome.require_quiet_tcp()?;
            if self.mflow {
                outcome.require_no_deadline()?;
                outcome.require_split(knobs, plan.split)?;
                settle()?;
            }
            Ok(())
        })
    }

    /// Waits until datagrams get through a network that has just been built.
    pub(crate) fn wait_ready(outer: Family) -> Result<()> {
        let plan = Plan {
            flows: 1,
            one_socket: false,
            bytes: MIN_BYTES,
            inner: Family::V4,
            outer,
            count: 10,
            frames_per_s: Some(1_000.0),
            split: false,
        };
        let outcome = run::measure(&plan, |_| Ok(()))?;
        ensure!(outcome.delivered > 0, "nothing arrives");
        Ok(())
    }
}

/// Waits until the merger holds nothing back any more: after a run nothing may stay parked.
pub(crate) fn settle() -> Result<()> {
    let start = Instant::now();
    loop {
        let parked = Stats::read()?.get("parked_pkts")?;
        if parked == 0 {
            return Ok(());
        }
        ensure!(
            start.elapsed() < Duration::from_secs(5),
            "{parked} packets are still parked 5 s after the end of the traffic"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the highest rate at which the vanilla stack loses nothing.
fn calibrate() -> Result<f64> {
    let mut plan = Plan {
        flows: 1,
        one_socket: false,
        bytes: MIN_BYTES,
        inner: Family::V4,
        outer: Family::V4,
        count: CALIBRATION,
        frames_per_s: None,
        split: false,
    };
    loop {
        let outcome = run::measure(&plan, |_| Ok(()))?;
        // CAST: rates are far from where f64 loses digits.
        let rate = outcome.offered_per_s as f64;
        if outcome.lost == 0 {
            return Ok(rate);
        }
        if rate < LEAST_FRAMES_PER_S {
            bail!("the vanilla stack loses packets at {rate} frames/s already: this host is too busy to test on");
        }
        plan.frames_per_s = Some(rate * 0.8);
    }
}
