// SPDX-License-Identifier: GPL-2.0

//! The number of interrupts of each CPU, by cause: `/proc/interrupts` and `/proc/softirqs`.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use mflow_protocol::bench::Events;

const INTERRUPTS: &str = "/proc/interrupts";
const SOFTIRQS: &str = "/proc/softirqs";

/// Returns the events of every online CPU since boot.
pub(super) fn read() -> Result<BTreeMap<u32, Events>> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| path.to_owned());
    parse(&read(INTERRUPTS)?, &read(SOFTIRQS)?)
}

/// Returns what was added between two readings.
pub(super) fn between(
    before: &BTreeMap<u32, Events>,
    after: BTreeMap<u32, Events>,
) -> BTreeMap<u32, Events> {
    let added = |(cpu, now): (u32, Events)| {
        let earlier = before.get(&cpu).copied().unwrap_or_default();
        (cpu, now.since(&earlier))
    };
    after.into_iter().map(added).collect()
}

fn parse(interrupts: &str, softirqs: &str) -> Result<BTreeMap<u32, Events>> {
    let mut events: BTreeMap<u32, Events> = BTreeMap::new();
    for_each_count(interrupts, |name, cpu, count| {
        let events = events.entry(cpu).or_default();
        match name {
            "LOC" => events.timer_interrupts += count,
            "RES" => events.reschedule_interrupts += count,
            "CAL" => events.call_interrupts += count,
            // The kernel names its own, and numbers those of devices.
            _ if name.bytes().all(|byte| byte.is_ascii_digit()) => {
                events.device_interrupts += count;
            }
            _ => {}
        }
    })
    .context(INTERRUPTS)?;
    for_each_count(softirqs, |name, cpu, count| {
        let events = events.entry(cpu).or_default();
        match name {
            "NET_RX" => events.net_rx_softirqs += count,
            _ => events.other_softirqs += count,
        }
    })
    .context(SOFTIRQS)?;
    Ok(events)
}

/// Calls `f` with the name of a line, a CPU and its count, for a table whose first line has the CPUs. What is no number ends a
/// line: some have words behind their counts, and some have one count for all CPUs.
fn for_each_count(table: &str, mut f: impl FnMut(&str, u32, u64)) -> Result<()> {
    let mut lines = table.lines();
    let cpus: Vec<u32> = lines
        .next()
        .context("empty")?
        .split_whitespace()
        .map(|name| name.strip_prefix("CPU")?.parse().ok())
        .collect::<Option<_>>()
        .context("no CPUs in the first line")?;
    for line in lines {
        let (name, counts) = line.split_once(':').context("no name before a colon")?;
        let counts: Vec<u64> = counts
            .split_whitespace()
            .map_while(|count| count.parse().ok())
            .collect();
        if counts.len() >= cpus.len() {
            cpus.iter()
                .zip(counts)
                .for_each(|(cpu, count)| f(name.trim(), *cpu, count));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME_INTERRUPTS: &str = "           CPU0       CPU2\n \
                                    4:          7          1  IR-IO-APIC   4-edge      ttyS0\n \
                                   25:          0         30  PCI-MSIX-0000:00:02.0   1-edge      virtio0-input.0\n\
                                   NMI:          9          9   Non-maskable interrupts\n\
                                   LOC:        100        200   Local timer interrupts\n\
                                   RES:          5          6   Rescheduling interrupts\n\
                                   CAL:          3          4   Function call interrupts\n\
                                   ERR:          8\n";
    const SOME_SOFTIRQS: &str = "                    CPU0       CPU2\n          HI:          1          0\n      \
                                 NET_TX:          2          0\n      NET_RX:         40         50\n";

    #[test]
    fn events_are_read_by_kind_and_cpu() {
        let events = parse(SOME_INTERRUPTS, SOME_SOFTIRQS).expect("good tables");
        let first = Events {
            device_interrupts: 7,
            timer_interrupts: 100,
            reschedule_interrupts: 5,
            call_interrupts: 3,
            net_rx_softirqs: 40,
            other_softirqs: 3,
        };
        let third = Events {
            device_interrupts: 31,
            timer_interrupts: 200,
            reschedule_interrupts: 6,
            call_interrupts: 4,
            net_rx_softirqs: 50,
            other_softirqs: 0,
        };
        assert_eq!(events, BTreeMap::from([(0, first), (2, third)]));
    }

    #[test]
    fn a_cpu_that_was_not_there_before_begins_at_zero() {
        let before = parse("CPU0\n1: 5 timer\n", "CPU0\nNET_RX: 10\n");
        let after = parse(SOME_INTERRUPTS, SOME_SOFTIRQS).expect("good tables");
        let added = between(&before.expect("good tables"), after);
        assert_eq!(
            (added[&0].device_interrupts, added[&0].net_rx_softirqs),
            (2, 30)
        );
        assert_eq!(added[&2].net_rx_softirqs, 50);
    }

    #[test]
    fn what_is_no_table_is_an_error() {
        assert!(parse("", SOME_SOFTIRQS).is_err());
        assert!(parse(SOME_INTERRUPTS, "CPU0\nno colon\n").is_err());
        assert!(parse("one two\n", SOME_SOFTIRQS).is_err());
    }
}
