// SPDX-License-Identifier: GPL-2.0

//! Two results against each other: whether the primary figure can be repeated, or has changed.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{bail, ensure, Result};

use super::figure::label;
use super::grid::Grid;
use xtask::results::row::{read, Row};

/// The share by which the primary figure of a row may differ, up or down.
const DIFFERENCE_MAX: f64 = 0.05;

#[derive(Debug)]
struct Comparison {
    lines: Vec<Line>,
    /// Rows that only one of the two has.
    alone: usize,
}

#[derive(Debug)]
struct Line {
    case: String,
    mode: String,
    before: Option<f64>,
    after: Option<f64>,
}

/// Compares two files and prints a table; fails when a primary figure differs by more than 5 %, or is no longer there.
pub(crate) fn run(before: &Path, after: &Path) -> Result<ExitCode> {
    let comparison = Comparison::of(&read(before)?, &read(after)?)?;
    println!("{}", comparison.text());
    Ok(if comparison.differs() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Comparison {
    fn of(before: &[Row], after: &[Row]) -> Result<Self> {
        let mut lines = Vec::new();
        for row in before {
            let mut found = after.iter().filter(|other| same(row, other));
            let Some(other) = found.next() else { continue };
            let twice = before.iter().filter(|other| same(row, other)).count() > 1;
            if twice || found.next().is_some() {
                bail!(
                    "{} {} is there twice; compare files of one run each",
                    row.case,
                    label(row)
                );
            }
            lines.push(Line {
                case: row.case.clone(),
                mode: label(row),
                before: row.busiest(),
                after: other.busiest(),
            });
        }
        ensure!(
            !lines.is_empty(),
            "the two files have no row in common; compare runs of the same suite"
        );
        let alone = before.len() + after.len() - 2 * lines.len();
        Ok(Self { lines, alone })
    }

    fn differs(&self) -> usize {
        self.lines.iter().filter(|line| line.differs()).count()
    }

    fn text(&self) -> String {
        let mut grid = Grid::default();
        grid.left(["case", "mode"]);
        grid.right(["before", "after", "difference"]);
        grid.left([""]);
        for line in &self.lines {
            grid.row(vec![
                line.case.clone(),
                line.mode.clone(),
                figure(line.before),
                figure(line.after),
                line.difference()
                    .map_or("-".to_owned(), |part| format!("{:+.1} %", part * 100.0)),
                line.verdict().to_owned(),
            ]);
        }
        format!(
            "Instructions per delivered wire packet, busiest core\n{}\n{} rows compared, {} differ by more than {:.0} % or have \
             lost their figure, {} in one file only",
            grid.text(),
            self.lines.len(),
            self.differs(),
            DIFFERENCE_MAX * 100.0,
            self.alone
        )
    }
}

impl Line {
    fn difference(&self) -> Option<f64> {
        Some(self.after? / self.before? - 1.0)
    }

    fn differs(&self) -> bool {
        match (self.before, self.after) {
            (Some(_), None) => true,
            // Not `>`: a difference that is not a number counts as one.
            (Some(_), Some(_)) => !self
                .difference()
                .is_some_and(|part| part.abs() <= DIFFERENCE_MAX),
            (None, _) => false,
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.before, self.after) {
            (Some(_), None) => "LOST",
            (None, Some(_)) => "new",
            _ if self.differs() => "DIFFERS",
            _ => "",
        }
    }
}

fn figure(value: Option<f64>) -> String {
    value.map_or("not available".to_owned(), |value| format!("{value:.0}"))
}

/// Returns whether two rows measure the same; the suite does not matter.
fn same(one: &Row, other: &Row) -> bool {
    let key = |row: &Row| {
        (
            row.case.clone(),
            label(row),
            row.proto.clone(),
            (row.msg_bytes, row.clients, row.flows, row.batch_pkts),
            row.nic.clone(),
            row.load.clone(),
        )
    };
    key(one) == key(other)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::bench::measurement::fixture;

    /// Returns the fixture with one busiest core changed by a factor.
    fn changed(factor: f64) -> Vec<Row> {
        let mut rows = fixture::rows();
        let insn = rows[1].insn_per_packet.as_mut().expect("measured");
        insn.busiest *= factor;
        rows
    }

    fn differs(after: &[Row]) -> usize {
        Comparison::of(&fixture::rows(), after)
            .expect("rows in common")
            .differs()
    }

    #[test]
    fn five_per_cent_either_way_are_too_much_only_when_exceeded() {
        assert_eq!(differs(&changed(1.0)), 0);
        assert_eq!(differs(&changed(1.049)), 0);
        assert_eq!(differs(&changed(1.051)), 1);
        assert_eq!(differs(&changed(0.949)), 1);
        assert_eq!(differs(&changed(f64::NAN)), 1);
    }

    #[test]
    fn a_figure_that_is_gone_is_a_difference() {
        let mut rows = fixture::rows();
        rows[1].insn_per_packet = None;
        assert_eq!(differs(&rows), 1);
        let back = Comparison::of(&rows, &fixture::rows()).expect("rows in common");
        assert_eq!(back.differs(), 0);
        assert!(back.text().contains("new"));
    }

    #[test]
    fn only_what_both_have_is_compared() {
        let rows = fixture::rows();
        let comparison = Comparison::of(&rows, &rows[..4]).expect("rows in common");
        assert_eq!(comparison.lines.len(), 4);
        assert_eq!(comparison.alone, rows.len() - 4);
        let text = comparison.text();
        assert!(text.contains("4 rows compared, 0 differ"), "{text}");
        assert!(Comparison::of(&rows, &[]).is_err());
    }

    #[test]
    fn rows_that_are_there_twice_are_refused() {
        let mut rows = fixture::rows();
        rows.push(rows[0].clone());
        assert!(Comparison::of(&rows, &fixture::rows()).is_err());
        assert!(Comparison::of(&fixture::rows(), &rows).is_err());
    }

    #[test]
    fn files_are_read_and_others_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let good = folder.path().join("good.json");
        let json = serde_json::to_string(&fixture::rows()).expect("rows");
        fs::write(&good, json).expect("written");
        assert_eq!(read(&good).expect("rows"), fixture::rows());
        assert!(run(&good, &good).is_ok());
        let bad = folder.path().join("bad.json");
        fs::write(&bad, "{}").expect("written");
        let error = format!("{:#}", read(&bad).expect_err("refused"));
        assert!(error.contains("--json FILE"), "{error}");
    }
}
