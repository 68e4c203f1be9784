// SPDX-License-Identifier: GPL-2.0

//! Interrupts of NICs: to which CPU they come, and how many have come there. Threads that poll a NIC instead of softirqs.

use std::fs;

use anyhow::{bail, ensure, Context as _, Result};
use nix::unistd::Pid;

const PATH: &str = "/proc/interrupts";

/// Sends all interrupts of a NIC to one CPU, as irqbalance does; each moves when it comes next.
pub(crate) fn pin(device: &str, cpu: usize) -> Result<()> {
    let bus_name = bus_name(device)?;
    if pin_where(cpu, |line| is_of(&bus_name, line))? == 0 {
        let table = fs::read_to_string(PATH)?;
        bail!("no interrupt of {device} ({bus_name}) in {PATH}:\n{table}");
    }
    Ok(())
}

/// Sends the interrupts with such names to a CPU; returns how many there are.
pub(crate) fn pin_where(cpu: usize, is_mine: impl Fn(&str) -> bool) -> Result<usize> {
    let mut pinned = 0;
    for line in fs::read_to_string(PATH)?.lines() {
        let number = line.split(':').next().unwrap_or_default().trim();
        let name = line.split_whitespace().next_back();
        if name.is_some_and(&is_mine) && number.bytes().all(|byte| byte.is_ascii_digit()) {
            let path = format!("/proc/irq/{number}/smp_affinity_list");
            fs::write(&path, cpu.to_string())
                .with_context(|| format!("cannot send an interrupt to CPU {cpu}: {path}"))?;
            pinned += 1;
        }
    }
    Ok(pinned)
}

/// Returns how many interrupts of a NIC have come to a CPU since boot.
pub(crate) fn come_to(device: &str, cpu: usize) -> Result<u64> {
    let bus_name = bus_name(device)?;
    count(&fs::read_to_string(PATH)?, cpu, |line| {
        is_of(&bus_name, line)
    })
    .context(PATH)
}

/// Returns the lines about a NIC's interrupts, below the one that names the CPUs.
pub(crate) fn table_of(device: &str) -> Result<String> {
    let bus_name = bus_name(device)?;
    let table = fs::read_to_string(PATH)?;
    let mine = |line: &&str| {
        line.split_whitespace()
            .next_back()
            .is_some_and(|name| is_of(&bus_name, name))
    };
    let head = table.lines().take(1);
    let lines: Vec<&str> = head.chain(table.lines().skip(1).filter(mine)).collect();
    Ok(lines.join("\n"))
}

fn count(table: &str, cpu: usize, is_mine: impl Fn(&str) -> bool) -> Result<u64> {
    let mut lines = table.lines();
    let cpu = format!("CPU{cpu}");
    let mut cpus = lines.next().unwrap_or_default().split_whitespace();
    let column = cpus.position(|name| name == cpu);
    let column = column.with_context(|| format!("no column {cpu}"))?;
    lines
        .filter(|line| line.split_whitespace().next_back().is_some_and(&is_mine))
        .map(|line| {
            // Before the counts there is the interrupt's number.
            let count = line.split_whitespace().nth(1 + column);
            let count = count.and_then(|count| count.parse::<u64>().ok());
            count.with_context(|| format!("no count of {cpu} in {line:?}"))
        })
        .sum()
}

/// Lets threads poll a device's NAPIs, one each, or softirqs again.
pub(crate) fn poll_in_threads(device: &str, on: bool) -> Result<()> {
    let path = format!("/sys/class/net/{device}/threaded");
    fs::write(&path, u8::from(on).to_string()).with_context(|| format!("cannot write {path}"))
}

/// Returns the threads that poll a device's NAPIs.
pub(crate) fn polling_threads(device: &str) -> Result<Vec<Pid>> {
    let name = format!("napi/{device}-");
    let mut threads = Vec::new();
    for task in fs::read_dir("/proc")? {
        let task = task?;
        let Some(id) = task.file_name().to_str().and_then(|id| id.parse().ok()) else {
            continue;
        };
        // A task may have ended meanwhile.
        let comm = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.starts_with(&name) {
            threads.push(Pid::from_raw(id));
        }
    }
    ensure!(!threads.is_empty(), "no thread polls {device}");
    Ok(threads)
}

/// Returns what a NIC is called on its bus.
fn bus_name(device: &str) -> Result<String> {
    let link = format!("/sys/class/net/{device}/device");
    let target = fs::read_link(&link).with_context(|| format!("no NIC {device}: {link}"))?;
    let name = target.file_name().context("no device")?;
    Ok(name.to_string_lossy().into_owned())
}

/// Returns whether an interrupt with this name is that of a NIC. There is one for each queue ("virtio0-input.0"), or a single one
/// ("virtio0") without message-signalled interrupts; of a ConnectX, one for each channel ("mlx5_comp0@pci:0000:00:04.0").
fn is_of(bus_name: &str, name: &str) -> bool {
    name == bus_name
        || name.starts_with(&format!("{bus_name}-"))
        || name.ends_with(&format!("@pci:{bus_name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_interrupts_of_one_nic() {
        let table = "           CPU0       CPU2\n\
                     \u{20}24:         10         20  PCI-MSIX-0000:00:02.0   0-edge      virtio1-config\n\
                     \u{20}25:          1          2  PCI-MSIX-0000:00:02.0   1-edge      virtio1-input.0\n\
                     \u{20}26:        100        200  PCI-MSIX-0000:00:03.0   1-edge      virtio10-input.0\n\
                     NMI:          0          0   Non-maskable interrupts\n";
        let of_nic = |cpu| count(table, cpu, |name| is_of("virtio1", name));
        assert_eq!(of_nic(0).expect("it is online"), 11);
        assert_eq!(of_nic(2).expect("it is online"), 22);
        assert!(of_nic(1).is_err());
    }
}
