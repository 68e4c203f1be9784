// SPDX-License-Identifier: GPL-2.0

//! The clock of this host in the table of `reflect`, which has no other way to learn of it.

use std::path::Path;

use anyhow::Result;
use aya::maps::{Array, MapData};

use crate::layout::StampClock;
use crate::maps::open;
use crate::stamp::Clock;

const NAME: &str = "stamp_clock";

/// Writes it for the instance in a folder, if it has changed.
pub(crate) fn write(folder: &Path, clock: Clock) -> Result<()> {
    let mut table: Array<MapData, StampClock> = open(folder, NAME)?.try_into()?;
    let clock = StampClock {
        tai_ahead_s: clock.tai_ahead_s,
        error: clock.error.word(),
        zero: 0,
    };
    if table.get(&0, 0)? != clock {
        table.set(0, clock, 0)?;
    }
    Ok(())
}
