// SPDX-License-Identifier: GPL-2.0

//! An ifb at the NIC's ingress, as people shape what they receive. It queues all packets, and gives them to the stack once more as the
//! NIC's. Where packets are taken behind GRO, they come by twice, and count once.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use super::mode;
use crate::cases::operation::devices::MIXED_PKTS;
use crate::cases::operation::reasons::FlowLive as _;
use crate::cases::{Case, Run, STAGES};
use crate::flows;
use crate::mflow::{Knobs, Mode, Stats};
use crate::network::topology;
use crate::traffic::datagrams::run::{Datagrams, LiveDatagrams};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Load as _, Plan};

/// Looks at a rate, and the time between two. A rate is that of a part of this time.
const LOOKS: u32 = 8;
const WINDOW: Duration = Duration::from_millis(150);
/// A rate that is counted twice is the double; that of an emulated machine goes up and down.
const MOST: f64 = 1.5;

pub(crate) fn datagrams() -> Vec<Case> {
    vec![
        Case::of_module(
            "ifb/device",
            "split behind the NIC's GRO, a flow that an ifb at the NIC queues stays whole: no loss, no reordering, and each packet counts once",
            Run::Plain,
            whole,
        ),
        Case::of_module(
            "ifb/falcon-dev",
            "in mode falcon-dev a flow that an ifb at the NIC queues loses nothing, and each packet goes to a stage once",
            Run::Plain,
            staged,
        ),
    ]
}

fn whole(rig: &Rig) -> Result<Outcome> {
    let plan = Plan {
        split: false,
        ..rig.datagrams()
    };
    let knobs = Knobs {
        scaling: "device",
        build: "auto",
        ..Knobs::default()
    };
    rig.prepare(&plan, &knobs.eager())?;
    redirected(&plan, require_rate)?.judge(|outcome| {
        rig.require_unnoticed::<Datagrams>(outcome)?;
        rig.require_held("paths_async")
    })
}

fn staged(rig: &Rig) -> Result<Outcome> {
    let plan = mode::plan::<Datagrams>(rig);
    rig.prepare(&plan, &mode::knobs(Mode::FalconDev.name(), STAGES.len()))?;
    redirected(&plan, require_staged_once)?.judge(|outcome| {
        outcome.require_whole()?;
        // The NIC's core and a stage's CPU may both give packets to the ifb when stages begin.
        if outcome.reordered > MIXED_PKTS {
            outcome.require_order()?;
        }
        rig.settle()
    })
}

/// Measures behind an ifb.
fn redirected(
    plan: &Plan<Datagrams>,
    during: impl FnOnce(&mut LiveDatagrams) -> Result<()>,
) -> Result<Outcome> {
    topology::ip("link add queue0 txqueuelen 10000 type ifb\nlink set queue0 up")?;
    let measured = topology::tc(
        "qdisc add dev eth0 clsact
         filter add dev eth0 ingress matchall action mirred egress redirect dev queue0",
    )
    .and_then(|()| Datagrams::measure(plan, during));
    let passed = topology::sent_pkts("queue0");
    // Also after a failure: the NIC stays for the cases that follow.
    topology::tc("qdisc del dev eth0 clsact")?;
    topology::ip("link del queue0")?;
    let (outcome, passed) = (measured?, passed?);
    ensure!(
        passed >= outcome.frames,
        "the ifb has had {passed} packets of {}",
        outcome.frames
    );
    Ok(outcome)
}

/// Fails unless the rate that the file `flows` tells is that at which the client sends.
fn require_rate(live: &mut LiveDatagrams) -> Result<()> {
    live.wait_for_flow("it is told that the path queues", |flow| {
        flow.has(&[("state", "whole"), ("reason", "path_queues")])
    })?;
    let (before, begun) = (live.progress(), Instant::now());
    let (mut told, mut looks) = (0.0, 0.0);
    for _ in 0..LOOKS {
        thread::sleep(WINDOW);
        let flows = flows::read()?;
        let rates = flows.iter().filter_map(|flow| flow.number::<f64>("pps"));
        if let Some(fastest) = rates.reduce(f64::max) {
            told += fastest;
            looks += 1.0;
        }
    }
    // CAST: some thousands.
    let sent = (live.progress() - before) as f64 / begun.elapsed().as_secs_f64();
    ensure!(looks > 0.0, "no rate is told");
    let told = told / looks;
    ensure!(
        told < sent * MOST,
        "{told:.0} packets per second are told, and {sent:.0} are sent"
    );
    Ok(())
}

/// Fails unless the first stage gets the packets that the NIC receives, and no more.
fn require_staged_once(live: &mut LiveDatagrams) -> Result<()> {
    live.wait_staged()?;
    let counts = || -> Result<[u64; 2]> {
        let staged = Stats::read()?.get(STAGES[0])?;
        Ok([staged, topology::received_pkts("eth0")?])
    };
    let before = counts()?;
    thread::sleep(WINDOW * LOOKS);
    let [staged, received] = counts()?;
    let (staged, received) = (staged - before[0], received - before[1]);
    // CAST: some thousands.
    ensure!(
        staged > 0 && (staged as f64) < received as f64 * MOST,
        "{staged} packets went to a stage, and {received} were received"
    );
    Ok(())
}
