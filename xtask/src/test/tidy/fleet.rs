// SPDX-License-Identifier: GPL-2.0

//! The files for many machines, as the programs read them that they are for: Prometheus' own checker, and Ansible. The tests of the
//! crate `xtask/fleet` hold them to what this project has.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};
use mflow_fleet::query::{as_rules, as_tests, queries, Query, EXPORTED, FOLDER};

use crate::setup::promtool;
use crate::test::Outcome;
use crate::tools;

const RULES: &str = ".rules.yml";
const TESTS: &str = ".test.yml";
const ANSIBLE: &str = "ansible-playbook";
/// The groups of hosts that the playbook names.
const HOSTS: &str = "[mflow]\none\n[mflow_canary]\ntwo\n";

/// Counts the checks.
pub(super) fn check(project: &Path, outcome: &mut Outcome) {
    let folder = project.join(FOLDER);
    let names = [
        "tidy: rules of Prometheus",
        "tidy: alerts fire when they are to",
        "tidy: queries of dashboards and instructions",
    ];
    match promtool::obtain() {
        Ok(None) => {
            let checks: [fn(&Path) -> Result<()>; 3] = [rules, alerts, other_queries];
            for (name, check) in names.iter().zip(checks) {
                outcome.record(name, check(&folder));
            }
        }
        Ok(Some(why)) => {
            for name in names {
                let why = format!("there is no {}: {why}", promtool::PACKAGE);
                outcome.skip(name, why);
            }
        }
        Err(error) => outcome.record(names[0], Err::<(), _>(error)),
    }
    let name = "tidy: syntax of the role of Ansible";
    if tools::find(ANSIBLE).is_some() {
        outcome.record(name, role(&folder));
    } else {
        outcome.skip(name, "there is no ansible-core; try: cargo xtask setup");
    }
}

fn rules(folder: &Path) -> Result<()> {
    promtool(&["check", "rules"], &files(folder, RULES)?)
}

fn alerts(folder: &Path) -> Result<()> {
    promtool(&["test", "rules"], &files(folder, TESTS)?)
}

fn other_queries(folder: &Path) -> Result<()> {
    let queries = queries(folder)?;
    let work = tempfile::tempdir()?;
    let path = work.path().join("queries.yml");
    fs::write(&path, as_rules(&queries).to_string())?;
    let listed = || {
        let line = |query: &Query| format!("{}: {}", query.file, query.text);
        queries.iter().map(line).collect::<Vec<_>>().join("\n  ")
    };
    // The checker does not say which query it means.
    promtool(&["check", "rules"], &[path]).with_context(|| format!("one of:\n  {}", listed()))?;
    // Each has a result: a query whose parts do not fit together has none, and nobody sees that it is wrong.
    let exported = fs::read_to_string(folder.join(EXPORTED))?;
    let (rules, tests) = as_tests(&queries, &exported, "results.yml");
    fs::write(work.path().join("results.yml"), rules.to_string())?;
    let path = work.path().join("tests.yml");
    fs::write(&path, tests.to_string())?;
    promtool(&["test", "rules"], &[path]).with_context(|| format!("one of:\n  {}", listed()))
}

fn promtool(words: &[&str], files: &[PathBuf]) -> Result<()> {
    let mut command = promtool::command().context("promtool is gone")?;
    let files = files.iter().map(OsString::from);
    tools::output(command.args(words).args(files)).map(drop)
}

/// Returns the files of Prometheus whose names end like this.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let folder = folder.join("prometheus");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    ensure!(!found.is_empty(), "{} has no *{ending}", folder.display());
    found.sort();
    Ok(found)
}

fn role(folder: &Path) -> Result<()> {
    let work = tempfile::tempdir()?;
    let hosts = work.path().join("hosts");
    fs::write(&hosts, HOSTS)?;
    let mut command = tools::command(ANSIBLE);
    command
        .current_dir(folder.join("ansible"))
        // It writes there.
        .env("ANSIBLE_LOCAL_TEMP", work.path())
        .env("ANSIBLE_HOME", work.path())
        .arg("--syntax-check")
        .arg("--inventory")
        .arg(&hosts)
        .arg("fleet.yml");
    tools::output(&mut command).map(drop)
}
