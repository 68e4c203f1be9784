// SPDX-License-Identifier: GPL-2.0

//! Measures what was asked for: one boot for each kernel, one row for each mode of a case.

use std::process::Command;

use anyhow::{bail, Result};
use mflow_protocol::bench as protocol;

use super::cases::{self, Case, Mode, What};
use super::measure::Session;
use super::report::Provenance;
use super::row::Row;
use super::{plugin, summary, Options};
use crate::kernel::Flavor;
use crate::paths;
use crate::step;
use crate::tools;

/// What came out.
pub(super) struct Measured {
    pub(super) rows: Vec<Row>,
    /// What could not be measured, and why.
    pub(super) failures: Vec<String>,
    pub(super) provenance: Provenance,
}

/// A mode of a case, what the guest is told to do for it, and the place of its row.
struct Task<'a> {
    case: &'a Case,
    mode: &'a Mode,
    order: protocol::Case,
    place: usize,
}

/// What is to be measured.
struct Plan<'a> {
    /// The rows of modes that do not exist yet; the others' are still empty.
    rows: Vec<Option<Row>>,
    boots: Vec<(Flavor, Vec<Task<'a>>)>,
}

/// Measures all that was asked for.
pub(super) fn all(options: &Options) -> Result<Measured> {
    let cases = cases::all(options.suite);
    let Plan { mut rows, boots } = plan(options, &cases)?;
    let mut failures = Vec::new();
    let mut provenance = Provenance {
        commit: commit(),
        qemu: plugin::qemu_version(options.hardware.nic),
        ..Provenance::default()
    };
    for (flavor, tasks) in boots.iter().filter(|(_, tasks)| !tasks.is_empty()) {
        let orders: Vec<_> = tasks.iter().map(|task| task.order.clone()).collect();
        let mut session = Session::boot(*flavor, &options.hardware, &orders)?;
        provenance.kernel = session.release().to_owned();
        for task in tasks {
            let name = task.name();
            match step::work(&format!("measure {name}"), || session.next(&task.order)) {
                Ok(windows) => {
                    let (case, mode) = (task.case, task.mode);
                    let row = summary::row(options.suite, case, mode, &task.order, &windows)?;
                    rows[task.place] = Some(row);
                }
                Err(error) => failures.push(format!("{name}: {error:#}")),
            }
        }
        session.end()?;
    }
    let mut rows: Vec<Row> = rows.into_iter().flatten().collect();
    for row in &mut rows {
        row.nic = options.hardware.nic.name().to_owned();
    }
    summary::compare(&mut rows);
    Ok(Measured {
        rows,
        failures,
        provenance,
    })
}

fn plan<'a>(options: &Options, cases: &'a [Case]) -> Result<Plan<'a>> {
    let mut rows: Vec<Option<Row>> = Vec::new();
    let (mut with_hooks, mut without_hooks) = (Vec::new(), Vec::new());
    for case in cases {
        for mode in &case.modes {
            let name = format!("{}/{}", case.name, mode.name);
            if options
                .case
                .as_ref()
                .is_some_and(|text| !name.contains(text))
            {
                continue;
            }
            let (boot, stack) = match &mode.stack {
                What::Stack(stack) => (&mut with_hooks, stack),
                What::WithoutHooks(stack) => (&mut without_hooks, stack),
                What::Missing(why) => {
                    rows.push(Some(summary::missing(options.suite, case, mode, why)));
                    continue;
                }
            };
            boot.push(Task {
                case,
                mode,
                order: protocol::Case {
                    stack: stack.clone(),
                    load: case.load.clone(),
                    windows: options.windows,
                    window_ms: options.window_ms,
                },
                place: rows.len(),
            });
            rows.push(None);
        }
    }
    if rows.is_empty() {
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        bail!(
            "no case matches {:?}; the cases of this suite are: {}",
            options.case.as_deref().unwrap_or_default(),
            names.join(", ")
        );
    }
    Ok(Plan {
        rows,
        boots: vec![(Flavor::Vm, with_hooks), (Flavor::Off, without_hooks)],
    })
}

impl Task<'_> {
    fn name(&self) -> String {
        let name = format!("{}/{}", self.case.name, self.mode.name);
        match self.order.stack {
            protocol::Stack::Mflow { lanes, .. } => format!("{name} {lanes}"),
            _ => name,
        }
    }
}

/// Returns the commit that is measured, marked if files have been changed since.
fn commit() -> String {
    tools::output(Command::new("git").current_dir(paths::project()).args([
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
    ]))
    .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
