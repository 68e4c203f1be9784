// SPDX-License-Identifier: GPL-2.0

//! The stacks that are compared: each is one small description, set up here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use mflow_protocol::bench::{Build, Falcon, Layout, Scaling, Stack, LOAD_THRESHOLD_PCT};

use crate::bench::tuned;
use crate::flows;
use crate::machine::{command, cpu, threads};
use crate::mflow::{self, Knobs, Mode, FASTER_THAN_ANY_PPS};

/// A controller that has looked so long at busy CPUs splits nothing.
const SAMPLED: Duration = Duration::from_secs(2);

/// Attaches a stack's programs to the device by which its packets come in, before its interrupts are where they stay.
pub(super) fn attach(stack: &Stack, device: &'static str) -> Result<()> {
    match *stack {
        Stack::Tuned(tuning) => tuned::attach(tuning, device),
        _ => Ok(()),
    }
}

/// Sets a stack up; its packets come in on `device`.
pub(super) fn prepare(stack: &Stack, device: &'static str) -> Result<()> {
    match *stack {
        // What a router is made of depends on what it gets.
        Stack::Native | Stack::Vanilla | Stack::Router(_) => Ok(()),
        Stack::Rps { cpus } => tuned::steer(cpus),
        Stack::Tuned(tuning) => tuned::prepare(tuning, device),
        Stack::Loaded => command::run("modprobe mflow").map(drop),
        Stack::Idle => {
            mflow::load(&Knobs {
                device,
                ..Knobs::default()
            })?;
            mflow::write("enabled", "0")
        }
        Stack::Whole => mflow::load(&Knobs {
            device,
            min_flow_pps: FASTER_THAN_ANY_PPS,
            ..Knobs::default()
        }),
        Stack::Mflow {
            batch_pkts,
            scaling,
            build,
            layout,
            load_threshold_pct,
            ..
        } => mflow::load(&Knobs {
            device,
            lanes: stack.cpus(),
            batch_pkts,
            scaling: match scaling {
                Scaling::Path => "path",
                Scaling::Device => "device",
            },
            build: match build {
                Build::Auto => "auto",
                Build::Nic => "nic",
                Build::Lane => "lane",
            },
            layout: match layout {
                Layout::Lane => "lane",
                Layout::LaneStage => "lane+stage",
            },
            load_threshold_pct,
            ..Knobs::default()
        }),
        Stack::Busy { mflow: false, .. } => Ok(()),
        Stack::Busy { cpus, mflow: true } => {
            mflow::load(&Knobs {
                device,
                lanes: cpus,
                load_threshold_pct: LOAD_THRESHOLD_PCT,
                ..Knobs::default()
            })?;
            // A flow that is split before that stays split, as the NIC's core alone could not do its work.
            thread::sleep(SAMPLED);
            Ok(())
        }
        Stack::Falcon { cpus, mode } => mflow::load(&Knobs {
            device,
            lanes: cpus,
            build: "auto",
            mode: match mode {
                Falcon::Dev => Mode::FalconDev.name(),
                Falcon::Func => Mode::FalconFunc.name(),
            },
            ..Knobs::default()
        }),
        Stack::HostPlus { cpus } => mflow::load(&Knobs {
            device,
            lanes: cpus,
            build: "auto",
            mode: Mode::FalconFunc.name(),
            stages: "nic",
            ..Knobs::default()
        }),
    }
}

/// Takes a stack down, so that nothing of it is measured with the next one.
pub(super) fn remove(stack: &Stack, device: &'static str) -> Result<()> {
    match *stack {
        Stack::Rps { .. } => tuned::steer(0),
        Stack::Tuned(tuning) => tuned::remove(tuning, device),
        _ => mflow::unload(),
    }
}

/// Waits until all flows are split, if the stack splits any; `before` of [`mflow::flows_split`].
pub(super) fn wait_split(stack: &Stack, flows: u64, before: u64) -> Result<()> {
    match stack {
        Stack::Mflow { .. } => mflow::wait_split_since(before, flows),
        Stack::Busy { mflow: true, .. } => {
            command::wait_until("a flow is told to stay whole, as all CPUs are busy", || {
                flows::any(&[("state", "whole"), ("reason", "cpus_busy")])
            })
        }
        Stack::Falcon { .. } | Stack::HostPlus { .. } => {
            command::wait_until("packets go through stages", || {
                Ok(mflow::Stats::read()?.get("stage_nic_pkts")? > 0)
            })
        }
        _ => Ok(()),
    }
}

/// The tasks of a stack whose CPUs have others' work.
pub(super) struct Tasks {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Tasks {
    pub(super) fn start(stack: &Stack) -> Self {
        let cpus = match *stack {
            Stack::Busy { cpus, .. } => cpus,
            _ => 0,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let task = |&cpu: &usize| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || cpu::spin(cpu, &stop))
        };
        let threads = cpu::BENCH_LANES[..cpus].iter().map(task).collect();
        Self { stop, threads }
    }

    pub(super) fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        threads::results(self.threads.into_iter().map(JoinHandle::join)).map(drop)
    }
}
