// SPDX-License-Identifier: GPL-2.0

//! A lane is kept from running: the others' packets wait no longer than the deadline, the lane's own arrive late but do
//! arrive, and both are counted.

use std::time::Duration;

use anyhow::{ensure, Result};

use super::{Case, Run};
use crate::cpu;
use crate::datagrams::run;
use crate::hog::Hog;
use crate::mflow::{Knobs, Stats};
use crate::outcome::Outcome;
use crate::rig::{self, Rig};

/// How long the lane's CPU is held at a time: many times the deadline.
const HOLD: Duration = Duration::from_millis(240);
const DEADLINE_US: u32 = 2_000;
/// A busy host can stop the whole guest for as long as the lane is held. What it does by chance it does not do each time.
const TRIES: usize = 3;
/// A fraction of what the wire carries: while the lane is held its packets must fit in its ring.
const SHARE: f64 = 0.25;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "deadline/lane-held",
            "a lane that does not run costs the flow no more than the deadline; its packets arrive late, none is lost",
            Run::Plain,
            |rig| lane_held(rig).map(Some),
        ),
        Case::of_module(
            "deadline/patient",
            "with a deadline longer than a lane is away, order holds",
            Run::Plain,
            |rig| patient(rig).map(Some),
        ),
        Case::of_module(
            "deadline/shortest",
            "with the shortest deadline packets may come out of order, counted one by one, and none is lost",
            Run::Always,
            |rig| shortest(rig).map(Some),
        ),
    ]
}

fn lane_held(rig: &Rig) -> Result<Outcome> {
    let mut tries = 1;
    loop {
        let (hold, outcome) = with_lane_held(rig, DEADLINE_US)?;
        let outcome = outcome.judge(|outcome| {
            outcome.require_whole()?;
            require_counted(outcome)
        })?;
        match judge_held(&outcome, hold) {
            Err(_) if tries < TRIES => tries += 1,
            verdict => return outcome.judge(|_| verdict),
        }
    }
}

fn judge_held(outcome: &Outcome, hold: Duration) -> Result<()> {
    let late = outcome.counter("late_pkts")?;
    let given_up = outcome.counter("deadline_batches")?;
    ensure!(
        given_up > 0 && late > 0,
        "a lane was held for {} ms at a time, and yet deadline_batches grew by {given_up} and late_pkts by {late}",
        hold.as_millis()
    );
    let longest = Duration::from_micros(outcome.longest_stall_us);
    ensure!(
        longest < hold / 2,
        "nothing arrived for {} ms: the flow waited for the lane, which was held for {} ms, and not for the deadline of {DEADLINE_US} us",
        longest.as_millis(),
        hold.as_millis()
    );
    Ok(())
}

fn patient(rig: &Rig) -> Result<Outcome> {
    let (_, outcome) = with_lane_held(rig, Knobs::default().merge_timeout_us)?;
    outcome.judge(|outcome| {
        outcome.require_whole()?;
        outcome.require_order()?;
        outcome.require_no_deadline()
    })
}

fn shortest(rig: &Rig) -> Result<Outcome> {
    let plan = rig.plan();
    let knobs = Knobs {
        lanes: 4,
        batch_pkts: 16,
        merge_timeout_us: 10,
        ..Knobs::default()
    };
    rig.prepare(&plan, &knobs)?;
    run::measure(&plan, |_| Ok(()))?.judge(|outcome| {
        outcome.require_whole()?;
        require_counted(outcome)?;
        rig::settle()
    })
}

/// Sends a slow stream over two lanes while the CPU of one of them is held now and again.
fn with_lane_held(rig: &Rig, merge_timeout_us: u32) -> Result<(Duration, Outcome)> {
    let mut plan = rig.plan();
    plan.frames_per_s = plan.frames_per_s.map(|rate| rate * SHARE);
    let knobs = Knobs {
        batch_pkts: 64,
        merge_timeout_us,
        ..Knobs::default()
    };
    rig.prepare(&plan, &knobs)?;
    let mut hold = Duration::ZERO;
    let outcome = run::measure(&plan, |live| {
        let hog = Hog::start(cpu::LANES[0], HOLD)?;
        hold = hog.hold();
        let flowed = live.flow_for(HOLD * 8);
        hog.stop()?;
        flowed
    })?;
    rig::settle()?;
    Ok((hold, outcome))
}

/// Checks that nothing came out of order without being counted as late; the module was loaded for this run alone.
fn require_counted(outcome: &Outcome) -> Result<()> {
    let late = Stats::read()?.get("late_pkts")?;
    ensure!(
        outcome.reordered <= late,
        "{} datagrams out of order, but only {late} packets were counted as late",
        outcome.reordered
    );
    Ok(())
}
