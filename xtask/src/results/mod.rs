// SPDX-License-Identifier: GPL-2.0

//! The results that the repository keeps: rows of `bench` ([`row`]), a file for each group of them, of what each comes from
//! ([`origin`]); and the document that is made of them ([`text`]).

pub mod origin;
pub mod row;
mod text;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context as _, Result};

use crate::paths;
use row::{compare, Core, Function, Row};
pub(crate) use text::document;
pub use text::{awaited, document_of};

/// The folder of the rows, and of the templates of the document.
const FOLDER: &str = "xtask/lab/results";
/// The document.
pub(crate) const DOCUMENT: &str = "xtask/lab/RESULTS.md";
/// The groups, of which each has a file.
const GROUPS: &[&str] = &["virtio", "mlx5", "distribution", "hike", "overhead"];
/// The functions that are kept of a row's busiest core, and of all its cores together.
const TOP: usize = 12;

fn group(row: &Row) -> &'static str {
    match row {
        _ if row.case.starts_with("overhead") => "overhead",
        _ if row.case.starts_with("hike-") => "hike",
        _ if row.distribution.is_some() => "distribution",
        _ if row.nic.starts_with("mlx5") => "mlx5",
        _ => "virtio",
    }
}

fn file(project: &Path, group: &str) -> PathBuf {
    project.join(FOLDER).join(group).with_extension("json")
}

/// Reads all rows, and compares them with those of vanilla's.
pub fn read(project: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for name in GROUPS {
        let path = file(project, name);
        for row in row::read(&path)? {
            let is_whole = group(&row) == *name && row.origin.is_some() && row.busiest().is_some();
            ensure!(
                is_whole,
                "{} in {} belongs to another file, or has no figure or no origin",
                row.name(),
                path.display()
            );
            rows.push(row);
        }
    }
    let mut names = BTreeSet::new();
    if let Some(row) = rows.iter().find(|row| !names.insert(row.name())) {
        bail!(
            "{} is in {FOLDER} twice; take one of the rows out",
            row.name()
        );
    }
    compare(&mut rows);
    Ok(rows)
}

/// Puts rows that have been measured into the files, each in place of the one of its name.
pub fn merge(measured: &[Row]) -> Result<()> {
    merge_into(paths::project(), measured)
}

fn merge_into(project: &Path, measured: &[Row]) -> Result<()> {
    let mut rows = read(project)?;
    for row in measured.iter().filter(|row| row.busiest().is_some()) {
        let name = row.name();
        let origin = row.origin.as_ref();
        let hint = "measure it with `bench --report`, or with `--json`";
        origin
            .with_context(|| {
                format!("the row of {name} does not say of which commit it is; {hint}")
            })?
            .check()?;
        match rows.iter_mut().find(|known| known.name() == name) {
            Some(known) => *known = small(row),
            None => rows.push(small(row)),
        }
    }
    for name in GROUPS {
        let of_group: Vec<&Row> = rows.iter().filter(|row| group(row) == *name).collect();
        write(&file(project, name), &of_group)?;
    }
    Ok(())
}

/// Returns a row with nothing of its cores but the functions with the most instructions, on the busiest one and on all together.
fn small(row: &Row) -> Row {
    let mut row = row.clone();
    if let Some(insn) = &mut row.insn_per_packet {
        insn.top_of_all = of_all(&insn.by_cpu);
        let mut cores = std::mem::take(&mut insn.by_cpu).into_iter();
        if let Some(core) = cores.find(|core| core.insn_per_packet == insn.busiest) {
            insn.top = core.top.into_iter().take(TOP).collect();
        }
    }
    row
}

/// Returns the functions with the most instructions on these cores together.
fn of_all(cores: &[Core]) -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    for function in cores.iter().flat_map(|core| &core.top) {
        match functions.iter_mut().find(|it| it.name == function.name) {
            Some(known) => known.insn_per_packet += function.insn_per_packet,
            None => functions.push(function.clone()),
        }
    }
    functions.sort_by(|one, other| other.insn_per_packet.total_cmp(&one.insn_per_packet));
    functions.truncate(TOP);
    functions
}

/// Writes a row a line, without what is computed again when it is read.
fn write(path: &Path, rows: &[&Row]) -> Result<()> {
    let mut lines = Vec::new();
    for row in rows {
        let mut row = (*row).clone();
        row.speedup_vs_vanilla = None;
        if row
            .insn_per_packet
            .as_ref()
            .is_some_and(|insn| insn.total.is_some())
        {
            row.total_vs_vanilla = None;
        }
        lines.push(serde_json::to_string(&row)?);
    }
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a copy of the project's rows in a folder of its own.
    fn copy() -> tempfile::TempDir {
        let project = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(project.path().join(FOLDER)).expect("made");
        for name in GROUPS {
            fs::copy(file(paths::project(), name), file(project.path(), name)).expect("copied");
        }
        project
    }

    fn lines(project: &Path) -> Vec<String> {
        let texts = GROUPS
            .iter()
            .map(|name| fs::read_to_string(file(project, name)));
        let texts: Vec<String> = texts.map(|text| text.expect("read")).collect();
        texts
            .iter()
            .flat_map(|text| text.lines())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn work_of_a_function_on_several_cores_is_added_up() {
        let core = |functions: &[(&str, f64)]| Core {
            top: functions
                .iter()
                .map(|&(name, insn_per_packet)| Function {
                    name: name.to_owned(),
                    insn_per_packet,
                })
                .collect(),
            ..Core::default()
        };
        let all = of_all(&[
            core(&[("here", 30.0), ("everywhere", 20.0)]),
            core(&[("everywhere", 25.0)]),
        ]);
        let all: Vec<_> = all
            .iter()
            .map(|it| (it.name.as_str(), it.insn_per_packet))
            .collect();
        assert_eq!(all, [("everywhere", 45.0), ("here", 30.0)]);
    }

    #[test]
    fn a_row_that_is_measured_replaces_the_one_of_its_name_and_no_other() {
        let project = copy();
        let before = lines(project.path());
        let merge = |rows: &[Row]| merge_into(project.path(), rows);
        merge(&[]).expect("merged");
        assert_eq!(
            lines(project.path()),
            before,
            "rows are written as they are kept"
        );
        let mut rows = read(project.path()).expect("rows");
        let row = rows
            .iter_mut()
            .find(|row| row.name() == "udp-16/mflow 2")
            .expect("a row");
        let core = |insn_per_packet, name: &str| Core {
            insn_per_packet,
            top: vec![Function {
                name: name.to_owned(),
                ..Function::default()
            }],
            ..Core::default()
        };
        let insn = row.insn_per_packet.as_mut().expect("measured");
        insn.busiest = 1234.5;
        insn.by_cpu = vec![
            core(1.0, "function_elsewhere"),
            core(1234.5, "function_of_the_busiest"),
        ];
        let mut fresh = Row {
            case: "udp-9".to_owned(),
            ..row.clone()
        };
        merge(&[row.clone(), fresh.clone()]).expect("merged");
        let after = lines(project.path());
        let new: Vec<_> = after
            .iter()
            .filter(|line| line.contains("1234.5"))
            .collect();
        assert_eq!((new.len(), after.len()), (2, before.len() + 1));
        assert!(new
            .iter()
            .all(|line| line.matches("function_of_the_busiest").count() == 2
                && line.matches("function_elsewhere").count() == 1));
        let gone = before.iter().filter(|line| !after.contains(line)).count();
        assert_eq!(gone, 2, "the row, and the last one without a comma");
        let error = |row: &Row| {
            merge(std::slice::from_ref(row))
                .expect_err("refused")
                .to_string()
        };
        fresh.origin.as_mut().expect("an origin").commit += "-dirty";
        assert!(error(&fresh).contains("commit your changes first"));
        fresh.origin = None;
        assert!(error(&fresh).contains("of which commit"));
    }

    #[test]
    fn rows_are_compared_with_vanilla_on_the_same_kernel_and_nic() {
        let mut rows = read(paths::project()).expect("rows");
        for insn in rows
            .iter_mut()
            .filter_map(|row| row.insn_per_packet.as_mut())
        {
            insn.total = Some(insn.busiest);
        }
        compare(&mut rows);
        let find = |name: &str| rows.iter().find(|row| row.name() == name).expect("a row");
        for place in ["", "mlx5:", "debian-13:"] {
            let ours = find(&format!("{place}udp-16/mflow 2"));
            let both = find(&format!("{place}udp-16/vanilla"))
                .busiest()
                .zip(ours.busiest());
            assert_eq!(
                ours.speedup_vs_vanilla,
                both.map(|(base, ours)| base / ours)
            );
            assert_eq!(ours.total_vs_vanilla, both.map(|(base, ours)| ours / base));
        }
        assert_eq!(find("own:udp-16/mflow 2").speedup_vs_vanilla, None);
    }

    #[test]
    fn rows_that_are_there_twice_or_elsewhere_are_refused() {
        let project = copy();
        let rows = row::read(&file(project.path(), "hike")).expect("rows");
        let error = |group: &str, rows: &[&Row]| {
            write(&file(project.path(), group), rows).expect("written");
            read(project.path()).expect_err("refused").to_string()
        };
        assert!(error("hike", &[&rows[0], &rows[0]]).contains("twice"));
        assert!(error("mlx5", &[&rows[0]]).contains("belongs to another file"));
    }
}
