// SPDX-License-Identifier: GPL-2.0

//! Splitting starts and stops under load, by every switch there is: nothing is lost, reordered or leaked.

use std::fs;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use super::{Case, Run};
use crate::mflow::{self, Knobs, Stats};
use crate::outcome::Outcome;
use crate::rig::{self, Rig};
use crate::stream::{self, Live};

const ROUNDS: usize = 5;
/// With the switch in either position.
const PAUSE: Duration = Duration::from_millis(150);
/// Knobs with one value that stops splitting; the others may take effect on a split flow.
const RESTARTING: [&str; 3] = ["enabled", "devices", "min_flow_pps"];
/// What caches may grow by in all rounds. One round's packets alone, if they leaked, would be more.
const GROWTH_KIB: u64 = 3 * 1024;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "reload/module",
            "rmmod and modprobe under load lose, reorder and leak nothing",
            Run::Always,
            |rig| reload_module(rig).map(Some),
        )
        .patching_code(),
        toggle("enabled", "1", "0").patching_code(),
        toggle("devices", "+eth0", "-eth0").patching_code(),
        toggle("cpus", "2-5", "3"),
        toggle("batch_pkts", "16", "1024"),
        toggle("min_flow_pps", "100", "10000000"),
    ]
}

fn reload_module(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::default();
    let plan = rig.plan();
    rig.prepare(&plan, &knobs)?;
    let mut before_kib = 0;
    let outcome = stream::measure(&plan, |live| {
        for round in 0..ROUNDS {
            live.flow_for(PAUSE)?;
            nothing_given_up()?;
            mflow::unload()?;
            live.flow_for(PAUSE)?;
            if round == 0 {
                // By now every cache has been filled once.
                before_kib = used_kib()?;
            }
            mflow::load(&knobs)?;
            live.wait_split_since(0)?;
        }
        mflow::unload()
    })?;
    outcome.require_whole()?;
    outcome.require_order()?;
    let after_kib = used_kib()?;
    ensure!(
        after_kib < before_kib + GROWTH_KIB,
        "memory in use grew from {before_kib} to {after_kib} KiB in {} rounds",
        ROUNDS - 1
    );
    Ok(outcome)
}

/// Returns a case that switches one knob to and fro; `split` is the value with which the flow is split.
fn toggle(knob: &'static str, split: &'static str, other: &'static str) -> Case {
    Case::of_module(
        format!("reload/{knob}"),
        format!("{knob} changes between {split} and {other} under load without loss or reordering"),
        if knob == "enabled" {
            Run::Always
        } else {
            Run::Plain
        },
        move |rig| {
            let plan = rig.plan();
            rig.prepare(&plan, &Knobs::default())?;
            stream::measure(&plan, |live| switch(live, knob, split, other))?
                .judge(|outcome| {
                    outcome.require_whole()?;
                    outcome.require_order()?;
                    outcome.require_no_deadline()?;
                    rig::settle()
                })
                .map(Some)
        },
    )
}

fn switch(live: &Live<'_>, knob: &str, split: &str, other: &str) -> Result<()> {
    for _ in 0..ROUNDS {
        live.flow_for(PAUSE)?;
        mflow::write(knob, other)?;
        live.flow_for(PAUSE)?;
        let before = mflow::flows_split()?;
        mflow::write(knob, split)?;
        if RESTARTING.contains(&knob) {
            live.wait_split_since(before)?;
        }
    }
    Ok(())
}

/// Checks the counters that are about to vanish with the module.
fn nothing_given_up() -> Result<()> {
    let stats = Stats::read()?;
    for name in ["deadline_batches", "overflow_batches", "late_pkts"] {
        let count = stats.get(name)?;
        ensure!(
            count == 0,
            "{name} is {count} just before the module is removed"
        );
    }
    Ok(())
}

/// Returns the memory in use, in KiB: all but what is free or holds copies of files.
fn used_kib() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|value| {
                value
                    .trim()
                    .trim_end_matches("kB")
                    .trim()
                    .parse::<u64>()
                    .ok()
            })
            .with_context(|| format!("/proc/meminfo has no {name}"))
    };
    Ok(field("MemTotal")? - field("MemFree")? - field("Cached")? - field("Buffers")?)
}
