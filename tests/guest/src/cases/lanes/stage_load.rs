// SPDX-License-Identifier: GPL-2.0

//! Stages follow loads, in the modes of FALCON: which CPUs a flow's stages have, whether there are stages at all, and where GRO
//! is. What busy CPUs change is seen in what each CPU has carried, and nothing is lost or out of order meanwhile.
//!
//! As for the load controller of `mflow` (`load.rs`): an emulated CPU's times are partly its host's, so cases wait long.

use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::network::SERVER_HOST;

use crate::cases::{Case, Run};
use crate::machine::{cpu, threads};
use crate::mflow::{self, Knobs, Mode, Stats};
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Live, Load, Plan};

const DEV: &str = Mode::FalconDev.name();
const FUNC: &str = Mode::FalconFunc.name();
/// Hundreds of samples: an emulated CPU may be away for dozens of them.
const LIMIT: Duration = Duration::from_secs(40);
/// Several samples.
const PAUSE: Duration = Duration::from_millis(250);
/// A time in which thousands of packets come.
const WINDOW: Duration = Duration::from_millis(400);
/// The part of the usual rate that is sent, so that a CPU without a task is not loaded.
const SHARE: f64 = 0.2;
const PORT: u16 = 5201;
/// This many packets may come that belong to no flow.
const STRAYS: u64 = 100;

pub(crate) fn datagrams() -> Vec<Case> {
    vec![
        Case::of_module(
            "mode/load/busy-cpu",
            "a flow's stages leave a CPU that a task takes, and come back behind it: no loss, no reordering",
            Run::Plain,
            busy_cpu,
        ),
        Case::of_module(
            "mode/load/all-busy",
            "while tasks take all CPUs a flow takes the ordinary path, and then its stages again: no loss, no reordering",
            Run::Plain,
            all_busy,
        ),
        Case::of_module(
            "mode/load/gro",
            "GRO leaves the NIC's core when a task takes that, and comes back: no loss, no reordering",
            Run::Plain,
            gro,
        ),
        Case::of_module(
            "mode/native",
            "GRO leaves and comes back for a flow without an overlay, too: no loss, no reordering",
            Run::Plain,
            native,
        ),
        switched::<Datagrams>(),
    ]
}

pub(crate) fn streams() -> Vec<Case> {
    vec![switched::<Streams>()]
}

fn knobs(mode: &'static str, lanes: usize) -> Knobs {
    Knobs {
        mode,
        lanes,
        build: "auto",
        load_threshold_pct: 85,
        ..Knobs::default()
    }
}

fn slow(rig: &Rig) -> Plan<Datagrams> {
    let mut plan = Plan {
        split: false,
        ..rig.datagrams()
    };
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * SHARE);
    // They flow as long as something is waited for.
    plan.load.count /= 10;
    plan
}

fn stat(name: &str) -> Result<u64> {
    Stats::read()?.get(name)
}

/// Waits until packets go through stages.
fn wait_staged(live: &impl Live) -> Result<()> {
    let before = stat("stage_nic_pkts")?;
    live.wait_for("packets go through stages", LIMIT, || {
        Ok(stat("stage_nic_pkts")? > before)
    })
}

/// Returns which of these CPUs have a stage of the flow now: each carries all of its packets.
fn with_stages(lanes: &[usize]) -> Result<Vec<usize>> {
    let carried = || -> Result<Vec<u64>> {
        let stats = Stats::read()?;
        let pkts = |lane| stats.get(&format!("lane_cpu{lane}_pkts"));
        let lanes = lanes.iter().map(pkts);
        lanes.chain([stats.get("stage_nic_pkts")]).collect()
    };
    let before = carried()?;
    thread::sleep(WINDOW);
    let grown = carried()?.into_iter().zip(before);
    let grown: Vec<u64> = grown.map(|(now, before)| now - before).collect();
    let (staged, by_lane) = grown.split_last().context("the last one is there")?;
    let with_stages = lanes.iter().zip(by_lane);
    Ok(with_stages
        .filter(|(_, &pkts)| pkts > 0 && pkts * 2 > *staged)
        .map(|(&lane, _)| lane)
        .collect())
}

fn busy_cpu(rig: &Rig) -> Result<Outcome> {
    let lanes = &cpu::LANES;
    rig.unnoticed(&slow(rig), &knobs(DEV, lanes.len()), |live| {
        wait_staged(live)?;
        let used = with_stages(lanes)?;
        ensure!(!used.is_empty(), "no CPU has a stage");
        let busy = used[0];
        let moved = stat("stages_moved")?;
        threads::beside(
            |stop| cpu::spin(busy, stop),
            || {
                live.wait_for("the stages are on other CPUs", LIMIT, || {
                    let used = with_stages(lanes)?;
                    Ok(!used.is_empty() && !used.contains(&busy))
                })
            },
        )?;
        ensure!(stat("stages_moved")? > moved, "nothing has counted that");
        live.wait_for("the CPU has its stage again", LIMIT, || {
            Ok(with_stages(lanes)?.contains(&busy))
        })
        .with_context(|| {
            format!(
                "CPU {busy} was busy; {}",
                mflow::read("stats").unwrap_or_default()
            )
        })
    })
}

fn all_busy(rig: &Rig) -> Result<Outcome> {
    let lanes = &cpu::LANES[..2];
    rig.unnoticed(&slow(rig), &knobs(DEV, lanes.len()), |live| {
        wait_staged(live)?;
        threads::beside(
            |stop| cpu::spin_all(lanes, stop),
            || {
                live.wait_for("the flow is on the ordinary path", LIMIT, || {
                    let before = (stat("stage_nic_pkts")?, live.arrivals());
                    thread::sleep(WINDOW);
                    Ok(stat("stage_nic_pkts")? == before.0 && live.arrivals() > before.1)
                })
            },
        )?;
        wait_staged(live)
    })
}

/// Makes GRO leave the NIC's core and come back while packets go through stages.
fn move_gro(live: &impl Live) -> Result<()> {
    let is_on_nic = |wanted: u64| move || Ok(stat("gro_on_nic")? == wanted);
    // Where packets are taken before GRO, the driver is asked which core builds them.
    let is_before_gro = || Ok(!mflow::read("builders")?.is_empty());
    live.wait_for("the NIC's core does GRO", LIMIT, is_on_nic(1))?;
    wait_staged(live)?;
    ensure!(!is_before_gro()?, "packets are taken before GRO");
    threads::beside(
        |stop| cpu::spin(cpu::NIC, stop),
        || {
            live.wait_for("another core does GRO", LIMIT, is_on_nic(0))?;
            live.wait_for("packets are taken before GRO", LIMIT, is_before_gro)?;
            wait_staged(live)
        },
    )?;
    live.wait_for("the NIC's core does GRO again", LIMIT, is_on_nic(1))?;
    wait_staged(live)
}

fn gro(rig: &Rig) -> Result<Outcome> {
    let plan = slow(rig);
    rig.prepare_pinned(&plan, &knobs(FUNC, 3))?;
    Datagrams::measure(&plan, |live| move_gro(live))?
        .judge(|outcome| rig.require_unnoticed::<Datagrams>(outcome))
}

fn native(rig: &Rig) -> Result<Outcome> {
    let plan = slow(rig);
    rig.prepare_pinned(&plan, &knobs(FUNC, 3))?;
    let to = (SERVER_HOST, PORT).into();
    let receiver = Receiver::of(vec![receiver::bind(&to)?], 1, plan.load.bytes);
    let outcome = Datagrams::measure_at(&plan, vec![to], receiver, |live| move_gro(live))?;
    outcome.judge(|outcome| {
        rig.require_unnoticed::<Datagrams>(outcome)?;
        for name in ["stage_tunnel_pkts", "stage_veth_pkts"] {
            let count = outcome.counter(name)?;
            ensure!(count <= STRAYS, "{name} grew by {count} without an overlay");
        }
        Ok(())
    })
}

/// Returns a case that has stages follow loads or not, also with a threshold that any load reaches.
fn switched<L: Load>() -> Case {
    Case::of_module(
        format!("{}mode/load/switched", L::GROUP),
        format!(
            "stages follow loads and cease to, with any threshold{}",
            L::UNNOTICED
        ),
        Run::Always,
        |rig| {
            let plan = Plan {
                split: false,
                ..rig.plan::<L>()
            };
            rig.unnoticed(&plan, &knobs(FUNC, 3), |live| {
                for (mode, pct) in [
                    (FUNC, "0"),
                    (FUNC, "85"),
                    (FUNC, "1"),
                    (DEV, "1"),
                    (DEV, "100"),
                    (DEV, "0"),
                    (FUNC, "100"),
                ] {
                    mflow::write("mode", mode)?;
                    mflow::write("load_threshold_pct", pct)?;
                    live.flow_for(PAUSE)?;
                }
                mflow::write("load_threshold_pct", "0")?;
                wait_staged(live)
            })
        },
    )
}
