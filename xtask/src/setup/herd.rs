// SPDX-License-Identifier: GPL-2.0

//! herd7, which tells what a memory model allows: the installed one, or one from a newer suite of this machine's own mirror, in the
//! cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context as _, Result};

use super::archive::Archive;
use super::failures::Failure;
use super::qemu;
use crate::paths;
use crate::tools;

const PROGRAM: &str = "herd7";
/// The package that has it.
pub(crate) const PACKAGE: &str = "herdtools7";
/// The oldest one that reads the kernel's model (`tools/memory-model/README`).
const LEAST: &str = "7.52";
/// The suite of the distribution that has it.
const SUITE: &str = "forky";

/// The parts of the packages that are kept. Other tools are ten times as large.
const KEPT: &[&str] = &["usr/bin/herd7", MODELS, qemu::LIBRARIES];
/// The folder of herd's own models, which are parts of others.
const MODELS: &str = "usr/share/herdtools7/herd";

/// Returns the command that starts it, if there is one that will do.
pub(crate) fn command() -> Option<Command> {
    let installed = tools::command(PROGRAM);
    if tools::find(PROGRAM).is_some() && version(installed).is_ok_and(|version| suits(&version)) {
        return Some(tools::command(PROGRAM));
    }
    let root = root();
    root.exists().then(|| unpacked(&root))
}

/// Returns the version and the place of the one that [`command`] starts.
pub(crate) fn found() -> Option<String> {
    let command = command()?;
    let place = match root() {
        root if command.get_program().as_encoded_bytes() != PROGRAM.as_bytes() => {
            format!("in {}", root.display())
        }
        _ => "installed".to_owned(),
    };
    Some(format!("{}, {place}", version(command).ok()?))
}

/// Fetches one if there is none that will do; returns why there still is none.
pub(crate) fn obtain() -> Result<Option<String>> {
    if command().is_some() {
        return Ok(None);
    }
    let _lock = qemu::lock()?;
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

/// Makes the next attempt to fetch one real, even after a failure.
pub(crate) fn forget_failure() {
    failure().forget();
}

fn root() -> PathBuf {
    paths::cache().join("herd/root")
}

fn failure() -> Failure {
    Failure(paths::cache().join("herd/failed"))
}

fn suits(version: &str) -> bool {
    tools::at_least(version, LEAST)
}

/// Returns the version of the herd7 that this starts.
fn version(mut command: Command) -> Result<String> {
    let text = tools::output(command.arg("-version"))?;
    tools::first_version(&text)
        .with_context(|| format!("{PROGRAM} does not tell its version: {text}"))
}

/// Fetches it with everything down to the C library; the caller holds the lock.
fn fetch() -> Result<()> {
    let dir = paths::cache_dir("herd")?;
    let work = tempfile::tempdir_in(&dir)?;
    let archive = Archive::of_suite(SUITE)?;
    archive.update()?;
    let (all, kept) = (work.path().join("all"), work.path().join("kept"));
    archive.unpack_whole(&[PACKAGE.to_owned()], &all)?;
    for part in KEPT {
        let place = kept.join(part);
        fs::create_dir_all(place.parent().unwrap_or(&kept))?;
        let why = || format!("{PACKAGE} of {SUITE} has no {part}");
        fs::rename(all.join(part), place).with_context(why)?;
    }
    let version = version(unpacked(&kept))?;
    ensure!(
        suits(&version),
        "{SUITE} has herd7 {version}, which is older than {LEAST}"
    );
    fs::rename(&kept, root())?;
    Ok(())
}

/// Returns the command that starts an unpacked one: with its own loader, libraries and models, none of the system's.
fn unpacked(root: &Path) -> Command {
    let libraries = root.join(qemu::LIBRARIES);
    let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
    command
        .arg("--library-path")
        .arg(&libraries)
        .arg(root.join("usr/bin").join(PROGRAM))
        .arg("-set-libdir")
        .arg(root.join(MODELS));
    command
}
