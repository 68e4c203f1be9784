// SPDX-License-Identifier: GPL-2.0

//! Splitting starts and stops under load, by every switch there is: nothing is lost, reordered or leaked.

use std::time::Duration;

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::machine::memory::{no_growth, Memory};
use crate::mflow::{self, Knobs, Stats};
use crate::network::{netns, topology};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Live, Load};

const ROUNDS: usize = 6;
/// The time for which traffic flows with the switch in either position.
const PAUSE: Duration = Duration::from_millis(150);
/// Six fragments each.
const FRAGMENTED_BYTES: usize = 8192;
const TWO_DEVICES_ROUNDS: usize = 24;
/// Long enough to see that a flow is fast, and to probe its path.
const UNTIL_PROBED: Duration = Duration::from_millis(450);
/// Knobs after which flows are split again; the others may take effect on a split flow.
const RESTARTING: [&str; 5] = ["enabled", "cpus", "devices", "min_flow_pps", "scaling"];

pub(crate) fn datagrams() -> Vec<Case> {
    vec![
        module::<Datagrams>("rmmod and modprobe under load lose, reorder and leak nothing"),
        knob("enabled", "1", "0").patching_code(),
        fragments().patching_code(),
        knob("devices", "+eth0", "-eth0").patching_code(),
        two_devices(),
        device_before("path"),
        device_before("device"),
        knob("cpus", "2-5", "3"),
        knob("batch_pkts", "16", "1024"),
        knob("min_flow_pps", "100", "10000000"),
        knob("scaling", "path", "device"),
        knob("build", "lane", "nic"),
    ]
}

pub(crate) fn streams() -> Vec<Case> {
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
        for _ in 0..rig.scale.rounds(ROUNDS) {
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

/// Returns a case in which a flow of fragments is split and made whole where the kernel wants those of a datagram one after the
/// other: lanes take some between them, also while the first packets of the flow are still on the ordinary path.
fn fragments() -> Case {
    let proves = format!(
        "splitting is switched off and on under datagrams of several fragments, with the shortest ipfrag_max_dist{}",
        Datagrams::UNNOTICED
    );
    Case::of_module("reload/fragments", proves, Run::Plain, |rig| {
        let mut plan = rig.datagrams();
        plan.load = plan.load.sized(FRAGMENTED_BYTES);
        rig.prepare(&plan, &Knobs::default())?;
        // Without our hooks, the module sets it while splitting is on, and what is written then is what counts.
        mflow::write("enabled", "0")?;
        netns::within(topology::CONTAINER, || {
            topology::sysctl("net/ipv4/ipfrag_max_dist", "1")
        })?;
        mflow::write("enabled", "1")?;
        Datagrams::measure(&plan, |live| {
            for _ in 0..rig.scale.rounds(ROUNDS) {
                switch(live, "enabled", "1", "0", PAUSE)?;
            }
            Ok(())
        })?
        .judge(|outcome| {
            // Without our hooks, a datagram that ends behind the last batch has the tag of its first fragment, and counts as late.
            outcome.require_whole()?;
            outcome.require_order()
        })
    })
}

/// Returns a case in which the sources of two devices on the way come and go at once.
fn two_devices() -> Case {
    let proves = format!(
        "lanes change where two devices on the way are opted in{}",
        Datagrams::UNNOTICED
    );
    Case::of_module("reload/two-devices", proves, Run::Plain, |rig| {
        // A packet or two is enough for each of them, so both send probes at nearly the same time.
        let knobs = Knobs {
            min_flow_pps: 1,
            ..Knobs::default()
        };
        rig.unnoticed(&rig.plan::<Datagrams>(), &knobs, |live| {
            mflow::write("devices", "+vxlan0")?;
            for cpus in ["3,5", "2-3"].into_iter().cycle().take(TWO_DEVICES_ROUNDS) {
                let before = mflow::flows_split()?;
                mflow::write("cpus", cpus)?;
                live.wait_split_since(before)?;
            }
            mflow::write("devices", "-vxlan0")
        })
    })
}

/// Returns a case in which a flow is split at a device, and a device before that on the way comes and goes.
fn device_before(scaling: &'static str) -> Case {
    let proves = format!(
        "eth0 comes and goes where a flow is split at vxlan0, with scaling {scaling}{}",
        Datagrams::UNNOTICED
    );
    let name = format!("reload/device-before/{scaling}");
    Case::of_module(name, proves, Run::Plain, move |rig| {
        let knobs = Knobs {
            device: "vxlan0",
            scaling,
            ..Knobs::default()
        };
        rig.unnoticed(&rig.plan::<Datagrams>(), &knobs, |live| {
            live.wait_split_since(0)?;
            for _ in 0..rig.scale.rounds(ROUNDS) {
                live.flow_for(PAUSE)?;
                mflow::write("devices", "+eth0")?;
                live.flow_for(UNTIL_PROBED)?;
                mflow::write("devices", "-eth0")?;
            }
            Ok(())
        })
    })
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
                for _ in 0..rig.scale.rounds(ROUNDS) {
                    switch(live, knob, split, other, PAUSE)?;
                }
                Ok(())
            })
        },
    )
}

/// Switches a knob from `split` to `other` and back, each time after a pause.
pub(crate) fn switch(
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
