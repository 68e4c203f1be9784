// SPDX-License-Identifier: GPL-2.0

//! Measures what was asked for: one boot for each kernel, one row for each mode of a case.
//!
//! The cost of mflow where it does nothing is smaller than the differences between boots of one stack, because each boot draws
//! other seeds for its hash tables (two addresses in one chain cost half a per cent). Such cases have one window in each of
//! several boots.

use std::collections::BTreeMap;

use anyhow::{bail, Result};
use clap::ValueEnum as _;
use mflow_protocol::bench as protocol;

use super::session::{Boots, Death, Outcome, Session};
use super::{plugin, windows};
use crate::bench::suites;
use crate::bench::suites::cases::{Case, Mode, StackChoice, Suite};
use crate::bench::Options;
use xtask::kernel::Flavor;
use xtask::results::origin::Origin;
use xtask::results::row::{self, Row};
use xtask::step;

/// After more crashes of the emulator than this, the benchmark gives up.
const MOST_DEATHS: usize = 4;

pub(crate) struct Measured {
    pub(crate) rows: Vec<Row>,
    pub(crate) failures: Vec<String>,
}

/// A mode of a case, the order to the guest, and the place of its row.
struct Task<'a> {
    case: &'a Case,
    mode: &'a Mode,
    order: protocol::Case,
    place: usize,
}

struct Plan<'a> {
    /// The rows of modes that do not exist yet; the others' are still empty.
    rows: Vec<Option<Row>>,
    boots: Vec<(Flavor, Vec<Task<'a>>)>,
}

struct Progress<'a> {
    options: &'a Options,
    /// The rows of modes that do not exist yet, each in its place.
    missing: Vec<Option<Row>>,
    outcomes: BTreeMap<usize, (&'a Task<'a>, Outcome)>,
    failures: Vec<String>,
    origin: Origin,
    boots: usize,
    deaths: usize,
}

/// Measures all that was asked for; `save` gets all rows so far whenever there is another.
pub(crate) fn all(options: &Options, save: impl Fn(&[Row]) -> Result<()>) -> Result<Measured> {
    let cases = suites::all(options.suite);
    let Plan { rows, boots } = plan(options, &cases)?;
    let mut progress = Progress {
        options,
        missing: rows,
        outcomes: BTreeMap::new(),
        failures: Vec::new(),
        origin: options.origin()?,
        boots: 0,
        deaths: 0,
    };
    for (flavor, tasks) in &boots {
        let mut left = tasks.as_slice();
        while !left.is_empty() {
            left = progress.boot(*flavor, left, &save)?;
        }
    }
    Ok(Measured {
        rows: progress.rows()?,
        failures: progress.failures,
    })
}

impl<'a> Progress<'a> {
    /// Measures in one boot; returns the tasks that are left to another boot, because a case failed or this guest died.
    fn boot(
        &mut self,
        flavor: Flavor,
        tasks: &'a [Task<'a>],
        save: &impl Fn(&[Row]) -> Result<()>,
    ) -> Result<&'a [Task<'a>]> {
        let orders: Vec<_> = tasks.iter().map(|task| task.order.clone()).collect();
        self.boots += 1;
        let kernel = match self.options.distribution.as_deref() {
            Some(name) => Boots::Distribution(name),
            None => Boots::Ours(flavor),
        };
        let mut session = Session::boot(self.boots, kernel, &self.options.hardware, &orders)?;
        // A first boot has installed the emulator.
        let qemu = plugin::qemu_version(self.options.hardware.nic);
        self.origin.booted(session.release(), &qemu);
        let mut left = tasks;
        while let [task, rest @ ..] = left {
            let name = task.name();
            let measured = step::work(&format!("measure {name}"), || session.next());
            match (measured, session.death()) {
                (Ok(outcome), _) => {
                    self.add(task, outcome);
                    save(&self.rows()?)?;
                }
                // The case did not cause it: measure it again.
                (Err(_), Some(Death::Emulators)) if self.deaths < MOST_DEATHS => {
                    self.deaths += 1;
                    return Ok(left);
                }
                // What a failed case has left running or queued would be measured with the next one, so that gets another guest.
                (Err(error), _) => {
                    self.failures.push(format!("{name}: {error:#}"));
                    return Ok(rest);
                }
            }
            left = rest;
        }
        if let Err(error) = session.end() {
            self.failures
                .push(format!("after the last case: {error:#}"));
        }
        Ok(left)
    }

    fn add(&mut self, task: &'a Task<'a>, outcome: Outcome) {
        match self.outcomes.get_mut(&task.place) {
            Some((_, known)) => known.windows.extend(outcome.windows),
            None => {
                self.outcomes.insert(task.place, (task, outcome));
            }
        }
    }

    fn rows(&self) -> Result<Vec<Row>> {
        let mut rows = self.missing.clone();
        for (place, (task, outcome)) in &self.outcomes {
            let (case, mode) = (task.case, task.mode);
            let row = windows::row(self.options.suite, case, mode, &task.order, outcome)?;
            rows[*place] = Some(row);
        }
        let mut rows: Vec<Row> = rows.into_iter().flatten().collect();
        for row in &mut rows {
            self.options.hardware.nic.name().clone_into(&mut row.nic);
            row.distribution.clone_from(&self.options.distribution);
            row.origin = Some(self.origin.clone());
        }
        row::compare(&mut rows);
        Ok(rows)
    }
}

fn plan<'a>(options: &Options, cases: &'a [Case]) -> Result<Plan<'a>> {
    for filter in &options.case {
        require_match(options.suite, cases, filter)?;
    }
    let mut rows: Vec<Option<Row>> = Vec::new();
    let windows = options.windows();
    // CAST: a number of windows.
    let mut boots: Vec<(Flavor, Vec<Task<'_>>)> = (0..windows as usize)
        .flat_map(|_| [(Flavor::Vm, Vec::new()), (Flavor::Off, Vec::new())])
        .collect();
    for case in cases {
        for mode in &case.modes {
            let name = mode.name_in(case);
            if options.distribution.is_some() && !mode.is_without_patches() {
                continue;
            }
            if !options.has(&name) {
                continue;
            }
            let (flavor, stack) = match &mode.stack {
                StackChoice::Stack(stack) => (Flavor::Vm, stack),
                StackChoice::WithoutHooks(stack) => (Flavor::Off, stack),
                StackChoice::Missing(why) => {
                    rows.push(Some(windows::missing(options.suite, case, mode, why)));
                    continue;
                }
            };
            let times = if case.every_boot { boots.len() } else { 1 };
            let of_flavor = boots.iter_mut().filter(|(of, _)| *of == flavor);
            for (_, boot) in of_flavor.take(times) {
                boot.push(Task {
                    case,
                    mode,
                    order: protocol::Case {
                        stack: stack.clone(),
                        front: mode.front,
                        load: case.load.clone(),
                        windows: if case.every_boot { 1 } else { windows },
                        window_ms: options.window_ms,
                    },
                    place: rows.len(),
                });
            }
            rows.push(None);
        }
    }
    if rows.is_empty() {
        bail!("these rows need our patches; try again without --distribution");
    }
    Ok(Plan { rows, boots })
}

/// Fails with what there is instead, if no row of a suite matches.
fn require_match(suite: Suite, cases: &[Case], filter: &str) -> Result<()> {
    if matches(cases, filter) {
        return Ok(());
    }
    let mut others = Suite::value_variants().iter();
    if let Some(other) =
        others.find(|&&other| other != suite && matches(&suites::all(other), filter))
    {
        bail!(
            "no case of this suite matches {filter:?}; try: --suite {}",
            other.name()
        );
    }
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    bail!(
        "no case matches {filter:?}; the cases of this suite are: {}",
        names.join(", ")
    );
}

fn matches(cases: &[Case], filter: &str) -> bool {
    cases.iter().any(|case| {
        let mut modes = case.modes.iter();
        modes.any(|mode| mode.name_in(case).contains(filter))
    })
}

impl Task<'_> {
    fn name(&self) -> String {
        self.mode.name_in(self.case)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(line: &[&str]) -> Options {
        let words = ["bench"].iter().chain(line);
        Line::try_parse_from(words).expect("options").options
    }

    #[test]
    fn a_filter_chooses_modes_and_no_match_is_one_sentence() {
        let cases = suites::all(Suite::Quick);
        let chosen = options(&["--case", "udp-16/mflow"]);
        let plan = plan(&chosen, &cases).expect("a plan");
        assert!(plan.rows.iter().all(Option::is_none));
        assert!(plan.boots[1].1.is_empty());
        let names: Vec<String> = plan.boots[0].1.iter().map(Task::name).collect();
        // The text may be anywhere in a name.
        assert_eq!(
            names,
            [
                "udp-16/mflow 1",
                "udp-16/mflow 2",
                "udp-16/mflow 4",
                "udp-16/mflow 8",
                "latency-udp-16/mflow 2"
            ]
        );
        let of_lanes = options(&["--case", "udp-16/mflow 4"]);
        let plan = super::plan(&of_lanes, &cases).expect("a plan");
        assert_eq!(plan.boots[0].1.len(), 1);
        let several = options(&["--case", "udp-16/mflow 4", "--case", "udp-16/mflow 8"]);
        let plan = super::plan(&several, &cases).expect("a plan");
        assert_eq!(plan.boots[0].1.len(), 2);
        let wrong = options(&["--case", "udp-16/mflow", "--case", "no-such"]);
        let error = super::plan(&wrong, &cases).err().expect("no match");
        let error = error.to_string();
        assert!(
            error.starts_with("no case matches \"no-such\"; the cases of this suite are: udp-16, "),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1);
        let patched = options(&["--case", "udp-16/falcon-dev", "--distribution", "debian-13"]);
        let error = super::plan(&patched, &cases).err().expect("no row");
        assert!(error.to_string().contains("need our patches"), "{error}");
        let elsewhere = options(&["--case", "memcached"]);
        let error = super::plan(&elsewhere, &cases).err().expect("no match");
        assert!(error.to_string().ends_with("try: --suite paper"), "{error}");
    }

    #[test]
    fn small_differences_are_measured_in_several_boots() {
        let cases = suites::all(Suite::Quick);
        let plan =
            plan(&options(&["--case", "overhead", "--windows", "4"]), &cases).expect("a plan");
        assert_eq!(plan.boots.len(), 8);
        for (flavor, tasks) in &plan.boots {
            assert_eq!(tasks.len(), if *flavor == Flavor::Vm { 5 } else { 1 });
            assert!(tasks.iter().all(|task| task.order.windows == 1));
        }
        // Other cases take one boot for all of their windows.
        let all = super::plan(&options(&["--windows", "4"]), &cases).expect("a plan");
        let of_case = |name: &str| {
            let tasks = all.boots.iter().flat_map(|(_, tasks)| tasks);
            tasks
                .filter(|task| task.case.name == name && task.mode.name == "vanilla")
                .count()
        };
        assert_eq!(of_case("udp-16"), 1);
    }

    #[test]
    fn what_cannot_be_measured_has_a_row_that_says_so() {
        let cases = suites::all(Suite::Paper);
        let plan = plan(&options(&["--suite", "paper"]), &cases).expect("a plan");
        let places = plan.boots.iter().flat_map(|(_, tasks)| tasks);
        let measured = places.map(|task| task.place).collect::<BTreeSet<_>>().len();
        let missing: Vec<&Row> = plan.rows.iter().flatten().collect();
        assert_eq!(measured + missing.len(), plan.rows.len());
        assert!(missing
            .iter()
            .all(|row| row.note.is_some() && row.insn_per_packet.is_none()));
        assert!(missing.iter().any(|row| row.case == "udp-65507"));
    }
}
