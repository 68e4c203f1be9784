// SPDX-License-Identifier: GPL-2.0

//! Runs one case after the other, and tells the host of each when it begins and what came out.
//!
//! A case that fails while an emulated CPU was away for longer than what cases allow for is run once more, and the host
//! is told so, who counts. What is wrong with the code under test fails again, or too often.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use serde::Serialize;

use crate::absence::Watch;
use crate::outcome::Outcome;
use crate::verdict;

/// Half of the longest deadline there is: what a case that wants order sets, and what it takes to be late twice.
const AWAY: Duration = Duration::from_millis(500);

/// What is said about a case that has ended.
#[derive(Debug, Serialize)]
struct Verdict<'a> {
    case: &'a str,
    passed: bool,
    seconds: f64,
    /// What was not as it must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Outcome>,
}

/// What is said about a case that is to be run once more.
#[derive(Debug, Serialize)]
struct Again<'a> {
    case: &'a str,
    /// How long a CPU was away.
    away_ms: u128,
    error: String,
}

impl<'a> Again<'a> {
    fn of(case: &'a str, away: Duration, error: &Error) -> Self {
        Self {
            case,
            away_ms: away.as_millis(),
            error: format!("{error:#}"),
        }
    }
}

/// Runs `run` with each of these cases; a failure does not keep the next one from its turn.
pub(crate) fn run_each<C>(
    cases: &[C],
    name: impl Fn(&C) -> &str,
    run: impl Fn(&C) -> Result<Option<Outcome>>,
) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let watch = Watch::start();
    for case in cases {
        let name = name(case);
        verdict::say("start", &name);
        let start = Instant::now();
        watch.longest();
        let mut result = run(case);
        let away = watch.longest();
        if let (Err(error), true) = (&result, away >= AWAY) {
            verdict::say("again", &Again::of(name, away, error));
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
        verdict::say(
            "result",
            &Verdict {
                case: name,
                passed: error.is_none(),
                seconds,
                error,
                measured,
            },
        );
    }
    code
}
