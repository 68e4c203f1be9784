// SPDX-License-Identifier: GPL-2.0

//! A litmus test as its file has it: the functions that it mirrors, the form that has to hold, and the weaker forms that must not.
//! `tests/litmus/README.md` has the marks.

use std::fs;
use std::path::Path;

use anyhow::{bail, ensure, Context as _, Result};
use walkdir::WalkDir;

pub(crate) const FOLDER: &str = "tests/litmus";

const MIRRORS: &str = " * Mirrors: ";
const WEAK: &str = " // WEAK: ";
/// The weaker form of a line that is needed as a whole.
const NOTHING: &str = "nothing";

/// A file, which is named after its test.
#[derive(Debug)]
pub(crate) struct Litmus {
    pub(crate) name: String,
    pub(crate) mirrors: Vec<Mirrored>,
    /// The form that has to hold.
    pub(crate) strong: String,
    /// Forms in which one ordering is missing, each with the line that has it otherwise.
    pub(crate) weak: Vec<(String, String)>,
}

/// A function of ours whose memory accesses a test has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mirrored {
    /// The path in the project.
    pub(crate) file: String,
    /// The name, with that of its type if it has one (`Ring::len`).
    pub(crate) function: String,
}

/// Reads all tests, by their names.
pub(crate) fn read_all(project: &Path) -> Result<Vec<Litmus>> {
    let mut tests = Vec::new();
    let folder = project.join(FOLDER);
    for entry in WalkDir::new(&folder).sort_by_file_name() {
        let path = entry?.into_path();
        if path.extension().is_some_and(|end| end == "litmus") {
            let text = fs::read_to_string(&path)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let test = Litmus::parse(&name, &text);
            tests.push(test.with_context(|| format!("{} is no test", path.display()))?);
        }
    }
    ensure!(!tests.is_empty(), "there is no test in {FOLDER}");
    Ok(tests)
}

impl Litmus {
    fn parse(name: &str, text: &str) -> Result<Self> {
        let title = format!("C {name}");
        ensure!(
            text.lines().next() == Some(&title),
            "its first line should be `{title}`"
        );
        let mut mirrors = Vec::new();
        for line in text.lines().filter_map(|line| line.strip_prefix(MIRRORS)) {
            let Some((file, function)) = line.split_once(": ") else {
                bail!("`Mirrors: {line}` should be `Mirrors: FILE: FUNCTION`");
            };
            mirrors.push(Mirrored {
                file: file.to_owned(),
                function: function.to_owned(),
            });
        }
        ensure!(!mirrors.is_empty(), "it mirrors no function");
        let marked = text.lines().filter(|line| line.contains(WEAK));
        let weak: Vec<_> = marked
            .enumerate()
            .map(|(nr, line)| {
                let title = format!("C {}", weak_name(name, nr));
                (form(text, &title, Some(nr)), line.trim().to_owned())
            })
            .collect();
        ensure!(!weak.is_empty(), "it has no weaker form");
        Ok(Self {
            name: name.to_owned(),
            mirrors,
            strong: form(text, &title, None),
            weak,
        })
    }
}

/// Returns the name of a test's weaker form.
pub(crate) fn weak_name(name: &str, nr: usize) -> String {
    format!("{name}-weak-{nr}")
}

/// Returns a form of a test: the marked line with this number, if there is one, is replaced by what its mark says.
fn form(text: &str, title: &str, weak: Option<usize>) -> String {
    let mut form = format!("{title}\n");
    let mut nr = 0;
    for line in text.lines().skip(1) {
        let mut kept = line;
        if let Some((strong, weaker)) = line.split_once(WEAK) {
            let weaker = if weaker == NOTHING { "" } else { weaker };
            kept = if weak == Some(nr) { weaker } else { strong };
            nr += 1;
        }
        form.push_str(kept);
        form.push('\n');
    }
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "C a\n(*\n * Mirrors: x.rs: T::f\n *)\nP0 {\n\tsmp_mb(); // WEAK: nothing\n\
                        \ts(1); // WEAK: w(1);\n}\n";

    #[test]
    fn each_mark_makes_a_form() {
        let test = Litmus::parse("a", TEXT).unwrap();
        let head = "(*\n * Mirrors: x.rs: T::f\n *)\nP0 {\n";
        assert_eq!(
            test.strong,
            format!("C a\n{head}\tsmp_mb();\n\ts(1);\n}}\n")
        );
        let forms: Vec<_> = test.weak.iter().map(|(form, _)| form.as_str()).collect();
        let without = format!("C a-weak-0\n{head}\n\ts(1);\n}}\n");
        let weaker = format!("C a-weak-1\n{head}\tsmp_mb();\nw(1);\n}}\n");
        assert_eq!(forms, [without, weaker]);
        assert_eq!(test.mirrors[0].function, "T::f");
    }

    #[test]
    fn a_test_that_cannot_fail_or_mirrors_nothing_is_none() {
        let why = |text: &str| Litmus::parse("a", text).unwrap_err().to_string();
        assert_eq!(
            why(&TEXT.replace("C a", "C b")),
            "its first line should be `C a`"
        );
        assert_eq!(why(&TEXT.replace("WEAK", "x")), "it has no weaker form");
        assert_eq!(why(&TEXT.replace("Mirrors", "x")), "it mirrors no function");
        assert!(why(&TEXT.replace(".rs: ", ".rs ")).contains("FILE: FUNCTION"));
    }
}
