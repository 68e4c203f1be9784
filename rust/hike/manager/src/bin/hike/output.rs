// SPDX-License-Identifier: GPL-2.0

//! Output of the commands: tables for people, JSON for programs.

use anyhow::Result;
use comfy_table::{presets, CellAlignment, Table};
use serde_json::{json, Value};

use mflow_hike_manager::v1;

pub(crate) fn print_json(value: &Value) {
    println!("{value}");
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
        let what = format!("{} {}", kind(one.kind), one.name);
        let what = what.trim_end();
        for (sign, text) in [('-', &one.before), ('+', &one.after)] {
            lines.extend(text.iter().map(|text| format!("{sign} {what}: {text}")));
        }
    }
    lines
}

pub(crate) fn differences_json(differences: &[v1::Difference]) -> Value {
    let each = differences.iter().map(|one| {
        json!({
            "kind": kind(one.kind),
            "name": one.name,
            "before": one.before,
            "after": one.after,
        })
    });
    each.collect()
}

/// Returns the word for a kind: `KIND_CHAIN` is `chain`, `KIND_KERNEL_ROUTE` is `kernel-route`.
fn kind(number: i32) -> String {
    let kind = v1::Kind::try_from(number).unwrap_or_default();
    word(kind.as_str_name(), "KIND_")
}

/// Returns the word for where a flow is counted.
pub(crate) fn direction(number: i32) -> String {
    let direction = v1::Direction::try_from(number).unwrap_or_default();
    word(direction.as_str_name(), "DIRECTION_")
}

/// Returns the word for what becomes of packets.
pub(crate) fn fate(number: i32) -> String {
    let fate = v1::Fate::try_from(number).unwrap_or_default();
    word(fate.as_str_name(), "FATE_")
}

fn word(name: &str, prefix: &str) -> String {
    let word = name.strip_prefix(prefix).unwrap_or(name);
    word.to_lowercase().replace('_', "-")
}

/// Serialises a value that is made of strings and numbers.
pub(crate) fn to_json(value: &impl serde::Serialize) -> Result<Value> {
    Ok(serde_json::to_value(value)?)
}

#[cfg(test)]
mod tests {
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
            differences_json(&[difference(None, Some("3"))]),
            json!([{ "kind": "class", "name": "default", "before": null, "after": "3" }])
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
