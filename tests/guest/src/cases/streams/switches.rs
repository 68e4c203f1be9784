// SPDX-License-Identifier: GPL-2.0

//! Splitting starts and stops under running streams, and a lane that does not run in time.

use std::time::Duration;

use anyhow::{ensure, Result};

use super::unnoticed;
use crate::cases::reload::nothing_given_up;
use crate::cases::{Case, Run};
use crate::cpu;
use crate::hog::Hog;
use crate::mflow::{self, Knobs};
use crate::outcome::Outcome;
use crate::rig::{self, Rig};
use crate::streams::run::{self, Live};

const ROUNDS: u32 = 5;
/// With the switch in either position.
const PAUSE: Duration = Duration::from_millis(150);
/// How long the lane's CPU is held at a time: many times the deadline.
const HOLD: Duration = Duration::from_millis(240);
const DEADLINE_US: u32 = 2_000;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "tcp/reload/module",
            "rmmod and modprobe under a running stream: TCP does not notice",
            Run::Always,
            |rig| reload(rig).map(Some),
        )
        .patching_code(),
        Case::of_module(
            "tcp/reload/enabled",
            "splitting is switched off and on under a running stream: TCP does not notice",
            Run::Plain,
            |rig| toggle(rig).map(Some),
        )
        .patching_code(),
        Case::of_module(
            "tcp/deadline/lane-held",
            "a lane that misses the deadline shows in TCPOFOQueue, and the stream is right all the same",
            Run::Plain,
            |rig| lane_held(rig).map(Some),
        ),
        Case::of_module(
            "tcp/deadline/shortest",
            "with the shortest deadline and small batches the stream is right",
            Run::Always,
            |rig| shortest(rig).map(Some),
        ),
    ]
}

fn reload(rig: &Rig) -> Result<Outcome> {
    let (plan, knobs) = (rig.tcp_plan(), Knobs::default());
    rig.prepare_tcp(&plan, &knobs)?;
    let outcome = run::measure(&plan, |live| {
        for _ in 0..ROUNDS {
            live.flow_for(PAUSE)?;
            nothing_given_up()?;
            mflow::unload()?;
            live.flow_for(PAUSE)?;
            mflow::load(&knobs)?;
            live.wait_split_since(0)?;
        }
        nothing_given_up()?;
        mflow::unload()
    })?;
    outcome.judge(Outcome::require_quiet_tcp)
}

fn toggle(rig: &Rig) -> Result<Outcome> {
    let plan = rig.tcp_plan();
    rig.prepare_tcp(&plan, &Knobs::default())?;
    unnoticed(run::measure(&plan, |live| off_and_on(live, ROUNDS, PAUSE))?)
}

/// Has splitting stop and start again, each time after a pause.
pub(super) fn off_and_on(live: &Live<'_>, rounds: u32, pause: Duration) -> Result<()> {
    for _ in 0..rounds {
        live.flow_for(pause)?;
        mflow::write("enabled", "0")?;
        live.flow_for(pause)?;
        let before = mflow::flows_split()?;
        mflow::write("enabled", "1")?;
        live.wait_split_since(before)?;
    }
    Ok(())
}

fn lane_held(rig: &Rig) -> Result<Outcome> {
    let plan = rig.tcp_plan();
    let knobs = Knobs {
        batch_pkts: 64,
        merge_timeout_us: DEADLINE_US,
        ..Knobs::default()
    };
    rig.prepare_tcp(&plan, &knobs)?;
    let outcome = run::measure(&plan, |live| {
        let hog = Hog::start(cpu::LANES[0], HOLD)?;
        let flowed = live.flow_for(HOLD * 8);
        hog.stop()?;
        flowed
    })?;
    outcome.judge(|outcome| {
        let given_up = outcome.counter("deadline_batches")?;
        let late = outcome.counter("late_pkts")?;
        ensure!(
            given_up > 0 && late > 0 && outcome.reordered > 0,
            "a lane was held for {} ms at a time, and yet deadline_batches grew by {given_up}, late_pkts by {late} \
             and TCPOFOQueue by {}",
            HOLD.as_millis(),
            outcome.reordered
        );
        rig::settle()
    })
}

fn shortest(rig: &Rig) -> Result<Outcome> {
    let plan = rig.tcp_plan();
    let knobs = Knobs {
        lanes: 4,
        batch_pkts: 16,
        merge_timeout_us: 10,
        ..Knobs::default()
    };
    rig.prepare_tcp(&plan, &knobs)?;
    run::measure(&plan, |_| Ok(()))?.judge(|_| rig::settle())
}
