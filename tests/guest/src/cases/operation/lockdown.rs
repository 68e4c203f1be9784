// SPDX-License-Identifier: GPL-2.0

//! A kernel that is locked down, as secure boot has it: the files of knobs in debugfs can't be opened any more, and netlink has all of
//! them. Nothing unlocks a kernel, so the guest is of no use for other cases then.

use std::fs;
use std::path::Path;

use anyhow::{ensure, Context as _, Result};
use nix::errno::Errno;
use nix::mount::{mount, MsFlags};
use serde_json::json;

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

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "lockdown/knobs",
        "in a kernel that is locked down, netlink and the command read and set all knobs while a flow is split, and refuse with the module's sentence: no loss, no reordering",
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

fn knobs(rig: &Rig) -> Result<Outcome> {
    rig.unnoticed(&rig.datagrams(), &Knobs::default(), |live| {
        let is_split = |flow: &Flow| flow.text("state") == "split";
        live.wait_for_flow("the flow is split", is_split)?;
        lock_down()?;
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
