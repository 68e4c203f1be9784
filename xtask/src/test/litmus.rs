// SPDX-License-Identifier: GPL-2.0

//! The hand-overs between CPUs as litmus tests, under the kernel's own memory model (`tools/memory-model` in its sources).

pub(super) mod file;

use std::fs;
use std::path::Path;

use anyhow::{bail, ensure, Context as _, Result};

use self::file::{weak_name, Litmus};
use super::{Ctx, Outcome};
use crate::kernel;
use crate::paths;
use crate::setup::herd;
use crate::step::Step;

/// The model's folder in the kernel's sources, and its configuration there.
const MODEL: &str = "tools/memory-model";
const CONFIGURATION: &str = "linux-kernel.cfg";

pub(crate) fn run(_ctx: &Ctx) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if let Some(why) = herd::obtain()? {
        outcome.skip("litmus", format!("there is no {}: {why}", herd::PACKAGE));
        return Ok(outcome);
    }
    let tests = file::read_all(paths::project())?;
    let model = kernel::work_tree()?.join(MODEL);
    let answers = ask(&tests, &model)?;
    for test in &tests {
        outcome.record(&format!("litmus: {}", test.name), verdict(test, &answers));
    }
    Ok(outcome)
}

/// Gives each form of the tests to herd; returns what it prints.
fn ask(tests: &[Litmus], model: &Path) -> Result<String> {
    let dir = tempfile::tempdir()?;
    let mut command = herd::command().context("herd7 is gone")?;
    command.current_dir(model).args(["-conf", CONFIGURATION]);
    let mut list = String::new();
    for test in tests {
        let weak = test.weak.iter().enumerate();
        let weak = weak.map(|(nr, (form, _))| (weak_name(&test.name, nr), form));
        for (name, form) in [(test.name.clone(), &test.strong)].into_iter().chain(weak) {
            let name = name + ".litmus";
            fs::write(dir.path().join(&name), form)?;
            list.push_str(&name);
            list.push('\n');
        }
    }
    // By this sign herd knows a file that lists others beside it.
    let names = dir.path().join("@tests");
    fs::write(&names, list)?;
    command.arg(names);
    let log = Step::new("herd7", "test-litmus")
        .hint("cargo xtask test litmus")
        .run(&mut command)?;
    fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))
}

/// Fails if herd finds the bad outcome of a test, or not that of one of its weaker forms.
fn verdict(test: &Litmus, answers: &str) -> Result<()> {
    let answer = Answer::of(&test.name, answers)?;
    ensure!(
        !answer.happens,
        "the memory model allows the bad outcome:\n{}",
        answer.text
    );
    ensure!(!answer.races, "plain accesses race:\n{}", answer.text);
    for (nr, (_, line)) in test.weak.iter().enumerate() {
        let answer = Answer::of(&weak_name(&test.name, nr), answers)?;
        ensure!(
            answer.happens,
            "the test cannot fail: the bad outcome is forbidden without this order, too:\n{line}\n{}",
            answer.text
        );
    }
    Ok(())
}

/// The part of herd's answer that is about one form.
struct Answer<'a> {
    text: &'a str,
    happens: bool,
    races: bool,
}

impl<'a> Answer<'a> {
    fn of(name: &str, answers: &'a str) -> Result<Self> {
        let begin = format!("Test {name} ");
        let mut parts = answers.split("\n\n").map(str::trim_start);
        // An empty line ends each.
        let Some(text) = parts.find(|part| part.lines().any(|line| line.starts_with(&begin)))
        else {
            bail!("herd7 says nothing about {name}:\n{answers}");
        };
        let seen = format!("Observation {name} ");
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(&seen));
        let happens = match lines.next().and_then(|line| line.split(' ').next()) {
            Some("Never") => false,
            Some("Sometimes" | "Always") => true,
            _ => bail!("herd7 does not say what happens in {name}:\n{text}"),
        };
        Ok(Self {
            text,
            happens,
            races: text.lines().any(|line| line == "Flag data-race"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: &str = "$ herd7\nTest a Allowed\nStates 1\nNo\nObservation a Never 0 3\nHash=1\n\n\
                           Test a-weak-0 Allowed\nOk\nFlag data-race\nObservation a-weak-0 Sometimes 1 3\nHash=2\n\n";

    fn said(answers: &str) -> Result<()> {
        let test = Litmus {
            name: "a".to_owned(),
            mirrors: Vec::new(),
            strong: String::new(),
            weak: vec![(String::new(), "smp_mb();".to_owned())],
        };
        verdict(&test, answers)
    }

    #[test]
    fn a_test_holds_and_its_weaker_forms_do_not() {
        assert!(said(ANSWERS).is_ok());
        let why = |answers: &str| said(answers).unwrap_err().to_string();
        let allowed = ANSWERS.replace("a Never", "a Sometimes");
        assert!(why(&allowed).starts_with("the memory model allows the bad outcome"));
        let racing = ANSWERS.replace("States 1", "Flag data-race");
        assert!(why(&racing).starts_with("plain accesses race"));
        let blind = ANSWERS.replace("Sometimes", "Never");
        assert!(why(&blind).starts_with("the test cannot fail"));
        assert!(why(&ANSWERS.replace("-weak-0", "-weak-1")).contains("nothing about a-weak-0"));
        assert!(why(&ANSWERS.replace("Never", "?")).contains("what happens in a"));
    }
}
