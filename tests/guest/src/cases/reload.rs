// SPDX-License-Identifier: GPL-2.0

//! Splitting starts and stops under load, by every switch there is: nothing is lost, reordered or leaked.

use std::fs;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use super::{Case, Run};
use crate::datagrams::run::Datagrams;
use crate::mflow::{self, Knobs, Stats};
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::streams::run::Streams;
use crate::traffic::{Live, Load};

const ROUNDS: usize = 6;
/// How long traffic flows with the switch in either position.
const PAUSE: Duration = Duration::from_millis(150);
/// Knobs after which flows are split anew; the others may take effect on a split flow.
const RESTARTING: [&str; 5] = ["enabled", "cpus", "devices", "min_flow_pps", "scaling"];
/// Callers whose allocations are no leak: stacks of threads, which the kernel keeps for later threads, and areas it frees late.
const KEPT: [&str; 2] = ["copy_process", "unpurged"];

pub(super) fn datagrams() -> Vec<Case> {
    vec![
        module::<Datagrams>("rmmod and modprobe under load lose, reorder and leak nothing"),
        knob("enabled", "1", "0").patching_code(),
        knob("devices", "+eth0", "-eth0").patching_code(),
        knob("cpus", "2-5", "3"),
        knob("batch_pkts", "16", "1024"),
        knob("min_flow_pps", "100", "10000000"),
        knob("scaling", "path", "device"),
    ]
}

pub(super) fn streams() -> Vec<Case> {
    vec![
        module::<Streams>("rmmod and modprobe under a running stream: TCP does not notice"),
        toggle::<Streams>(
            "enabled",
            "splitting is switched off and on under a running stream: TCP does not notice"
                .to_owned(),
            Run::Plain,
            ("1", "0"),
        )
        .patching_code(),
    ]
}

fn module<L: Load>(proves: &str) -> Case {
    Case::of_module(
        format!("{}reload/module", L::GROUP),
        proves,
        Run::Always,
        reload_module::<L>,
    )
    .patching_code()
}

fn reload_module<L: Load>(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::default();
    let mut samples = Vec::new();
    let outcome = rig.measure(&rig.plan::<L>(), &knobs, |live| {
        for _ in 0..ROUNDS {
            live.flow_for(PAUSE)?;
            nothing_given_up()?;
            mflow::unload()?;
            live.flow_for(PAUSE)?;
            samples.push(Memory::read()?);
            mflow::load(&knobs)?;
            live.wait_split_since(0)?;
        }
        nothing_given_up()?;
        mflow::unload()
    })?;
    outcome.judge(|outcome| {
        L::require_whole(outcome)?;
        L::require_order(outcome)?;
        no_growth(&samples)
    })
}

fn knob(knob: &'static str, split: &'static str, other: &'static str) -> Case {
    let proves = format!(
        "{knob} changes between {split} and {other} under load{}",
        Datagrams::UNNOTICED
    );
    let when = Run::always_if(["enabled", "scaling"].contains(&knob));
    toggle::<Datagrams>(knob, proves, when, (split, other))
}

/// Returns a case that switches one knob to and fro; `split` is the value with which the flow is split.
fn toggle<L: Load>(
    knob: &'static str,
    proves: String,
    when: Run,
    (split, other): (&'static str, &'static str),
) -> Case {
    Case::of_module(
        format!("{}reload/{knob}", L::GROUP),
        proves,
        when,
        move |rig| {
            rig.unnoticed(&rig.plan::<L>(), &Knobs::default(), |live| {
                for _ in 0..ROUNDS {
                    switch(live, knob, split, other, PAUSE)?;
                }
                Ok(())
            })
        },
    )
}

/// Switches a knob from `split` to `other` and back, each time after a pause.
pub(super) fn switch(
    live: &impl Live,
    knob: &str,
    split: &str,
    other: &str,
    pause: Duration,
) -> Result<()> {
    live.flow_for(pause)?;
    mflow::write(knob, other)?;
    live.flow_for(pause)?;
    let before = mflow::flows_split()?;
    mflow::write(knob, split)?;
    if RESTARTING.contains(&knob) {
        live.wait_split_since(before)?;
    }
    Ok(())
}

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

/// Fails if each round has cost memory; the samples are of the same moment of every round.
///
/// Packets and other small things are the leak detector's business, on the checking kernel.
fn no_growth(samples: &[Memory]) -> Result<()> {
    let sizes = |kib: fn(&Memory) -> i64| samples.iter().map(kib).collect::<Vec<i64>>();
    for (name, sizes) in [
        ("pages", sizes(|memory| memory.vmalloc_kib)),
        ("per CPU", sizes(|memory| memory.percpu_kib)),
    ] {
        let mut growth: Vec<i64> = sizes.windows(2).map(|pair| pair[1] - pair[0]).collect();
        growth.sort_unstable();
        // A leak grows in each round, a cache that fills does not.
        let middle = growth.get(growth.len() / 2).copied().unwrap_or(0);
        ensure!(
            middle <= 0,
            "memory ({name}) grows by {middle} KiB with each unloading: {sizes:?}"
        );
    }
    Ok(())
}

/// The memory of lanes, rings and slots is of these kinds.
#[derive(Clone, Copy, Debug)]
struct Memory {
    vmalloc_kib: i64,
    percpu_kib: i64,
}

impl Memory {
    fn read() -> Result<Self> {
        Self::parse(
            &fs::read_to_string("/proc/vmallocinfo")?,
            &fs::read_to_string("/proc/meminfo")?,
        )
    }

    fn parse(vmallocinfo: &str, meminfo: &str) -> Result<Self> {
        let mut vmalloc_bytes = 0;
        for line in vmallocinfo.lines() {
            let mut words = line.split_whitespace().skip(1);
            let (bytes, caller) = (words.next(), words.next().unwrap_or_default());
            if !KEPT.iter().any(|kept| caller.starts_with(kept)) {
                vmalloc_bytes += bytes
                    .and_then(|bytes| bytes.parse::<i64>().ok())
                    .with_context(|| format!("/proc/vmallocinfo: {line:?}"))?;
            }
        }
        let percpu = meminfo
            .lines()
            .find_map(|line| line.strip_prefix("Percpu:"))
            .and_then(|value| value.trim().strip_suffix("kB")?.trim().parse().ok());
        Ok(Self {
            vmalloc_kib: vmalloc_bytes / 1024,
            percpu_kib: percpu.context("/proc/meminfo has no Percpu")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_told_from_a_cache_that_fills() {
        let rounds = |sizes: [i64; 6]| {
            sizes.map(|vmalloc_kib| Memory {
                vmalloc_kib,
                percpu_kib: 1600,
            })
        };
        assert!(no_growth(&rounds([900, 964, 964, 948, 964, 964])).is_ok());
        assert!(no_growth(&rounds([900, 964, 1028, 1092, 1156, 1220])).is_err());
    }

    #[test]
    fn stacks_are_left_out() {
        let vmallocinfo =
            "0xffffc9000000-0xffffc9000005   20480 copy_process+0x1/0xe20 pages=4 vmalloc\n\
             0xffffc9000006-0xffffc9000008   69632 ring+0x1/0x2 pages=16 vmalloc\n\
             0xffffc9000006-0xffffc9000008    8192 unpurged vm_area\n";
        let memory = Memory::parse(vmallocinfo, "MemTotal: 5 kB\nPercpu:    1600 kB\n").unwrap();
        assert_eq!((memory.vmalloc_kib, memory.percpu_kib), (68, 1600));
    }
}
