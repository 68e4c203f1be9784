// SPDX-License-Identifier: GPL-2.0

//! The packet rates that HIKE's text states (sections 5.2 and 5.3), beside what is measured here. Its chains are tail calls.

use crate::bench::tables::figure::Figure;
use crate::bench::tables::grid::Grid;

pub(crate) const TITLE: &str =
    "Beside the paper's packet rates on hardware, as times another row's (here: instructions, the other way round)";

/// The row that those of HIKE's Fig. 7 are compared with: the kernel, which "executes the encapsulation and routing", whatever
/// the chain does.
const KERNEL: Place = ("hike-edge", "kernel-enc");

/// Case and mode.
type Place = (&'static str, &'static str);

/// A figure, a row, and its rate as times that of another row.
const RATES: &[(&str, Place, Place, f64)] = &[
    // "when a simple redirect is executed attains about 10.6", "a tail of 8 programs [...] drops to 9.7". Its last program only
    // redirects; ours looks the next hop up as well, in both chains.
    (
        "Fig. 6",
        ("hike-chain-8", "calls"),
        ("hike-chain-1", "calls"),
        9.7 / 10.6,
    ),
    ("Fig. 7", ("hike-edge", "pass"), KERNEL, 5.1),
    ("Fig. 7", ("hike-edge", "fw"), KERNEL, 5.0),
    ("Fig. 7", ("hike-edge", "mon+fw"), KERNEL, 3.5),
    ("Fig. 7", ("hike-edge", "enc+fw"), KERNEL, 3.1),
    ("Fig. 7", ("hike-edge", "enc+mon+fw"), KERNEL, 2.5),
    ("Fig. 7", ("hike-edge", "enc+mon+fw-calls"), KERNEL, 2.5),
    // "independent from the number of monitored flows in all cases".
    (
        "Fig. 7",
        ("hike-flows-10000", "kernel-enc"),
        ("hike-flows-1", "kernel-enc"),
        1.0,
    ),
    (
        "Fig. 7",
        ("hike-flows-10000", "mon+fw"),
        ("hike-flows-1", "mon+fw"),
        1.0,
    ),
    (
        "Fig. 7",
        ("hike-flows-10000", "enc+mon+fw"),
        ("hike-flows-1", "enc+mon+fw"),
        1.0,
    ),
    // "2.4 MPPS with one SID and about 2.1 with 4 SIDs".
    (
        "Fig. 8",
        ("hike-sids-4", "enc+mon+fw"),
        ("hike-sids-1", "enc+mon+fw"),
        2.1 / 2.4,
    ),
    // "3.5 MPPS with one SID and about 2.9 with 4 SIDs".
    (
        "Fig. 8",
        ("hike-waypoint-4", "mon+fw"),
        ("hike-waypoint-1", "mon+fw"),
        2.9 / 3.5,
    ),
];

/// Returns a row for each rate of which both rows have been measured.
pub(crate) fn grid(figure: &Figure<'_>) -> Grid {
    let mut grid = Grid::default();
    grid.left(["figure", "case", "mode", "beside"]);
    grid.right(["here", "paper"]);
    let busiest = |(case, mode): Place| {
        let case = figure.cases.iter().find(|known| known.name == case)?;
        case.rows.iter().find(|row| row.mode == mode)?.busiest()
    };
    for &(number, of, base, times) in RATES {
        let Some((row, other)) = busiest(of).zip(busiest(base)) else {
            continue;
        };
        let beside = if base.0 == of.0 {
            base.1.to_owned()
        } else {
            format!("{} in {}", base.1, base.0)
        };
        let [number, case, mode] = [number, of.0, of.1].map(str::to_owned);
        let [here, paper] = [other / row, times].map(|times| format!("{times:.2}"));
        grid.row(vec![number, case, mode, beside, here, paper]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurement::fixture;
    use crate::bench::suites::hike_cases;
    use crate::bench::tables::figure::group;

    #[test]
    fn what_the_text_states_stands_beside_what_was_measured() {
        let row = |case, mode, nic| fixture::with(fixture::row(case, mode, 0), &[("nic", nic)]);
        let rows = [
            row("hike-edge", "kernel-enc", 6000.0),
            row("hike-edge", "pass", 2000.0),
            row("hike-sids-1", "enc+mon+fw", 2000.0),
            row("hike-sids-4", "enc+mon+fw", 2500.0),
        ];
        let text = grid(&group(&rows)[0]).text();
        let line = |of: &str| text.lines().find(|line| line.contains(of));
        let pass = line("pass").expect("a row");
        assert!(pass.ends_with("5.10") && pass.contains("3.00"), "{text}");
        let sids = line("hike-sids-4").expect("a row");
        assert!(sids.contains("enc+mon+fw in hike-sids-1"), "{text}");
        assert!(sids.ends_with("0.88") && sids.contains("0.80"), "{text}");
        // Nothing is said about what was not measured.
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn all_rows_beside_the_paper_are_measured() {
        let cases = hike_cases::all();
        let there = |(case, mode): Place| {
            let case = cases.iter().find(|known| known.name == case);
            case.is_some_and(|case| case.modes.iter().any(|known| known.name == mode))
        };
        for &(_, of, base, _) in RATES {
            assert!(there(of), "{of:?}");
            assert!(there(base), "{base:?}");
        }
    }
}
