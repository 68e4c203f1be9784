// SPDX-License-Identifier: GPL-2.0

//! A window: between its two marks the host's plug-in counts instructions, and we count what was delivered.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::bench::{Case, Window};
use mflow_protocol::mark::Mark;

use crate::mflow::{self, Stats};
use crate::verdict;

/// Columns of a CPU's line in `/proc/stat` after its name: time doing nothing, and that waiting for a disk.
const IDLE: [usize; 2] = [3, 4];

/// What has been delivered so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Datagrams, or packets of a stream.
    pub(super) delivered: u64,
    /// Packets on the wire.
    pub(super) packets: u64,
    pub(super) lost: u64,
    pub(super) reordered: u64,
}

/// Measures the windows of a case, and says each.
pub(super) fn measure(case: &Case, counts: impl Fn() -> Result<Counts>) -> Result<()> {
    symbols()?;
    for _ in 0..case.windows {
        let stats = read_stats()?;
        let times = cpu_times()?;
        let before = counts()?;
        let begin = Instant::now();
        Mark::Begin.set();
        thread::sleep(Duration::from_millis(case.window_ms));
        Mark::End.set();
        let seconds = begin.elapsed().as_secs_f64();
        let after = counts()?;
        let idle = cpu_times()?
            .into_iter()
            .map(|(cpu, now)| (cpu, now.idle_since(times.get(&cpu))))
            .collect();
        let mflow = match (stats, read_stats()?) {
            (Some(before), Some(after)) => after.since(&before),
            _ => BTreeMap::new(),
        };
        ensure!(
            after.packets > before.packets,
            "nothing was delivered in {} ms",
            case.window_ms
        );
        verdict::say(
            "window",
            &Window {
                delivered: after.delivered - before.delivered,
                packets: after.packets - before.packets,
                lost: after.lost.saturating_sub(before.lost),
                reordered: after.reordered - before.reordered,
                seconds,
                idle,
                mflow,
            },
        );
    }
    Ok(())
}

/// Says where the module's functions are.
fn symbols() -> Result<()> {
    if !mflow::loaded() {
        return Ok(());
    }
    let text = fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
    let symbols: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_suffix("[mflow]"))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
            kind.eq_ignore_ascii_case("t").then_some((address, name))
        })
        .collect();
    verdict::say("symbols", &symbols);
    Ok(())
}

fn read_stats() -> Result<Option<Stats>> {
    mflow::loaded().then(Stats::read).transpose()
}

/// A CPU's time since boot, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Times {
    idle: u64,
    all: u64,
}

impl Times {
    /// Returns the part of the time since `earlier` in which the CPU had nothing to do.
    fn idle_since(self, earlier: Option<&Self>) -> f64 {
        let earlier = earlier.copied().unwrap_or_default();
        let all = self.all.saturating_sub(earlier.all);
        if all == 0 {
            // Its clock stands still while it sleeps.
            return 1.0;
        }
        // CAST: ticks are far from where f64 loses digits.
        self.idle.saturating_sub(earlier.idle) as f64 / all as f64
    }
}

fn cpu_times() -> Result<BTreeMap<u32, Times>> {
    parse(&fs::read_to_string("/proc/stat").context("/proc/stat")?)
}

fn parse(text: &str) -> Result<BTreeMap<u32, Times>> {
    let mut times = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let cpu = words.next().and_then(|name| name.strip_prefix("cpu"));
        let Some(cpu) = cpu.and_then(|number| number.parse().ok()) else {
            continue;
        };
        let columns: Vec<u64> = words
            .map(str::parse)
            .collect::<Result<_, _>>()
            .with_context(|| format!("/proc/stat: {line}"))?;
        let idle = IDLE.iter().filter_map(|&column| columns.get(column)).sum();
        let all = columns.iter().take(8).sum();
        times.insert(cpu, Times { idle, all });
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_read_from_the_kernels_table() {
        let text = "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 10 0 10 70 10 0 0 0 0 0\ncpu1 0 0 0 5 0 0 95 0 0 0\nintr 5\n";
        let times = parse(text).expect("good table");
        assert_eq!(times[&0], Times { idle: 80, all: 100 });
        let later = Times { idle: 85, all: 200 };
        assert_eq!(later.idle_since(times.get(&0)), 0.05);
        assert_eq!(times[&1].idle_since(times.get(&1)), 1.0);
        assert_eq!(times.len(), 2);
    }
}
