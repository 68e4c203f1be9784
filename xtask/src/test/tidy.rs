// SPDX-License-Identifier: GPL-2.0

//! Checks of what a reader would complain about first: formatting, lints, licences, full folders, patches, documents that
//! have gone stale.

mod bindings;
mod circles;
mod commits;
mod fleet;
mod folders;
mod imports;
mod modules;
mod orderings;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};
use walkdir::WalkDir;

use super::{docs, Ctx, Outcome};
use crate::builds;
use crate::kernel;
use crate::kernel::inputs::patch_dir;
use crate::kernel::series;
use crate::paths;
use crate::setup::rust;
use crate::step::Step;
use crate::tools;

const LICENCE: &str = "SPDX-License-Identifier: GPL-2.0";

const SOURCES: &[&str] = &["rs", "mk", "c", "h", "sh"];

/// Endings of files that must not hold left-over markers.
const TEXTS: &[&str] = &["rs", "mk", "c", "h", "sh", "md", "config", "toml"];

/// The words that stand for unfinished work; in pieces, so that this file does not hold them.
const MARKERS: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
];

/// Rules of the kernel's style checker that do not fit here, with the reason.
const CHECKPATCH_IGNORED: &[&str] = &[
    // Our files are licensed in their first line as the kernel wants it; the maintainers file is not ours to edit.
    "FILE_PATH_CHANGES",
    // Static keys are defined by a macro that the rule does not know.
    "EXPORT_SYMBOL",
    // Patches here belong to no mailing list.
    "NO_AUTHOR_SIGN_OFF",
    "FROM_SIGN_OFF_MISMATCH",
    // BPF programs: constants that are set when they are loaded, and loads that the compiler must not repeat.
    "VOLATILE",
    // The module is for several versions of the kernel.
    "LINUX_VERSION_CODE",
];

pub(crate) fn run(_ctx: &Ctx) -> Result<Outcome> {
    let project = paths::project();
    let files = files(project)?;
    let mut outcome = Outcome::default();
    outcome.record(
        "tidy: formatting of the host crates",
        tool(
            "cargo fmt",
            "tidy-fmt",
            "cargo fmt",
            "--all --check -- --color=never",
        ),
    );
    let by_hand =
        "rustfmt --edition 2021 rust/mflow_main.rs rust/stock/lib.rs rust/glue/stack/way_stock.rs";
    outcome.record(
        "tidy: formatting of the kernel module",
        tool("rustfmt of the module", "tidy-rustfmt", by_hand, "--check"),
    );
    outcome.record(
        "tidy: licence line in every source",
        licences(project, &files),
    );
    outcome.record("tidy: no left-over markers", markers(project, &files));
    outcome.record("tidy: every patch is in the series", listed(project));
    outcome.record(
        "tidy: no folder has too many files",
        folders::check(project, &files),
    );
    outcome.record("tidy: imports look down", imports::check(project, &files));
    outcome.record(
        "tidy: imports do not go in circles",
        circles::check(project, &files),
    );
    outcome.record(
        "tidy: what orders memory is in a litmus test",
        orderings::check(project, &files),
    );
    outcome.record(
        "tidy: bindings that are written down are those of C",
        bindings::check(project),
    );
    let messages = "tidy: messages of commits";
    match commits::check(project) {
        Ok(Some(why)) => outcome.skip(messages, why),
        result => outcome.record(messages, result.map(drop)),
    }
    fleet::check(project, &mut outcome);
    for (name, result) in docs::checks(project) {
        outcome.record(&format!("tidy: {name}"), result);
    }
    let by_hand = "cargo clippy --workspace --all-targets";
    outcome.record(
        "tidy: clippy",
        tool("clippy", "tidy-clippy", by_hand, "--locked -- -D warnings"),
    );
    match kernel::work_tree() {
        Ok(tree) => {
            outcome.pass();
            outcome.record(
                "tidy: kernel style of patches and C files",
                checkpatch(project, &tree, &files),
            );
        }
        error => outcome.record("tidy: the series applies", error),
    }
    Ok(outcome)
}

/// Runs the command in `hint` with the words in `more`, which make a check of it.
fn tool(title: &str, log: &str, hint: &str, more: &str) -> Result<()> {
    let mut words = hint.split(' ').chain(more.split(' '));
    let mut command = match words.next().unwrap_or_default() {
        "cargo" => builds::cargo("target")?,
        other => rust::command(other)?,
    };
    command.current_dir(paths::project()).args(words);
    Step::new(title, log).hint(hint).run(&mut command).map(drop)
}

fn licences(project: &Path, files: &[PathBuf]) -> Result<()> {
    let mut bad = Vec::new();
    for file in files.iter().filter(|file| has_ending(file, SOURCES)) {
        let text = read(file)?;
        // A script's first line names its interpreter.
        let place = text.lines().find(|line| !line.starts_with("#!/"));
        if !place.is_some_and(|line| line.contains(LICENCE)) {
            bad.push(relative(project, file));
        }
    }
    none(&bad, &format!("these files do not start with `{LICENCE}`"))
}

fn markers(project: &Path, files: &[PathBuf]) -> Result<()> {
    let mut bad = Vec::new();
    for file in files.iter().filter(|file| has_ending(file, TEXTS)) {
        for (number, line) in read(file)?.lines().enumerate() {
            if let Some(marker) = MARKERS.iter().find(|marker| has_word(line, marker)) {
                bad.push(format!(
                    "{}:{}: {marker}",
                    relative(project, file),
                    number + 1
                ));
            }
        }
    }
    none(&bad, "unfinished work is marked here")
}

/// Returns whether `word` is in `line` and not part of a longer word, such as a temporary file's pattern.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        let open = word.ends_with('(');
        !before.is_some_and(part_of_word) && (open || !after.is_some_and(part_of_word))
    })
}

fn listed(project: &Path) -> Result<()> {
    let dir = patch_dir(project);
    ensure!(
        !series::read(&dir)?.is_empty(),
        "{}/series lists no patch",
        dir.display()
    );
    none(
        &series::unlisted(&dir)?,
        &format!("{}/series does not list these", dir.display()),
    )
}

fn checkpatch(project: &Path, tree: &Path, files: &[PathBuf]) -> Result<()> {
    let script = tree.join("scripts/checkpatch.pl");
    let ignored = format!("--ignore={}", CHECKPATCH_IGNORED.join(","));
    let mut complaints = Vec::new();
    let patches = patch_dir(project);
    for file in files {
        let is_patch = file.starts_with(&patches) && has_ending(file, &["patch"]);
        let is_c = file.starts_with(project.join("c-shims")) && has_ending(file, &["c", "h"]);
        if !is_patch && !is_c {
            continue;
        }
        let mut command = tools::command("perl");
        command
            // Outside of any repository: within one, the script takes a patch for a source file.
            .current_dir("/")
            .arg(&script)
            .args(["--no-tree", "--no-summary", "--terse", "--show-types"])
            .arg(&ignored)
            .args(is_c.then_some("--file"))
            .arg(file);
        let output = command.output().context("cannot run perl")?;
        let text = String::from_utf8_lossy(&output.stdout);
        complaints.extend(
            text.lines()
                .map(str::to_owned)
                .filter(|line| !line.is_empty()),
        );
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() || !text.trim().is_empty(),
            "checkpatch.pl failed: {}",
            error.trim()
        );
    }
    none(&complaints, "the kernel's style checker complains")
}

/// Returns all files of the project but hidden and built ones.
fn files(project: &Path) -> Result<Vec<PathBuf>> {
    let built = project.join("target");
    let mut files = Vec::new();
    let entries = WalkDir::new(project)
        .min_depth(1)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| {
            !entry.file_name().as_encoded_bytes().starts_with(b".") && entry.path() != built
        });
    for entry in entries {
        let entry = entry?;
        if !entry.file_type().is_dir() {
            files.push(entry.into_path());
        }
    }
    Ok(files)
}

fn has_ending(file: &Path, endings: &[&str]) -> bool {
    file.extension()
        .is_some_and(|end| endings.iter().any(|ending| end == *ending))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn relative(project: &Path, file: &Path) -> String {
    file.strip_prefix(project)
        .unwrap_or(file)
        .display()
        .to_string()
}

/// Fails with the list unless it is empty.
fn none(list: &[String], complaint: &str) -> Result<()> {
    ensure!(list.is_empty(), "{complaint}:\n  {}", list.join("\n  "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_whole_words() {
        let marker = concat!("XX", "X");
        assert!(has_word(&format!("// {marker}: later"), marker));
        assert!(!has_word(&format!("mktemp log.{marker}{marker}"), marker));
        let call = concat!("todo", "!(");
        assert!(has_word(&format!("{call})"), call));
        assert!(has_word(&format!("    {call}\"later\")"), call));
    }
}
