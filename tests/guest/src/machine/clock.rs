// SPDX-License-Identifier: GPL-2.0

//! The clock of the day, which cases set.

use anyhow::{Context as _, Result};
use nix::sys::time::TimeSpec;
use nix::time::{clock_gettime, clock_settime, ClockId};

/// Sets the clock on, or back, by so much.
pub(crate) fn move_by(by: TimeSpec) -> Result<()> {
    let clock = ClockId::CLOCK_REALTIME;
    clock_settime(clock, clock_gettime(clock)? + by).context("cannot set the clock")
}
