// SPDX-License-Identifier: GPL-2.0

//! The scripts of bpftrace in the package `mflow-tools`, held against the events of the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context as _, Result};

use super::ALL;
use crate::machine::init::TRACEFS;

/// The scripts of bpftrace, and what they read.
const SCRIPTS: [(&str, &str); 3] = [
    (
        "order.bt",
        include_str!("../../../../../../xtask/src/debian/tools/order.bt"),
    ),
    (
        "merge-latency.bt",
        include_str!("../../../../../../xtask/src/debian/tools/merge-latency.bt"),
    ),
    (
        "lane-balance.bt",
        include_str!("../../../../../../xtask/src/debian/tools/lane-balance.bt"),
    ),
];

pub(super) fn formats() -> Result<()> {
    let events = Path::new(TRACEFS).join("events/mflow");
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for event in ALL.split(',') {
        let path = events.join(event).join("format");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let of_event = text.lines().filter_map(field_of);
        fields.insert(event.to_owned(), of_event.map(str::to_owned).collect());
        // Those would show an address of the kernel.
        let print = text.lines().find(|line| line.starts_with("print fmt"));
        let print = print.with_context(|| format!("{event} prints nothing"))?;
        ensure!(!print.contains("%p"), "{event} prints an address: {print}");
    }
    let mut read = 0;
    for (name, script) in SCRIPTS {
        for (event, field) in fields_of(script) {
            let known = fields.get(event).is_some_and(|known| known.contains(field));
            ensure!(
                known,
                "{name} reads {field} of {event}, which have {fields:?}"
            );
            read += 1;
        }
    }
    ensure!(read > 10, "this case finds only {read} fields");
    Ok(())
}

/// Returns the name in a line such as `field:u32 slot; offset:8; size:4; signed:0;`, which has tabs.
fn field_of(line: &str) -> Option<&str> {
    let declaration = line.trim().strip_prefix("field:")?.split(';').next()?;
    let declaration = declaration.split('[').next()?;
    declaration.rsplit(' ').next()
}

/// Returns the fields that a script reads, each with its event.
fn fields_of(script: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for probe in script.split("tracepoint:mflow:").skip(1) {
        let is_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
        let name_of = |text: &'_ str| text.find(|one| !is_name(one)).unwrap_or(text.len());
        let (event, rest) = probe.split_at(name_of(probe));
        for read in rest.split("args->").skip(1) {
            found.push((event, read.split_at(name_of(read)).0));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_scripts_are_found() {
        let script =
            "tracepoint:mflow:late\n{ printf(args->slot, args->pkts); }\ntracepoint:mflow:merge\n/args->batch/";
        let expected = [("late", "slot"), ("late", "pkts"), ("merge", "batch")];
        assert_eq!(fields_of(script), expected);
        let line = "\tfield:char from[48];\toffset:32;\tsize:48;\tsigned:0;";
        assert_eq!(field_of(line), Some("from"));
        assert_eq!(field_of("print fmt: \"x\""), None);
    }
}
