// SPDX-License-Identifier: GPL-2.0

//! A kernel that is locked down, as secure boot has it: the files of knobs in debugfs can't be opened any more, and netlink has all of
//! them. Nothing unlocks a kernel, so the guest is of no use for other cases then.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::errno::Errno;
use nix::mount::{mount, MsFlags};
use serde_json::{json, Value};

use crate::cases::operation::command::{ask, ends, refuses, DONE};
use crate::cases::operation::netlink::{open, read};
use crate::cases::operation::reasons::FlowLive as _;
use crate::cases::{Case, Run};
use crate::flows::Flow;
use crate::mflow::{self, Knobs};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;

const SECURITY: &str = "/sys/kernel/security";
const LEVEL: &str = "confidentiality";
/// The time for which events are listened to.
const TRACED_S: u64 = 4;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "lockdown/knobs",
        "in a kernel that is locked down, netlink and the command read and set all knobs while a flow is split, and refuse with the module's sentence; a trace tells of flows by netlink: no loss, no reordering",
        Run::Plain,
        knobs,
    )]
}

/// Locks the kernel down.
fn lock_down() -> Result<()> {
    let file = Path::new(SECURITY).join("lockdown");
    if !file.exists() {
        let kind = Some("securityfs");
        mount(kind, SECURITY, kind, MsFlags::empty(), None::<&str>).context("securityfs")?;
    }
    fs::write(&file, LEVEL).with_context(|| format!("cannot write {LEVEL} to {}", file.display()))
}

/// Checks that a trace says that nothing tells of batches, and tells of a flow that stops being split.
fn trace(from: &str) -> Result<()> {
    let trace = Command::new("mflow")
        .args(["--json", "trace", "--seconds", &TRACED_S.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run mflow")?;
    // There is nothing that shows when it listens.
    thread::sleep(Duration::from_secs(TRACED_S / 2));
    ends(DONE, "set enabled 0")?;
    ends(DONE, "set enabled 1")?;
    let output = trace.wait_with_output()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(
        output.status.success() && said.contains("locked down") && said.lines().count() == 1,
        "mflow trace has ended with {} and said: {said}",
        output.status
    );
    let printed = String::from_utf8(output.stdout)?;
    let mut lines = printed.lines().map(serde_json::from_str::<Value>);
    let is_stop = |event: Value| event["event"] == "flow_stop" && event["flow"]["from"] == from;
    ensure!(
        lines.any(|event| event.is_ok_and(is_stop)),
        "no stop of {from} is told: {printed}"
    );
    Ok(())
}

fn knobs(rig: &Rig) -> Result<Outcome> {
    rig.unnoticed(&rig.datagrams(), &Knobs::default(), |live| {
        let is_split = |flow: &Flow| flow.text("state") == "split";
        let flow = live.wait_for_flow("the flow is split", is_split)?;
        lock_down()?;
        // First of all, as the flow has to be split still.
        trace(flow.text("from"))?;
        let refused = fs::read_to_string(mflow::path("batch_pkts")).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(0);
            Errno::from_raw(errno)
        });
        ensure!(
            refused == Err(Errno::EPERM),
            "debugfs of a kernel that is locked down reads {refused:?}"
        );
        ends(DONE, "set batch_pkts 64")?;
        let found = read(&open()?, "batch_pkts")?;
        ensure!(found == "64\n", "batch_pkts is {found:?}");
        let found = ends(DONE, "get batch_pkts")?;
        ensure!(found == "64\n", "mflow get batch_pkts says {found:?}");
        refuses(
            "set batch_pkts 32 merge_timeout_us 5",
            "merge_timeout_us: allowed 10 to 1000000 microseconds; nothing was changed",
        )?;
        let status = ask("status")?;
        for (place, expected) in [
            ("/note", json!(null)),
            ("/enabled", json!(true)),
            ("/flows/split", json!(1)),
        ] {
            let found = status.pointer(place);
            ensure!(
                found == Some(&expected),
                "{place} of mflow status is {found:?}, not {expected}: {status}"
            );
        }
        Ok(())
    })
}
