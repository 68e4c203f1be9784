// SPDX-License-Identifier: GPL-2.0

//! Runs one case after the other, and tells the host of each when it begins and what came out.
//!
//! A case that fails while an emulated CPU was away for longer than what cases allow for is run once more, and the host
//! is told so, which counts. So is one whose reader was away for longer than its socket has room. What is wrong with the
//! code under test fails again, or too often.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{ensure, Error, Result};
use mflow_protocol::guest::{CaseAgain, CaseResult, ListedCase, Message};

use crate::machine::cpu;
use crate::machine::cpu_absence::{NoRoom, Watch};
use crate::traffic::outcome::Outcome;
use crate::verdict;

/// Half of the longest deadline there is: what a case that wants order sets, and what it takes to be late twice.
const AWAY: Duration = Duration::from_millis(500);

/// The cases of a program that are run, or only listed.
#[derive(Debug, clap::Args)]
pub(crate) struct Selection {
    /// Run only those whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Leave these out.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<String>,
    /// Print those that would run, and run none.
    #[arg(long)]
    pub(crate) list: bool,
}

impl Selection {
    pub(crate) fn takes(&self, name: &str) -> bool {
        name.contains(&self.filter) && !self.skip.iter().any(|skipped| skipped == name)
    }
}

/// A case of a program whose cases stand in a list, and differ in no parameters.
pub(crate) struct Case<F> {
    pub(crate) name: &'static str,
    /// The statement that holds if the case passes.
    pub(crate) proves: &'static str,
    pub(crate) run: F,
}

/// Runs the selected ones of a program's cases, or only lists them.
pub(crate) fn run_selected<F>(
    program: &str,
    selection: &Selection,
    mut cases: Vec<Case<F>>,
    run: impl Fn(&F) -> Result<()>,
) -> Result<ExitCode> {
    cases.retain(|case| selection.takes(case.name));
    if selection.list {
        return list(cases.into_iter().map(|case| ListedCase {
            name: case.name.to_owned(),
            patches_code: false,
            proves: case.proves.to_owned(),
            steps: Vec::new(),
        }));
    }
    ensure!(
        !cases.is_empty(),
        "no case is selected; `mflow-guest {program} --list` shows all"
    );
    Ok(run_each(
        &cases,
        |case| case.name.to_owned(),
        |case| run(&case.run).map(|()| None),
    ))
}

/// Runs `run` with each of these cases; a failure does not keep the next one from its turn.
pub(crate) fn run_each<C>(
    cases: &[C],
    name: impl Fn(&C) -> String,
    run: impl Fn(&C) -> Result<Option<Outcome>>,
) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let watch = Watch::start();
    // A case may bind the thread that runs it. The next one would find a machine of one CPU.
    let cpus = cpu::Allowed::here();
    let run = |case: &C| {
        let result = run(case);
        if let Ok(cpus) = &cpus {
            cpus.restore()?;
        }
        result
    };
    for case in cases {
        let name = name(case);
        verdict::say(&Message::Start(name.clone()));
        let mut start = Instant::now();
        watch.longest();
        let mut result = run(case);
        let away = watch.longest();
        if let Some((why, error)) = blame_host(result.as_ref().err(), away) {
            verdict::say(&Message::Again(CaseAgain {
                case: name.clone(),
                why,
                error,
                seconds: start.elapsed().as_secs_f64(),
            }));
            start = Instant::now();
            result = run(case);
        }
        let seconds = start.elapsed().as_secs_f64();
        let (error, measured) = match result {
            Ok(measured) => (None, measured),
            Err(error) => {
                code = ExitCode::FAILURE;
                (Some(format!("{error:#}")), None)
            }
        };
        verdict::say(&Message::Result(CaseResult {
            case: name,
            seconds,
            error,
            measured: measured.as_ref().map(Outcome::measured),
        }));
    }
    code
}

/// Returns why a failure may be the host's, and the failure.
fn blame_host(error: Option<&Error>, away: Duration) -> Option<(String, String)> {
    let error = error?;
    let why = if away >= AWAY {
        format!("a CPU was away for {} ms", away.as_millis())
    } else {
        error.downcast_ref::<NoRoom>()?.to_string()
    };
    Some((why, format!("{error:#}")))
}

/// Prints the cases for the host, which chooses among them.
pub(crate) fn list(cases: impl IntoIterator<Item = ListedCase>) -> Result<ExitCode> {
    for case in cases {
        println!("{}", serde_json::to_string(&case)?);
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
pub(crate) fn require_good_names<'a>(names: impl Iterator<Item = &'a str>) {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        assert!(!name.contains([',', ' ']) && seen.insert(name), "{name}");
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{anyhow, Context as _};
    use nix::sched::sched_getaffinity;
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn case_that_binds_its_thread_leaves_it_free() {
        let before = cpu::online();
        let cpus = sched_getaffinity(Pid::from_raw(0)).expect("this thread's CPUs");
        let first = (0..).find(|&cpu| cpus.is_set(cpu) == Ok(true));
        let case = |_: &()| -> Result<Option<Outcome>> {
            cpu::pin(first.context("no CPU")?)?;
            assert_eq!(cpu::online(), 1);
            Ok(None)
        };
        assert_eq!(run_each(&[()], |_| String::new(), case), ExitCode::SUCCESS);
        assert_eq!(cpu::online(), before);
    }

    #[test]
    fn what_a_busy_host_does_is_tried_once_more() {
        let wrong = anyhow!("wrong");
        assert_eq!(blame_host(None, AWAY), None);
        assert_eq!(blame_host(Some(&wrong), Duration::ZERO), None);
        assert!(blame_host(Some(&wrong), AWAY).is_some());
        let (refused, sent) = (1, 10);
        let no_room = Err::<(), _>(NoRoom { refused, sent }).context("with enabled 0");
        let blamed = blame_host(no_room.as_ref().err(), Duration::ZERO).expect("the host's");
        assert_eq!(blamed.0, "sockets had no room for 1 of 10 datagrams");
        assert!(blamed.1.starts_with("with enabled 0"), "{}", blamed.1);
    }
}
