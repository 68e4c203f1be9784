// SPDX-License-Identifier: GPL-2.0

//! Output of the commands: lines and tables for people, JSON for programs.

use std::fmt::Display;
use std::io::{stderr, stdout, ErrorKind, Write as _};

use anyhow::{Context as _, Result};
use comfy_table::{presets, CellAlignment, Table};
use serde::Serialize;

/// Nobody reads the output any more, as behind `mflow flows | head -1`.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output")]
pub struct Unread;

/// Prints a text at once. Fails with [`Unread`] if nobody reads it.
pub fn print(text: impl Display) -> Result<()> {
    let mut out = stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Unread.into()),
        printed => printed.context("cannot print"),
    }
}

/// Prints a text with the end of its line.
pub fn print_line(text: impl Display) -> Result<()> {
    print(format_args!("{text}\n"))
}

/// Prints a value as JSON, in one line.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    print_line(serde_json::to_string(value)?)
}

/// Prints a line on standard error; nothing depends on whether anybody reads that.
pub fn complain(text: impl Display) {
    let _unread = writeln!(stderr(), "{text}");
}

/// Warns on standard error.
pub fn warn(text: &str) {
    complain(format_args!("mflow: warning: {text}"));
}

/// Returns rows below a head; the columns named in `numbers` stand on the right.
pub fn table(head: &[&str], rows: Vec<Vec<String>>, numbers: &[&str]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(head.to_vec());
    let printable = |row: Vec<String>| row.iter().map(|cell| printable(cell)).collect::<Vec<_>>();
    table.add_rows(rows.into_iter().map(printable));
    for (place, name) in head.iter().enumerate() {
        if let (true, Some(column)) = (numbers.contains(name), table.column_mut(place)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(&table)
}

/// Returns what is said of each name, below each other.
pub fn facts(rows: Vec<(&str, String)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let rows = rows.into_iter();
    table.add_rows(rows.map(|(name, said)| vec![name.to_owned(), printable(&said)]));
    lines(&table)
}

/// Returns a text without characters that would make a terminal do something. Names of devices may have any but white space
/// (`dev_valid_name()` of net/core/dev.c).
pub fn printable(text: &str) -> String {
    let is_bad = |one: &char| one.is_control() && *one != '\n';
    let shown = |one: char| if is_bad(&one) { '?' } else { one };
    text.chars().map(shown).collect()
}

/// Returns the lines of a table, without the space around them.
fn lines(table: &Table) -> String {
    let lines = table.lines();
    let lines: Vec<String> = lines
        .map(|line| {
            line.strip_prefix(' ')
                .unwrap_or(&line)
                .trim_end()
                .to_owned()
        })
        .collect();
    lines.join("\n")
}

/// Returns a number with its noun, as people say it.
pub fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ if noun.ends_with("ch") => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_on_the_right() {
        let row = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        let text = table(
            &["flow", "pps"],
            vec![row("a", "5"), row("bc", "12345678")],
            &["pps"],
        );
        assert_eq!(text, "flow       pps\na            5\nbc    12345678");
    }

    #[test]
    fn no_name_makes_the_terminal_do_something() {
        let name = "eth\u{1b}[2J\u{9b}ü".to_owned();
        let text = table(&["device"], vec![vec![name.clone()]], &[]);
        assert_eq!(text, "device\neth?[2J?ü");
        assert_eq!(facts(vec![("devices", name)]), "devices  eth?[2J?ü");
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!(count(1, "batch"), "1 batch");
        assert_eq!(count(0, "batch"), "0 batches");
        assert_eq!(count(2, "flow"), "2 flows");
    }
}
