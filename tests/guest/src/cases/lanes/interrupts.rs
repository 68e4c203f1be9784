// SPDX-License-Identifier: GPL-2.0

//! The NIC's interrupts, or the threads that poll it, move to another CPU, as irqbalance has it: under a split flow. Interrupts also
//! move under a flow in stages while a CPU of these does not run and packets wait for it.

use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use super::mode::{knobs, plan};
use crate::cases::STAGES;
use crate::cases::{Case, Run};
use crate::flows;
use crate::machine::{cpu, interrupts};
use crate::mflow::{Knobs, Mode};
use crate::network::topology;
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::hog::Hog;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live, Load as _, Plan};

/// The length of one hold of a CPU.
const HOLD: Duration = Duration::from_millis(400);
/// The number of times that interrupts move and come back while a CPU is held.
const ROUNDS: usize = 16;
/// The part of the usual rate that is sent: while a CPU is held, a ring has to have room for what comes.
const SHARE: f64 = 0.25;
/// The time that interrupts may take to come to the other CPU, and the number of interrupts that shows that they do.
const LIMIT: Duration = Duration::from_secs(20);
const MOVED_INTERRUPTS: u64 = 3;
/// The number of times that interrupts move under a split flow, and come back.
const SPLIT_ROUNDS: usize = 20;
/// A CPU that is neither the NIC's, nor a lane's, nor a stage's.
const ELSEWHERE: usize = cpu::LANES[STAGES.len()];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![Case::of_traffic(
        "interrupts/move",
        "interrupts move to and fro under a split flow, which stays split: no loss, no reordering",
        Run::Plain,
        moved_while_split,
    )
    .about_splitting()];
    cases.push(
        Case::of_module(
            "interrupts/threads",
            "threads poll the NIC, and move to and fro under a split flow, which stays split: no loss, no reordering",
            Run::Plain,
            threads_moved_while_split,
        ),
    );
    cases.extend(in_stages());
    cases
}

fn in_stages() -> [Case; 2] {
    [Mode::FalconDev, Mode::FalconFunc]
        .map(|mode| {
            Case::of_module(
                format!("mode/interrupts/{}", mode.name()),
                format!(
                    "interrupts move while packets wait for a stage, in mode {}: no loss but in full rings, no reordering",
                    mode.name()
                ),
                Run::always_if(mode == Mode::FalconDev),
                move |rig| moved(rig, mode),
            )
        })
}

fn moved_while_split(rig: &Rig) -> Result<Outcome> {
    let plan = rig.datagrams();
    // Where a program redirects packets to lanes, nothing says which queue they have come through.
    let knobs = Knobs {
        build: "auto",
        ..Knobs::default()
    };
    rig.prepare_pinned(&plan, &knobs)?;
    let outcome = Datagrams::measure(&plan, |live| {
        (0..rig.scale.rounds(SPLIT_ROUNDS)).try_for_each(|_| {
            move_to(live, ELSEWHERE)?;
            move_to(live, cpu::NIC)
        })
    });
    // Also after a failure.
    topology::pin_server_nic()?;
    outcome?.judge(|outcome| require_kept(rig, &plan, &knobs, outcome))
}

/// Fails if the flow was noticed, or was not split all the time.
fn require_kept(rig: &Rig, plan: &Plan<Datagrams>, knobs: &Knobs, outcome: &Outcome) -> Result<()> {
    rig.require_strict(plan, knobs, outcome)?;
    if !rig.mflow {
        return Ok(());
    }
    let restarts = outcome.counter("flows_split")?;
    ensure!(restarts == 0, "the flow was split again {restarts} time(s)");
    Ok(())
}

fn threads_moved_while_split(rig: &Rig) -> Result<Outcome> {
    let plan = rig.datagrams();
    // As above.
    let knobs = Knobs {
        build: "auto",
        ..Knobs::default()
    };
    rig.prepare_pinned(&plan, &knobs)?;
    let outcome = polled_by_threads(rig, &plan);
    // Also after a failure.
    interrupts::poll_in_threads("eth0", false)?;
    outcome?.judge(|outcome| require_kept(rig, &plan, &knobs, outcome))
}

fn polled_by_threads(rig: &Rig, plan: &Plan<Datagrams>) -> Result<Outcome> {
    interrupts::poll_in_threads("eth0", true)?;
    let threads = interrupts::polling_threads("eth0")?;
    let move_threads = |cpu| threads.iter().try_for_each(|&id| cpu::pin_thread(id, cpu));
    move_threads(cpu::NIC)?;
    Datagrams::measure(plan, |live| {
        (0..rig.scale.rounds(SPLIT_ROUNDS)).try_for_each(|_| {
            [ELSEWHERE, cpu::NIC].into_iter().try_for_each(|cpu| {
                move_threads(cpu)?;
                live.wait_for("a thread polls elsewhere", LIMIT, || {
                    flows::any(&[("state", "split"), ("cpu", &cpu.to_string())])
                })
            })
        })
    })
}

fn moved(rig: &Rig, mode: Mode) -> Result<Outcome> {
    let mut plan = plan::<Datagrams>(rig);
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * SHARE);
    rig.prepare_pinned(&plan, &knobs(mode.name(), STAGES.len()))?;
    let outcome = Datagrams::measure(&plan, |live| {
        live.wait_staged()?;
        // One of them is that of the first stage.
        for &stage in &cpu::LANES[..STAGES.len()] {
            let hog = Hog::start(stage, HOLD)?;
            let moved = (0..rig.scale.rounds(ROUNDS)).try_for_each(|_| {
                move_to(live, ELSEWHERE)?;
                move_to(live, cpu::NIC)
            });
            hog.stop()?;
            moved.with_context(|| format!("while CPU {stage} is held"))?;
        }
        Ok(())
    });
    // Also after a failure.
    topology::pin_server_nic()?;
    outcome?.judge(|outcome| {
        // A guest's CPU may be away for longer than it is held, and a ring that is full drops.
        let dropped = outcome.counter("dropped_stage_full")?;
        ensure!(
            outcome.lost == dropped && dropped < outcome.sent / 2,
            "{} datagrams are lost, and full rings have dropped {dropped}",
            outcome.lost
        );
        Datagrams::require_order(outcome)?;
        rig.settle()
    })
}

/// Moves the interrupts, and waits until some have come.
fn move_to(live: &impl Live, cpu: usize) -> Result<()> {
    let come = || interrupts::come_to("eth0", cpu);
    let before = come()?;
    topology::move_server_nic(cpu)?;
    live.wait_for("interrupts come elsewhere", LIMIT, || {
        Ok(come()? >= before + MOVED_INTERRUPTS)
    })
}
