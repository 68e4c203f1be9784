// SPDX-License-Identifier: GPL-2.0

//! The load controller: which lanes a flow has when it needs few, and when a task takes a lane's CPU.
//!
//! An emulated CPU's times are partly its host's, so cases judge by what lanes have carried, and wait long for it. What can pass
//! by chance is never asked: without a controller, all lanes have packets whenever the flow has some batches.

use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cases::{Case, Run};
use crate::flows;
use crate::machine::{command, cpu, threads};
use crate::mflow::{self, Knobs, Stats};
use crate::network::topology;
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::{LiveStreams, Streams};
use crate::traffic::{Live, Load, Plan};

/// Several samples, and many batches.
const WINDOW: Duration = Duration::from_millis(400);
/// Hundreds of samples: an emulated CPU may be away for dozens of them.
const LIMIT: Duration = Duration::from_secs(30);
/// After a task has gone, until its CPU counts as free.
const FREE: Duration = Duration::from_secs(2);
/// The part of the usual rate that is sent: one lane is enough for it.
const SHARE: f64 = 0.25;
/// A rate at which each poll brings one packet.
const SINGLE_PPS: u32 = 400;
/// The bits of a stream that a frame carries, roughly.
const SEGMENT_BITS: u64 = 8 * 1_400;
/// A speed in bits per second that no guest reaches.
const TOP_SPEED_BITS: u64 = 20_000_000_000;
const ROUNDS: usize = 6;
const PAUSE: Duration = Duration::from_millis(300);

pub(crate) fn datagrams() -> Vec<Case> {
    vec![
        Case::of_module(
            "load/busy-cpu",
            "a flow leaves the lane whose CPU a task takes, and comes back when it needs that lane: no loss, no reordering",
            Run::Plain,
            busy_cpu,
        ),
        Case::of_module(
            "load/all-busy",
            "while tasks take all lanes a flow is whole, seen in few polls, and told as before; then it is split again: no loss, no \
             reordering",
            Run::Always,
            all_busy,
        ),
        Case::of_module(
            "load/few-lanes",
            "a flow that needs one lane does not keep four, and has them again without the controller: no loss, no reordering",
            Run::Plain,
            few_lanes,
        ),
        Case::of_module(
            "load/single",
            "a flow whose packets come one at a time hardly wakes a lane while the controller is on: no loss, no reordering",
            Run::Plain,
            single_packets,
        ),
        switched::<Datagrams>(),
    ]
}

pub(crate) fn streams() -> Vec<Case> {
    vec![
        switched::<Streams>(),
        Case::of_module(
            "tcp/load/gro",
            "a stream that leaves lanes time has batches as small as GRO is worth its while with, and smaller ones when GRO is off: \
             TCP does not notice",
            Run::Plain,
            batches_for_gro,
        ),
    ]
}

fn knobs(lanes: usize) -> Knobs {
    Knobs {
        load_threshold_pct: 85,
        // Many batches in a short time.
        ..Knobs::of(lanes, 16)
    }
}

fn slow(rig: &Rig) -> Plan<Datagrams> {
    let mut plan = rig.datagrams();
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * SHARE);
    plan
}

fn busy_cpu(rig: &Rig) -> Result<Outcome> {
    let lanes = &cpu::LANES[..2];
    rig.unnoticed(&slow(rig), &knobs(lanes.len()), |live| {
        // The flow may have left the first one anyway. From then on each task has it go to where the one before was.
        for &busy in [lanes[0], lanes[1], lanes[0]].iter() {
            threads::beside(
                |stop| cpu::spin(busy, stop),
                || {
                    live.wait_for("the flow is on the other lane alone", LIMIT, || {
                        let used = used_lanes(lanes)?;
                        Ok(!used.is_empty() && !used.contains(&busy))
                    })
                },
            )?;
            live.flow_for(FREE)?;
        }
        Ok(())
    })
}

fn all_busy(rig: &Rig) -> Result<Outcome> {
    let lanes = &cpu::LANES[..2];
    rig.unnoticed(&slow(rig), &knobs(lanes.len()), |live| {
        threads::beside(
            |stop| cpu::spin_all(lanes, stop),
            || {
                let flow = [("state", "whole"), ("reason", "cpus_busy")];
                live.wait_for("it is told that all CPUs are busy", LIMIT, || {
                    flows::any(&flow)
                })?;
                live.wait_for("the flow's rate is told", LIMIT, || {
                    let (before, start) = (live.arrivals(), Instant::now());
                    thread::sleep(WINDOW);
                    let arrived = (live.arrivals() - before) as f64;
                    let rate = arrived / start.elapsed().as_secs_f64();
                    let told = flows::read()?.into_iter().find(|told| told.has(&flow));
                    let pps = told.and_then(|told| told.number::<f64>("pps"));
                    Ok(pps.is_some_and(|pps| pps >= rate / 2.0 && pps <= rate * 2.0))
                })
            },
        )?;
        live.wait_for("the flow is split again", LIMIT, || {
            Ok(!used_lanes(lanes)?.is_empty())
        })
    })
}

fn few_lanes(rig: &Rig) -> Result<Outcome> {
    let lanes = &cpu::LANES;
    rig.unnoticed(&slow(rig), &knobs(lanes.len()), |live| {
        live.wait_for("the flow has left half of the lanes", LIMIT, || {
            let used = used_lanes(lanes)?;
            Ok(!used.is_empty() && used.len() <= lanes.len() / 2)
        })?;
        mflow::write("load_threshold_pct", "0")?;
        live.wait_for("the flow has all lanes again", LIMIT, || {
            Ok(used_lanes(lanes)?.len() == lanes.len())
        })
    })
}

fn single_packets(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        // Polls of an emulated NIC bring one packet each at some hundreds of packets a second.
        min_flow_pps: SINGLE_PPS / 4,
        ..knobs(2)
    };
    let mut plan = rig.datagrams();
    plan.load.frames_per_s = Some(f64::from(SINGLE_PPS));
    // Half of what is sent in a window. CAST: positive.
    let enough_pkts = (f64::from(SINGLE_PPS) * WINDOW.as_secs_f64() / 2.0) as u64;
    let nearly_all = |by: &str, not_by: &str| -> Result<bool> {
        let carried = || -> Result<_> {
            let stats = Stats::read()?;
            Ok((stats.get(by)?, stats.get(not_by)?))
        };
        let before = carried()?;
        thread::sleep(WINDOW);
        let now = carried()?;
        let (pkts, other_pkts) = (now.0 - before.0, now.1 - before.1);
        // A CPU that was away finds several packets in one poll.
        Ok(pkts >= enough_pkts && other_pkts * 10 < pkts)
    };
    let (by_nic, by_lanes) = ("inline_pkts", "lane_pkts");
    rig.unnoticed(&plan, &knobs, |live| {
        live.wait_for("the NIC's core carries nearly all", LIMIT, || {
            nearly_all(by_nic, by_lanes)
        })?;
        mflow::write("load_threshold_pct", "0")?;
        live.wait_for("without the controller lanes do", LIMIT, || {
            nearly_all(by_lanes, by_nic)
        })
    })
}

fn batches_for_gro(rig: &Rig) -> Result<Outcome> {
    // Lanes and the core that dispatches have time at this rate, so what GRO wants decides. CAST: positive.
    let rate_bits = (rig.frames_per_s() * SHARE) as u64 * SEGMENT_BITS;
    let pace = |bits_per_s: u64| {
        let words = format!("qdisc replace dev eth1 root handle 1: fq maxrate {bits_per_s}bit");
        topology::client_tc(&words)
    };
    let wait = |live: &LiveStreams, what: &str, sizes: RangeInclusive<u32>| {
        live.wait_for(what, LIMIT, || {
            let told = flows::read()?.into_iter();
            let split = told.filter(|flow| flow.has(&[("state", "split")]));
            let mut size = split.filter_map(|flow| flow.number("batch_pkts"));
            Ok(size.any(|size| sizes.contains(&size)))
        })
    };
    let knobs = Knobs {
        load_threshold_pct: 85,
        ..Knobs::of(cpu::LANES.len(), 256)
    };
    let plan = rig.streams();
    rig.prepare(&plan, &knobs)?;
    // Before there is anything to send: a discipline that goes drops what it has.
    pace(rate_bits)?;
    let measured = Streams::measure(&plan, |live| {
        wait(live, "batches are as small as GRO may have them", 32..=32)?;
        command::run("ethtool -K eth0 gro off")?;
        wait(
            live,
            "batches are smaller when there is nothing to join",
            1..=16,
        )?;
        // What is left is sent at full speed.
        pace(TOP_SPEED_BITS)
    });
    // Also after a failure: it would drop what a sender of datagrams has sent in a burst.
    let gone = topology::client_tc("qdisc del dev eth1 root");
    // The NIC stays for the cases that follow.
    command::run("ethtool -K eth0 gro on")?;
    let outcome = measured?;
    gone?;
    outcome.judge(|outcome| rig.require_unnoticed::<Streams>(outcome))
}

/// Returns a case that switches the controller on and off, also with a threshold that any load reaches.
fn switched<L: Load>() -> Case {
    Case::of_module(
        format!("{}load/switched", L::GROUP),
        format!(
            "the load controller comes and goes, with any threshold{}",
            L::UNNOTICED
        ),
        Run::Always,
        |rig| {
            let knobs = knobs(cpu::LANES.len());
            rig.unnoticed(&rig.plan::<L>(), &knobs, |live| {
                for pct in ["85", "0", "1", "100", "0"]
                    .into_iter()
                    .cycle()
                    .take(5 * rig.scale.rounds(ROUNDS).div_ceil(3))
                {
                    mflow::write("load_threshold_pct", pct)?;
                    live.flow_for(PAUSE)?;
                }
                live.wait_for("the flow is split again", LIMIT, || {
                    Ok(!used_lanes(&cpu::LANES)?.is_empty())
                })
            })
        },
    )
}

/// Returns which of these lanes carry packets now.
fn used_lanes(lanes: &[usize]) -> Result<Vec<usize>> {
    let carried = |stats: &Stats| -> Result<Vec<u64>> {
        let pkts = |lane| stats.get(&format!("lane_cpu{lane}_pkts"));
        lanes.iter().map(pkts).collect()
    };
    let before = carried(&Stats::read()?)?;
    thread::sleep(WINDOW);
    let now = carried(&Stats::read()?)?;
    let grown = lanes.iter().zip(before.iter().zip(&now));
    Ok(grown
        .filter(|(_, (before, now))| now > before)
        .map(|(&lane, _)| lane)
        .collect())
}
