// SPDX-License-Identifier: GPL-2.0

//! Which CPU does what, so that no core's work is mistaken for another's.
//!
//! ```text
//!   CPU 0            CPU 1          CPU 2 .. 5              CPU 6                CPU 7
//!   reader and       eth0: the      lanes (the first 1, 2   sender and other     eth1: the client's
//!   housekeeping     NIC core       or 4 of them)           client programs      NIC
//! ```

use std::fs;

use anyhow::{Context as _, Result};
use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::Pid;

/// The CPU of the receiving application.
pub(crate) const READER: usize = 0;
/// The CPU that takes the interrupts of the server's NIC.
pub(crate) const NIC: usize = 1;
/// The CPUs that may become lanes.
pub(crate) const LANES: [usize; 4] = [2, 3, 4, 5];
/// The CPU of the sending application.
pub(crate) const SENDER: usize = 6;
/// The CPU that takes the interrupts of the client's NIC.
pub(crate) const CLIENT_NIC: usize = 7;
/// How many CPUs the guest must have.
pub(crate) const NEEDED: usize = 8;

/// Returns the first `count` lane CPUs as a CPU list: `2-3`.
pub(crate) fn lane_list(count: usize) -> String {
    match LANES[..count] {
        [] => String::new(),
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
    }
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)
        .with_context(|| format!("cannot bind a thread to CPU {cpu}"))
}

/// Switches a CPU off or on.
pub(crate) fn set_online(cpu: usize, online: bool) -> Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&path, if online { "1" } else { "0" })
        .with_context(|| format!("cannot switch CPU {cpu}: {path}"))
}

/// Returns how many CPUs are online.
pub(crate) fn online() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
