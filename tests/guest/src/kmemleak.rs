// SPDX-License-Identifier: GPL-2.0

//! The kernel's own leak detector: memory that nothing points to any more. Only the checking kernel has it, if it was booted so.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::guest::LEAK_DETECTOR;

use crate::machine::command;
use crate::mflow;

const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";
/// Younger objects may still be on their way to where a pointer to them is kept.
const LEAST_AGE: Duration = Duration::from_secs(6);

pub(crate) fn is_on() -> Result<bool> {
    command::was_booted_with(LEAK_DETECTOR)
}

/// Clears what the detector has found up to now: the module was not loaded yet.
pub(crate) fn begin() -> Result<()> {
    if is_on()? {
        // The kernel would scan by itself a minute after the boot, and say what has not been cleared by then.
        tell("scan=off")?;
        tell("scan")?;
        tell("clear")?;
    }
    Ok(())
}

/// Unloads the module, and fails if anything has leaked since [`begin`].
pub(crate) fn look() -> Result<()> {
    ensure!(
        is_on()?,
        "the leak detector is off; boot the checking kernel with {LEAK_DETECTOR}"
    );
    mflow::unload()?;
    thread::sleep(LEAST_AGE);
    // What is found must be found twice: the first scan may have met a list in the middle of a change.
    tell("scan")?;
    tell("scan")?;
    let found = fs::read_to_string(KMEMLEAK).context(KMEMLEAK)?;
    ensure!(found.trim().is_empty(), "leaked memory:\n{found}");
    Ok(())
}

fn tell(word: &str) -> Result<()> {
    fs::write(KMEMLEAK, word).with_context(|| format!("cannot write {word} to {KMEMLEAK}"))
}
