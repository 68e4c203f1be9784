// SPDX-License-Identifier: GPL-2.0

//! Benchmarks: instructions per packet on the busiest core, for every stack a user could pick.
//!
//! Read in this order: [`cases`] (what is compared), [`run`] (which is measured when), [`measure`] (one boot of the guest),
//! [`feed`] (the sender outside of it), [`counts`] (what the plug-in says), [`summary`] and [`notes`] (from windows to
//! a [`row`]); then [`figure`] (which rows belong together), [`headline`], [`table`], [`plot`] and [`report`].

mod cases;
mod compare;
mod content;
mod cores;
mod counts;
mod feed;
mod figure;
#[cfg(test)]
mod fixture;
mod grid;
mod headline;
mod measure;
mod notes;
mod paper;
mod plot;
mod plugin;
mod report;
pub(crate) mod row;
mod run;
mod summary;
mod table;
mod writable;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{bail, ensure, Context as _, Result};

use self::cases::Suite;
use self::report::Provenance;
use self::row::Row;
use xtask::vm::{Accel, Hardware};

/// Options of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    hardware: Hardware,
    /// How much to measure
    #[arg(long, value_enum, default_value_t)]
    suite: Suite,
    /// Only cases with this text in `CASE/MODE`, such as `udp-16/` or `/mflow`
    #[arg(long, value_name = "FILTER")]
    case: Option<String>,
    /// Windows per case and mode; 3 in the suite quick, 5 in paper if not given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    windows: Option<u32>,
    /// Length of a window in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    window_ms: u64,
    /// Also write the rows to this file, each time one is complete
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write plots into this folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write a Markdown report to this file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Show the rows that an earlier run wrote with --json, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "suite", "case"])]
    from: Option<PathBuf>,
    /// Compare what two runs wrote with --json: fails when a primary figure differs by more than 5 %
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["from", "json", "suite", "case"])]
    compare: Option<Vec<PathBuf>>,
}

/// Runs `bench`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    if let Some([before, after]) = options.compare.as_deref() {
        return compare::run(before, after);
    }
    if let Some(from) = &options.from {
        let rows = compare::read(from)?;
        show(&options, &rows, &Provenance::default())?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        options.hardware.accel == Accel::Tcg,
        "instructions are counted while QEMU translates them, which it does with --accel tcg only"
    );
    for path in options.json.iter().chain(&options.report) {
        writable::file(path)?;
    }
    if let Some(folder) = &options.svg {
        writable::folder(folder)?;
    }
    // What has been measured is not lost when something later fails.
    let measured = run::all(&options, |rows| match &options.json {
        Some(path) => write_rows(path, rows),
        None => Ok(()),
    })?;
    show(&options, &measured.rows, &measured.provenance)?;
    if !measured.failures.is_empty() {
        bail!("{}", measured.failures.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn write_rows(path: &Path, rows: &[Row]) -> Result<()> {
    let json = serde_json::to_string_pretty(rows)? + "\n";
    fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))
}

fn show(options: &Options, rows: &[Row], provenance: &Provenance) -> Result<()> {
    print!("{}", table::text(rows));
    let plots = match &options.svg {
        Some(folder) => plot::write(rows, folder)?,
        None => Vec::new(),
    };
    if let Some(file) = &options.report {
        report::write(file, rows, provenance, &plots)?;
    }
    Ok(())
}
