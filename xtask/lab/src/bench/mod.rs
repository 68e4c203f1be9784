// SPDX-License-Identifier: GPL-2.0

//! Benchmarks: instructions per packet on the busiest core, for every stack a user could pick.
//!
//! Read in this order: [`cases`] and [`hike_cases`] (what is compared), [`boots`] (which case is measured in which boot of the guest),
//! [`session`] (one boot), [`sender`] (the frames from outside), [`instructions`] (what the plug-in counts), [`windows`] (from windows
//! to a [`row`]); then [`figure`] (which rows belong together), [`figure_text`] (its grids and remarks), [`overview`] (all in one
//! grid), [`published_figures`] (where each figure of the papers is), and where these go: [`terminal`], [`plot`], and the results that the
//! repository keeps ([`results`]).

pub(crate) mod measurement;
mod plot;
mod sender;
pub(crate) mod suites;
pub(crate) mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{bail, ensure, Context as _, Result};
use clap::builder::PossibleValuesParser;

use crate::sim::predictions::modelled::modelled;
use suites::cases::Suite;
use tables::published_figures;
use xtask::kernel::distribution;
use xtask::results;
use xtask::results::origin::Origin;
use xtask::results::row::{self, Row};
use xtask::step;
use xtask::vm::{Accel, Hardware};

/// The length of a window, if none is given.
const WINDOW_MS: u64 = 3000;

/// Options of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    hardware: Hardware,
    /// Set of cases to measure
    #[arg(long, value_enum, default_value_t)]
    suite: Suite,
    /// Only rows with this text in `CASE/MODE LANES`, such as `udp-16/`, `/mflow` or `/mflow 4`; with one of these texts, if it is
    /// given several times
    #[arg(long, value_name = "FILTER")]
    case: Vec<String>,
    /// On a distribution's kernel, as shipped, with the module for it: native, vanilla, RPS and mflow, on what its packages have.
    /// `own` is the one that apt offers here [default if given without a name]
    #[arg(long, value_name = "KERNEL", num_args = 0..=1, default_missing_value = "own", value_parser = PossibleValuesParser::new(distribution::names()))]
    distribution: Option<String>,
    /// Windows per case and mode; 3 in the suite quick, 5 in the others if not given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    windows: Option<u32>,
    /// Length of a window in milliseconds
    #[arg(long, value_name = "MS", default_value_t = WINDOW_MS, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    window_ms: u64,
    /// Also write the rows to this file, each time one is complete
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write plots into this folder; also show what is modelled, and where each of the papers' figures is
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Keep the rows in xtask/lab/results, and write xtask/lab/RESULTS.md and README.md from all that are there
    #[arg(long, conflicts_with = "compare")]
    report: bool,
    /// Show the rows that an earlier run wrote with --json, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "suite", "case"])]
    from: Option<PathBuf>,
    /// Compare what two runs wrote with --json: fails when a primary figure differs by more than 5 %
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["from", "json", "suite", "case"])]
    compare: Option<Vec<PathBuf>>,
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    if let Some([before, after]) = options.compare.as_deref() {
        return tables::compare::run(before, after);
    }
    if let Some(from) = &options.from {
        let mut rows = row::read(from)?;
        row::compare(&mut rows);
        show(&options, &rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        options.hardware.accel == Accel::Tcg,
        "instructions are counted while QEMU translates them, which it does with --accel tcg only"
    );
    if let Some(path) = &options.json {
        check_file(path)?;
    }
    if options.report {
        options.origin()?.check()?;
        results::merge(&[])?;
    }
    if let Some(folder) = &options.svg {
        check_folder(folder)?;
    }
    // What has been measured is not lost when something later fails.
    let measured = measurement::boots::all(&options, |rows| match &options.json {
        Some(path) => write_rows(path, rows),
        None => Ok(()),
    })?;
    show(&options, &measured.rows)?;
    if !measured.failures.is_empty() {
        bail!("{}", measured.failures.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn write_rows(path: &Path, rows: &[Row]) -> Result<()> {
    let json = serde_json::to_string_pretty(rows)? + "\n";
    fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))
}

fn show(options: &Options, rows: &[Row]) -> Result<()> {
    print!("{}", tables::terminal::text(rows));
    if options.report {
        results::merge(rows)?;
        xtask::docs::run()?;
    }
    let Some(folder) = &options.svg else {
        return Ok(());
    };
    let modelled = step::work("model what needs more cores", || Ok(modelled(rows)))?;
    if let Some(modelled) = &modelled {
        println!("\n{}", modelled.text.trim());
    }
    println!("\nAll figures of the papers");
    print!(
        "{}",
        published_figures::grid(rows, modelled.is_some()).text()
    );
    plot::write(rows, modelled.as_ref(), folder)
}

impl Options {
    /// Returns whether a row is asked for.
    fn has(&self, row: &str) -> bool {
        self.case.is_empty() || self.case.iter().any(|text| row.contains(text))
    }

    /// Returns the number of windows of each row.
    fn windows(&self) -> u32 {
        self.windows.unwrap_or(self.suite.windows())
    }

    /// Returns the origin of what is measured now, with the options that make a difference to it.
    fn origin(&self) -> Result<Origin> {
        let nic = self.hardware.nic.name();
        let given = [
            (self.suite != Suite::Quick).then(|| format!("suite {}", self.suite.name())),
            self.distribution
                .as_ref()
                .map(|name| format!("distribution {name}")),
            (nic != "virtio").then(|| format!("nic {nic}")),
            self.hardware
                .append
                .as_ref()
                .map(|words| format!("append '{words}'")),
            (!self.case.is_empty()).then(|| {
                let each = self.case.iter().map(|text| format!("case '{text}'"));
                each.collect::<Vec<_>>().join(" --")
            }),
            self.windows.map(|count| format!("windows {count}")),
            (self.window_ms != WINDOW_MS).then(|| format!("window-ms {}", self.window_ms)),
        ];
        let given: String = given
            .iter()
            .flatten()
            .map(|option| format!(" --{option}"))
            .collect();
        Origin::now(format!("cargo xtask bench{given}"), self.windows())
    }
}

// An hour of measurements must not be lost because its result cannot be written.

/// Fails if a file cannot be written; leaves what is in it.
fn check_file(path: &Path) -> Result<()> {
    let existed = path.exists();
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    }
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| {
            format!(
                "cannot write {}; give a file in a folder that you may write to",
                path.display()
            )
        })?;
    if !existed {
        // An empty file is no result.
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Fails if files cannot be made in a folder, which is made first if it has to be.
fn check_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path)
        .and_then(|()| tempfile::tempfile_in(path))
        .with_context(|| {
            format!(
                "cannot write plots into {}; give a folder that you may write to",
                path.display()
            )
        })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Parser as _, ValueEnum as _};

    use super::measurement::fixture;
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// Returns the names of all rows of all suites.
    fn names() -> BTreeSet<String> {
        let suites = Suite::value_variants().iter();
        let cases: Vec<_> = suites.flat_map(|&suite| suites::all(suite)).collect();
        let rows = cases
            .iter()
            .flat_map(|case| case.modes.iter().map(|mode| mode.name_in(case)));
        rows.collect()
    }

    #[test]
    fn what_is_there_stays_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().expect("a folder");
        let (old, new) = (dir.path().join("old.json"), dir.path().join("new/new.json"));
        fs::write(&old, "[]").expect("written");
        check_file(&old).expect("writable");
        check_file(&new).expect("writable");
        check_folder(&dir.path().join("plots")).expect("writable");
        assert_eq!(fs::read_to_string(&old).expect("there"), "[]");
        assert!(!new.exists());
        let left = fs::read_dir(dir.path().join("plots")).expect("made");
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn rows_that_are_kept_can_be_measured_again() {
        let known = names();
        for row in results::read(xtask::paths::project()).expect("rows") {
            let name = format!("{}/{}", row.case, row.stack());
            assert!(known.contains(&name), "no case and mode {name}");
        }
    }

    /// Returns rows that could be measured, of a mode of some suite on a kernel and a NIC that the document has.
    fn rows() -> Vec<Row> {
        let places = [
            (None, "virtio"),
            (None, "mlx5"),
            (Some("own"), "virtio"),
            (Some("debian-13"), "virtio"),
            (Some("backports"), "virtio"),
        ];
        let names = names();
        let rows = places.into_iter().flat_map(|(distribution, nic)| {
            names.iter().map(move |name| {
                let (case, stack) = name.split_once('/').expect("a case and a mode");
                let (mode, lanes) = stack.split_once(' ').unwrap_or((stack, "0"));
                let mut row = fixture::row(case, mode, lanes.parse().expect("a number"));
                let insn = row.insn_per_packet.get_or_insert_default();
                insn.to_socket = Some(1.0);
                row.distribution = distribution.map(str::to_owned);
                row.nic = nic.to_owned();
                row
            })
        });
        rows.collect()
    }

    #[test]
    fn rows_that_the_document_names_can_be_measured() {
        let project = xtask::paths::project();
        let text = results::document_of(project, &rows());
        let text = text.unwrap_or_else(|error| panic!("{error:#}"));
        assert!(text.contains("## Request and answer"), "{text}");
        let known = names();
        let awaited = results::awaited(project).expect("templates");
        assert!(!awaited.is_empty());
        for name in awaited {
            let (_, plain) = name.rsplit_once(':').unwrap_or(("", &name));
            assert!(known.contains(plain), "no case and mode {name}");
        }
    }

    #[test]
    fn the_command_of_a_row_has_what_makes_a_difference() {
        let command = |line: &str| {
            let options = Line::try_parse_from(line.split(' '))
                .expect("options")
                .options;
            options.origin().expect("an origin").command
        };
        assert_eq!(command("bench --json x --svg y"), "cargo xtask bench");
        let line = "bench --suite paper --nic mlx5 --case /mflow --windows 2 --window-ms 1000";
        let expected = "cargo xtask bench --suite paper --nic mlx5 --case '/mflow' --windows 2 --window-ms 1000";
        assert_eq!(command(line), expected);
    }

    #[test]
    fn what_cannot_be_written_is_one_sentence() {
        let dir = tempfile::tempdir().expect("a folder");
        let taken = dir.path().join("taken");
        fs::write(&taken, "a file").expect("written");
        // A folder is no file, a file is no folder; root may write everywhere else.
        let error = check_file(dir.path()).expect_err("a folder").to_string();
        assert!(error.starts_with("cannot write ") && error.lines().count() == 1);
        let error = check_file(&taken.join("x.json")).expect_err("no folder");
        assert!(error.to_string().starts_with("cannot create the folder "));
        let error = check_folder(&taken).expect_err("a file").to_string();
        assert!(
            error.starts_with("cannot write plots into ") && error.contains("give a folder"),
            "{error}"
        );
    }
}
