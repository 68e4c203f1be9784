// SPDX-License-Identifier: GPL-2.0

//! promtool, which checks queries and rules of Prometheus: the installed one, or that of this machine's own archive, in the cache.
//! Its package is not installed: that would start a server on this machine.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::archive::Archive;
use super::failures::Failure;
use crate::paths;
use crate::tools;

const PROGRAM: &str = "promtool";
/// The package that has it. It needs the C library alone.
pub(crate) const PACKAGE: &str = "prometheus";

/// Returns the command that starts it, if there is one.
pub(crate) fn command() -> Option<Command> {
    tools::find(PROGRAM)?;
    Some(tools::command(PROGRAM))
}

/// Fetches it if there is none; returns why there still is none.
pub(crate) fn obtain() -> Result<Option<String>> {
    if command().is_some() {
        return Ok(None);
    }
    let dir = paths::cache_dir(PROGRAM)?;
    let _lock = tools::lock(&dir, "download of promtool")?;
    // Another process may have fetched it while we waited.
    if command().is_some() {
        return Ok(None);
    }
    if let Some(why) = failure().lately() {
        return Ok(Some(why));
    }
    let Err(error) = fetch() else {
        return Ok(None);
    };
    failure().note(&error).map(Some)
}

/// Makes the next attempt to fetch it real, even after a failure.
pub(crate) fn forget_failure() {
    failure().forget();
}

fn failure() -> Failure {
    Failure(paths::cache().join(PROGRAM).join("failed"))
}

/// Puts it among our own tools; the caller holds the lock.
fn fetch() -> Result<()> {
    let work = tempfile::tempdir_in(paths::cache_dir(PROGRAM)?)?;
    let archive = Archive::default();
    let packages = [PACKAGE.to_owned()];
    archive.unpack(&packages, work.path()).or_else(|_| {
        // There are no lists, or old ones name a package file that is no longer on the mirror.
        archive.update()?;
        archive.unpack(&packages, work.path())
    })?;
    let bin = paths::cache_dir("tools/bin")?;
    let program = work.path().join("usr/bin").join(PROGRAM);
    let why = || format!("{PACKAGE} has no {PROGRAM}");
    fs::rename(program, bin.join(PROGRAM)).with_context(why)
}
