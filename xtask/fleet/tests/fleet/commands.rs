// SPDX-License-Identifier: GPL-2.0

//! Each command line of this project in instructions, scripts, pods and the role is one that its command takes.

use std::ffi::OsString;

use clap::Parser as _;
use mflow_command::file::Settings;
use mflow_command::options::Cli as Mflow;
use mflow_hike_manager::options::{Cli as Hike, Daemon};
use serde_json::Value;

use super::support::{files, text, yaml};

/// The commands of this project.
const PROGRAMS: &[&str] = &["mflow", "hike", "hiked"];
/// Words that stand in front of a command which they run elsewhere or for something else.
const RUNNERS: &[&str] = &["kubectl exec ", "ssh "];
/// Values of the role's variables.
const FILLED: &[(&str, &str)] = &[(
    "{{ mflow_metrics_folder }}",
    "/var/lib/prometheus/node-exporter",
)];

/// Returns why a command does not take its words, if it does not.
fn refusal(words: &[String]) -> Option<String> {
    let args = || words.iter().map(OsString::from);
    let error = match &*words[0] {
        // Options may stand behind the knobs, which is for the command itself to sort out.
        "mflow" => Mflow::try_parse_from(args()).err(),
        "hike" => Hike::try_parse_from(args()).err(),
        _ => Daemon::try_parse_from(args()).err(),
    };
    error.map(|error| error.to_string())
}

/// Returns the commands in a line of shell: its words, up to what ends a command.
fn commands(line: &str) -> Vec<Vec<String>> {
    let ends = [" | ", " > ", " >> ", " && ", " || ", "; ", " 2> "];
    let cut = ends
        .iter()
        .fold(line.to_owned(), |line, end| line.replace(end, "\n"));
    let of_parts = cut.lines().filter_map(|part| {
        let part = RUNNERS.iter().fold(part.trim(), |part, runner| match part {
            part if part.starts_with(runner) => {
                part.split_once(" -- ").map_or("", |(_, part)| part)
            }
            part => part,
        });
        let part = part
            .trim_start_matches("$ ")
            .trim_start_matches("if ")
            .trim_start_matches("until ")
            .trim_start_matches("*) ")
            .trim_end_matches(" ;;");
        let part = part.split(" # ").next()?.trim_end_matches("; then");
        let words = shlex::split(part)?;
        let first = words.first()?;
        PROGRAMS.contains(&&**first).then_some(words)
    });
    of_parts.collect()
}

/// Returns the lines of code in a document: those of blocks, and code between words.
fn code(document: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut is_block = false;
    for line in document.lines() {
        if line.starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            all.push(line);
        } else {
            all.extend(line.split('`').skip(1).step_by(2));
        }
    }
    all
}

/// Returns the lists of words in a file of YAML that are commands, wherever they are.
fn lists(value: &Value, found: &mut Vec<Vec<String>>) {
    match value {
        Value::Array(values) => {
            let words: Option<Vec<String>> = values
                .iter()
                .map(|value| value.as_str().map(str::to_owned))
                .collect();
            match words {
                Some(words)
                    if words
                        .first()
                        .is_some_and(|first| PROGRAMS.contains(&&**first)) =>
                {
                    found.push(words);
                }
                _ => values.iter().for_each(|value| lists(value, found)),
            }
        }
        Value::Object(members) => members.values().for_each(|value| lists(value, found)),
        _ => {}
    }
}

fn assert_taken(file: &str, found: &[Vec<String>]) {
    for words in found {
        // A command alone names it, as in "`hike` asks the daemon".
        if words.len() > 1 || words[0] == "hiked" {
            let refusal = refusal(words);
            assert!(
                refusal.is_none(),
                "{file}: {words:?}: {}",
                refusal.unwrap_or_default()
            );
        }
    }
}

#[test]
fn instructions_have_commands_that_are_taken() {
    let mut count = 0;
    for file in files("", ".md") {
        let document = text(&file);
        let found: Vec<_> = code(&document).into_iter().flat_map(commands).collect();
        count += found.len();
        assert_taken(&file, &found);
    }
    assert!(count > 10, "{count}");
}

#[test]
fn scripts_and_units_have_commands_that_are_taken() {
    for (file, least) in [
        ("image/node/mflow-node.sh", 4),
        ("image/node/hike-node.sh", 4),
        ("ansible/roles/mflow/templates/mflow-metrics.service", 1),
    ] {
        let fill = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
        let text = FILLED.iter().fold(text(file), fill);
        let text = text.replace("ExecStart=/usr/bin/", "");
        // A command in a command stands for one word.
        let text = text.replace(
            "\"$(sed -n 's/.*\"name\":\"\\([^\"]*\\)\".*/\\1/p' \"$record\")\"",
            "NAME",
        );
        let found: Vec<_> = text.lines().flat_map(commands).collect();
        assert!(found.len() >= least, "{file}: {found:?}");
        assert_taken(file, &found);
    }
}

#[test]
fn pods_have_commands_that_are_taken() {
    let set: Value = yaml("kubernetes/hike/daemonset.yaml");
    let mut found = Vec::new();
    lists(&set, &mut found);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_taken("kubernetes/hike/daemonset.yaml", &found);
}

#[test]
fn the_role_has_commands_and_knobs_that_are_taken() {
    let mut found = Vec::new();
    let file = "ansible/roles/mflow/tasks/trial.yml";
    lists(&yaml(file), &mut found);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_taken(file, &found);
    let defaults: Value = yaml("ansible/roles/mflow/defaults/main.yml");
    let knobs = defaults["mflow_knobs"].as_object().expect("knobs");
    let value = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let lines = knobs
        .iter()
        .map(|(name, one)| format!("{name} = {}\n", value(one)));
    Settings::parse(&lines.collect::<String>()).expect("a file of settings");
    // The trial sets the same, as words behind the option.
    let words = knobs
        .iter()
        .flat_map(|(name, one)| [name.clone(), value(one)]);
    let command = ["mflow", "set", "--confirm", "60"].map(str::to_owned);
    let command: Vec<String> = command.into_iter().chain(words).collect();
    assert_taken(file, &[command]);
    let task = text(file);
    assert!(task.contains(
        "argv: \"{{ ['mflow', 'set', '--confirm', mflow_trial_s | string] + mflow_words }}\""
    ));
    assert!(
        text("ansible/roles/mflow/templates/mflow.conf").contains("\n{{ name }} = {{ value }}\n")
    );
}

#[test]
fn a_command_that_is_not_taken_is_found() {
    let of = |line: &str| commands(line).into_iter().next().expect(line);
    for line in [
        "mflow metrics --fil x",
        "hike aply x",
        "hiked --configuration x",
    ] {
        assert!(refusal(&of(line)).is_some(), "{line}");
    }
    let line = "kubectl exec -n mflow POD -- mflow set --confirm 60 enabled 1";
    assert_eq!(of(line)[..2], ["mflow", "set"]);
    let line = "if hike metrics > \"$aside\"; then";
    assert_eq!(of(line), ["hike", "metrics"]);
    assert!(code("a `mflow status` b\n```sh\nmflow top\n```\n") == ["mflow status", "mflow top"]);
}
