// SPDX-License-Identifier: GPL-2.0

//! The time that each layer may take, scaled to the machine. `cargo xtask docs` writes the table into `tests/README.md`.

use std::hint::black_box;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use rustix::time::{clock_gettime, ClockId};

use crate::tools;

/// The most time that a layer may take, as a multiple of its row.
const TOLERANCE: f64 = 1.5;

/// Minutes that all rows together may have, with a cold cache and with a warm one.
const MOST_COLD_MIN: u64 = 48;
const MOST_WARM_MIN: u64 = 22;

/// The time from which a run begins no further case in a guest, and looks no further into one that has failed. Continuous integration
/// ends at 90 minutes, and says nothing then about what a slow machine has found until there.
pub(super) const LAST_START: Duration = Duration::from_secs(75 * 60);
pub(super) const OUT_OF_TIME: &str =
    "no case begins so late in a run (tests/README.md has the minute); name layers to run fewer at a time";

/// The steps of the reference loop, and the processor time that they take on the machine on which the rows were measured, on all
/// cores at once: in a release build, for which the workspace's Cargo.toml asks not to optimise this crate.
const LOOP_STEPS: u64 = 5_000_000;
const LOOP: Duration = Duration::from_millis(65);

/// The time between two runs of the reference loop. Each takes a hundredth of the machine.
const SAMPLE_PERIOD: Duration = Duration::from_secs(15);

/// The time that a layer takes on two cores, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// The time when everything is built.
    warm_s: u64,
    /// The time when nothing is built. A run cannot tell how much there is to build, so this is what it may take.
    pub(super) cold_s: u64,
    /// The work that takes this time.
    purpose: &'static str,
}

const fn row(name: &'static str, warm_s: u64, cold_s: u64, purpose: &'static str) -> Row {
    Row {
        name,
        warm_s,
        cold_s,
        purpose,
    }
}

/// The rows, in the order in which the layers run.
const ROWS: &[Row] = &[
row("set-up", 15, 1400, "both kernels, the guest program and the ConnectX model: once for each content, before the first layer that needs them, and at the same time"),
row("tidy", 60, 165, "clippy above all, which checks the crates that we use first when the cache is cold"),
row("host", 165, 315, "`unit`, `loom`, `litmus` and `miri` at the same time, as Miri uses one core"),
row("module", 30, 35, "the module, sparse on both ways, and the description of netlink"),
row("hike", 220, 225, "the drawn cases in one guest, 20,000 random frames at each hook there, and 100,000 on this machine"),
row("vm", 380, 390, "about 100 cases, and a million runs of frames through the kernel's GRO, in two guests"),
row("vm-debug", 220, 230, "about 20 cases, in two guests"),
row("mlx5", 215, 225, "about 70 cases, and 20 seconds of fuzzing"),
row("hosts", 230, 240, "what hosts have beside the module, each with `enabled` 0 and 1, on one kernel"),
row("chaos", 330, 340, "120 steps in 12 sequences, on three kernels, two ways into the stack"),
row("stock", 270, 280, "the package, a short list of cases in two guests, and a case on each other kernel"),
];

/// Returns the row of this name, if there is one.
pub(super) fn find(name: &str) -> Option<Row> {
    ROWS.iter().copied().find(|row| row.name == name)
}

/// Returns the rows as a table in Markdown, and what holds for them.
pub(crate) fn table() -> String {
    let lines = ROWS.iter().map(|row| {
        format!(
            "| `{}` | {} | {} | {} |\n",
            row.name, row.warm_s, row.cold_s, row.purpose
        )
    });
    let head = "| layer | warm | cold | what it has them for |\n|---|---|---|---|\n";
    let rules = format!(
        "\nAll rows together have {MOST_COLD_MIN} minutes cold at most, and {MOST_WARM_MIN} minutes warm. A layer fails if it takes \
         more than {TOLERANCE} times its\ncold seconds, multiplied by the slowness of the machine. Of the layers in guests \
         the sum counts.\nNo case in a guest begins after {} minutes.\n",
        LAST_START.as_secs() / 60
    );
    head.to_owned() + &lines.collect::<String>() + &rules
}

/// Returns how long a layer whose row has so many seconds may take on a machine this many times as slow as that of the rows.
pub(super) fn allowed(row_s: u64, slower: f64) -> Duration {
    // CAST: some thousand seconds.
    Duration::from_secs(row_s).mul_f64(TOLERANCE * slower)
}

/// Fails if this work, for which the table has so many seconds, took longer than it may.
pub(super) fn check(work: &str, row_s: u64, took: Duration, slower: f64) -> Result<()> {
    let allowed = allowed(row_s, slower);
    ensure!(
        took <= allowed,
        "{work} took {:.0} s; tests/README.md has {row_s} s for that, and {:.0} s are allowed on this machine \
         ({slower:.1} times as slow as the table's)",
        took.as_secs_f64(),
        allowed.as_secs_f64()
    );
    Ok(())
}

/// Tells whether no further case may begin.
pub(super) fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// Does the work, and returns how many times as slow as that of the table this machine was meanwhile; one that is faster counts as
/// equal.
///
/// A machine that others use, too, changes its speed by half within minutes, so that one look before the work says little.
pub(super) fn slowness_during<T>(work: impl FnOnce() -> T) -> (T, f64) {
    thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        let sampler = scope.spawn(move || {
            let (mut sum, mut samples) = (0.0, 0.0);
            loop {
                sum += slowness_now();
                samples += 1.0;
                if ended.recv_timeout(SAMPLE_PERIOD) != Err(RecvTimeoutError::Timeout) {
                    return sum / samples;
                }
            }
        });
        let result = work();
        drop(end);
        (result, f64::max(tools::join(sampler), 1.0))
    })
}

/// Runs the reference loop on each core, and returns how many times as much processor time it took as on the machine of the table.
/// The time for which a core does other work does not count.
fn slowness_now() -> f64 {
    let cores: Vec<u64> = (0..tools::cores() as u64).collect();
    let took = tools::together(&cores, |&seed| {
        let start = processor_time();
        black_box(reference_loop(seed));
        processor_time().saturating_sub(start).as_secs_f64()
    });
    took.iter().sum::<f64>() / took.len() as f64 / LOOP.as_secs_f64()
}

/// Returns the processor time that this thread has had.
fn processor_time() -> Duration {
    // CAST: neither is negative, and the second is below a billion.
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Integers, branches and a table that fits into a core's own caches: what emulators and compilers live of.
fn reference_loop(seed: u64) -> u64 {
    let mut table = [seed; 1 << 14];
    let mut x = seed | 1;
    for _ in 0..LOOP_STEPS {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        // CAST: the low bits.
        let slot = &mut table[x as usize % (1 << 14)];
        *slot = if *slot > x { *slot ^ x } else { x };
    }
    table.iter().fold(0, |sum, value| sum ^ value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::test::{Layer, LAYERS, SET_UP};

    /// This many layers with guests run at the same time on the machine of the table.
    const GUESTS_AT_ONCE: u64 = 2;

    #[test]
    fn every_layer_has_a_row_and_all_fit() {
        let layers = LAYERS.iter().chain([&SET_UP]);
        let rows: BTreeSet<_> = layers.clone().map(Layer::row).collect();
        assert_eq!(rows, ROWS.iter().map(|row| row.name).collect());
        let guests: BTreeSet<_> = layers
            .filter(|layer| layer.in_guests())
            .map(Layer::row)
            .collect();
        let (guests, others): (Vec<Row>, Vec<Row>) = ROWS
            .iter()
            .copied()
            .partition(|row| guests.contains(row.name));
        let sum = |seconds: fn(&Row) -> u64| {
            let of = |rows: &[Row]| rows.iter().map(seconds).sum::<u64>();
            of(&others) + of(&guests) / GUESTS_AT_ONCE
        };
        let (warm_s, cold_s) = (sum(|row| row.warm_s), sum(|row| row.cold_s));
        assert!(warm_s <= MOST_WARM_MIN * 60, "{warm_s}");
        assert!(cold_s <= MOST_COLD_MIN * 60, "{cold_s}");
        assert!(ROWS.iter().all(|row| row.warm_s <= row.cold_s));
    }

    #[test]
    fn a_layer_may_take_half_more_than_its_row_and_on_a_slow_machine_more() {
        let check = |seconds, slower| check("layer vm", 100, Duration::from_secs(seconds), slower);
        assert!(check(150, 1.0).is_ok());
        assert!(check(299, 2.0).is_ok());
        let error = check(151, 1.0).unwrap_err().to_string();
        assert_eq!(
            error,
            "layer vm took 151 s; tests/README.md has 100 s for that, and 150 s are allowed on this machine (1.0 times as slow as \
             the table's)"
        );
    }

    #[test]
    fn the_machine_is_looked_at_while_the_work_is_done() {
        let (result, slower) = slowness_during(|| 7);
        assert_eq!(result, 7);
        assert!((1.0..100.0).contains(&slower), "{slower}");
        // Standing still takes no processor time.
        let start = processor_time();
        thread::sleep(Duration::from_millis(50));
        assert!(processor_time().saturating_sub(start) < Duration::from_millis(40));
    }
}
