// SPDX-License-Identifier: GPL-2.0

//! The clock of the day, which cases set, and the one that nobody sets.

use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::time::TimeSpec;
use nix::time::{clock_gettime, clock_settime, ClockId};

/// Sets the clock on, or back, by so much.
pub(crate) fn move_by(by: TimeSpec) -> Result<()> {
    let clock = ClockId::CLOCK_REALTIME;
    clock_settime(clock, clock_gettime(clock)? + by).context("cannot set the clock")
}

/// Returns the time since boot.
pub(crate) fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        // CAST: the time since boot is positive and ends in 584 years.
        Duration::from(time).as_nanos() as u64
    })
}
