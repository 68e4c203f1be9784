// SPDX-License-Identifier: GPL-2.0

//! The work of each core in one case: its share, its load, and the functions that it spends most on.

use std::collections::BTreeSet;

use crate::bench::tables::figure::{label, Case};
use crate::bench::tables::grid::Grid;
use xtask::results::row::{Core, Instructions, Row};

/// Room for a function's name, in characters.
const NAME: usize = 40;

const FUNCTIONS: usize = 14;
/// On a router's core there is little but the packets' way.
const ROUTER_FUNCTIONS: usize = 30;

/// The meaning of an empty cell among the functions: not zero.
pub(crate) const DOT: &str = "a dot: not among the heaviest of that core";

pub(crate) const DEVIATION: &str =
    "deviation: standard deviation of the load, in points, over all cores but the application's that any mode of the case \
     uses; one that a mode leaves out has load 0.";

/// Returns instructions per packet and load of every core; a mode per row.
pub(crate) fn shares(case: &Case<'_>, deviation: bool) -> Grid {
    let measured: Vec<(&Row, &Instructions)> = case
        .rows
        .iter()
        .filter_map(|row| Some((*row, row.insn_per_packet.as_ref()?)))
        .filter(|(_, insn)| !insn.by_cpu.is_empty())
        .collect();
    let every = || measured.iter().flat_map(|(_, insn)| &insn.by_cpu);
    let cpus: BTreeSet<u32> = every().map(|core| core.cpu).collect();
    let stack: BTreeSet<u32> = every()
        .filter(|core| core.role != "app")
        .map(|core| core.cpu)
        .collect();
    let mut grid = Grid::default();
    grid.left(["mode"]);
    grid.right(cpus.iter().map(|cpu| format!("CPU {cpu}")));
    grid.right(deviation.then_some("deviation"));
    for (row, insn) in measured {
        let mut cells = vec![label(row)];
        for cpu in &cpus {
            let core = insn.by_cpu.iter().find(|core| core.cpu == *cpu);
            cells.push(core.map_or(String::new(), share));
        }
        if deviation {
            let loads: Vec<f64> = stack.iter().map(|cpu| load_of(insn, *cpu)).collect();
            cells.push(format!("{:.1}", standard_deviation(&loads)));
        }
        grid.row(cells);
    }
    grid
}

fn share(core: &Core) -> String {
    format!(
        "{} {:.0} {:.0}%",
        core.role,
        core.insn_per_packet,
        load(core)
    )
}

fn load(core: &Core) -> f64 {
    (1.0 - core.idle) * 100.0
}

fn load_of(insn: &Instructions, cpu: u32) -> f64 {
    let core = insn
        .by_cpu
        .iter()
        .find(|core| core.cpu == cpu && core.role != "app");
    core.map_or(0.0, load)
}

fn standard_deviation(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / count).sqrt()
}

/// Returns the heaviest functions: the stack as it was and mflow side by side, a core per column; between them the core that
/// FALCON leaves as it is, the NIC's. Of a router, all modes.
pub(crate) fn functions(case: &Case<'_>) -> Grid {
    let mut grid = Grid::default();
    let mut columns = Vec::new();
    for ((row, insn), only) in shown(case) {
        for core in busiest_by_role(insn) {
            if only.is_none_or(|role| core.role == role) {
                columns.push((format!("{}: {} {}", label(row), core.role, core.cpu), core));
            }
        }
    }
    grid.left(["function"]);
    grid.right(columns.iter().map(|(head, _)| head.as_str()));
    let found = |core: &Core, name: &str| {
        core.top
            .iter()
            .find(|function| function.name == name)
            .map(|function| function.insn_per_packet)
    };
    let names: BTreeSet<&str> = columns
        .iter()
        .flat_map(|(_, core)| core.top.iter().map(|function| function.name.as_str()))
        .collect();
    let mut heaviest: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| {
            let most = columns
                .iter()
                .filter_map(|(_, core)| found(core, name))
                .fold(0.0, f64::max);
            (most, name)
        })
        .collect();
    heaviest.sort_by(|one, other| other.0.total_cmp(&one.0));
    if columns.is_empty() {
        return Grid::default();
    }
    let most = if is_router(case) {
        ROUTER_FUNCTIONS
    } else {
        FUNCTIONS
    };
    for (_, name) in heaviest.into_iter().take(most) {
        let mut cells = vec![short(name)];
        for (_, core) in &columns {
            cells.push(found(core, name).map_or(".".to_owned(), |insn| format!("{insn:.0}")));
        }
        grid.row(cells);
    }
    grid
}

/// Cuts the front of a long name: the end of a mangled name is the function's own.
fn short(name: &str) -> String {
    let surplus = name.chars().count().saturating_sub(NAME);
    if surplus == 0 {
        return name.to_owned();
    }
    let end: String = name.chars().skip(surplus + 3).collect();
    format!("...{end}")
}

/// Returns the rows whose functions are shown, and the only role of cores of which they are, if not all are.
fn shown<'a>(case: &Case<'a>) -> Vec<((&'a Row, &'a Instructions), Option<&'static str>)> {
    let nic = Some("nic");
    if is_router(case) {
        let rows = case.rows.iter().copied();
        return rows
            .filter_map(|row| Some(((row, row.insn_per_packet.as_ref()?), nic)))
            .collect();
    }
    let Some([before, after]) = pair(case) else {
        return Vec::new();
    };
    let falcon = measured(case, |row| row.mode == "falcon-dev");
    let falcon = falcon.map(|falcon| (falcon, nic));
    // Behind HIKE, the NIC's core is the one that does something else.
    let behind = |name: &str, lanes| {
        let row = measured(case, |row| row.mode == name && row.lanes == lanes);
        row.map(|row| (row, nic))
    };
    let vanilla_behind = behind("vanilla+hike", before.0.lanes);
    let mflow_behind = behind("mflow+hike", after.0.lanes);
    let before = Some((before, None));
    let after = Some((after, None));
    [before, vanilla_behind, falcon, after, mflow_behind]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns whether the case measures a router, whose modes all differ in the work of its one core.
fn is_router(case: &Case<'_>) -> bool {
    case.rows.iter().any(|row| row.load == "forwarded")
}

/// Returns the two rows whose difference matters most, as far as they were measured.
fn pair<'a>(case: &Case<'a>) -> Option<[(&'a Row, &'a Instructions); 2]> {
    let before = measured(case, |row| {
        matches!(row.mode.as_str(), "vanilla" | "compiled-out")
    })?;
    // Two lanes are what the paper shows.
    let after = measured(case, |row| row.mode == "mflow" && row.lanes == 2)
        .or_else(|| measured(case, |row| matches!(row.mode.as_str(), "mflow" | "off")))?;
    Some([before, after])
}

/// Returns the first row that was measured and is wanted.
fn measured<'a>(
    case: &Case<'a>,
    wanted: impl Fn(&Row) -> bool,
) -> Option<(&'a Row, &'a Instructions)> {
    let rows = case.rows.iter().copied();
    rows.filter(|row| wanted(row))
        .find_map(|row| Some((row, row.insn_per_packet.as_ref()?)))
}

/// Returns one core of each role, the one with the most: lanes are alike.
fn busiest_by_role(insn: &Instructions) -> Vec<&Core> {
    let mut cores: Vec<&Core> = Vec::new();
    for core in &insn.by_cpu {
        match cores.iter_mut().find(|known| known.role == core.role) {
            Some(known) if known.insn_per_packet < core.insn_per_packet => *known = core,
            Some(_) => {}
            None => cores.push(core),
        }
    }
    cores
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurement::fixture;
    use crate::bench::tables::figure::group;

    #[test]
    fn every_core_has_a_column_and_lanes_of_others_stay_empty() {
        let rows = fixture::rows();
        let figures = group(&rows);
        let text = shares(&figures[0].cases[0], false).text();
        assert!(text.starts_with("mode "), "{text}");
        assert!(text.contains("lane 1650 100%"), "{text}");
        let native = text.lines().find(|line| line.starts_with("native"));
        let cells: Vec<&str> = native.expect("a row").split_whitespace().collect();
        assert_eq!(
            cells,
            ["native", "nic", "3000", "100%", "app", "1300", "43%"]
        );
    }

    #[test]
    fn functions_stand_side_by_side() {
        let rows = fixture::rows();
        let figures = group(&rows);
        let text = functions(&figures[0].cases[0]).text();
        assert!(text.contains("vanilla: nic 1"), "{text}");
        assert!(text.contains("mflow 2: lane 2"), "{text}");
        assert!(!text.contains("mflow 2: lane 3"), "{text}");
        let first = text.lines().nth(1).expect("a function");
        assert!(first.starts_with("made_up_receive"), "{text}");
        assert!(first.contains("4000"), "{text}");
    }

    #[test]
    fn of_a_router_all_modes_stand_side_by_side() {
        let rows = ["kernel-enc", "pass", "enc+fw"]
            .map(|mode| fixture::with(fixture::row("hike-edge", mode, 0), &[("nic", 1000.0)]));
        let text = functions(&group(&rows)[0].cases[0]).text();
        let head = text.lines().next().expect("a head");
        for mode in ["kernel-enc: nic 1", "pass: nic 1", "enc+fw: nic 1"] {
            assert!(head.contains(mode), "{text}");
        }
        assert!(!head.contains("app"), "{text}");
    }

    #[test]
    fn what_is_behind_hike_stands_beside_what_is_not() {
        let rows = [
            ("vanilla", 0),
            ("vanilla+hike", 0),
            ("mflow", 2),
            ("mflow+hike", 4),
            ("mflow+hike", 2),
        ]
        .map(|(mode, lanes)| {
            fixture::with(fixture::row("hike-stream", mode, lanes), &[("nic", 1000.0)])
        });
        let text = functions(&group(&rows)[0].cases[0]).text();
        for mode in [
            "vanilla: app 6",
            "vanilla+hike: nic 1",
            "mflow 2: app 6",
            "mflow+hike 2: nic 1",
        ] {
            assert!(text.contains(mode), "{text}");
        }
        for mode in ["vanilla+hike: app", "mflow+hike 2: app", "mflow+hike 4"] {
            assert!(!text.contains(mode), "{text}");
        }
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(short("udp_rcv"), "udp_rcv");
        let long = short(&format!("{}_split", "x".repeat(NAME)));
        assert_eq!(long.chars().count(), NAME);
        assert!(
            long.starts_with("...x") && long.ends_with("_split"),
            "{long}"
        );
    }

    #[test]
    fn no_pair_no_grid() {
        let rows = [fixture::row("udp-16", "vanilla", 0)];
        let figures = group(&rows);
        assert!(functions(&figures[0].cases[0]).is_empty());
        assert!(shares(&figures[0].cases[0], true).is_empty());
    }

    #[test]
    fn deviation_is_the_population_s() {
        assert_eq!(standard_deviation(&[]), 0.0);
        assert_eq!(standard_deviation(&[50.0, 50.0]), 0.0);
        assert_eq!(standard_deviation(&[100.0, 0.0]), 50.0);
    }
}
