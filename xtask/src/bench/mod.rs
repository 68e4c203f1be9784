// SPDX-License-Identifier: GPL-2.0

//! Benchmarks: instructions per packet on the busiest core, for every stack a user could pick.
//!
//! Read in this order: [`cases`] (what is compared), [`measure`] (one boot of the guest), [`feed`] and [`frames`] (the sender
//! outside of it), [`counts`] (what the plug-in says), [`summary`] (from windows to a [`row`]).

mod cases;
mod counts;
mod feed;
mod frames;
mod measure;
mod plugin;
pub(crate) mod row;
mod summary;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, ensure, Context as _, Result};
use mflow_protocol::bench as protocol;

use self::cases::{Case, Mode, Suite, What};
use self::measure::Session;
use self::row::Row;
use crate::kernel::Flavor;
use crate::step;
use crate::vm::Hardware;

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
    /// Windows per case and mode
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    windows: u32,
    /// Length of a window in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    window_ms: u64,
    /// Also write the rows to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A mode of a case, and what the guest is told to do for it.
struct Task<'a> {
    case: &'a Case,
    mode: &'a Mode,
    order: protocol::Case,
}

/// Runs `bench`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let cases = cases::all(options.suite);
    let wanted = |case: &Case, mode: &Mode| {
        let name = format!("{}/{}", case.name, mode.name);
        options.case.as_ref().is_none_or(|text| name.contains(text))
    };
    let mut rows: Vec<Option<Row>> = Vec::new();
    // One boot for each kernel, with the place of each result among the rows.
    let mut boots: Vec<(Flavor, Vec<(usize, Task<'_>)>)> =
        vec![(Flavor::Vm, Vec::new()), (Flavor::Off, Vec::new())];
    for case in &cases {
        for mode in case.modes.iter().filter(|mode| wanted(case, mode)) {
            let place = rows.len();
            let (boot, stack) = match &mode.stack {
                What::Stack(stack) => (0, stack),
                What::WithoutHooks(stack) => (1, stack),
                What::Missing(why) => {
                    rows.push(Some(summary::missing(options.suite, case, mode, why)));
                    continue;
                }
            };
            rows.push(None);
            let order = protocol::Case {
                stack: stack.clone(),
                load: case.load.clone(),
                windows: options.windows,
                window_ms: options.window_ms,
            };
            boots[boot].1.push((place, Task { case, mode, order }));
        }
    }
    if rows.is_empty() {
        let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
        bail!(
            "no case matches {:?}; the cases are: {}",
            options.case.unwrap_or_default(),
            names.join(", ")
        );
    }
    if let Some(path) = &options.json {
        // Before an hour is spent on what cannot be written.
        fs::write(path, "[]\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut failures = Vec::new();
    for (flavor, tasks) in boots.iter().filter(|(_, tasks)| !tasks.is_empty()) {
        let orders: Vec<_> = tasks.iter().map(|(_, task)| task.order.clone()).collect();
        let mut session = Session::boot(*flavor, &options.hardware, &orders)?;
        for (place, task) in tasks {
            let name = format!("{}/{}", task.case.name, mode_name(task));
            match step::work(&format!("measure {name}"), || session.next(&task.order)) {
                Ok(windows) => {
                    let row =
                        summary::row(options.suite, task.case, task.mode, &task.order, &windows)?;
                    println!("{name}: {}", brief(&row));
                    rows[*place] = Some(row);
                }
                Err(error) => failures.push(format!("{name}: {error:#}")),
            }
        }
        session.end()?;
    }
    let mut rows: Vec<Row> = rows.into_iter().flatten().collect();
    summary::compare(&mut rows);
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&rows)? + "\n";
        fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(ExitCode::SUCCESS)
}

fn mode_name(task: &Task<'_>) -> String {
    match task.order.stack {
        protocol::Stack::Mflow { lanes, .. } => format!("{}-{lanes}", task.mode.name),
        _ => task.mode.name.to_owned(),
    }
}

fn brief(row: &Row) -> String {
    let Some(insn) = &row.insn_per_packet else {
        return "not available".to_owned();
    };
    let cores: Vec<String> = insn
        .by_cpu
        .iter()
        .map(|core| {
            format!(
                "{} {}: {:.0} ({:.0} % idle)",
                core.role,
                core.cpu,
                core.insn_per_packet,
                100.0 * core.idle
            )
        })
        .collect();
    format!(
        "busiest {:.0} ({:.0} to {:.0}), total {:.0}; {}; {} lost, {} reordered",
        insn.busiest,
        insn.min,
        insn.max,
        insn.total,
        cores.join(", "),
        row.lost,
        row.reordered
    )
}
