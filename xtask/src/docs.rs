// SPDX-License-Identifier: GPL-2.0

//! Parts of documents, and of comments, that are made from the code's own tables, between two comments that name them; and the
//! results, all of which are made from rows.

mod manual;
mod named;
mod transitions;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{ensure, Context as _, Result};

use crate::paths;
use crate::results;
use crate::test::budget;
use crate::tools;
use crate::vm;

/// A part of a document.
struct Part {
    document: &'static str,
    /// The name in the comment before it, or `WHOLE`.
    name: &'static str,
    text: fn(&Path) -> Result<String>,
}

const MANUAL: &str = "rust/README.md";

const PARTS: &[Part] = &[
    Part {
        document: results::DOCUMENT,
        name: WHOLE,
        text: results::document,
    },
    Part {
        document: "README.md",
        name: "figures",
        text: figures,
    },
    Part {
        document: "tests/README.md",
        name: "seconds",
        text: |_| Ok(budget::table()),
    },
    of_manual("patched-options", manual::patched_options),
    of_manual("stock-options", manual::stock_options),
    of_manual("knobs", manual::knobs),
    of_manual("files", manual::files),
    of_manual("combinations", manual::combinations),
    of_manual("reasons", manual::reasons),
    of_manual("counters", manual::counters),
    Part {
        document: "c-shims/module/mflow_files.c",
        name: "parameters",
        text: manual::parameters,
    },
    Part {
        document: "rust/algo/flow/state.rs",
        name: "transitions",
        text: transitions,
    },
];

/// The tables of hosts, which the guest program makes of its cases. One of its unit tests compares the documents with them.
const OF_GUEST: &[Part] = &[
    of_manual("hosts", |_| hosts(&[])),
    Part {
        document: "README.md",
        name: "hosts",
        text: |_| hosts(&["--short"]),
    },
];

/// The name of a part that is a document.
const WHOLE: &str = "all";

const fn of_manual(name: &'static str, text: fn(&Path) -> Result<String>) -> Part {
    Part {
        document: MANUAL,
        name,
        text,
    }
}

/// Writes all parts into their documents.
pub fn run() -> Result<ExitCode> {
    let project = paths::project();
    for part in PARTS.iter().chain(OF_GUEST) {
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

/// Fails if a document does not have its parts as they would be written now, but for those of the guest program.
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
        let text = (self.text)(project)?;
        if self.name == WHOLE {
            return Ok(text);
        }
        let begin = self.comment(&format!("cargo xtask docs: {}", self.name));
        let end = self.comment("end");
        let parts = document
            .split_once(&format!("{begin}\n"))
            .and_then(|(before, rest)| {
                let (_, after) = rest.split_once(&end)?;
                Some((before, after))
            });
        let (before, after) = parts.with_context(|| {
            format!(
                "{} should have a line `{begin}`, and behind it one `{end}`",
                self.document
            )
        })?;
        Ok(format!("{before}{begin}\n{text}{end}{after}"))
    }

    /// Returns a comment in the document's language.
    fn comment(&self, text: &str) -> String {
        if self.document.ends_with(".c") {
            format!("/* {text} */")
        } else {
            format!("<!-- {text} -->")
        }
    }
}

fn transitions(project: &Path) -> Result<String> {
    let code = read(&project.join("rust/algo/flow/transitions.rs"))?;
    transitions::picture(&manual::values("transition")?, &code)
}

/// Returns the first table of the results.
fn figures(project: &Path) -> Result<String> {
    let results = results::document(project)?;
    let lines = results.lines().skip_while(|line| !line.starts_with('|'));
    let table = lines.take_while(|line| line.starts_with('|'));
    Ok(table.map(|line| format!("{line}\n")).collect())
}

fn hosts(more: &[&str]) -> Result<String> {
    let mut command = tools::command(&vm::guest_program()?.to_string_lossy());
    tools::output(command.args(["hosts", "--table"]).args(more))
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
        let end = "<!-- end -->\n";
        let document = format!("above\n{begin}| old |\n{end}below\n{end}");
        let put = |document: &str| PART.put_into(document, Path::new("."));
        let written = put(&document).expect("it has the part");
        assert_eq!(written, format!("above\n{begin}| new |\n{end}below\n{end}"));
        assert_eq!(put(&written).expect("it has the part"), written);
        let error = put("nothing").expect_err("there is no part");
        assert!(error.to_string().starts_with("a.md should have a line"));
    }

    #[test]
    fn in_c_the_comments_are_those_of_c() {
        let part = Part {
            document: "a.c",
            ..PART
        };
        let document = "/* cargo xtask docs: rows */\nold\n/* end */\n";
        let written = part.put_into(document, Path::new("."));
        assert_eq!(
            written.expect("it has the part"),
            "/* cargo xtask docs: rows */\n| new |\n/* end */\n"
        );
    }
}
