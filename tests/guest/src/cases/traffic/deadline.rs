// SPDX-License-Identifier: GPL-2.0

//! A lane is kept from running: the others' packets wait no longer than the deadline, the lane's own arrive late but do
//! arrive, and both are counted.

use std::time::Duration;

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::machine::cpu;
use crate::mflow::{Knobs, Stats};
use crate::network::{netns, topology};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::hog::Hog;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Live as _, Load, Plan};

/// The length of one hold of the lane's CPU: many times the deadline.
const HOLD: Duration = Duration::from_millis(240);
const DEADLINE_US: u32 = 2_000;
/// A busy host can stop the whole guest for as long as the lane is held, but not each time.
const TRIES: usize = 8;
/// The part of the usual rate that is sent: while the lane is held, its packets must fit in its ring.
const SHARE: f64 = 0.25;

/// Some 28 KB in the kernel's memory, and the number of its fragments.
const FRAGMENTED_BYTES: usize = 16_384;
const FRAGMENTED_PKTS: u64 = 12;
/// The kernel's memory for fragments: room for three of these datagrams.
const FRAGMENT_MEMORY_BYTES: &str = "98304";
/// The part of the rate of large datagrams that is sent: while the lane is held, its packets must fit in its ring.
const FRAGMENTS_SHARE: f64 = 0.5;

pub(crate) fn datagrams() -> Vec<Case> {
    vec![
        Case::of_module(
            "deadline/lane-held",
            "a lane that does not run costs the flow no more than the deadline; its packets arrive late, none is lost",
            Run::Plain,
            datagrams_with_lane_held,
        ),
        Case::of_module(
            "deadline/patient",
            "with a deadline longer than a lane is away, order holds",
            Run::Plain,
            patient,
        ),
        Case::of_module(
            "deadline/fragments",
            "while a lane is held, the other lane's datagrams do not wait for its fragments: a small memory for fragments is enough",
            Run::Plain,
            fragments_with_lane_held,
        ),
        Case::of_module(
            "deadline/shortest",
            "with the shortest deadline packets may come out of order, counted one by one, and none is lost",
            Run::Always,
            |rig| shortest::<Datagrams>(rig)?.judge(require_counted),
        ),
    ]
}

pub(crate) fn streams() -> Vec<Case> {
    vec![
        Case::of_module(
            "tcp/deadline/lane-held",
            "a lane that misses the deadline shows in TCPOFOQueue, and the stream is still right",
            Run::Plain,
            stream_with_lane_held,
        ),
        Case::of_module(
            "tcp/deadline/shortest",
            "with the shortest deadline and small batches the stream is right",
            Run::Always,
            shortest::<Streams>,
        ),
    ]
}

fn datagrams_with_lane_held(rig: &Rig) -> Result<Outcome> {
    let mut tries = 1;
    loop {
        let (hold, outcome) = with_lane_held(rig, &slow(rig), DEADLINE_US)?;
        let outcome = outcome.judge(require_counted)?;
        match require_prompt(&outcome, hold) {
            Err(_) if tries < TRIES => tries += 1,
            checked => return outcome.judge(|_| checked),
        }
    }
}

/// Sends datagrams in fragments while a lane is held. A datagram whose fragments lie in batches of both lanes waits for it in the
/// memory for fragments. The memory has room for few of them, and where it is full, the kernel takes no fragment any more.
fn fragments_with_lane_held(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load = plan.load.sized(FRAGMENTED_BYTES);
    plan.load.count /= FRAGMENTED_PKTS;
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * FRAGMENTS_SHARE);
    let knobs = Knobs {
        batch_pkts: 64,
        ..Knobs::default()
    };
    rig.prepare(&plan, &knobs)?;
    netns::within(topology::CONTAINER, || {
        topology::sysctl("net/ipv4/ipfrag_low_thresh", FRAGMENT_MEMORY_BYTES)?;
        topology::sysctl("net/ipv4/ipfrag_high_thresh", FRAGMENT_MEMORY_BYTES)
    })?;
    let outcome = Datagrams::measure(&plan, |live| {
        let hog = Hog::start(cpu::LANES[0], HOLD)?;
        let flowed = live.flow_for(HOLD * 8);
        hog.stop()?;
        flowed
    })?;
    outcome.judge(|outcome| {
        outcome.require_whole()?;
        rig.settle()
    })
}

fn stream_with_lane_held(rig: &Rig) -> Result<Outcome> {
    let (hold, outcome) = with_lane_held(rig, &rig.streams(), DEADLINE_US)?;
    outcome.judge(|outcome| {
        require_missed(outcome, hold)?;
        ensure!(
            outcome.reordered > 0,
            "the deadline was missed, and yet TCPOFOQueue did not grow"
        );
        Ok(())
    })
}

fn patient(rig: &Rig) -> Result<Outcome> {
    let (_, outcome) = with_lane_held(rig, &slow(rig), Knobs::default().merge_timeout_us)?;
    outcome.judge(|outcome| rig.require_unnoticed::<Datagrams>(outcome))
}

fn shortest<L: Load>(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        merge_timeout_us: 10,
        ..Knobs::of(4, 16)
    };
    rig.measure(&rig.plan::<L>(), &knobs, |_| Ok(()))?
        .judge(|outcome| {
            L::require_whole(outcome)?;
            rig.settle()
        })
}

/// Returns a plan of datagrams that a lane's ring can hold while the lane is held.
fn slow(rig: &Rig) -> Plan<Datagrams> {
    let mut plan = rig.datagrams();
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * SHARE);
    plan
}

/// Runs traffic over two lanes while the CPU of one of them is held now and again; returns for how long each time, too.
fn with_lane_held<L: Load>(
    rig: &Rig,
    plan: &Plan<L>,
    merge_timeout_us: u32,
) -> Result<(Duration, Outcome)> {
    let knobs = Knobs {
        batch_pkts: 64,
        merge_timeout_us,
        ..Knobs::default()
    };
    let mut hold = Duration::ZERO;
    let outcome = rig.measure(plan, &knobs, |live| {
        let hog = Hog::start(cpu::LANES[0], HOLD)?;
        hold = hog.hold();
        let flowed = live.flow_for(HOLD * 8);
        hog.stop()?;
        flowed
    })?;
    let outcome = outcome.judge(|outcome| {
        L::require_whole(outcome)?;
        rig.settle()
    })?;
    Ok((hold, outcome))
}

fn require_missed(outcome: &Outcome, hold: Duration) -> Result<()> {
    let late = outcome.counter("late_pkts")?;
    let given_up = outcome.counter("deadline_batches")?;
    ensure!(
        given_up > 0 && late > 0,
        "a lane was held for {} ms at a time, and yet deadline_batches grew by {given_up} and late_pkts by {late}",
        hold.as_millis()
    );
    Ok(())
}

/// Fails unless the lane missed the deadline, and the flow waited no longer than for that.
fn require_prompt(outcome: &Outcome, hold: Duration) -> Result<()> {
    require_missed(outcome, hold)?;
    let longest = Duration::from_micros(outcome.longest_stall_us);
    ensure!(
        longest < hold / 2,
        "nothing arrived for {} ms: the flow waited for the lane, which was held for {} ms, and not for the deadline of {DEADLINE_US} us",
        longest.as_millis(),
        hold.as_millis()
    );
    Ok(())
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
