// SPDX-License-Identifier: GPL-2.0

//! The state of the clock that a time service tells the kernel.
#![allow(unsafe_code, reason = "only libc has adjtimex()")]

use std::io;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::libc;

/// The clock as a time service has set it, until the end of the scope; then it is as before.
#[derive(Debug)]
pub(crate) struct TimeService {
    before: libc::timex,
}

impl TimeService {
    /// Says by how many seconds TAI is ahead of UTC, and that the clock follows UTC, and is wrong by this at most.
    pub(crate) fn says(tai_ahead_s: u32, error: Duration) -> Result<Self> {
        let before = adjust(nothing())?;
        let service = Self { before };
        let told = libc::timex {
            constant: tai_ahead_s.into(),
            maxerror: error.as_micros().try_into()?,
            status: before.status & !libc::STA_UNSYNC,
            ..nothing()
        };
        tell(told)?;
        let tai = adjust(nothing())?.tai;
        ensure!(
            u32::try_from(tai) == Ok(tai_ahead_s),
            "TAI is ahead by {tai} seconds, and {tai_ahead_s} were told"
        );
        Ok(service)
    }
}

impl Drop for TimeService {
    fn drop(&mut self) {
        let before = libc::timex {
            constant: self.before.tai.into(),
            ..self.before
        };
        // The next case says what it needs.
        let _told = tell(before);
    }
}

fn tell(told: libc::timex) -> Result<()> {
    // One call takes the offset of TAI, or the rest.
    adjust(libc::timex {
        modes: libc::ADJ_TAI,
        ..told
    })?;
    adjust(libc::timex {
        modes: libc::ADJ_STATUS | libc::ADJ_MAXERROR,
        ..told
    })?;
    Ok(())
}

fn nothing() -> libc::timex {
    // SAFETY: All of its members are integers.
    unsafe { std::mem::zeroed() }
}

/// Makes the kernel change the fields that `modes` names. Returns all of them as they are then.
fn adjust(mut told: libc::timex) -> Result<libc::timex> {
    // SAFETY: The kernel reads and writes this structure.
    match unsafe { libc::adjtimex(&raw mut told) } {
        0.. => Ok(told),
        _ => Err(io::Error::last_os_error()).context("cannot tell the state of the clock"),
    }
}
