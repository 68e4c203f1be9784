// SPDX-License-Identifier: GPL-2.0

//! A kernel that was booted with `debugfs=off`: the module has no files there, and all knobs are parameters. The kernel's own
//! counters and its log say what the module does.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::guest::NO_DEBUGFS;

use crate::cases::{Case, Run};
use crate::machine::{command, cpu};
use crate::mflow::{self, Knobs};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::scale::MOST_JOINED_PKTS;
use crate::traffic::{Live as _, Load as _};

const KERNEL_LOG: &str = "/dev/kmsg";
/// The kernel gives out one message at a time, which is not longer.
const MESSAGE_BYTES: usize = 8192;
/// The module's sentence.
const SAYS: &str = "started without debugfs, so all knobs are module parameters";
/// With `enabled` 0 the CPUs of lanes receive less than one packet for this many datagrams.
const FEW: u64 = 10;
/// The time for which datagrams come at least: more than a flow needs to be split.
const LEAST_TIME: Duration = Duration::from_secs(1);

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "debugfs/off",
        "on a kernel with debugfs=off the module is loaded, says in one sentence that knobs are parameters, splits a flow as they say, \
         and is unloaded: no loss, no reordering",
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

    let measured = |enabled: &str| {
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
        Datagrams::measure(&plan, |live| live.flow_for(LEAST_TIME))
    };
    let whole = measured("0")?.judge(|outcome| {
        outcome.require_whole()?;
        ensure!(
            received(outcome, knobs.carrying()) < outcome.sent / FEW,
            "CPUs of lanes receive packets with enabled=0: {:?}",
            outcome.softnet_pkts
        );
        Ok(())
    })?;
    measured("1")?.judge(|outcome| {
        outcome.require_whole()?;
        outcome.require_order()?;
        // Of datagrams that a lane has joined, one is counted.
        let least = outcome.sent / MOST_JOINED_PKTS / 4;
        for &cpu in knobs.carrying() {
            ensure!(
                received(outcome, &[cpu]) > least,
                "the flow is not split: {:?}",
                outcome.softnet_pkts
            );
        }
        let by_nic = |outcome: &Outcome| received(outcome, &[cpu::NIC]) / (outcome.sent / FEW);
        ensure!(
            by_nic(outcome) < by_nic(&whole) / 2,
            "for {FEW} datagrams the NIC's CPU receives {} packets, and with enabled=0 {}",
            by_nic(outcome),
            by_nic(&whole)
        );
        mflow::unload()
    })
}

/// Returns how many packets these CPUs have received.
fn received(outcome: &Outcome, cpus: &[usize]) -> u64 {
    let pkts = cpus.iter().map(|cpu| outcome.softnet_pkts.get(cpu));
    pkts.flatten().sum()
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
