// SPDX-License-Identifier: GPL-2.0

//! The figures of the papers, each with its place in a report.

use super::grid::Grid;
use crate::bench::suites::published::{MeasuredHere, FIGURES};
use xtask::results::row::Row;

/// Returns all figures, and where each is in a report of these rows.
pub(crate) fn grid(rows: &[Row], modelled: bool) -> Grid {
    let mut grid = Grid::default();
    grid.left(["figure", "shows", "here"]);
    for figure in FIGURES {
        let here = match figure.here {
            MeasuredHere::Measured(kind, cases, what) => {
                if rows.iter().any(|row| figure.has(row)) {
                    format!("{} / {what}", kind.subject())
                } else {
                    format!("not in this run: cases {}", cases.join(", "))
                }
            }
            MeasuredHere::Modelled(what) if modelled => format!("modelled: {what}"),
            MeasuredHere::Modelled(_) => {
                "to be modelled, from rows of `rps` and `mflow` of one case".to_owned()
            }
            MeasuredHere::Drawing => "a drawing: nothing was measured".to_owned(),
            MeasuredHere::Left(why) => format!("no: {why}"),
        };
        grid.row(vec![figure.name(), figure.shows.to_owned(), here]);
    }
    grid
}
