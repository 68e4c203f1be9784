// SPDX-License-Identifier: GPL-2.0

//! The interrupts of cores in one case, by kind.

use crate::bench::suites::paper;
use crate::bench::tables::figure::{label, Case};
use crate::bench::tables::grid::Grid;
use xtask::results::row::{Core, Events, Row};

pub(crate) const TITLE: &str =
    "interrupts and softirqs per 1000 packets, of all cores that receive";

/// The kinds of events that are counted, each with its name: first those that receiving causes.
pub(crate) const KINDS: [Counted; 6] = [
    ("NET_RX", |events| events.net_rx_softirqs),
    ("device", |events| events.device_interrupts),
    ("reschedule", |events| events.reschedule_interrupts),
    ("call", |events| events.call_interrupts),
    ("timer", |events| events.timer_interrupts),
    ("other softirqs", |events| events.other_softirqs),
];

type Counted = (&'static str, fn(&Events) -> f64);

/// Returns a mode's counts, in the order of [`KINDS`]; nothing if none were taken.
pub(crate) fn sums(row: &Row) -> Option<[f64; KINDS.len()]> {
    let cores = || cores(row);
    cores().next()?;
    Some(KINDS.map(|(_, of)| cores().map(|(_, events)| of(events)).sum()))
}

fn cores(row: &Row) -> impl Iterator<Item = (&Core, &Events)> {
    let cores = row.insn_per_packet.iter().flat_map(|insn| &insn.by_cpu);
    cores.filter_map(|core| Some((core, core.events.as_ref()?)))
}

/// Returns the counts of every mode, how many NET_RX softirqs those are of vanilla's, and on which cores.
pub(crate) fn grid(case: &Case<'_>) -> Grid {
    let mut grid = Grid::default();
    let counted: Vec<(&Row, [f64; KINDS.len()])> = case
        .rows
        .iter()
        .filter_map(|row| Some((*row, sums(row)?)))
        .collect();
    let vanilla = counted.iter().find(|(row, _)| row.mode == "vanilla");
    let base = vanilla.map(|(_, sums)| sums[0]).filter(|base| *base > 0.0);
    if counted.is_empty() {
        return grid;
    }
    grid.left(["mode"]);
    grid.right(KINDS.map(|(name, _)| name));
    grid.right(["NET_RX of vanilla's", "paper"]);
    grid.left(["NET_RX by core"]);
    for (row, sums) in &counted {
        let mut cells = vec![label(row)];
        cells.extend(sums.iter().map(|count| number(*count)));
        cells.push(base.map_or("-".to_owned(), |base| format!("{:.2}", sums[0] / base)));
        let stated = paper::net_rx_softirqs(&row.mode).filter(|_| base.is_some());
        cells.push(stated.map_or("-".to_owned(), |part| format!("{part:.2}")));
        let by_core: Vec<String> = cores(row)
            .map(|(core, events)| {
                format!(
                    "{} {}: {}",
                    core.role,
                    core.cpu,
                    number(events.net_rx_softirqs)
                )
            })
            .collect();
        cells.push(by_core.join(", "));
        grid.row(cells);
    }
    grid
}

/// Returns a count with the digits that it needs: full load takes few softirqs, low rates one for each packet.
fn number(count: f64) -> String {
    if count < 10.0 {
        format!("{count:.1}")
    } else {
        format!("{count:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurement::fixture;
    use crate::bench::tables::figure::group;

    #[test]
    fn counts_of_all_cores_are_added_up_and_compared_with_vanilla_s() {
        let rows = fixture::rates();
        let figures = group(&rows);
        let text = grid(&figures[0].cases[0]).text();
        let cells = |mode: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with(mode));
            let line = line.unwrap_or_else(|| panic!("no {mode}: {text}"));
            line.split_whitespace().map(str::to_owned).collect()
        };
        // Made up, as all of the fixture's, but for the papers'.
        assert_eq!(cells("vanilla")[1], "2000");
        assert_eq!(cells("native")[1], "1000");
        assert!(cells("native").contains(&"0.50".to_owned()), "{text}");
        assert!(cells("native").contains(&"0.28".to_owned()), "{text}");
        assert!(text.contains("nic 1: 1000, app 6: 1000"), "{text}");
    }

    #[test]
    fn rows_of_older_files_have_no_counts() {
        let rows = fixture::rows();
        let figures = group(&rows);
        assert!(grid(&figures[0].cases[0]).is_empty());
        assert_eq!(sums(&rows[0]), None);
    }
}
