// SPDX-License-Identifier: GPL-2.0

//! One grid of cells, as text for a terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// Wider grids are cut into pieces.
const TERMINAL_COLUMNS: usize = 120;

/// A table: a column of names or more, then columns of numbers.
#[derive(Debug, Default)]
pub(crate) struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug)]
struct Column {
    head: String,
    right: bool,
}

impl Grid {
    /// Adds columns of text, which starts at the left.
    pub(crate) fn left<H: Into<String>>(&mut self, heads: impl IntoIterator<Item = H>) {
        self.add(heads, false);
    }

    /// Adds columns of numbers, which end at the right.
    pub(crate) fn right<H: Into<String>>(&mut self, heads: impl IntoIterator<Item = H>) {
        self.add(heads, true);
    }

    fn add<H: Into<String>>(&mut self, heads: impl IntoIterator<Item = H>, right: bool) {
        let heads = heads.into_iter().map(Into::into);
        self.columns
            .extend(heads.map(|head| Column { head, right }));
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the grid for a terminal; what does not fit goes below, beside the names once more.
    pub(crate) fn text(&self) -> String {
        let mut pieces = Vec::new();
        let mut from = self.names();
        loop {
            let mut to = self.columns.len();
            let mut piece = self.piece(from, to);
            while to > from + 1 && width(&piece) > TERMINAL_COLUMNS {
                to -= 1;
                piece = self.piece(from, to);
            }
            pieces.push(piece);
            if to >= self.columns.len() {
                return pieces.join("\n");
            }
            from = to;
        }
    }

    /// Returns the number of columns that say what a row is.
    fn names(&self) -> usize {
        self.columns
            .iter()
            .take_while(|column| !column.right)
            .count()
    }

    /// Returns the names and the columns `from..to`.
    fn piece(&self, from: usize, to: usize) -> String {
        let chosen: Vec<usize> = (0..self.names()).chain(from..to).collect();
        let mut table = self.table(&chosen);
        table.load_style(NOTHING);
        if let Some(first) = table.column_mut(0) {
            first.set_padding((0, 1));
        }
        let lines: Vec<String> = table
            .lines()
            .map(|line| line.trim_end().to_owned() + "\n")
            .collect();
        lines.concat()
    }

    fn table(&self, chosen: &[usize]) -> Table {
        let mut table = Table::new();
        table.set_header(chosen.iter().map(|&index| {
            self.columns
                .get(index)
                .map_or("", |column| column.head.as_str())
        }));
        for row in &self.rows {
            table.add_row(
                chosen
                    .iter()
                    .map(|&index| row.get(index).cloned().unwrap_or_default()),
            );
        }
        for (place, &index) in chosen.iter().enumerate() {
            let right = self.columns.get(index).is_some_and(|column| column.right);
            if let (true, Some(column)) = (right, table.column_mut(place)) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

fn width(text: &str) -> usize {
    text.lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(columns: usize) -> Grid {
        let mut grid = Grid::default();
        grid.left(["mode"]);
        grid.right((1..columns).map(|index| format!("number {index}")));
        let mut cells = vec!["a|b".to_owned()];
        cells.extend((1..columns).map(|index| index.to_string()));
        grid.row(cells);
        grid.row(vec!["short".to_owned()]);
        grid
    }

    #[test]
    fn numbers_end_under_their_head() {
        let text = grid(3).text();
        assert_eq!(
            text,
            "mode   number 1  number 2\na|b           1         2\nshort\n"
        );
    }

    #[test]
    fn wide_grids_are_cut_and_nothing_is_lost() {
        let text = grid(25).text();
        assert!(width(&text) <= TERMINAL_COLUMNS, "{text}");
        for index in 1..25 {
            assert_eq!(
                text.matches(&format!("number {index} ")).count()
                    + text.matches(&format!("number {index}\n")).count(),
                1,
                "{text}"
            );
        }
    }

    #[test]
    fn a_grid_without_columns_is_no_error() {
        assert!(Grid::default().is_empty());
        assert_eq!(Grid::default().text().trim(), "");
    }
}
