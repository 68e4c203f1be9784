// SPDX-License-Identifier: GPL-2.0

//! Runs one case after the other, and tells the host of each when it begins and what came out.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

use crate::outcome::Outcome;
use crate::verdict;

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

/// Runs `run` with each of these cases; a failure does not keep the next one from its turn.
pub(crate) fn run_each<C>(
    cases: &[C],
    name: impl Fn(&C) -> &str,
    run: impl Fn(&C) -> Result<Option<Outcome>>,
) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for case in cases {
        let name = name(case);
        verdict::say("start", &name);
        let start = Instant::now();
        let result = run(case);
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
