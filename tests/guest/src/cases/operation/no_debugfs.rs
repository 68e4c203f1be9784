// SPDX-License-Identifier: GPL-2.0

//! A kernel that was booted with `debugfs=off`: the module has no files there, so knobs are parameters, and netlink's. The kernel's own
//! counters and its log say what the module does.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::guest::NO_DEBUGFS;

use crate::cases::operation::command::{ends, DONE};
use crate::cases::{Case, Run};
use crate::machine::{command, cpu};
use crate::mflow::{self, Knobs};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Load as _};

const KERNEL_LOG: &str = "/dev/kmsg";
/// The kernel gives out one message at a time, which is not longer.
const MESSAGE_BYTES: usize = 8192;
/// The module's sentence.
const SAYS: &str = "started without debugfs, so knobs are module parameters, and netlink's";
/// The CPUs of lanes receive more than one packet for this many datagrams if the flow is split, and less if it is not. Of datagrams
/// that a lane has joined, one is counted.
const FEW: u64 = 10;
/// The time for which datagrams come at least: more than a flow needs to be split.
const LEAST_TIME: Duration = Duration::from_secs(1);

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "debugfs/off",
        "on a kernel with debugfs=off the module is loaded, says in one sentence that knobs are parameters and netlink's, splits a flow as they \
         say, and is unloaded: no loss, no reordering; the command reads and sets a knob",
        Run::Plain,
        off,
    )]
}

fn off(rig: &Rig) -> Result<Outcome> {
    ensure!(
        command::was_booted_with(NO_DEBUGFS)?,
        "the guest was not booted with {NO_DEBUGFS}"
    );
    let knobs = Knobs::default();
    let mut plan = rig.datagrams();
    // No counter of the module's tells.
    plan.split = false;

    let measured = |enabled: &str| -> Result<(Outcome, u64)> {
        mflow::unload()?;
        let before = sentences()?;
        mflow::modprobe(&knobs, enabled)?;
        let said = sentences()? - before;
        ensure!(said == 1, "the module says {said} times: {SAYS}");
        ensure!(
            !Path::new(mflow::DEBUGFS).exists(),
            "there is {}",
            mflow::DEBUGFS
        );
        let outcome = Datagrams::measure(&plan, |live| live.flow_for(LEAST_TIME))?;
        let by_lanes = knobs
            .carrying()
            .iter()
            .map(|cpu| outcome.softnet_pkts.get(cpu));
        let by_lanes = by_lanes.flatten().sum();
        Ok((outcome, by_lanes))
    };
    let (whole, by_others) = measured("0")?;
    whole.require_whole()?;
    ensure!(
        by_others < whole.sent / FEW,
        "with enabled=0 the CPUs of lanes receive {by_others} packets of {}",
        whole.sent
    );
    let (outcome, by_lanes) = measured("1")?;
    outcome.judge(|outcome| {
        outcome.require_whole()?;
        outcome.require_order()?;
        ensure!(
            by_lanes > outcome.sent / FEW,
            "CPUs {} receive {by_lanes} packets of {}: the flow is not split",
            cpu::lane_list(knobs.lanes),
            outcome.sent
        );
        ends(DONE, "set batch_pkts 64")?;
        let found = ends(DONE, "get batch_pkts")?;
        ensure!(found == "64\n", "mflow get batch_pkts says {found:?}");
        mflow::unload()
    })
}

/// Returns how many times the kernel's log has the module's sentence.
fn sentences() -> Result<usize> {
    let mut log = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(KERNEL_LOG)
        .context(KERNEL_LOG)?;
    let mut message = [0; MESSAGE_BYTES];
    let mut found = 0;
    loop {
        match log.read(&mut message) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&message[..bytes]);
                found += usize::from(text.contains(SAYS));
            }
            // What has been overwritten meanwhile is skipped.
            Err(error) if error.raw_os_error() == Some(nix::libc::EPIPE) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(found),
            Err(error) => return Err(error).context(KERNEL_LOG),
        }
    }
}
