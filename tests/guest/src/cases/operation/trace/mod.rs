// SPDX-License-Identifier: GPL-2.0

//! `mflow trace` under traffic: its events are those that the module's counters count, and its stops have the reasons that `flows` has.
//! Events are static keys of the packet path, so the kernel patches its code when somebody begins to listen.

mod scripts;
mod traced;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::sys::signal::Signal;
use serde_json::Value;

use self::traced::{said, Trace, Traced};
use crate::cases::operation::command::ends;
use crate::cases::operation::reasons::FlowLive as _;
use crate::cases::{Case, Run};
use crate::flows::Flow;
use crate::machine::cpu;
use crate::mflow::{self, Knobs, Stats};
use crate::network::topology;
use crate::traffic::datagrams::run::{Datagrams, LiveDatagrams};
use crate::traffic::hog::Hog;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Load as _, Plan};

/// All events, of which the last one is listened to last.
const ALL: &str = "flow_start,flow_stop,batch,merge,given_up,late";
const NOT_LOADED: i32 = 3;

/// The length of one hold of a lane's CPU, and the deadline that it misses.
const HOLD: Duration = Duration::from_millis(240);
const DEADLINE_US: u32 = 2_000;
/// The part of the usual rate that is sent: while the lane is held, its packets must fit in its ring.
const SHARE: f64 = 0.25;
/// A ring that is full soon, in KB for each CPU.
const SMALL_RING_KB: &str = "4";

pub(crate) fn cases() -> Vec<Case> {
    let traced = |name: &str, proves: &str, run: fn(&Rig) -> Result<Outcome>| {
        Case::of_module(name, proves, Run::Plain, run).patching_code()
    };
    let without_traffic = |name: &str, proves: &str, run: fn() -> Result<()>| {
        Case::of_module(name, proves, Run::Plain, move |rig| {
            rig.prepare(&rig.datagrams(), &Knobs::default())?;
            run().map(|()| None)
        })
    };
    vec![
        traced(
            "trace/batches",
            "while a flow is split, mflow trace tells of each batch that is counted, of its merge in the order of numbers, and of each start and stop; no packet notices, and nothing is left behind",
            batches,
        ),
        traced(
            "trace/late",
            "while a lane is held, mflow trace tells of each batch that is given up and of each late packet, as they are counted",
            late,
        ),
        traced(
            "trace/reasons",
            "mflow trace tells of the start and the stop of a flow with the names and the reason that flows has, and of no other flow if one is chosen",
            reasons,
        ),
        traced(
            "trace/lost",
            "events that are not read in time are counted as lost, and the others are told; the flow does not notice",
            lost,
        ),
        without_traffic(
            "trace/unloaded",
            "mflow trace ends when the module goes, which it does not hinder, and removes what a killed one has left behind",
            unloaded,
        ),
        without_traffic(
            "trace/formats",
            "the module's events have the fields that the scripts of bpftrace read, and no address of the kernel",
            scripts::formats,
        ),
    ]
}

/// Runs traffic with a trace of all events, and compares these with the counters.
fn compared(
    rig: &Rig,
    plan: &Plan<Datagrams>,
    knobs: &Knobs,
    during: impl FnOnce(&mut LiveDatagrams) -> Result<()>,
    check: impl FnOnce(&Outcome, &Traced) -> Result<()>,
) -> Result<Outcome> {
    rig.prepare(plan, knobs)?;
    let trace = Trace::start(&format!("--events {ALL}"))?;
    let before = Stats::read()?;
    Datagrams::measure(plan, during)?.judge(|outcome| {
        rig.settle()?;
        // Flows have stopped when this returns, and all their batches have had their turn.
        mflow::write("enabled", "0")?;
        let after = Stats::read()?;
        let traced = trace.end(Signal::SIGINT)?;
        let counted = traced.require_counted(&before, &after)?;
        ensure!(counted > 0, "no batch was opened");
        check(outcome, &traced)
    })
}

fn is_split(flow: &Flow) -> bool {
    flow.text("state") == "split"
}

fn batches(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::default();
    let from = RefCell::new(String::new());
    let split = |live: &mut LiveDatagrams| {
        let flow = live.wait_for_flow("the flow is split", is_split)?;
        flow.text("from").clone_into(&mut from.borrow_mut());
        Ok(())
    };
    compared(rig, &rig.datagrams(), &knobs, split, |outcome, traced| {
        rig.require_unnoticed::<Datagrams>(outcome)?;
        let from = from.borrow();
        let is_of_lane =
            |event: &&Value| event["inline"] == false && event["flow"]["from"] == from.as_str();
        let of_lanes = traced.of("batch").filter(is_of_lane);
        let carriers: BTreeSet<_> = of_lanes.filter_map(|one| one["carrier"].as_u64()).collect();
        let lanes = &cpu::LANES[..knobs.lanes];
        // CAST: the numbers of CPUs.
        let expected: BTreeSet<u64> = lanes.iter().map(|cpu| *cpu as u64).collect();
        ensure!(
            carriers == expected,
            "batches of {from} go to CPUs {carriers:?}, and the lanes are {expected:?}"
        );
        Ok(())
    })
}

fn late(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * SHARE);
    let knobs = Knobs {
        batch_pkts: 64,
        merge_timeout_us: DEADLINE_US,
        ..Knobs::default()
    };
    let held = |live: &mut LiveDatagrams| {
        let hog = Hog::start(cpu::LANES[0], HOLD)?;
        let flowed = live.flow_for(HOLD * 8);
        hog.stop()?;
        flowed
    };
    compared(rig, &plan, &knobs, held, |outcome, traced| {
        outcome.require_whole()?;
        let (given_up, late) = (traced.of("given_up").count(), traced.sum("late", "pkts"));
        ensure!(
            given_up > 0 && late > 0,
            "a lane was held, and {given_up} batches were given up, and {late} packets late"
        );
        for event in traced.of("given_up") {
            let waited_us = event["waited_us"].as_u64().context("no time")?;
            ensure!(
                event["reason"] == "overflow" || waited_us >= u64::from(DEADLINE_US),
                "it was given up too early: {event}"
            );
        }
        Ok(())
    })
}

fn reasons(rig: &Rig) -> Result<Outcome> {
    let (plan, knobs) = (rig.datagrams(), Knobs::default().eager());
    rig.prepare(&plan, &knobs)?;
    let all = Trace::start("--events flow_start,flow_stop")?;
    let outcome = Datagrams::measure(&plan, |live| {
        let split = live.wait_for_flow("the flow is split", is_split)?;
        let from = split.text("from").to_owned();
        let told = all.end(Signal::SIGTERM)?;
        require_named(&told, "flow_start", &split)?;
        // Flows that are known from the list, and not from an event.
        let other = Trace::start("--events flow_stop,batch --flow 192.0.2.1")?;
        topology::tc("qdisc add dev veth0 root pfifo limit 100000")?;
        let queued = live.wait_for_flow("it is told that the path queues", |flow| {
            flow.has(&[
                ("state", "whole"),
                ("reason", "path_queues"),
                ("from", &from),
            ])
        })?;
        let told = other.end(Signal::SIGINT)?;
        ensure!(
            told.events.is_empty(),
            "events of other flows are told: {told:?}"
        );
        topology::tc("qdisc del dev veth0 root")?;
        let chosen = Trace::start(&format!("--events flow_stop,batch --flow {from}"))?;
        // The flow is split again, and stops again.
        mflow::write("enabled", "0")?;
        mflow::write("enabled", "1")?;
        live.wait_for_flow("the flow is split again", is_split)?;
        topology::tc("qdisc add dev veth0 root pfifo limit 100000")?;
        live.wait_for_flow("it is told that the path queues", |flow| {
            flow.has(&[("reason", queued.text("reason")), ("from", &from)])
        })?;
        let told = chosen.end(Signal::SIGHUP)?;
        let stop = require_named(&told, "flow_stop", &queued)?;
        ensure!(
            stop["reason"] == queued.text("reason") && stop["words"] != "",
            "flows says {queued:?}, and the trace {stop}"
        );
        ensure!(
            told.of("batch").count() > 0,
            "no batch of the chosen flow is told"
        );
        Ok(())
    });
    // A device that gets a queue drops what comes meanwhile, and any CPU may empty the queue: nothing is said about losses and the
    // order.
    outcome?.judge(|outcome| {
        outcome.require_intact()?;
        rig.settle()
    })
}

/// Returns the last event of this name about a flow, which has to have the names that `flows` has.
fn require_named<'a>(told: &'a Traced, name: &'a str, flow: &Flow) -> Result<&'a Value> {
    let of_flow = told.of(name);
    let of_flow = of_flow.filter(|event| event["flow"]["from"] == flow.text("from"));
    let event = of_flow
        .last()
        .with_context(|| format!("no {name} of {flow:?} is told: {told:?}"))?;
    for key in ["device", "proto", "to"] {
        let found = &event["flow"][key];
        ensure!(
            found == flow.text(key),
            "{key} is {found} and not {}",
            flow.text(key)
        );
    }
    ensure!(
        event["flow"]["queue"].as_u64() == flow.number("queue") && event["slot"].is_u64(),
        "flows says {flow:?}, and the trace {event}"
    );
    Ok(event)
}

fn lost(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::of(2, 4);
    let plan = rig.datagrams();
    rig.prepare(&plan, &knobs)?;
    let trace = Trace::start(&format!("--events {ALL}"))?;
    fs::write(trace.instance.join("buffer_size_kb"), SMALL_RING_KB)?;
    trace.signal(Signal::SIGSTOP)?;
    Datagrams::measure(&plan, |_| Ok(()))?.judge(|outcome| {
        rig.require_unnoticed::<Datagrams>(outcome)?;
        trace.signal(Signal::SIGCONT)?;
        let traced = trace.end(Signal::SIGINT)?;
        let told = traced.of("batch").count();
        let said = traced.sum("lost", "events");
        ensure!(
            traced.lost > 0 && traced.lost == said && told > 0,
            "{} events were lost, {said} of which were told at once, and {told} batches are told",
            traced.lost
        );
        Ok(())
    })
}

fn unloaded() -> Result<()> {
    let mut killed = Trace::start(&format!("--events {ALL}"))?;
    killed.signal(Signal::SIGKILL)?;
    killed.child.wait()?;
    ensure!(
        killed.instance.exists(),
        "a process that is killed can't remove its instance"
    );
    let mut trace = Trace::start(&format!("--events {ALL}"))?;
    ensure!(
        !killed.instance.exists(),
        "{} was left by a process that is gone",
        killed.instance.display()
    );
    mflow::unload()?;
    let status = trace.wait()?;
    let said = said()?;
    ensure!(
        status.code() == Some(NOT_LOADED)
            && said.contains("the module mflow is not loaded")
            && said.lines().count() == 1,
        "when the module has gone, mflow trace ends with {status} and says: {said}"
    );
    let said = ends(NOT_LOADED, "trace")?;
    ensure!(
        said.is_empty(),
        "without the module mflow trace prints: {said}"
    );
    Ok(())
}
