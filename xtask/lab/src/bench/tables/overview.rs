// SPDX-License-Identifier: GPL-2.0

//! The result in one grid: what a single flow costs the busiest core with each stack.

use super::figure::group;
use super::grid::Grid;
use crate::bench::suites::kind::Kind;
use xtask::results::row::Row;

pub(crate) const TITLE: &str =
    "Instructions per packet on the busiest core, and how many times less than vanilla's";

/// Returns a row for each mode and a column for each single-flow case; empty if no such case was measured.
pub(crate) fn grid(rows: &[Row]) -> Grid {
    let figures = group(rows);
    let cases: Vec<_> = figures
        .iter()
        .filter(|figure| matches!(figure.kind, Kind::Udp | Kind::Tcp))
        .flat_map(|figure| &figure.cases)
        .collect();
    let mut modes: Vec<String> = Vec::new();
    for row in cases.iter().flat_map(|case| &case.rows) {
        if row.insn_per_packet.is_some() && !modes.contains(&name(row)) {
            modes.push(name(row));
        }
    }
    let mut grid = Grid::default();
    grid.left(["mode"]);
    grid.right(cases.iter().map(|case| case.name));
    for mode in modes {
        let mut cells = vec![mode.clone()];
        for case in &cases {
            let row = case.rows.iter().find(|row| name(row) == mode);
            cells.push(row.and_then(|row| cell(row)).unwrap_or("-".to_owned()));
        }
        grid.row(cells);
    }
    grid
}

fn name(row: &Row) -> String {
    match row.lanes {
        0 => row.mode.clone(),
        1 => format!("{}, 1 lane", row.mode),
        lanes => format!("{}, {lanes} lanes", row.mode),
    }
}

fn cell(row: &Row) -> Option<String> {
    let insn = row.insn_per_packet.as_ref()?;
    let ratio = row
        .speedup_vs_vanilla
        .map_or(String::new(), |ratio| format!(" ({ratio:.2}x)"));
    Some(format!("{:.0}{ratio}", insn.busiest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurement::fixture;

    #[test]
    fn every_mode_that_was_measured_has_a_row() {
        let text = grid(&fixture::rows()).text();
        let heads: Vec<&str> = text
            .lines()
            .next()
            .unwrap_or("")
            .split_whitespace()
            .collect();
        assert_eq!(heads[0], "mode");
        assert!(heads.contains(&"udp-65507"), "{text}");
        // Made up, as all of the fixture's.
        let mflow = text
            .lines()
            .find(|line| line.starts_with("mflow, 2 lanes "));
        assert!(
            mflow.is_some_and(|line| line.contains("3200 (2.50x)")),
            "{text}"
        );
        assert!(text.contains("8000 (1.00x)"), "{text}");
        assert!(!text.contains("falcon"), "{text}");
        assert!(!text.contains("order-"), "{text}");
    }

    #[test]
    fn nothing_measured_nothing_shown() {
        assert!(grid(&[]).is_empty());
        assert!(grid(&[fixture::row("memcached", "vanilla", 0)]).is_empty());
    }
}
