// SPDX-License-Identifier: GPL-2.0

//! The document of the results: templates in whose references figures are put.
//!
//! A row is named as in `{mlx5:udp-16/mflow 2}`, which becomes the instructions on its busiest core. The forms of a reference are
//! in [`Filling::figure`]. What stands between the lines `{with ROW}` and `{end}` is left out as long as there is no such row. Below each table it is said of which commits its rows are, and what is to be known of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{bail, Context as _, Result};

use super::row::{Function, Instructions, Row};
use super::{read, FOLDER};

/// The templates, in the order of the document's parts.
const TEMPLATES: &[&str] = &["stacks", "distributions", "functions", "hike", "origins"];
const HEAD: &str =
    "<!-- cargo xtask docs writes this file from the rows and templates in results/ -->\n";

/// A template that is being filled in.
struct Filling<'a> {
    rows: &'a [Row],
    /// The rows of the table at hand.
    of_table: Vec<&'a Row>,
    /// The remarks that have been made, each of one row.
    said: BTreeSet<(String, &'a str)>,
}

/// Returns the document of the rows that the repository has.
pub(crate) fn document(project: &Path) -> Result<String> {
    document_of(project, &read(project)?)
}

/// Returns the document of these rows, which may be others.
pub fn document_of(project: &Path, rows: &[Row]) -> Result<String> {
    let mut filling = Filling::of(rows);
    let mut text = HEAD.to_owned();
    for name in TEMPLATES {
        let filled = filling.fill(&template(project, name)?);
        text += &filled.with_context(|| format!("in {FOLDER}/{name}.md"))?;
    }
    Ok(text.trim_end().to_owned() + "\n")
}

/// Returns the names of the rows for which parts of the document wait.
pub fn awaited(project: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for name in TEMPLATES {
        let text = template(project, name)?;
        names.extend(text.lines().filter_map(awaited_by).map(str::to_owned));
    }
    Ok(names)
}

/// Returns the name of the row for which the part waits that a line begins, if it begins one.
fn awaited_by(line: &str) -> Option<&str> {
    line.strip_prefix("{with ")?.strip_suffix('}')
}

fn template(project: &Path, name: &str) -> Result<String> {
    let path = project.join(FOLDER).join(name).with_extension("md");
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

impl<'a> Filling<'a> {
    fn of(rows: &'a [Row]) -> Self {
        Self {
            rows,
            of_table: Vec::new(),
            said: BTreeSet::new(),
        }
    }

    fn fill(&mut self, template: &str) -> Result<String> {
        let mut text = String::new();
        let mut is_shown = true;
        for line in template.lines() {
            if let Some(name) = awaited_by(line) {
                is_shown = self.rows.iter().any(|row| row.name() == name);
                continue;
            }
            if line == "{end}" {
                is_shown = true;
                continue;
            }
            if !is_shown {
                continue;
            }
            let is_table = ["|", "{functions ", "{work "]
                .iter()
                .any(|mark| line.starts_with(mark));
            if !is_table {
                text += &self.remarks();
            }
            let mut rest = line;
            while let Some((before, after)) = rest.split_once('{') {
                let (reference, after) = after.split_once('}').context("a { without a }")?;
                text += before;
                text += &self.figure(reference)?;
                rest = after;
            }
            text += &format!("{rest}\n");
            if !is_table {
                self.of_table.clear();
            }
        }
        Ok(text + &self.remarks() + "\n")
    }

    /// Returns the text in whose place a reference is.
    fn figure(&mut self, reference: &str) -> Result<String> {
        if let Some((one, other)) = reference.split_once(" minus ") {
            return Ok(whole(self.busiest(one)? - self.busiest(other)?));
        }
        if let Some((one, other)) = reference.split_once(" over ") {
            return Ok(format!("{:.2}", self.busiest(one)? / self.busiest(other)?));
        }
        let (form, name) = reference.split_once(' ').unwrap_or((reference, ""));
        Ok(match form {
            "commits" => commits(self.rows),
            "origins" => origins(self.rows),
            "functions" => self.functions(name, &Share::of_the_busiest())?,
            "work" => self.functions(name, &Share::of_all())?,
            // Beside it, how many times less that is than vanilla's.
            "ratio" => {
                let speedup = self.compared(name)?.speedup_vs_vanilla;
                let times = speedup.map_or(String::new(), |times| format!(" ({times:.2}x)"));
                whole(self.busiest(name)?) + &times
            }
            // The work between the driver and the socket, and how many times less that is than vanilla's.
            "path" => {
                let row = self.compared(name)?;
                let ours = to_socket(row);
                let ours = ours.with_context(|| format!("{name} has no figure to the socket"))?;
                let base = self.rows.iter().find(|base| base.is_base_of(row));
                let times = base.and_then(to_socket).map(|base| base / ours);
                let times = times.map_or(String::new(), |times| format!(" ({times:.2}x)"));
                whole(ours) + &times
            }
            // Of 1000 packets those that became a part of the one behind them, and those that waited at the merge.
            "joined" | "early" => {
                let row = self.row(name)?;
                let pkts = if form == "joined" {
                    row.joined
                } else {
                    row.early
                };
                let part = row.per_1000(pkts);
                part.map_or("-".to_owned(), |part| format!("{part:.1}"))
            }
            // The knob `build` at `auto` beside the better of its other values.
            "auto" => self.auto(name)?,
            // That as a bar.
            "bar" => {
                let speedup = self.compared(name)?.speedup_vs_vanilla;
                // CAST: a few halves.
                let length = (speedup.unwrap_or(0.0) * 2.0).round() as usize;
                format!("{} {}", "█".repeat(length), times(speedup))
            }
            // The work of all cores as a multiple of vanilla's.
            "all" => times(self.compared(name)?.total_vs_vanilla),
            _ => whole(self.busiest(reference)?),
        })
    }

    /// Returns the figure of a case and a number of lanes where either core may build packets, and how many times as much that is as
    /// where the better one builds all.
    fn auto(&mut self, name: &str) -> Result<String> {
        let (case, lanes) = name.rsplit_once(' ').context("no number of lanes")?;
        let auto = self.busiest(&format!("{case}/mflow {lanes}"))?;
        let nic = self.busiest(&format!("{case}/mflow-nic {lanes}"))?;
        let lane = self.busiest(&format!("{case}/mflow-lane {lanes}"))?;
        let (better, builder) = match nic < lane {
            true => (nic, "nic"),
            false => (lane, "lane"),
        };
        let (times, better) = (auto / better, whole(better));
        Ok(format!(
            "{} ({times:.2} of `{builder}`, {better})",
            whole(auto)
        ))
    }

    fn busiest(&mut self, name: &str) -> Result<f64> {
        let row = self.row(name)?;
        row.busiest()
            .with_context(|| format!("{name} has no figure"))
    }

    fn row(&mut self, name: &str) -> Result<&'a Row> {
        let Some(row) = self.rows.iter().find(|row| row.name() == name) else {
            bail!("{FOLDER} has no row {name}; correct the name, or measure the row: cargo xtask bench --suite paper --report");
        };
        self.of_table.push(row);
        Ok(row)
    }

    /// Returns a row, of whose ratios the row that it is compared with is a part.
    fn compared(&mut self, name: &str) -> Result<&'a Row> {
        let row = self.row(name)?;
        let base = self.rows.iter().find(|base| base.is_base_of(row));
        self.of_table.extend(base);
        Ok(row)
    }

    /// Returns a table of the functions of these rows, a column for each row.
    fn functions(&mut self, names: &str, share: &Share) -> Result<String> {
        let mut columns = Vec::new();
        let mut text = format!("| {} |", share.name);
        for name in names.split(", ") {
            columns.extend(&self.row(name)?.insn_per_packet);
            text += &format!(" `{name}` |");
        }
        text += &format!("\n|---|{}", "---:|".repeat(columns.len()));
        let mut known = BTreeSet::new();
        for function in columns.iter().flat_map(|insn| (share.top)(insn)) {
            let name = &function.name;
            if !known.insert(name) {
                continue;
            }
            // A symbol, or the words for a group of functions.
            let mark = if name.contains(' ') { "" } else { "`" };
            text += &format!("\n| {mark}{name}{mark} |");
            for insn in &columns {
                let found = (share.top)(insn).iter().find(|other| other.name == *name);
                let value = found.map(|function| whole(function.insn_per_packet));
                text += &format!(" {} |", value.unwrap_or_default());
            }
        }
        let sums = columns.iter().map(|insn| {
            let sum = (share.sum)(insn).map(whole);
            format!(" {} |", sum.unwrap_or_default())
        });
        Ok(format!(
            "{text}\n| {} |{}",
            share.sum_name,
            sums.collect::<String>()
        ))
    }

    /// Returns what is to be said below the table at hand; nothing if it has no rows.
    fn remarks(&mut self) -> String {
        let mut rows = std::mem::take(&mut self.of_table);
        let mut names = BTreeSet::new();
        rows.retain(|row| names.insert(row.name()));
        if rows.is_empty() {
            return String::new();
        }
        let mut text = format!("\n{}\n", of_commits(&rows));
        let noted = rows
            .iter()
            .filter_map(|row| Some((row.note.as_deref()?, *row)));
        let new = noted.filter(|(note, row)| self.said.insert((row.name(), note)));
        for (place, (note, rows)) in together(new).iter().enumerate() {
            let gap = if place == 0 { "\n" } else { "" };
            text += &format!("{gap}* {}: {note}.\n", named(rows));
        }
        text
    }
}

/// The part of a row's work that a table of functions is of.
struct Share {
    name: &'static str,
    top: fn(&Instructions) -> &[Function],
    sum_name: &'static str,
    sum: fn(&Instructions) -> Option<f64>,
}

impl Share {
    fn of_the_busiest() -> Self {
        Self {
            name: "on the busiest core",
            top: |insn| &insn.top,
            sum_name: "all of that core",
            sum: |insn| Some(insn.busiest),
        }
    }

    fn of_all() -> Self {
        Self {
            name: "on all cores together",
            top: |insn| &insn.top_of_all,
            sum_name: "all of them",
            sum: |insn| insn.total,
        }
    }
}

/// Returns a sentence on the commits of a table's rows.
fn of_commits(rows: &[&Row]) -> String {
    let mut by_commit = together(rows.iter().map(|row| (commit(row), *row)));
    by_commit.sort_by_key(|(_, rows)| rows.len());
    let (most, _) = by_commit.pop().unwrap_or_default();
    if by_commit.is_empty() {
        return format!("Of {most}.");
    }
    let parts = by_commit
        .iter()
        .map(|(commit, rows)| format!("{commit}: {}; ", named(rows)));
    format!(
        "**Not of one commit.** {}{most}: all others.",
        parts.collect::<String>()
    )
}

/// Returns the names of rows, those of a case together.
fn named(rows: &[&Row]) -> String {
    let places = together(rows.iter().map(|row| (row.place(), row.stack())));
    let places = places
        .iter()
        .map(|(place, stacks)| format!("`{place}` ({})", stacks.join(", ")));
    places.collect::<Vec<_>>().join(", ")
}

/// Puts values with the same key together, in the order of the keys.
fn together<K: PartialEq, V>(pairs: impl Iterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// Returns a sentence on all rows.
fn commits(rows: &[Row]) -> String {
    let commits: BTreeSet<_> = rows.iter().map(commit).collect();
    let origins: BTreeSet<_> = rows.iter().filter_map(|row| row.origin.as_ref()).collect();
    let machines: BTreeSet<_> = origins.iter().map(|origin| origin.host()).collect();
    let is_one_machine = machines.len() == 1 && !machines.contains(&None);
    let [first, last] = [origins.first(), origins.last()].map(|of| of.map_or("", |of| &of.date));
    let dates = if first == last {
        format!("measured on {first}")
    } else {
        format!("measured from {first} to {last}")
    };
    match (commits.len(), is_one_machine) {
        (1, true) => format!("All figures are of one commit and one machine, {dates}."),
        (1, false) => format!("All figures are of one commit, but not of one machine, {dates}."),
        (count, _) => {
            format!("**Not of one commit:** the figures are of {count} commits, {dates}.")
        }
    }
}

/// Returns a table of all measurements.
fn origins(rows: &[Row]) -> String {
    let all = rows
        .iter()
        .filter_map(|row| Some((row.origin.as_ref()?, row)));
    let mut all = together(all);
    all.sort_by_key(|(origin, _)| *origin);
    let head = "| date | commit | kernel | machine | windows | rows | command |\n|---|---|---|---|---:|---:|---|";
    let lines = all.iter().map(|(of, rows)| {
        let [kernel, machine] =
            [&of.kernel, &of.machine].map(|known| known.as_deref().unwrap_or("not recorded"));
        let windows = of.windows.map_or("-".to_owned(), |count| count.to_string());
        let (date, commit, command) = (&of.date, &of.commit, &of.command);
        format!(
            "\n| {date} | {commit} | {kernel} | {machine} | {windows} | {} | `{command}` |",
            rows.len()
        )
    });
    head.to_owned() + &lines.collect::<String>()
}

fn commit(row: &Row) -> &str {
    row.origin
        .as_ref()
        .map_or("an unknown commit", |origin| &origin.commit)
}

fn to_socket(row: &Row) -> Option<f64> {
    row.insn_per_packet.as_ref()?.to_socket
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn times(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |times| format!("{times:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::origin::Origin;
    use crate::results::row::{compare, Function, Instructions};

    /// Returns a row of a made-up figure.
    fn row(case: &str, mode: &str, busiest: f64, commit: &str) -> Row {
        let top = vec![Function {
            name: format!("{mode}_rcv"),
            insn_per_packet: busiest / 2.0,
        }];
        let insn = Instructions {
            busiest,
            top,
            ..Instructions::default()
        };
        Row {
            case: case.to_owned(),
            mode: mode.to_owned(),
            nic: "virtio".to_owned(),
            insn_per_packet: Some(insn),
            origin: Some(Origin {
                commit: commit.to_owned(),
                ..Origin::default()
            }),
            ..Row::default()
        }
    }

    fn rows() -> Vec<Row> {
        let mut rows = vec![
            row("udp-16", "vanilla", 8000.0, "aaaaaa1"),
            row("udp-16", "mflow", 2000.0, "aaaaaa1"),
            row("udp-16", "rps", 5000.0, "bbbbbb2"),
        ];
        rows[1].lanes = 2;
        rows[1].note = Some("it rained".to_owned());
        compare(&mut rows);
        rows
    }

    fn filled(template: &str) -> String {
        let text = Filling::of(&rows()).fill(template);
        text.unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn references_become_figures() {
        assert_eq!(filled("{udp-16/mflow 2}."), "2000.\n\n");
        assert_eq!(filled("{ratio udp-16/mflow 2}"), "2000 (4.00x)\n\n");
        assert_eq!(filled("{bar udp-16/mflow 2}"), "████████ 4.00\n\n");
        assert_eq!(filled("{all udp-16/mflow 2}"), "-\n\n");
        let both = "{udp-16/rps minus udp-16/mflow 2} {udp-16/rps over udp-16/mflow 2}";
        assert_eq!(filled(both), "3000 2.50\n\n");
        assert!(filled("{udp-16/mflow 3}").contains("has no row udp-16/mflow 3;"));
        assert!(filled("{udp-16/rps").contains("a { without"));
    }

    #[test]
    fn a_part_waits_for_its_row() {
        let part = |row: &str| filled(&format!("a\n{{with {row}}}\n{{{row}}}\n{{end}}\nb"));
        assert_eq!(part("udp-16/mflow 2"), "a\n2000\nb\n\n");
        assert_eq!(part("udp-16/mflow 3"), "a\nb\n\n");
        let awaited = awaited_by("{with udp-16/mflow 3}");
        assert_eq!(awaited, Some("udp-16/mflow 3"));
        assert_eq!(awaited_by("{udp-16/mflow 2}"), None);
    }

    #[test]
    fn the_path_is_compared_and_waiting_packets_are_of_a_thousand() {
        let mut rows = rows();
        for (row, to_socket) in rows.iter_mut().zip([6000.0, 5000.0]) {
            let insn = row.insn_per_packet.as_mut().expect("measured");
            insn.to_socket = Some(to_socket);
            (row.packets, row.joined) = (4_000, Some(10));
        }
        let filled = |template: &str| {
            let text = Filling::of(&rows).fill(template);
            text.unwrap_or_else(|error| error.to_string())
        };
        assert_eq!(filled("{path udp-16/mflow 2}"), "5000 (1.20x)\n\n");
        assert_eq!(filled("{path udp-16/vanilla}"), "6000 (1.00x)\n\n");
        assert!(filled("{path udp-16/rps}").contains("no figure to the socket"));
        let waited = "{joined udp-16/mflow 2} {early udp-16/mflow 2}";
        assert_eq!(filled(waited), "2.5 -\n\n");
    }

    #[test]
    fn auto_is_compared_with_the_better_builder() {
        let mut rows = vec![
            row("udp-16", "mflow", 2200.0, "aaaaaa1"),
            row("udp-16", "mflow-nic", 2000.0, "aaaaaa1"),
            row("udp-16", "mflow-lane", 2500.0, "aaaaaa1"),
        ];
        let filled = |rows: &mut [Row]| {
            rows.iter_mut().for_each(|row| row.lanes = 4);
            Filling::of(rows).fill("{auto udp-16 4}").expect("filled")
        };
        assert_eq!(filled(&mut rows), "2200 (1.10 of `nic`, 2000)\n\n");
        rows[2] = row("udp-16", "mflow-lane", 1100.0, "aaaaaa1");
        assert_eq!(filled(&mut rows), "2200 (2.00 of `lane`, 1100)\n\n");
    }

    #[test]
    fn a_table_says_of_which_commits_its_rows_are() {
        let one = filled("| {udp-16/vanilla} | {ratio udp-16/mflow 2} |\nand {udp-16/rps}");
        let note = "* `udp-16` (mflow 2): it rained.\n";
        let expected = format!("| 8000 | 2000 (4.00x) |\n\nOf aaaaaa1.\n\n{note}and 5000\n\n");
        assert_eq!(one, expected);
        let two = filled("| {ratio udp-16/mflow 2} | {bar udp-16/rps} |");
        let said = "**Not of one commit.** bbbbbb2: `udp-16` (rps); aaaaaa1: all others.\n";
        assert!(two.contains(said), "{two}");
        // A note is made once.
        let twice = filled("| {udp-16/mflow 2} |\n\n| {udp-16/mflow 2} |\n");
        assert_eq!(
            (twice.matches(note).count(), twice.matches("Of ").count()),
            (1, 2)
        );
    }

    #[test]
    fn functions_stand_beside_each_other() {
        let work = filled("{work udp-16/rps}");
        assert!(
            work.contains("| on all cores together | `udp-16/rps` |"),
            "{work}"
        );
        let text = filled("{functions udp-16/rps, udp-16/mflow 2}");
        assert!(text.contains("\n| `rps_rcv` | 2500 |  |\n"), "{text}");
        assert!(text.contains("\n| `mflow_rcv` |  | 1000 |\n"), "{text}");
        assert!(text.contains("**Not of one commit.**"), "{text}");
    }

    #[test]
    fn all_rows_are_of_one_commit_or_not() {
        let mut rows = rows();
        assert!(commits(&rows).starts_with("**Not of one commit:** the figures are of 2 commits"));
        rows.pop();
        assert!(commits(&rows).contains("but not of one machine"));
        let measure = |row: &mut Row, day: u32, machine: &str| {
            let origin = row.origin.as_mut().expect("an origin");
            origin.date = format!("2026-11-{day}");
            origin.machine = Some(machine.to_owned());
        };
        for (row, emulator) in rows.iter_mut().zip(1..) {
            measure(row, 28, &format!("a machine, QEMU {emulator}"));
        }
        let said = "All figures are of one commit and one machine, measured on 2026-11-28.";
        assert_eq!(commits(&rows), said);
        assert!(origins(&rows).contains("| a machine, QEMU 1 | - | 1 |"));
        measure(&mut rows[0], 29, "another machine, QEMU 1");
        let said = "All figures are of one commit, but not of one machine, measured from 2026-11-28 to 2026-11-29.";
        assert_eq!(commits(&rows), said);
    }
}
