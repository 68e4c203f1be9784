// SPDX-License-Identifier: GPL-2.0

//! CPUs of the guest: what runs where, and which there are.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result};
pub(crate) use mflow_protocol::cpus::{
    BENCH_LANES, CLIENT_NIC, ISOLATED, LANES, NEEDED, NIC, READER, SENDER, SENDERS, UNDISTURBED,
};
use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::unistd::Pid;

use crate::machine::threads;

/// The lane CPUs, as a mask in hexadecimal.
pub(crate) const LANE_MASK: &str = "3c";

/// Returns the first `count` lane CPUs as a CPU list: `2-3`.
pub(crate) fn lane_list(count: usize) -> String {
    let ranges = BENCH_LANES[..count].chunk_by(|cpu, next| cpu + 1 == *next);
    let texts: Vec<String> = ranges
        .map(|range| match range {
            [first, .., last] => format!("{first}-{last}"),
            _ => range[0].to_string(),
        })
        .collect();
    texts.join(",")
}

/// Returns the CPUs of a list such as `2-3,5`.
pub(crate) fn of_list(list: &str) -> Result<Vec<usize>> {
    let number = |text: &str| {
        text.parse::<usize>()
            .with_context(|| format!("{list:?} is no list of CPUs"))
    };
    let mut cpus = Vec::new();
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(number(first)?..=number(last)?);
    }
    Ok(cpus)
}

/// Returns how many CPUs a list such as `2-3,5` has.
pub(crate) fn count(list: &str) -> Result<usize> {
    of_list(list).map(|cpus| cpus.len())
}

pub(crate) fn pin(cpu: usize) -> Result<()> {
    pin_thread(Pid::from_raw(0), cpu)
}

/// The CPUs on which a thread may run.
pub(crate) struct Allowed(CpuSet);

impl Allowed {
    /// Returns those of this thread.
    pub(crate) fn here() -> Result<Self> {
        sched_getaffinity(Pid::from_raw(0))
            .map(Self)
            .context("cannot read a thread's CPUs")
    }

    /// Lets this thread run on them, also if it was bound meanwhile.
    pub(crate) fn restore(&self) -> Result<()> {
        sched_setaffinity(Pid::from_raw(0), &self.0).context("cannot free a thread from its CPU")
    }
}

/// Binds another thread to a CPU from now on.
pub(crate) fn pin_thread(thread: Pid, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(thread, &set).with_context(|| format!("cannot bind a thread to CPU {cpu}"))
}

/// Keeps a CPU busy, as a program of an application does.
pub(crate) fn spin(cpu: usize, stop: &AtomicBool) -> Result<()> {
    pin(cpu)?;
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    Ok(())
}

/// Keeps several CPUs busy until `stop` is set.
pub(crate) fn spin_all(cpus: &[usize], stop: &AtomicBool) -> Result<()> {
    thread::scope(|scope| {
        let spin = |&cpu: &usize| scope.spawn(move || spin(cpu, stop));
        let spinning: Vec<_> = cpus.iter().map(spin).collect();
        threads::results(spinning.into_iter().map(|thread| thread.join())).map(drop)
    })
}

pub(crate) fn set_online(cpu: usize, online: bool) -> Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&path, if online { "1" } else { "0" })
        .with_context(|| format!("cannot switch CPU {cpu}: {path}"))
}

pub(crate) fn is_online(cpu: usize) -> bool {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// Returns the numbers of all CPUs that are online.
pub(crate) fn all_online() -> impl Iterator<Item = usize> {
    let exists = |cpu: &usize| Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
    // CPU 0 cannot be switched off, so it has no file `online`.
    (0..)
        .take_while(exists)
        .filter(|&cpu| cpu == 0 || is_online(cpu))
}

pub(crate) fn online() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
