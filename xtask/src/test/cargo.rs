// SPDX-License-Identifier: GPL-2.0

//! The layers that are `cargo test`: on the host as it is, under loom, and under Miri.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{ensure, Context as _, Result};

use super::{Ctx, Failure, Outcome};
use crate::builds;
use crate::setup::rust;
use crate::step::{Failed, Step};

pub(crate) fn unit(ctx: &Ctx) -> Result<Outcome> {
    let mut command = builds::cargo("target")?;
    command.args(["test", "--workspace"]).args(COMMON);
    if ctx.full {
        // This adds the tests that are marked as too long for every day.
        command.args(["--", "--include-ignored"]);
    }
    run("unit", command)
}

/// Runs the lock-free parts under loom, which tries every interleaving within bounds.
pub(crate) fn loom(ctx: &Ctx) -> Result<Outcome> {
    let mut command = builds::cargo("target/loom")?;
    command
        .env("RUSTFLAGS", "--cfg loom")
        // How often a thread may be stopped against its will; most errors need two or fewer.
        .env("LOOM_MAX_PREEMPTIONS", if ctx.full { "3" } else { "2" })
        .args(["test", "--package", "mflow-algo"])
        .args(["--release", "--test", "loom"])
        .args(COMMON);
    run("loom", command)
}

/// Runs the algorithms under Miri, an interpreter that reports undefined behaviour.
pub(crate) fn miri(_ctx: &Ctx) -> Result<Outcome> {
    if let Some(problem) = rust::miri_problem() {
        let mut outcome = Outcome::default();
        outcome.skip("miri", problem);
        return Ok(outcome);
    }
    let mut command = builds::cargo("target/miri")?;
    command
        // The tests choose smaller sizes for Miri, which is a thousand times slower.
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .args(["miri", "test", "--package", "mflow-algo"])
        .args(COMMON);
    run("miri", command)
}

const COMMON: [&str; 2] = ["--locked", "--no-fail-fast"];

/// Runs a `cargo test` command; a failed case counts as such, a failed build as one failure.
fn run(layer: &str, mut command: Command) -> Result<Outcome> {
    let result = Step::new(format!("{layer} tests"), format!("test-{layer}"))
        .hint(format!("cargo xtask test {layer}"))
        .run(&mut command);
    let log = match &result {
        Ok(log) => log,
        Err(error) => match error.downcast_ref::<Failed>() {
            Some(failed) => &failed.log,
            None => return result.map(|_| Outcome::default()),
        },
    };
    let text = fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
    let mut outcome = count(layer, &String::from_utf8_lossy(&text), log);
    match &result {
        Ok(log) => ensure!(outcome.passed > 0, "no test ran; see {}", log.display()),
        // No case is to blame: it was a build error, an abort or a time-out.
        Err(error) if outcome.failed.is_empty() => outcome.failed.push(Failure::of(layer, error)),
        Err(_) => {}
    }
    Ok(outcome)
}

/// Reads the lines `test NAME ... ok|FAILED|ignored` and the sums of every test program.
fn count(layer: &str, text: &str, log: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    for line in text.lines() {
        if let Some(sums) = line.strip_prefix("test result: ") {
            // The sums count rather than the lines: a test's own output may break a line apart.
            outcome.passed += number_before(sums, " passed");
        } else if let Some((name, result)) = line
            .strip_prefix("test ")
            .and_then(|line| line.split_once(" ... "))
        {
            if result == "FAILED" {
                outcome.failed.push(Failure {
                    name: format!("{layer}: {name}"),
                    detail: said(text, name),
                    log: Some(log.to_path_buf()),
                });
            } else if let Some(reason) = result.strip_prefix("ignored") {
                let reason = match reason.trim_start_matches([',', ' ']) {
                    "" => "marked #[ignore]",
                    reason => reason,
                };
                outcome.skip(format!("{layer}: {name}"), reason);
            }
        }
    }
    outcome
}

fn number_before(text: &str, word: &str) -> usize {
    text.split(word)
        .next()
        .and_then(|start| start.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0)
}

/// Returns what a failed case printed.
fn said(text: &str, name: &str) -> String {
    let head = format!("---- {name} stdout ----");
    text.lines()
        .skip_while(|line| *line != head)
        .skip(1)
        .take_while(|line| !line.starts_with("---- ") && *line != "failures:")
        .take(40)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
running 3 tests
test a::good ... ok
test a::bad ... FAILED
test slow ... ignored, needs an hour

failures:

---- a::bad stdout ----
thread 'a::bad' panicked at src/a.rs:1:1:
left is not right

failures:
    a::bad

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn cases_of_several_programs_are_counted() {
        let outcome = count("unit", LOG, Path::new("/tmp/log"));
        assert_eq!(outcome.passed, 13);
        assert_eq!(outcome.failed.len(), 1);
        assert_eq!(outcome.failed[0].name, "unit: a::bad");
        assert!(outcome.failed[0].detail.contains("left is not right"));
        assert_eq!(
            outcome.skipped,
            [("unit: slow".to_owned(), "needs an hour".to_owned())]
        );
    }
}
