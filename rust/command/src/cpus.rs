// SPDX-License-Identifier: GPL-2.0

//! The work of CPUs: `/proc/stat` and `/proc/net/softnet_stat`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// A CPU's work in an interval. Shares are parts of 100.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// Its number.
    pub number: u32,
    /// Interrupts and softirqs: all that packets cost before a program reads them.
    pub softirq_pct: f64,
    /// Programs, in user and in kernel mode.
    pub program_pct: f64,
    /// Nothing to do.
    pub idle_pct: f64,
    /// Packets that it took from devices and backlogs.
    pub received_pkts: u64,
    /// Packets that its backlog had no room for.
    pub backlog_drops: u64,
    /// Polls that ended with packets left, as their time or number was used up.
    pub squeezed_polls: u64,
    /// Times other CPUs gave it packets (RPS).
    pub given_by_rps: u64,
}

/// Counts of each CPU since the host's start.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    times: BTreeMap<u32, Times>,
    packets: BTreeMap<u32, Packets>,
}

/// Ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    packets: u64,
    programs: u64,
    idle: u64,
    all: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Packets {
    received: u64,
    backlog_drops: u64,
    squeezed_polls: u64,
    given_by_rps: u64,
}

impl Counts {
    /// Reads those of this host.
    pub fn read(root: &Path) -> Result<Self> {
        let read = |path: &str| {
            fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
        };
        Ok(Self::parse(
            &read("proc/stat")?,
            &read("proc/net/softnet_stat")?,
        ))
    }

    /// Reads the texts of both files.
    pub fn parse(stat: &str, softnet: &str) -> Self {
        Self {
            times: times(stat),
            packets: packets(softnet),
        }
    }

    /// Returns the work of the CPUs that were online at both times.
    pub fn since(&self, before: &Self) -> Vec<Cpu> {
        let cpu = |(number, now): (&u32, &Times)| {
            let then = before.times.get(number)?;
            let all = now.all.saturating_sub(then.all);
            // CAST: ticks of an hour at most.
            let share = |now: u64, then: u64| match all {
                0 => 0.0,
                // The kernel's idle times may go back, which the sum does, too.
                all => (now.saturating_sub(then) as f64 * 100.0 / all as f64).min(100.0),
            };
            let packets = |counts: &Self| counts.packets.get(number).copied().unwrap_or_default();
            let (late, early) = (packets(self), packets(before));
            // The counters have 32 bits.
            let added = |late: u64, early: u64| u64::from((late as u32).wrapping_sub(early as u32));
            Some(Cpu {
                number: *number,
                softirq_pct: share(now.packets, then.packets),
                program_pct: share(now.programs, then.programs),
                idle_pct: share(now.idle, then.idle),
                received_pkts: added(late.received, early.received),
                backlog_drops: added(late.backlog_drops, early.backlog_drops),
                squeezed_polls: added(late.squeezed_polls, early.squeezed_polls),
                given_by_rps: added(late.given_by_rps, early.given_by_rps),
            })
        };
        self.times.iter().filter_map(cpu).collect()
    }
}

/// Reads the lines `cpuN user nice system idle iowait irq softirq steal guest guest_nice`; the guests' times are in the first two.
fn times(text: &str) -> BTreeMap<u32, Times> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = numbers[..] else {
            return None;
        };
        let times = Times {
            packets: irq + softirq,
            programs: user + nice + system,
            idle: idle + iowait,
            all: user + nice + system + idle + iowait + irq + softirq + steal,
        };
        Some((cpu, times))
    };
    text.lines().filter_map(line).collect()
}

/// Reads hexadecimal columns, `softnet_seq_show()` of net/core/net-procfs.c: the first three, the tenth, and the CPU in the thirteenth.
fn packets(text: &str) -> BTreeMap<u32, Packets> {
    let line = |line: &str| {
        let columns = line.split_whitespace();
        let columns: Vec<u64> = columns
            .filter_map(|word| u64::from_str_radix(word, 16).ok())
            .collect();
        let [received, backlog_drops, squeezed_polls, _, _, _, _, _, _, given_by_rps, _, _, cpu, ..] =
            columns[..]
        else {
            return None;
        };
        let packets = Packets {
            received,
            backlog_drops,
            squeezed_polls,
            given_by_rps,
        };
        Some((u32::try_from(cpu).ok()?, packets))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_counts_are_those_of_the_interval() {
        let before = Counts::parse(
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 100 0 0 0\nintr 5\n",
            "fffffffe 00000001 00000002 0 0 0 0 0 0 00000003 0 0 00000001 0 0\n",
        );
        let after = Counts::parse(
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 120 5 5 160 5 0 0 5 0 0\ncpu1 0 0 10 0 0 10 180 0 0 0\ncpu2 9 9 9 9 9 9 9 9 0 0\n",
            "00000008 00000001 0000000c 0 0 0 0 0 0 00000004 0 0 00000001 0 0\n",
        );
        let cpus = after.since(&before);
        assert_eq!(cpus.len(), 2);
        let shares = [cpus[0].program_pct, cpus[0].idle_pct, cpus[0].softirq_pct];
        assert_eq!(shares, [30.0, 65.0, 0.0]);
        let (cpu, shares) = (cpus[1], [cpus[1].softirq_pct, cpus[1].program_pct]);
        assert_eq!(shares, [90.0, 10.0]);
        let counts = [
            cpu.received_pkts,
            cpu.backlog_drops,
            cpu.squeezed_polls,
            cpu.given_by_rps,
        ];
        assert_eq!(counts, [10, 0, 10, 1]);
    }

    #[test]
    fn this_host_has_such_texts() {
        let counts = Counts::read(Path::new("/")).expect("there are");
        assert!(!counts.times.is_empty());
        assert!(counts
            .times
            .keys()
            .all(|cpu| counts.packets.contains_key(cpu)));
    }
}
