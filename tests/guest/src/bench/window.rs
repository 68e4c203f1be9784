// SPDX-License-Identifier: GPL-2.0

//! A window: between its two marks the host's plug-in counts instructions, and we count what was delivered.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::bench::{Case, Window};
use mflow_protocol::guest::Message;
use mflow_protocol::mark::Mark;

use super::events;
use crate::mflow::{self, Stats};
use crate::verdict;

/// Packets more or less on their way that make no difference: those of one poll, after which the NIC's counter moves.
const BALANCED_PKTS: u64 = 64;
/// How long, and how often, the end of a window waits for that.
const BALANCE_MAX: Duration = Duration::from_millis(300);
const BALANCE_STEP: Duration = Duration::from_micros(300);

/// Columns of a CPU's line in `/proc/stat` after its name: time doing nothing, and that waiting for a disk.
const IDLE: [usize; 2] = [3, 4];
/// Ticks of that file in a second, on every x86 kernel.
const TICKS_PER_S: f64 = 100.0;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Datagrams, or packets of a stream.
    pub(super) delivered: u64,
    pub(super) packets: u64,
    pub(super) lost: u64,
    pub(super) reordered: u64,
    /// Packets that the NIC has received, where they are not the same as those delivered.
    pub(super) arrived: Option<u64>,
}

impl Counts {
    /// Packets between NIC and application, more by a constant than there are: the NIC has counted for longer.
    fn on_their_way(&self) -> Option<u64> {
        Some(self.arrived?.saturating_sub(self.packets + self.lost))
    }
}

pub(super) fn measure(case: &Case, counts: impl Fn() -> Result<Counts>) -> Result<()> {
    symbols()?;
    for _ in 0..case.windows {
        let stats = Stats::read_if_loaded()?;
        let times = idle_times()?;
        let interrupted = events::read()?;
        let before = counts()?;
        let begin = Instant::now();
        Mark::Begin.set();
        thread::sleep(Duration::from_millis(case.window_ms));
        wait_balanced(&before, &counts)?;
        Mark::End.set();
        let seconds = begin.elapsed().as_secs_f64();
        let after = counts()?;
        let idle = idle_times()?
            .into_iter()
            .map(|(cpu, now)| {
                let ticks = now.saturating_sub(times.get(&cpu).copied().unwrap_or(0));
                (cpu, part(ticks, seconds))
            })
            .collect();
        let events = events::between(&interrupted, events::read()?);
        let mflow = mflow::added_since(stats.as_ref())?;
        ensure!(
            after.packets > before.packets,
            "nothing was delivered in {} ms",
            case.window_ms
        );
        verdict::say(&Message::Window(Window {
            delivered: after.delivered - before.delivered,
            packets: after.packets - before.packets,
            lost: after.lost.saturating_sub(before.lost),
            reordered: after.reordered - before.reordered,
            seconds,
            idle,
            events,
            mflow,
        }));
    }
    Ok(())
}

/// Waits, not for long, until as many packets are on their way as at the beginning: the cores have then worked for as many
/// packets as the application has got. The host may have kept either from running at a window's edge.
fn wait_balanced(before: &Counts, counts: impl Fn() -> Result<Counts>) -> Result<()> {
    let Some(wanted) = before.on_their_way() else {
        return Ok(());
    };
    let deadline = Instant::now() + BALANCE_MAX;
    while Instant::now() < deadline {
        let now = counts()?.on_their_way();
        if now.is_some_and(|now| now.abs_diff(wanted) <= BALANCED_PKTS) {
            break;
        }
        thread::sleep(BALANCE_STEP);
    }
    Ok(())
}

/// Says where the functions of modules are: ours, and the NIC's driver.
fn symbols() -> Result<()> {
    let text = fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
    let symbols = text
        .lines()
        .filter(|line| line.ends_with(']'))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
            // The padding in front of a function has a name of its own.
            let is_function = kind.eq_ignore_ascii_case("t") && !name.starts_with("__pfx_");
            is_function.then(|| (address.to_owned(), name.to_owned()))
        })
        .collect();
    verdict::say(&Message::Symbols(symbols));
    Ok(())
}

/// Returns the part of a window that these ticks are.
///
/// Of the clock, not of all the kernel's ticks: those of an interrupt that ends a CPU's sleep are not among them.
fn part(ticks: u64, seconds: f64) -> f64 {
    // CAST: ticks are far from where f64 loses digits.
    (ticks as f64 / TICKS_PER_S / seconds).min(1.0)
}

fn idle_times() -> Result<BTreeMap<u32, u64>> {
    parse(&fs::read_to_string("/proc/stat").context("/proc/stat")?)
}

fn parse(text: &str) -> Result<BTreeMap<u32, u64>> {
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
        times.insert(cpu, idle);
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
        assert_eq!(times, BTreeMap::from([(0, 80), (1, 5)]));
        assert!(parse("cpu0 1 x\n").is_err());
    }

    #[test]
    fn idle_time_is_a_part_of_the_clock_s() {
        assert_eq!(part(50, 2.0), 0.25);
        assert_eq!(part(0, 2.0), 0.0);
        // The clocks of CPU and window do not begin at the same time.
        assert_eq!(part(201, 2.0), 1.0);
    }
}
