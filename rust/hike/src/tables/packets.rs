// SPDX-License-Identifier: GPL-2.0

//! Packets under way, which have read what was there before a change.

use anyhow::{Context as _, Result};
use rustix::thread::{membarrier, MembarrierCommand};

/// Waits until each packet that a program has begun with is through.
pub(crate) fn wait() -> Result<()> {
    // The kernel waits for all that runs without sleeping, of which programs at XDP are part. With one CPU, none is under way now.
    membarrier(MembarrierCommand::Global).context(
        "cannot wait for packets under way: this kernel has no global membarrier, as none with nohz_full has",
    )
}
