// SPDX-License-Identifier: GPL-2.0

//! Real-time kernels, on which programs cannot run.
//!
//! Programs keep what they know of a packet by CPU, as softirqs of one CPU exclude each other. With PREEMPT_RT they can be preempted by each
//! other (since Linux 6.18, `local_bh_disable()` excludes nobody there), and then two packets would share that.

use std::fs;

use anyhow::{ensure, Result};

/// The file that such kernels of distributions have, and the one with the text that all kernels have.
const REALTIME: &str = "/sys/kernel/realtime";
const VERSION: &str = "/proc/sys/kernel/version";

/// Fails on a real-time kernel.
pub(crate) fn refuse() -> Result<()> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    refuse_if(&read(REALTIME), &read(VERSION))
}

fn refuse_if(realtime: &str, version: &str) -> Result<()> {
    let is_realtime =
        realtime.trim() == "1" || version.split_whitespace().any(|word| word == "PREEMPT_RT");
    ensure!(
        !is_realtime,
        "this is a real-time kernel (PREEMPT_RT), where packets of one CPU would share what programs keep of each; boot another kernel"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_kernels_are_refused() {
        let usual = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.57-1 (2025-11-05)\n";
        let real_time = "#1 SMP PREEMPT_RT Debian 6.12.57-1 (2025-11-05)\n";
        assert!(refuse_if("", usual).is_ok() && refuse_if("0\n", usual).is_ok());
        for (realtime, version) in [("1\n", usual), ("", real_time), ("1\n", real_time)] {
            let said = refuse_if(realtime, version).expect_err(version).to_string();
            assert!(said.starts_with("this is a real-time kernel"), "{said}");
        }
    }
}
