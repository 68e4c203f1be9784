// SPDX-License-Identifier: GPL-2.0

//! The settings by which operators make an overlay faster on a Linux without the module.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use mflow_protocol::bench::Tuning;

use crate::machine::interrupts::{poll_in_threads, polling_threads};
use crate::machine::{command, cpu};
use crate::network::bpf::{Xdp, XdpMode};

const STEERING: &str = "/sys/class/net/vxlan0/queues/rx-0";
const SOCKET_FLOWS: &str = "/proc/sys/net/core/rps_sock_flow_entries";
/// The entries that the kernel's Documentation/networking/scaling.rst suggests.
const FLOW_ENTRIES: usize = 32_768;

/// The program that sends packets to another CPU, while it is attached.
static REDIRECTION: Mutex<Option<Xdp>> = Mutex::new(None);

/// Attaches the program of a tuning that has one; until [`prepare`] it lets all packets pass.
pub(super) fn attach(tuning: Tuning, device: &str) -> Result<()> {
    if tuning.redirected {
        let program = Xdp::may_send_to_cpu(device, XdpMode::Native, own_cpu(tuning))?;
        redirection().replace(program);
    }
    Ok(())
}

fn redirection() -> MutexGuard<'static, Option<Xdp>> {
    REDIRECTION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the CPU behind those that steering chooses from.
fn own_cpu(tuning: Tuning) -> usize {
    cpu::BENCH_LANES[tuning.rps_cpus]
}

/// Sets packet steering on the VXLAN device to the first CPUs for lanes. With none it is off.
pub(super) fn steer(cpus: usize) -> Result<()> {
    let mask: u64 = cpu::BENCH_LANES[..cpus].iter().map(|cpu| 1 << cpu).sum();
    // The kernel's switch for steering on any device stays on if the device vanishes with it.
    write(&format!("{STEERING}/rps_cpus"), format!("{mask:x}"))
}

pub(super) fn prepare(tuning: Tuning, device: &str) -> Result<()> {
    set(tuning, device, true)?;
    steer(tuning.rps_cpus)?;
    if tuning.threaded {
        for thread in polling_threads(device)? {
            cpu::pin_thread(thread, own_cpu(tuning))?;
        }
    }
    if let Some(program) = &*redirection() {
        program.send_to_cpu_now(own_cpu(tuning))?;
    }
    Ok(())
}

/// Takes the tuning back, so that nothing of it is measured with the next stack.
pub(super) fn remove(tuning: Tuning, device: &str) -> Result<()> {
    redirection().take();
    steer(0)?;
    set(tuning, device, false)
}

/// Switches everything but the choice of CPUs.
fn set(tuning: Tuning, device: &str, on: bool) -> Result<()> {
    let word = if on { "on" } else { "off" };
    if tuning.lists {
        command::run(&format!(
            "ethtool -K {device} rx-gro-list {word} rx-udp-gro-forwarding {word}"
        ))?;
    }
    if tuning.aggregates {
        command::run(&format!("ethtool -K {device} rx-udp-gro-forwarding {word}"))?;
    }
    if tuning.follows_reader {
        let entries = if on { FLOW_ENTRIES } else { 0 };
        write(SOCKET_FLOWS, entries.to_string())?;
        write(&format!("{STEERING}/rps_flow_cnt"), entries.to_string())?;
    }
    if tuning.threaded {
        poll_in_threads(device, on)?;
    }
    Ok(())
}

fn write(path: &str, word: String) -> Result<()> {
    fs::write(Path::new(path), word).with_context(|| format!("cannot write {path}"))
}
