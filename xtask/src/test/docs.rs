// SPDX-License-Identifier: GPL-2.0

//! Documents that mirror code: every hook is explained, every file that is named exists, words are plain, and figures are where they
//! are measured.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context as _, Result};
use walkdir::WalkDir;

use super::{draw, hosts, mlx5};
use crate::kernel::inputs::patch_dir;
use crate::kernel::{series, stock_versions};

/// Those that name the kernels for the way without hooks.
const KERNELS: &[&str] = &["README.md", "rust/README.md", "c-shims/stock/README.md"];
/// Those that name files of the module's Rust.
const DESIGNS: &[&str] = &[
    "rust/DESIGN.md",
    "rust/algo/README.md",
    "rust/algo/load/README.md",
    "rust/algo/placement/README.md",
    "rust/glue/README.md",
    "c-shims/stock/README.md",
    "c-shims/stock/merge/README.md",
];
/// Documents, and the words that each may have: one that grows is split, or loses its history.
const MOST_WORDS: &[(&str, usize)] = &[
    ("README.md", 1_200),
    ("rust/DESIGN.md", 3_500),
    ("tests/README.md", 2_500),
    ("rust/hike/README.md", 3_500),
    ("c-shims/stock/README.md", 3_500),
];
/// The lines of the first page.
const MOST_LINES: (&str, usize) = ("README.md", 150);
/// Those that may name commits, as figures and trials have one.
const HISTORIES: &[&str] = &["rust/DECISIONS.md", "xtask/lab/RESULTS.md"];
/// Words that make a reader read a sentence twice.
const WORST_WORDS: &[&str] = &[
    "anew",
    "so many",
    "stand once",
    "stands once",
    "what is on its way",
    "what was on its way",
    "whoever",
];

/// Sources, whose comments are to do without these words, too.
const SOURCES: &[&str] = &["rs", "c", "h", "proto"];
/// Words with which no comment begins that says for what something stands: that of a function begins with a verb, and others with a
/// noun.
const BAD_BEGINNINGS: &[&str] = &["Has", "How", "What", "Where", "Whether", "Which", "Who"];
/// A header whose comments may begin with any word, as the patches' may: a change in either builds the kernel again.
const IN_ALL_OF_THE_KERNEL: &str = "c-shims/kernel/include/net/mflow.h";
/// Those of the words that comments may have, as in "so many that".
const COMMENTS_MAY: &[&str] = &["so many"];

const CONTRACT: &str = "c-shims/README.md";

pub(crate) fn checks(project: &Path) -> Vec<(&'static str, Result<()>)> {
    type Check = fn(&Path) -> Result<()>;
    let checks: [(_, Check); 11] = [
        ("every hook is in the contract table", hooks_are_explained),
        ("every file named in the design text exists", files_exist),
        ("the module's version is the project's", version),
        ("kernels that will do without our hooks are named", kernels),
        ("no document is too long", lengths),
        ("commits are named where figures are", commits),
        ("figures are in the results", figures),
        ("documents have plain words", plain_words),
        ("comments begin with a verb or a noun", beginnings),
        (
            "documents name the part of the cases that is drawn",
            drawn_parts,
        ),
        (
            "parts of documents that are made from code are up to date",
            crate::docs::check,
        ),
    ];
    Vec::from(checks.map(|(name, check)| (name, check(project))))
}

fn hooks_are_explained(project: &Path) -> Result<()> {
    let patches = series::read(&patch_dir(project))?;
    let names: BTreeSet<String> = patches
        .iter()
        .flat_map(|patch| hooks(&patch.text))
        .collect();
    ensure!(
        !names.is_empty(),
        "no hook is found: this check no longer understands the patches"
    );
    let text = read(project, CONTRACT)?;
    let missing: Vec<&String> = names
        .iter()
        .filter(|name| !text.contains(&format!("`{name}`")))
        .collect();
    ensure!(
        missing.is_empty(),
        "not explained (as `name`) in {CONTRACT}: {missing:?}"
    );
    Ok(())
}

fn files_exist(project: &Path) -> Result<()> {
    for document in DESIGNS {
        let text = read(project, document)?;
        let lost: BTreeSet<&str> = files(&text)
            .filter(|file| !project.join("rust").join(file).exists())
            .filter(|file| !project.join(file).exists())
            .collect();
        ensure!(
            lost.is_empty(),
            "{document} names files that are not in rust/: {lost:?}"
        );
    }
    Ok(())
}

/// Checks the module's version: the kernel's `module!` takes none, and Cargo does not build the module, so it has to write it out.
fn version(project: &Path) -> Result<()> {
    let file = "rust/glue/operator/files.rs";
    let line = concat!("const VERSION: &str = \"", env!("CARGO_PKG_VERSION"), "\";");
    ensure!(
        read(project, file)?.contains(line),
        "{file} should have the line: {line}"
    );
    Ok(())
}

fn kernels(project: &Path) -> Result<()> {
    let words = format!("Linux {} ", stock_versions());
    for document in KERNELS {
        ensure!(
            read(project, document)?.contains(&words),
            "{document} should name the kernels for the way without hooks: {words}"
        );
    }
    Ok(())
}

fn lengths(project: &Path) -> Result<()> {
    for (document, most) in MOST_WORDS {
        let words = read(project, document)?.split_whitespace().count();
        ensure!(
            words <= *most,
            "{document} has {words} words, and {most} are allowed"
        );
    }
    let (document, most) = MOST_LINES;
    let lines = read(project, document)?.lines().count();
    ensure!(
        lines <= most,
        "{document} has {lines} lines, and {most} are allowed"
    );
    Ok(())
}

fn commits(project: &Path) -> Result<()> {
    let mut named = Vec::new();
    for path in documents(project) {
        if !HISTORIES.contains(&path.as_str()) {
            let text = read(project, &path)?;
            named.extend(commit_ids(&text).map(|id| format!("{path}: {id}")));
        }
    }
    ensure!(
        named.is_empty(),
        "these belong to {}:\n  {}",
        HISTORIES.join(" or "),
        named.join("\n  ")
    );
    Ok(())
}

fn figures(project: &Path) -> Result<()> {
    let mut found = Vec::new();
    for path in documents(project) {
        if !HISTORIES.contains(&path.as_str()) {
            let text = read(project, &path)?;
            found.extend(costs(&text).map(|sentence| format!("{path}: {sentence}")));
        }
    }
    ensure!(
        found.is_empty(),
        "numbers of instructions belong to {}, as in `{{udp-16/vanilla}}` in a template of xtask/lab/results:\n  {}",
        HISTORIES.join(" or "),
        found.join("\n  ")
    );
    Ok(())
}

fn plain_words(project: &Path) -> Result<()> {
    let mut bad = Vec::new();
    for path in documents(project) {
        let text = read(project, &path)?;
        bad.extend(worst_words(&text).map(|words| format!("{path}: {words}")));
    }
    for path in files_ending_with(project, SOURCES) {
        let comments = comments(&read(project, &path)?);
        let words = worst_words(&comments).filter(|words| !COMMENTS_MAY.contains(words));
        bad.extend(words.map(|words| format!("{path}: {words}")));
    }
    ensure!(
        bad.is_empty(),
        "readers stumble over these words:\n  {}",
        bad.join("\n  ")
    );
    Ok(())
}

fn beginnings(project: &Path) -> Result<()> {
    let mut bad = Vec::new();
    for path in files_ending_with(project, SOURCES) {
        if path != IN_ALL_OF_THE_KERNEL {
            let code = read(project, &path)?;
            let lines = bad_beginnings(&code, &path).into_iter();
            bad.extend(lines.map(|line| format!("{path}: {line}")));
        }
    }
    ensure!(
        bad.is_empty(),
        "these comments should begin with a verb (of a function) or with a noun:\n  {}",
        bad.join("\n  ")
    );
    Ok(())
}

fn drawn_parts(project: &Path) -> Result<()> {
    const CASES: &str = "tests/guest/src/cases/README.md";
    let (group, checked) = (draw::OF_GROUP, draw::OF_CHECKED);
    let (of_driver, of_host, of_during) = (mlx5::OF_DRIVER, hosts::OF_GROUP, hosts::OF_DURING);
    let expected = [
        (
            "tests/README.md",
            format!("The commit draws {group} of each group of cases"),
        ),
        (
            CASES,
            format!("Of all other cases {group} of each group is drawn"),
        ),
        (
            CASES,
            format!("one case of each of {checked} of the groups"),
        ),
        (
            CASES,
            format!("Of the driver's own cases {of_driver} of each kind is drawn"),
        ),
        (
            "tests/guest/src/hosts/README.md",
            format!("it draws {of_host} of each group"),
        ),
        (
            "tests/guest/src/hosts/README.md",
            format!("and {of_during} of the cases named `during`"),
        ),
    ];
    let mut missing = Vec::new();
    for (document, sentence) in expected {
        let text = read(project, document)?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.contains(&sentence) {
            missing.push(format!("{document}: {sentence}"));
        }
    }
    ensure!(
        missing.is_empty(),
        "these sentences should say what is drawn:\n  {}",
        missing.join("\n  ")
    );
    Ok(())
}

/// Returns the paths of all documents of the project.
fn documents(project: &Path) -> Vec<String> {
    files_ending_with(project, &["md"])
}

fn files_ending_with(project: &Path, endings: &[&str]) -> Vec<String> {
    WalkDir::new(project)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| {
            let name = entry.file_name();
            entry.depth() == 0 || !name.as_encoded_bytes().starts_with(b".") && name != "target"
        })
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let path = entry.path().strip_prefix(project).ok()?;
            let ending = path.extension()?.to_str()?;
            endings
                .contains(&ending)
                .then(|| path.to_string_lossy().into_owned())
        })
        .collect()
}

/// Returns the first lines of comments that begin with a word for which a noun or a verb should stand.
fn bad_beginnings<'a>(code: &'a str, path: &str) -> Vec<&'a str> {
    let mut lines = match path.rsplit('.').next() {
        Some("rs") => first_lines(code, &["///", "//!"]),
        Some("proto") => first_lines(code, &["//"]),
        _ => first_lines_of_blocks(code),
    };
    lines.retain(|line| {
        let first_word = line.split(|c: char| !c.is_alphanumeric()).next();
        first_word.is_some_and(|word| BAD_BEGINNINGS.contains(&word))
    });
    lines
}

/// Returns the first line of each comment whose lines begin with one of these marks, without the mark.
fn first_lines<'a>(code: &'a str, marks: &[&str]) -> Vec<&'a str> {
    let mut lines = Vec::new();
    let mut is_within = false;
    for line in code.lines().map(str::trim) {
        let text = marks.iter().find_map(|mark| line.strip_prefix(mark));
        lines.extend(text.filter(|_| !is_within).map(str::trim));
        is_within = text.is_some();
    }
    lines
}

/// Returns the first line of each comment of C that has words, without what is in front of them.
fn first_lines_of_blocks(code: &str) -> Vec<&str> {
    let comments = code.split("/*").skip(1);
    let words =
        comments.map(|text| text.trim_start_matches(|c: char| c == '*' || c.is_whitespace()));
    words.filter_map(|text| text.lines().next()).collect()
}

/// Returns the lines of a source that are comments.
fn comments(code: &str) -> String {
    let lines = code.lines().map(str::trim);
    let is_comment = |line: &&str| ["//", "/*", "*"].iter().any(|mark| line.starts_with(mark));
    lines.filter(is_comment).collect::<Vec<_>>().join("\n")
}

fn read(project: &Path, path: &str) -> Result<String> {
    fs::read_to_string(project.join(path)).with_context(|| format!("cannot read {path}"))
}

/// Reads the calls of `mflow_...()` that a patch adds.
fn hooks(patch: &str) -> Vec<String> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    patch
        .lines()
        .filter(|line| line.starts_with('+'))
        .flat_map(|line| line.match_indices('(').map(|(end, _)| &line[..end]))
        .filter_map(|before| {
            let name = before.rsplit(|c| !in_name(c)).next()?;
            name.starts_with("mflow_").then(|| name.to_owned())
        })
        .collect()
}

/// Reads paths such as `algo/merge/slot.rs` in code quotes.
fn files(design: &str) -> impl Iterator<Item = &str> {
    design
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|code| code.split([':', ' ']).next())
        .filter(|word| word.contains('/') && word.ends_with(".rs"))
}

/// Returns the worst words of a text, across its lines.
fn worst_words(text: &str) -> impl Iterator<Item = &'static str> {
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    WORST_WORDS
        .iter()
        .copied()
        .filter(move |words| text.contains(&format!(" {words} ")))
}

/// Reads words of seven hexadecimal digits, a letter and a decimal digit among them.
fn commit_ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| {
            let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
            word.len() == 7
                && word.chars().all(is_digit)
                && word.contains(|c: char| c.is_ascii_digit())
                && word.contains(|c: char| c.is_ascii_alphabetic())
        })
}

/// Returns the sentences that have a number of instructions or a share of work, outside of code and references to rows.
fn costs(text: &str) -> impl Iterator<Item = &str> {
    let sentences = text.split(['.', '|', ':', ';']).filter(|sentence| {
        let plain: Vec<&str> = sentence.split(['`', '{', '}']).step_by(2).collect();
        let plain = plain.join(" ").replace(',', "");
        let words: Vec<&str> = plain.split_whitespace().collect();
        has_instructions(&words) || has_share(&words)
    });
    sentences.map(str::trim)
}

/// Returns whether words tell a number of instructions, which has three digits or more.
fn has_instructions(words: &[&str]) -> bool {
    let is_number = |word: &&str| {
        let mut numbers = word.split(|c: char| !c.is_ascii_digit());
        numbers.any(|digits| digits.len() >= 3)
    };
    words.iter().any(|word| word.contains("instruction")) && words.iter().any(is_number)
}

/// Returns whether words tell the share or the multiple of work that something costs.
fn has_share(words: &[&str]) -> bool {
    let is_share = |pair: &[&str]| match *pair {
        [number, "%" | "times", ..] | [number, "per", "cent", ..]
            if number.ends_with(|c: char| c.is_ascii_digit()) =>
        {
            true
        }
        ["half", "of", "the", "work"] | ["half", "a", "per", "cent"] => true,
        ["a", "third" | "quarter" | "fifth", "of", _] => true,
        _ => false,
    };
    let is_cost = |word: &&str| matches!(*word, "cost" | "costs" | "work");
    words.iter().any(is_cost)
        && (0..words.len()).any(|at| is_share(&words[at..words.len().min(at + 4)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_code_and_files_from_code_quotes() {
        let patch = "+++ b/net/core/gro.c\n+\tif (mflow_split_napi(napi, skb))\n \told_call(mflow_x);\n-\tmflow_gone(skb);\n";
        assert_eq!(hooks(patch), ["mflow_split_napi"]);
        let ids = "at 0be4b1c, 1048576 of defaced, 069a40995cb0 and (f7b1f2d)";
        assert!(commit_ids(ids).eq(["0be4b1c", "f7b1f2d"]));
        let found: Vec<_> = worst_words("So\nmany flows, begun anew; a renewal.").collect();
        assert_eq!(found, ["anew", "so many"]);
        let costs: Vec<_> = costs(
            "It costs 1,234 instructions. Of {udp-1024/rps} instructions | 1234 |; 64 instructions. A lane has half of the\nwork. \
             It costs 12 % more; up to 1.22 times the work. A load of 80 %, and half of its time. `work 3 times`",
        )
        .collect();
        assert_eq!(
            costs,
            [
                "It costs 1,234 instructions",
                "A lane has half of the\nwork",
                "It costs 12 % more",
                "22 times the work"
            ]
        );
        let design =
            "1. `glue/hooks.rs: split_napi`, `algo/merge/slot.rs` and `mod.rs`, not glue/x.rs.";
        assert!(files(design).eq(["glue/hooks.rs", "algo/merge/slot.rs"]));
    }

    #[test]
    fn comments_begin_where_their_language_has_them_begin() {
        let rust = "//! A file.\n\n/// What it is.\n/// How.\nlet a = 1; // What\n    /// A bound. What it bounds.\n";
        assert_eq!(bad_beginnings(rust, "a.rs"), ["What it is."]);
        let proto = "// A file.\n\n// A message.\n// What it has.\nmessage A {\n  // Which it is.\n  uint32 a = 1;\n}\n";
        assert_eq!(bad_beginnings(proto, "v1/a.proto"), ["Which it is."]);
        let c = "/*\n * Who reads.\n * What is read.\n */\nint a; /* How many. */\n/* The rest. How much. */\n/** Where. */\n";
        let expected = ["Who reads.", "How many. */", "Where. */"];
        assert_eq!(bad_beginnings(c, "a.h"), expected);
    }

    #[test]
    fn comments_of_all_sources_are_looked_at_but_those_that_build_the_kernel_again() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "/* What it is. */\n").unwrap();
        };
        write(IN_ALL_OF_THE_KERNEL);
        write("c-shims/patches/0001-gro.patch");
        beginnings(dir.path()).unwrap();
        write("c-shims/module/mflow_files.c");
        let error = beginnings(dir.path()).unwrap_err().to_string();
        assert!(
            error.ends_with("\n  c-shims/module/mflow_files.c: What it is. */"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 2);
    }
}
