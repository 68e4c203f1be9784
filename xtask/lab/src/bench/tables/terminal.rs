// SPDX-License-Identifier: GPL-2.0

//! Results as text for a terminal.

use super::figure::group;
use super::figure_text::{blocks, Block};
use super::overview;
use crate::bench::suites::published;
use xtask::results::row::Row;

/// The width of a note's lines, in characters.
const COLUMNS: usize = 118;

/// Returns the tables of all figures that have rows.
pub(crate) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    let overview = overview::grid(rows);
    if !overview.is_empty() {
        text += &format!("\n{}\n{}", overview::TITLE, overview.text());
    }
    for figure in group(rows) {
        let title = published::title(figure.kind);
        text += &format!("\n{title}\n{}\n", "=".repeat(title.chars().count()));
        for block in blocks(&figure) {
            text.push('\n');
            match block {
                Block::Grid { title, grid } => text += &format!("{title}\n{}", grid.text()),
                Block::Notes(notes) => {
                    for note in notes {
                        text += &wrapped(&note);
                    }
                }
            }
        }
    }
    text
}

/// Breaks a note between words.
fn wrapped(note: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in note.split_whitespace() {
        let length = word.chars().count() + 1;
        if column == 0 {
            lines.push('*');
            column = 1;
        } else if column + length > COLUMNS {
            lines += "\n ";
            column = 1;
        }
        lines.push(' ');
        lines += word;
        column += length;
    }
    lines + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurement::fixture;

    #[test]
    fn a_table_looks_like_this() {
        let mut rows = fixture::rows();
        rows.retain(|row| row.case == "udp-65507");
        let text = text(&rows);
        // Every number is the fixture's, and made up, but those of the column `paper`.
        let expected = "\
case       mode               busiest    min..max  speed-up  paper  total  spread  saturated  lost  reordered
udp-65507  native                3000  2970..3030      2.67   5.00   4300   2.0 %        yes     0          0
           vanilla               8000  7920..8080      1.00      -   9300   2.0 %        yes     0          0
           rps                   6000  5940..6060      1.33   1.06  10300   2.0 %        yes     0          0
           mflow 2               3200  3168..3232      2.50   2.39   9100   2.0 %        yes     0          0
           mflow 4               1650  1634..1666      4.85      -   9100   2.0 %        yes     0          0
           falcon-func  not available           -         -      -      -       -          -     -          -
";
        assert!(text.contains(expected), "{text}");
        assert!(text
            .contains("* falcon-func in udp-65507: not available: this mode does not exist yet\n"));
    }

    #[test]
    fn everything_fits_into_a_terminal() {
        let text = text(&fixture::rows());
        for line in text.lines() {
            assert!(line.chars().count() <= 120, "{line}");
            assert_eq!(line, line.trim_end());
        }
    }

    #[test]
    fn latency_stands_beside_the_paper_s() {
        let mut rows = fixture::rows();
        rows.retain(|row| row.case.starts_with("latency"));
        let text = text(&rows);
        let line = text
            .lines()
            .rfind(|line| line.contains("mflow 2") && line.contains("0.75"));
        let cells: Vec<&str> = line.expect("a row").split_whitespace().collect();
        assert_eq!(
            cells,
            ["mflow", "2", "20000", "1000", "1.00", "0.54", "3000", "0.75", "0.79"]
        );
    }

    #[test]
    fn missing_data_is_said_to_be_missing() {
        assert_eq!(text(&[]), "");
        let text = text(&[fixture::row("udp-16", "falcon-dev", 0)]);
        assert!(
            text.contains("not available, and the row does not say why"),
            "{text}"
        );
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn overhead_is_against_the_kernel_without_hooks() {
        let mut rows = fixture::rows();
        rows.retain(|row| row.case.starts_with("overhead"));
        let text = text(&rows);
        let off = text
            .lines()
            .find(|line| line.trim_start().starts_with("off "));
        assert!(off.expect("a row").contains("+0.5 %"), "{text}");
        assert!(!text.contains("speed-up"), "{text}");
    }
}
