// SPDX-License-Identifier: GPL-2.0

//! After all other cases: memory that nothing points to any more, found by the kernel's own leak detector.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use super::{Case, Run};
use crate::mflow;

const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";
/// Younger objects may still be on their way to where a pointer to them is kept.
const LEAST_AGE: Duration = Duration::from_secs(6);

pub(super) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "leaks",
        "after all cases and without the module, the leak detector finds nothing",
        Run::Checking,
        |_| look().map(|()| None),
    )]
}

/// Clears what the detector has found up to now: the module was not loaded yet.
pub(super) fn begin() -> Result<()> {
    if Path::new(KMEMLEAK).exists() {
        command("scan")?;
        command("clear")?;
    }
    Ok(())
}

fn look() -> Result<()> {
    mflow::unload()?;
    thread::sleep(LEAST_AGE);
    // What is found must be found twice: the first scan may have met a list in the middle of a change.
    command("scan")?;
    command("scan")?;
    let found = fs::read_to_string(KMEMLEAK).context(KMEMLEAK)?;
    ensure!(found.trim().is_empty(), "leaked memory:\n{found}");
    Ok(())
}

fn command(word: &str) -> Result<()> {
    fs::write(KMEMLEAK, word).with_context(|| format!("cannot write {word} to {KMEMLEAK}"))
}
