// SPDX-License-Identifier: GPL-2.0

//! The benchmark: shows and compares results that have been measured.

mod compare;
mod content;
mod cores;
mod figure;
#[cfg(test)]
mod fixture;
mod grid;
mod paper;
mod plot;
mod report;
mod row;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use report::Provenance;

/// Options of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Show the rows of this file, which an earlier run wrote
    #[arg(long, value_name = "FILE", required_unless_present = "compare")]
    from: Option<PathBuf>,
    /// Write plots into this folder
    #[arg(long, value_name = "DIR", requires = "from")]
    svg: Option<PathBuf>,
    /// Write a Markdown report to this file
    #[arg(long, value_name = "FILE", requires = "from")]
    report: Option<PathBuf>,
    /// Compare two files: fails when a primary figure differs by more than 5 %
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with = "from")]
    compare: Option<Vec<PathBuf>>,
}

/// Runs `bench`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    if let Some([before, after]) = options.compare.as_deref() {
        return compare::run(before, after);
    }
    let Some(from) = &options.from else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut rows = compare::read(from)?;
    for row in &mut rows {
        row.paper = paper::of(&row.case, &row.mode, row.lanes);
    }
    print!("{}", table::text(&rows));
    let plots = match &options.svg {
        Some(folder) => plot::write(&rows, folder)?,
        None => Vec::new(),
    };
    if let Some(file) = &options.report {
        report::write(file, &rows, &Provenance::default(), &plots)?;
    }
    Ok(ExitCode::SUCCESS)
}
