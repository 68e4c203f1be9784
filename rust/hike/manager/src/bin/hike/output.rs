// SPDX-License-Identifier: GPL-2.0

//! Output of the commands: tables for people, JSON for programs.

use std::fmt::Display;
use std::io::{stderr, stdout, ErrorKind, Write as _};

use anyhow::{Context as _, Result};
use comfy_table::{presets, CellAlignment, Table};
use mflow_hike_manager::configuration::objects::Kind;
use mflow_hike_manager::proto::word_of;
use mflow_hike_manager::v1;
use serde_json::Value;

/// Nobody reads the output any more, as behind `hike show | head -1`.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output")]
pub(crate) struct Unread;

/// Prints a text at once. Fails with [`Unread`] if nobody reads it.
pub(crate) fn print(text: impl Display) -> Result<()> {
    let mut out = stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Unread.into()),
        printed => printed.context("cannot print"),
    }
}

/// Prints a text with the end of its line.
pub(crate) fn print_line(text: impl Display) -> Result<()> {
    print(format_args!("{text}\n"))
}

/// Warns on standard error; nothing depends on whether anybody reads that.
pub(crate) fn warn(text: &str) {
    let _unread = writeln!(stderr(), "hike: warning: {text}");
}

pub(crate) fn print_json(value: &Value) -> Result<()> {
    print_line(value)
}

/// Returns rows below a head; columns of numbers are those that the predicate names.
pub(crate) fn table(head: &[&str], rows: Vec<Vec<String>>, numbers: &[usize]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(head.to_vec());
    table.add_rows(rows);
    for &column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines();
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Returns differences as lines: `-` what was, `+` what is then.
pub(crate) fn difference_lines(differences: &[v1::Difference]) -> Vec<String> {
    let mut lines = Vec::new();
    for one in differences {
        let what = format!("{} {}", word_of::<Kind>(one.kind), one.name);
        let what = what.trim_end();
        for (sign, text) in [('-', &one.before), ('+', &one.after)] {
            lines.extend(text.iter().map(|text| format!("{sign} {what}: {text}")));
        }
    }
    lines
}

/// Serialises a value that is made of strings and numbers.
pub(crate) fn to_json(value: &impl serde::Serialize) -> Result<Value> {
    Ok(serde_json::to_value(value)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_lines_with_a_sign() {
        let difference = |before: Option<&str>, after: Option<&str>| v1::Difference {
            kind: v1::Kind::Class.into(),
            name: "default".to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        let lines = difference_lines(&[
            difference(Some("1"), Some("2")),
            difference(None, Some("3")),
        ]);
        assert_eq!(
            lines,
            [
                "- class default: 1",
                "+ class default: 2",
                "+ class default: 3"
            ]
        );
        assert_eq!(
            to_json(&difference(None, Some("3"))).expect("JSON"),
            json!({ "kind": "class", "name": "default", "before": null, "after": "3" })
        );
    }

    #[test]
    fn numbers_of_messages_are_words() {
        let counter = v1::Counter {
            fate: v1::Fate::Dropped.into(),
            ..v1::Counter::default()
        };
        let counter = to_json(&counter).expect("JSON");
        assert_eq!(counter["fate"], "dropped");
        let result = v1::Result {
            direction: v1::Direction::Out.into(),
            ..v1::Result::default()
        };
        let result = to_json(&result).expect("JSON");
        assert_eq!(
            result,
            json!({ "monitor": "", "direction": "out", "flow": null, "period_ns": 0, "blocks": [], "last_settled": 0, "total_packets": 0 })
        );
    }

    #[test]
    fn numbers_stand_on_the_right() {
        let row = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        let text = table(
            &["what", "packets"],
            vec![row("a", "5"), row("bc", "12345678")],
            &[1],
        );
        assert_eq!(text, " what   packets\n a            5\n bc    12345678");
    }
}
