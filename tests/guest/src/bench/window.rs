// SPDX-License-Identifier: GPL-2.0

//! A window: between its two marks the host's plug-in counts instructions, and we count what was delivered.
//!
//! Each mark and the count that goes with it belong to the same moment. The host may keep this CPU from running between the two, and
//! what is delivered meanwhile would be counted without its instructions: so counts are taken again until two that follow on each
//! other are alike. After the end's mark it is too late, as the plug-in writes its file there while the other CPUs go on.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::bench::{Case, Window};
use mflow_protocol::guest::{Message, KERNEL_FUNCTIONS};
use mflow_protocol::mark::Mark;

use super::events;
use crate::mflow::{self, Stats};
use crate::network::topology;
use crate::verdict;

/// Packets more or less that make no difference: those of one poll, after which the NIC's counter moves.
const BALANCED_PKTS: u64 = 64;
/// The longest time that the end of a window waits until there is no more difference than that, and the time between two looks.
const BALANCE_MAX: Duration = Duration::from_millis(300);
const BALANCE_STEP: Duration = Duration::from_micros(300);
/// The most times that the begin of a window is marked.
const BEGINS_MAX: usize = 50;

/// The container's link.
const VETH: &str = "veth0";

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
    /// Packets of the stack that have come to the container; [`measure`] counts them.
    pub(super) stack_packets: Option<u64>,
}

impl Counts {
    /// Packets between NIC and application, more by a constant than there are: the NIC has counted for longer.
    fn on_their_way(&self) -> Option<u64> {
        Some(self.arrived?.saturating_sub(self.packets + self.lost))
    }

    /// Returns whether no more was delivered since `earlier` than makes no difference.
    fn is_soon_after(&self, earlier: &Self) -> bool {
        self.packets.saturating_sub(earlier.packets) <= BALANCED_PKTS
    }
}

pub(super) fn measure(case: &Case, counts: impl Fn() -> Result<Counts>) -> Result<()> {
    symbols()?;
    let counts = || -> Result<Counts> {
        let stack_packets = case.stack.has_overlay().then(|| topology::sent_pkts(VETH));
        Ok(Counts {
            stack_packets: stack_packets.transpose()?,
            ..counts()?
        })
    };
    for _ in 0..case.windows {
        let stats = Stats::read_if_loaded()?;
        let times = idle_times()?;
        let interrupted = events::read()?;
        let (before, begin) = begin(counts)?;
        thread::sleep(Duration::from_millis(case.window_ms));
        let after = balanced(&before, counts)?;
        Mark::End.set();
        let seconds = begin.elapsed().as_secs_f64();
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
            stack_packets: after
                .stack_packets
                .zip(before.stack_packets)
                .map(|(after, before)| after - before),
            seconds,
            idle,
            events,
            mflow,
        }));
    }
    Ok(())
}

/// Marks the begin; returns what was counted then, and when that was.
fn begin(counts: impl Fn() -> Result<Counts>) -> Result<(Counts, Instant)> {
    let mut before = counts()?;
    let mut begin = Instant::now();
    Mark::Begin.set();
    for _ in 1..BEGINS_MAX {
        let now = counts()?;
        if now.is_soon_after(&before) {
            break;
        }
        (before, begin) = (now, Instant::now());
        Mark::Begin.set();
    }
    Ok((before, begin))
}

/// Waits, not for long, until as many packets are on their way as at the beginning: the cores have then worked for as many
/// packets as the application has got. The host may have kept either from running at a window's edge. Returns what is counted now.
fn balanced(before: &Counts, counts: impl Fn() -> Result<Counts>) -> Result<Counts> {
    let wanted = before.on_their_way();
    let deadline = Instant::now() + BALANCE_MAX;
    loop {
        let (last, now) = (counts()?, counts()?);
        let is_balanced = wanted
            .zip(now.on_their_way())
            .is_none_or(|(wanted, now)| now.abs_diff(wanted) <= BALANCED_PKTS);
        if now.is_soon_after(&last) && is_balanced || Instant::now() >= deadline {
            return Ok(now);
        }
        thread::sleep(BALANCE_STEP);
    }
}

/// Says where the functions of modules are: ours, and the NIC's driver.
fn symbols() -> Result<()> {
    let of_modules = functions(|line| line.ends_with(']'))?;
    verdict::say(&Message::Symbols(of_modules));
    Ok(())
}

/// Says where those of the kernel are, if that was asked for. They are many, so it is before anything is measured.
pub(super) fn kernel_symbols() -> Result<()> {
    if std::env::var_os(KERNEL_FUNCTIONS).is_some() {
        let of_kernel = functions(|line| !line.ends_with(']'))?;
        verdict::say(&Message::KernelSymbols(of_kernel));
    }
    Ok(())
}

/// Returns the functions in those lines of the kernel's table that are wanted: names by address.
fn functions(is_wanted: impl Fn(&str) -> bool) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
    let functions = text.lines().filter(|line| is_wanted(line));
    let functions = functions.filter_map(|line| {
        let mut words = line.split_whitespace();
        let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
        // The padding in front of a function has a name of its own.
        let is_function = kind.eq_ignore_ascii_case("t") && !name.starts_with("__pfx_");
        is_function.then(|| (address.to_owned(), name.to_owned()))
    });
    Ok(functions.collect())
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
    use std::cell::Cell;

    use super::*;

    /// Counts that are taken one after the other; the last one remains.
    fn counting(pkts: &[(u64, u64)]) -> impl Fn() -> Result<Counts> + use<'_> {
        let next = Cell::new(0);
        move || {
            let (packets, arrived) = pkts[next.get()];
            next.set((next.get() + 1).min(pkts.len() - 1));
            Ok(Counts {
                packets,
                arrived: Some(arrived),
                ..Counts::default()
            })
        }
    }

    #[test]
    fn a_window_begins_again_if_much_was_delivered_around_its_mark() {
        let (before, _) =
            begin(counting(&[(0, 0), (500, 500), (900, 900), (930, 930)])).expect("good");
        assert_eq!(before.packets, 900);
        let moving: Vec<_> = (0..100).map(|step| (step * 500, 0)).collect();
        let (before, _) = begin(counting(&moving)).expect("good");
        assert_eq!(before.packets, 500 * (BEGINS_MAX as u64 - 1));
    }

    #[test]
    fn a_window_ends_where_counts_are_alike_and_as_many_packets_on_their_way() {
        let before = Counts {
            arrived: Some(100),
            ..Counts::default()
        };
        let counts = [
            // Kept from running, then too many on their way.
            (1_000, 1_100),
            (1_500, 1_600),
            (2_000, 2_900),
            (2_010, 2_900),
            (3_000, 3_100),
            (3_020, 3_110),
        ];
        let after = balanced(&before, counting(&counts)).expect("good");
        assert_eq!(after.packets, 3_020);
    }

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
