// SPDX-License-Identifier: GPL-2.0

//! The tables of the operator's manual, and the declarations of module parameters, whose texts operators read with `modinfo`.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};

use super::named::{self, Named};
use crate::builds;
use crate::kernel::{STOCK_LACKS, STOCK_NEEDS};
use crate::tools;

const KNOBS: &str = "rust/algo/knobs/mod.rs";

/// Returns the options that a kernel with our hooks has: those of `base.config`, with the comment above them.
pub(super) fn patched_options(project: &Path) -> Result<String> {
    let text = read(project, "kernel-config/base.config")?;
    Ok(table(["option", "why"], option_rows(&text)))
}

/// Returns the options that a kernel without our hooks has, and those that it must not have.
pub(super) fn stock_options(_project: &Path) -> Result<String> {
    let needs = STOCK_NEEDS.iter().map(|(option, why)| (code(option), why));
    let lacks = STOCK_LACKS
        .iter()
        .map(|(option, why)| (format!("no {}", code(option.trim_end_matches("=y"))), why));
    let rows = needs.chain(lacks);
    let rows = rows.map(|(option, why)| [option, (*why).to_owned()]);
    Ok(table(["option", "it stands for"], rows))
}

/// Returns all knobs.
pub(super) fn knobs(project: &Path) -> Result<String> {
    let rows = described_knobs(project)?.into_iter().map(|knob| {
        let name = code(&knob.name);
        [name, knob.meaning, knob.allowed, knob.default]
    });
    Ok(table(["knob", "meaning", "allowed", "default"], rows))
}

/// Returns the values that go together.
pub(super) fn combinations(_project: &Path) -> Result<String> {
    let rows = values::<4>("combination")?
        .into_iter()
        .map(|[mode, layout, scaling, build]| [code(&mode), code(&layout), scaling, build]);
    let head = ["mode", "layout", "scaling", "build"].map(code);
    Ok(table(head.each_ref().map(|name| &**name), rows))
}

/// Returns the files that are no knobs.
pub(super) fn files(project: &Path) -> Result<String> {
    let all = named::read(&read(project, "rust/glue/operator/files.rs")?, "files")?;
    let rows = all.into_iter().map(|file| {
        let uses = uses(&file.number)
            .with_context(|| format!("`{}` in `files!` has no mode such as 0o600", file.name))?;
        Ok([code(&file.name), file.meaning, uses.to_owned()])
    });
    let rows: Vec<_> = rows.collect::<Result<_>>()?;
    Ok(table(["file", "holds", "one can"], rows.into_iter()))
}

/// Returns the reasons for which flows are whole.
pub(super) fn reasons(project: &Path) -> Result<String> {
    let all = named::read_advised(&read(project, "rust/algo/report/reason.rs")?, "reasons")?;
    let rows = all
        .into_iter()
        .map(|one| [code(&one.name), one.words, one.advice]);
    Ok(table(["reason", "words behind `#`", "what to do"], rows))
}

/// Returns the counters.
pub(super) fn counters(project: &Path) -> Result<String> {
    let all = named::read_advised(&read(project, "rust/algo/counters.rs")?, "counters")?;
    let rows = all
        .into_iter()
        .map(|one| [code(&one.name), one.meaning, one.advice]);
    Ok(table(["counter", "counts", "if it grows"], rows))
}

/// Returns the declarations in C of the module parameters that are knobs.
pub(super) fn parameters(project: &Path) -> Result<String> {
    let knobs = described_knobs(project)?.into_iter().map(|knob| {
        let name = &knob.name;
        let (meaning, allowed, default) = (knob.meaning.replace('`', ""), knob.allowed, knob.default);
        format!(
            "static char *{name};\nmodule_param({name}, charp, 0);\nMODULE_PARM_DESC({name},\n\t\t \"{meaning} \
             Allowed: {allowed}. Default: {default}.\");\n"
        )
    });
    Ok(knobs.collect::<Vec<_>>().join("\n"))
}

/// A knob as operators read of it.
struct Described {
    name: String,
    meaning: String,
    allowed: String,
    default: String,
}

/// Returns the knobs with the comments and the values that the code has for them.
fn described_knobs(project: &Path) -> Result<Vec<Described>> {
    let meanings = named::read(&read(project, KNOBS)?, "knobs")?;
    let values = values::<3>("knob")?;
    let find = |Named { name, meaning, .. }: Named| {
        let mut of_knob = values.iter().filter(|[knob, ..]| *knob == name);
        let [_, allowed, default] = of_knob.next().with_context(|| {
            format!("`{name}` in {KNOBS} is no knob of the program mflow-knobs")
        })?;
        let default = if default.is_empty() { "none" } else { default };
        Ok(Described {
            name,
            meaning,
            allowed: allowed.clone(),
            default: default.to_owned(),
        })
    };
    meanings.into_iter().map(find).collect()
}

/// Returns the cells of one table of those that the host build of the algorithm prints.
pub(super) fn values<const CELLS: usize>(of: &str) -> Result<Vec<[String; CELLS]>> {
    static PRINTED: OnceLock<String> = OnceLock::new();
    let text = tools::once(&PRINTED, || {
        let mut command = builds::cargo("target")?;
        command.args(["run", "--quiet", "--locked", "--package=mflow-algo"]);
        tools::output(command.arg("--bin=mflow-knobs"))
    })?;
    rows_of(&text, of)
}

/// Reads the rows of one table; their first cell is its name.
fn rows_of<const CELLS: usize>(text: &str, of: &str) -> Result<Vec<[String; CELLS]>> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let mut cells = line.split('\t').map(str::to_owned);
        if cells.next().as_deref() == Some(of) {
            let cells = <[String; CELLS]>::try_from(cells.collect::<Vec<_>>());
            let cells = cells
                .ok()
                .with_context(|| format!("this line should have {CELLS} cells more: {line}"))?;
            rows.push(cells);
        }
    }
    Ok(rows)
}

/// Reads the rows of a configuration fragment: the options of a paragraph, and the comment that it begins with.
fn option_rows(fragment: &str) -> impl Iterator<Item = [String; 2]> + '_ {
    fragment.split("\n\n").filter_map(|paragraph| {
        let (mut options, mut comment) = (Vec::new(), Vec::new());
        for line in paragraph.lines() {
            let off = line
                .strip_prefix("# ")
                .and_then(|line| line.strip_suffix(" is not set"));
            match (off, line.strip_prefix("# ")) {
                (Some(option), _) => options.push(format!("no {}", code(option))),
                (None, Some(text)) => comment.push(text),
                (None, None) => options.push(code(line)),
            }
        }
        (!options.is_empty()).then(|| [options.join(", "), comment.join(" ")])
    })
}

/// Returns what one can do with a file of this mode.
fn uses(mode: &str) -> Option<&'static str> {
    let mode = u16::from_str_radix(mode.strip_prefix("0o")?, 8).ok()?;
    match (mode & 0o444 > 0, mode & 0o222 > 0) {
        (true, true) => Some("read, write"),
        (true, false) => Some("read"),
        (false, true) => Some("write"),
        (false, false) => None,
    }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// Returns a table in Markdown.
fn table<const CELLS: usize>(
    head: [&str; CELLS],
    rows: impl Iterator<Item = [String; CELLS]>,
) -> String {
    let rows = rows.map(|cells| format!("| {} |\n", cells.join(" | ")));
    format!("| {} |\n{}|\n", head.join(" | "), "|---".repeat(CELLS)) + &rows.collect::<String>()
}

fn read(project: &Path, path: &str) -> Result<String> {
    fs::read_to_string(project.join(path)).with_context(|| format!("cannot read {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_s_options_have_the_comment_above_them() {
        let fragment = "# Help: all.\n\n# The one\n# and only.\nCONFIG_A=y\n# CONFIG_B is not set\n\nCONFIG_C=m\n";
        let rows: Vec<_> = option_rows(fragment).collect();
        assert_eq!(
            rows,
            [
                ["`CONFIG_A=y`, no `CONFIG_B`", "The one and only."],
                ["`CONFIG_C=m`", ""]
            ]
        );
    }

    #[test]
    fn rows_are_those_of_their_table_and_whole() {
        let text = "knob\tcpus\tauto\t\ncombination\tmflow\n";
        let rows = rows_of::<3>(text, "knob").unwrap();
        assert_eq!(rows, [["cpus", "auto", ""]]);
        let error = rows_of::<3>(text, "combination").unwrap_err().to_string();
        assert!(error.ends_with("combination\tmflow"), "{error}");
        let text = table(["a", "b"], [["1".to_owned(), "2".to_owned()]].into_iter());
        assert_eq!(text, "| a | b |\n|---|---|\n| 1 | 2 |\n");
    }

    #[test]
    fn a_file_s_mode_says_what_one_can_do_with_it() {
        let all = ["0o600", "0o444", "0o200"].map(|mode| uses(mode).unwrap());
        assert_eq!(all, ["read, write", "read", "write"]);
        assert_eq!([uses("0o111"), uses("600")], [None, None]);
    }
}
