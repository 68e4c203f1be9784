// SPDX-License-Identifier: GPL-2.0

//! Parts of documents, and of comments, that are made from the code's own tables, between two comments that name them.

mod named;
mod transitions;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{ensure, Context as _, Result};

use self::named::Named;
use crate::paths;
use crate::test::budget;

/// A part of a document.
struct Part {
    document: &'static str,
    name: &'static str,
    text: fn(&Path) -> Result<String>,
}

const MANUAL: &str = "rust/README.md";

const PARTS: &[Part] = &[
    Part {
        document: "tests/README.md",
        name: "seconds",
        text: |_| Ok(budget::table()),
    },
    Part {
        document: MANUAL,
        name: "reasons",
        text: reasons,
    },
    Part {
        document: MANUAL,
        name: "counters",
        text: counters,
    },
    Part {
        document: "rust/algo/flow/state.rs",
        name: "transitions",
        text: transitions,
    },
];

const END: &str = "<!-- end -->";

/// Writes all parts into their documents.
pub(crate) fn run() -> Result<ExitCode> {
    let project = paths::project();
    for part in PARTS {
        let path = project.join(part.document);
        let old = read(&path)?;
        let new = part.put_into(&old, project)?;
        if new != old {
            fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))?;
            println!("written: `{}` in {}", part.name, part.document);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails if a document does not have its parts as they would be written now.
pub(crate) fn check(project: &Path) -> Result<()> {
    let mut stale = Vec::new();
    for part in PARTS {
        let text = read(&project.join(part.document))?;
        if part.put_into(&text, project)? != text {
            stale.push(format!("`{}` in {}", part.name, part.document));
        }
    }
    ensure!(
        stale.is_empty(),
        "these parts are made from code that has changed: {}; write them with: cargo xtask docs",
        stale.join(", ")
    );
    Ok(())
}

impl Part {
    /// Returns the document with this part as the code has it now.
    fn put_into(&self, document: &str, project: &Path) -> Result<String> {
        let begin = format!("<!-- cargo xtask docs: {} -->\n", self.name);
        let parts = document.split_once(&begin).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(END)?;
            Some((before, after))
        });
        let (before, after) = parts.with_context(|| {
            format!(
                "{} should have a line `{}`, and behind it one `{END}`",
                self.document,
                begin.trim_end()
            )
        })?;
        let text = (self.text)(project)?;
        Ok(format!("{before}{begin}{text}{END}{after}"))
    }
}

fn all_reasons(project: &Path) -> Result<Vec<Named>> {
    let code = read(&project.join("rust/algo/report/reason.rs"))?;
    named::read(&code, "reasons! {")
}

fn reasons(project: &Path) -> Result<String> {
    let all = all_reasons(project)?;
    let rows = all.into_iter().map(|one| [one.name, one.words, one.advice]);
    Ok(table(["reason", "words behind `#`", "what to do"], rows))
}

fn counters(project: &Path) -> Result<String> {
    let all = named::read(
        &read(&project.join("rust/algo/counters.rs"))?,
        "counters! {",
    )?;
    let rows = all
        .into_iter()
        .map(|one| [one.name, one.meaning, one.advice]);
    Ok(table(["counter", "counts", "if it grows"], rows))
}

fn transitions(project: &Path) -> Result<String> {
    let code = read(&project.join("rust/algo/flow/transitions.rs"))?;
    transitions::picture(&code, &all_reasons(project)?)
}

/// Returns a table in Markdown, whose first column are names.
fn table(head: [&str; 3], rows: impl Iterator<Item = [String; 3]>) -> String {
    let rows = rows.map(|[name, second, third]| format!("| `{name}` | {second} | {third} |\n"));
    let [first, second, third] = head;
    format!("| {first} | {second} | {third} |\n|---|---|---|\n") + &rows.collect::<String>()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part = Part {
        document: "a.md",
        name: "rows",
        text: |_| Ok("| new |\n".to_owned()),
    };

    #[test]
    fn a_part_is_put_between_its_comments_and_nothing_else_changes() {
        let begin = "<!-- cargo xtask docs: rows -->\n";
        let document = format!("above\n{begin}| old |\n{END}\nbelow\n<!-- end -->\n");
        let put = |document: &str| PART.put_into(document, Path::new("."));
        let written = put(&document).expect("it has the part");
        assert_eq!(
            written,
            format!("above\n{begin}| new |\n{END}\nbelow\n<!-- end -->\n")
        );
        assert_eq!(put(&written).expect("it has the part"), written);
        let error = put("nothing").expect_err("there is no part");
        assert!(error.to_string().starts_with("a.md should have a line"));
    }
}
