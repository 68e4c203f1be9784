// SPDX-License-Identifier: GPL-2.0

//! The stacks that are compared: each is one small description, set up here.

use std::fs;

use anyhow::{Context as _, Result};
use mflow_protocol::bench::Stack;

use crate::command;
use crate::cpu;
use crate::mflow::{self, Knobs};

/// Sets a stack up; its packets come in on `device`.
pub(super) fn prepare(stack: &Stack, device: &'static str) -> Result<()> {
    match *stack {
        Stack::Native | Stack::Vanilla => Ok(()),
        Stack::Rps { cpus } => {
            let mask: u64 = cpu::LANES[..cpus].iter().map(|cpu| 1 << cpu).sum();
            let path = "/sys/class/net/vxlan0/queues/rx-0/rps_cpus";
            fs::write(path, format!("{mask:x}")).context(path)
        }
        Stack::Idle => {
            mflow::load(&Knobs {
                device,
                ..Knobs::default()
            })?;
            mflow::write("enabled", "0")
        }
        Stack::Mflow { lanes, batch_pkts } => mflow::load(&Knobs {
            device,
            lanes,
            batch_pkts,
            ..Knobs::default()
        }),
    }
}

/// Waits until all flows are split, if the stack splits any; `before` of [`mflow::flows_split`].
pub(super) fn wait_split(stack: &Stack, flows: u64, before: u64) -> Result<()> {
    match stack {
        Stack::Mflow { .. } => command::wait_until("all flows are split", || {
            Ok(mflow::flows_split()? >= before + flows)
        }),
        _ => Ok(()),
    }
}
