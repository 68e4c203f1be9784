// SPDX-License-Identifier: GPL-2.0

//! How long each layer may take: the table in `tests/README.md`, scaled to the machine.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};

use crate::paths;
use crate::tools;

/// How many times its row a layer may take: guests slow down by more than the reference loop, on the checking kernel most of all.
const TOLERANCE: f64 = 2.0;

/// The steps of the reference loop, and how long they take on the machine on which the table was measured, while nothing else
/// runs: in a release build, for which the workspace's Cargo.toml asks not to optimise this crate.
const LOOP_STEPS: u64 = 20_000_000;
const LOOP: Duration = Duration::from_millis(260);

pub(super) struct Budget(BTreeMap<String, Row>);

/// How many seconds a layer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// When everything is built.
    pub(super) warm_s: u64,
    /// When nothing is; a run cannot tell how much there is to build, so this is what it may take.
    pub(super) cold_s: u64,
}

impl Budget {
    pub(super) fn read() -> Result<Self> {
        let path = paths::project().join("tests/README.md");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text)
    }

    /// Reads the rows `` | `vm` | 300 | 300 | ... |``, and nothing else.
    fn parse(text: &str) -> Result<Self> {
        let rows: BTreeMap<String, Row> = text
            .lines()
            .filter_map(|line| {
                let mut cells = line.split('|').map(str::trim).skip(1);
                let name = cells.next()?.trim_matches('`').to_owned();
                let (warm_s, cold_s) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
                Some((name, Row { warm_s, cold_s }))
            })
            .collect();
        ensure!(
            !rows.is_empty(),
            "tests/README.md has no table of seconds: | LAYER | WARM | COLD |"
        );
        Ok(Self(rows))
    }

    pub(super) fn row(&self, layer: &str) -> Result<Row> {
        let row = self.0.get(layer).copied();
        row.with_context(|| format!("the table of seconds in tests/README.md has no row `{layer}`"))
    }
}

impl Row {
    /// Returns how long the layer may take on a machine so many times as slow as that of the table.
    pub(super) fn allowed(self, slower: f64) -> Duration {
        // CAST: some thousand seconds.
        Duration::from_secs(self.cold_s).mul_f64(TOLERANCE * slower)
    }

    /// Fails if the layer took longer than it may.
    pub(super) fn check(self, layer: &str, took: Duration, slower: f64) -> Result<()> {
        let allowed = self.allowed(slower);
        ensure!(
            took <= allowed,
            "layer {layer} took {:.0} s; its row in tests/README.md says {} s, and {:.0} s are allowed on this machine \
             ({slower:.1} times as slow as the table's)",
            took.as_secs_f64(),
            self.cold_s,
            allowed.as_secs_f64()
        );
        Ok(())
    }
}

/// Measures how many times as slow this machine is now as that of the table; one that is faster counts as equal.
pub(super) fn slower() -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for core in 0..tools::cores() {
            scope.spawn(move || black_box(reference_loop(core as u64)));
        }
    });
    (start.elapsed().as_secs_f64() / LOOP.as_secs_f64()).max(1.0)
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

    /// The whole run, with a cold cache.
    const MOST_COLD_S: u64 = 50 * 60;
    /// The same with a warm one.
    const MOST_WARM_S: u64 = 27 * 60;
    /// So many layers with guests run at the same time on the machine of the table.
    const GUESTS_AT_ONCE: u64 = 2;

    #[test]
    fn the_table_has_every_layer_and_fits() {
        let budget = Budget::read().unwrap();
        let layers = LAYERS.iter().chain([&SET_UP]);
        let (guests, others): (Vec<&Layer>, Vec<_>) = layers.partition(|layer| layer.in_guests());
        let rows =
            |layers: Vec<&Layer>| -> BTreeSet<_> { layers.into_iter().map(Layer::row).collect() };
        let (guests, others) = (rows(guests), rows(others));
        let sum = |rows: &BTreeSet<&str>, seconds: fn(Row) -> u64| -> u64 {
            rows.iter()
                .map(|row| seconds(budget.row(row).unwrap()))
                .sum()
        };
        let warm = |row: Row| row.warm_s;
        let warm_s = sum(&others, warm) + sum(&guests, warm) / GUESTS_AT_ONCE;
        assert!(warm_s <= MOST_WARM_S, "{warm_s}");
        let cold = |row: Row| row.cold_s;
        let cold_s = sum(&others, cold) + sum(&guests, cold) / GUESTS_AT_ONCE;
        assert!(cold_s <= MOST_COLD_S, "{cold_s}");
        assert!(budget.0.values().all(|row| row.warm_s <= row.cold_s));
    }

    #[test]
    fn a_layer_may_take_twice_its_row_and_on_a_slow_machine_more() {
        let text = "| layer | warm | cold |\n|---|---|---|\n| `vm` | 80 | 100 | why |\n";
        let row = Budget::parse(text).unwrap().row("vm").unwrap();
        let check = |seconds, slower| row.check("vm", Duration::from_secs(seconds), slower);
        assert!(check(200, 1.0).is_ok());
        assert!(check(399, 2.0).is_ok());
        let error = check(201, 1.0).unwrap_err().to_string();
        assert_eq!(
            error,
            "layer vm took 201 s; its row in tests/README.md says 100 s, and 200 s are allowed on this machine \
             (1.0 times as slow as the table's)"
        );
        assert!(Budget::parse("| vm | 1 s | 2 s |\n").is_err());
    }
}
