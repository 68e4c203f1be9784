// SPDX-License-Identifier: GPL-2.0

//! The kernel's knowledge of this host's clock.
#![allow(unsafe_code, reason = "only libc has adjtimex()")]

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::error::ErrorEstimate;
use super::time::Format;

/// This host's clock, as its time service has told the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The seconds by which TAI is ahead of UTC; 0 if nobody has said.
    pub tai_ahead_s: u32,
    /// The bound of its error.
    pub error: ErrorEstimate,
}

impl Clock {
    /// Asks the kernel.
    pub fn read() -> Result<Self> {
        // SAFETY: All of its members are integers.
        let mut asked: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: The kernel writes this structure, and changes nothing of the clock where `modes` is 0.
        let state = unsafe { libc::adjtimex(&raw mut asked) };
        if state < 0 {
            return Err(io::Error::last_os_error())
                .context("cannot ask for the state of the clock");
        }
        let is_synchronized = asked.status & libc::STA_UNSYNC == 0;
        let error = u64::try_from(asked.maxerror).unwrap_or(0);
        Ok(Self {
            tai_ahead_s: u32::try_from(asked.tai).unwrap_or(0),
            error: ErrorEstimate::new(is_synchronized, Format::Ntp, Duration::from_micros(error)),
        })
    }
}

#[cfg(test)]
mod tests {
    use rustix::time::{clock_gettime, clock_gettime_dynamic, ClockId, DynamicClockId};

    use super::*;

    #[test]
    fn the_kernel_says_by_how_much_tai_is_ahead() {
        let ahead = || {
            let clock = Clock::read().expect("anybody may ask");
            let utc = clock_gettime(ClockId::Realtime);
            let tai = clock_gettime_dynamic(DynamicClockId::Tai).expect("the kernel has it");
            let ns = (tai.tv_sec - utc.tv_sec) * 1_000_000_000 + tai.tv_nsec - utc.tv_nsec;
            // Both clocks move on between the two questions.
            (i64::from(clock.tai_ahead_s), ns / 1_000_000_000)
        };
        // A leap second may come between.
        let said = [ahead(), ahead()];
        assert!(said.iter().any(|(clock, seen)| clock == seen), "{said:?}");
        let error = Clock::read().expect("anybody may ask").error;
        assert_eq!(error.format(), Format::Ntp);
        assert!(error.error().is_some());
    }
}
