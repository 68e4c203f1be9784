// SPDX-License-Identifier: GPL-2.0

//! `mflow top` under traffic: on a terminal, as text and as JSON. What it says of packets and of memory is what has happened.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use serde_json::Value;

use crate::cases::operation::command::{ask, ends, DONE};
use crate::cases::operation::reasons::FlowLive as _;
use crate::cases::{Case, Run};
use crate::flows;
use crate::machine::terminal::Terminal;
use crate::machine::{command, cpu};
use crate::mflow::{Knobs, Stats};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::hog::Hog;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, STUCK};

/// The length of one hold of a lane's CPU, and how many there are.
const HOLD: Duration = Duration::from_millis(240);
const HOLDS: u32 = 6;
/// The part of the usual rate that is sent: while the lane is held, its packets must fit in its ring.
const SHARE: f64 = 0.25;

/// The CPUs of a lane that builds packets on one and carries them on another.
const CPUS_OF_LANE: usize = 2;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "top/split",
            "while a flow is split, top shows it on a terminal, in text and in JSON, with the packets of each lane; q ends it, the terminal is as before, and no packet notices",
            Run::Plain,
            split,
        ),
        Case::of_module(
            "top/stage",
            "a packet that one CPU builds and another carries is one packet in the sum of top, and in the row of each of both",
            Run::Plain,
            stage,
        ),
        Case::of_module(
            "top/waiting",
            "while a lane is held, the memory that waits for its CPU grows, and no other's; no packet notices",
            Run::Plain,
            waiting,
        ),
    ]
}

fn split(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::default();
    rig.unnoticed(&rig.datagrams(), &knobs, |live| {
        let flow = live.wait_for_flow("the flow is split", is_split)?;
        let from = flow.text("from");
        let mut terminal = Terminal::start("mflow top --interval 0.5")?;
        let shows = |order: &str, screen: &str| {
            let mut lines = screen.lines();
            screen.contains(&format!(" by {order}"))
                && lines.any(|line| line.contains(from) && line.starts_with("split "))
        };
        terminal.wait_for("the flow is there", |screen| shows("packets/s", screen))?;
        terminal.require_taken()?;
        terminal.keys("g")?;
        terminal.wait_for("flows are sorted by gain", |screen| shows("gain", screen))?;
        terminal.keys("q")?;
        terminal.require_left()?;
        let text = ends(DONE, "top --once")?;
        ensure!(shows("packets/s", &text), "mflow top --once says: {text}");
        check_sample(&look()?, from, 1)
    })
}

/// Two lanes with two CPUs each.
fn stage(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        build: "lane",
        layout: "lane+stage",
        ..Knobs::of(4, 64)
    };
    rig.unnoticed(&rig.datagrams(), &knobs, |live| {
        let flow = live.wait_for_flow("the flow is split", is_split)?;
        check_sample(&look()?, flow.text("from"), CPUS_OF_LANE)
    })
}

fn is_split(flow: &flows::Flow) -> bool {
    flow.text("state") == "split"
}

/// A sample of some seconds, with the counters just before and just after.
struct Looked {
    sample: Value,
    before: Stats,
    after: Stats,
}

/// Looks until lanes carry packets: a slow flow has no batch in some intervals.
fn look() -> Result<Looked> {
    let mut looked = None;
    command::wait_until("lanes carry packets", || {
        let before = Stats::read()?;
        // The interval is long, so that what is counted around it is little beside it.
        let sample = ask("top --once --interval 2")?;
        let after = Stats::read()?;
        let is_there = sample["lane_pps"].as_f64().is_some_and(|pps| pps > 0.0);
        looked = is_there.then_some(Looked {
            sample,
            before,
            after,
        });
        Ok(is_there)
    })?;
    looked.context("lanes have carried packets")
}

impl Looked {
    /// Fails unless a rate is that of packets that were counted meanwhile.
    fn require_counted(&self, pps: Option<f64>, name: &str) -> Result<()> {
        let seconds = self.sample["seconds"].as_f64().context("no time")?;
        let pkts = pps.context("no rate")? * seconds;
        let most = self.after.get(name)?.wrapping_sub(self.before.get(name)?);
        // CAST: few packets.
        ensure!(
            pkts <= most as f64 + 0.5,
            "{name} has grown by {most} at most, and top says {pkts} packets: {}",
            self.sample
        );
        Ok(())
    }
}

/// Fails unless a sample has the flow that is split, and no more packets than there were. `busy` CPUs of lanes have packets, at least.
fn check_sample(looked: &Looked, from: &str, busy: usize) -> Result<()> {
    let sample = &looked.sample;
    let flows = sample["flows"]["flows"].as_array().context("no flows")?;
    let is_it = |one: &Value| one["from"] == from && one["state"] == "split";
    ensure!(flows.iter().any(is_it), "{from} is not split: {sample}");
    looked.require_counted(sample["lane_pps"].as_f64(), "lane_pkts")?;
    let lanes = sample["lanes"].as_array().context("no lanes")?;
    let listed = cpu::of_list(sample["status"]["lanes"].as_str().context("no list")?)?;
    let cpus: Vec<_> = lanes.iter().map(|lane| lane["cpu"].as_u64()).collect();
    // CAST: a guest has few CPUs.
    let expected: Vec<_> = listed.iter().map(|cpu| Some(*cpu as u64)).collect();
    ensure!(cpus == expected, "the lanes are {cpus:?}: {sample}");
    for (cpu, lane) in listed.iter().zip(lanes) {
        looked.require_counted(lane["pps"].as_f64(), &format!("lane_cpu{cpu}_pkts"))?;
    }
    let has_pkts = |lane: &&Value| lane["pps"].as_f64().is_some_and(|pps| pps > 0.0);
    let with_pkts = lanes.iter().filter(has_pkts).count();
    ensure!(
        with_pkts >= busy,
        "{with_pkts} CPUs of lanes have packets: {sample}"
    );
    let cores = sample["cores"].as_array().context("no cores")?;
    let is_busy = |core: &Value| core["softirq_pct"].as_f64().is_some_and(|pct| pct > 0.0);
    ensure!(
        cores.len() > lanes.len() && cores.iter().any(is_busy),
        "softirqs took no time: {sample}"
    );
    Ok(())
}

fn waiting(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * SHARE);
    let knobs = Knobs {
        batch_pkts: 64,
        ..Knobs::default()
    };
    let held = cpu::LANES[0];
    rig.unnoticed::<Datagrams>(&plan, &knobs, |live| {
        live.wait_for_flow("the flow is split", is_split)?;
        let hog = Hog::start(held, HOLD)?;
        let mut sums = BTreeMap::new();
        let was_held = live.wait_for("the lane has been held", STUCK, || {
            add_waiting(&mut sums, &knobs)?;
            Ok(hog.holds_ended() >= HOLDS)
        });
        hog.stop()?;
        was_held?;
        let of_held = sums.get(&held).copied().unwrap_or(0);
        let others = sums.iter().filter(|(cpu, _)| **cpu != held);
        // A lane that runs has a batch for a moment.
        ensure!(
            of_held > 0 && others.clone().all(|(_, sum)| sum * 2 <= of_held),
            "CPU {held} was held, and in all looks these bytes waited for CPUs: {sums:?}"
        );
        Ok(())
    })
}

/// Adds the bytes that wait for each lane's CPU now.
fn add_waiting(sums: &mut BTreeMap<usize, u64>, knobs: &Knobs) -> Result<()> {
    let stats = Stats::read()?;
    for cpu in &cpu::LANES[..knobs.lanes] {
        let waiting = stats.get(&format!("lane_cpu{cpu}_ring_bytes"))?;
        *sums.entry(*cpu).or_default() += waiting;
    }
    Ok(())
}
