// SPDX-License-Identifier: GPL-2.0

//! Our scripts for bpftrace, read by bpftrace itself. It looks at the formats of events in tracefs, where ours are only while the module
//! is loaded. So it gets a mount namespace, in which these formats, made of our header, stand in the place of tracefs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context as _, Result};

use crate::paths;
use crate::tools;

const HEADER: &str = "c-shims/module/mflow_trace.h";
const SCRIPTS: &str = "xtask/src/debian/tools";
const SYSTEM: &str = "mflow";
/// Numbers of the kernel's headers that ours uses.
const OF_THE_KERNEL: (&str, usize) = ("IFNAMSIZ", 16);
/// The fields of each event, which the kernel adds, and the number of the first byte behind them.
const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                      \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
                      \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
                      \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";
const COMMON_BYTES: usize = 8;
/// The reading alone: nothing is given to the kernel. The words behind it are the folder and the script.
const READ: &str = "mount --bind \"$1\" /sys/kernel/debug && \
                    { [ ! -d /sys/kernel/tracing ] || mount --bind \"$1/tracing\" /sys/kernel/tracing; } && \
                    exec bpftrace -d \"$2\"";

/// An event: its name, and its fields.
#[derive(Debug, PartialEq, Eq)]
struct Event {
    name: String,
    fields: Vec<Field>,
}

/// A field: a number, or text of so many bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    kind: String,
    name: String,
    elements: Option<usize>,
}

/// Returns why scripts can't be read here, if they can't.
pub(super) fn refusal() -> Option<&'static str> {
    if tools::find("bpftrace").is_none() {
        return Some("bpftrace is not installed; try: cargo xtask setup");
    }
    let mut unshare = tools::command("unshare");
    let may = tools::output(unshare.args(["--mount", "true"])).is_ok();
    (!may).then_some("there are no mount namespaces for this user")
}

/// Fails unless bpftrace reads each script, with all fields that it names.
pub(super) fn are_read() -> Result<()> {
    let header = fs::read_to_string(paths::project().join(HEADER)).context(HEADER)?;
    let folder = tempfile::tempdir()?;
    let tracing = folder.path().join("tracing");
    // Debian 12's bpftrace looks for an event in a list first, beside one of functions.
    let mut available = String::new();
    for (number, event) in events(&header)?.iter().enumerate() {
        writeln!(available, "{SYSTEM}:{}", event.name)?;
        let of_event = tracing.join("events").join(SYSTEM).join(&event.name);
        fs::create_dir_all(&of_event)?;
        fs::write(of_event.join("id"), format!("{}\n", 1_000 + number))?;
        fs::write(of_event.join("format"), event.format(1_000 + number)?)?;
    }
    fs::write(tracing.join("available_events"), available)?;
    fs::write(tracing.join("available_filter_functions"), "")?;
    let mut read = 0;
    for entry in fs::read_dir(paths::project().join(SCRIPTS))? {
        let script = entry?.path();
        if script.extension().is_some_and(|end| end == "bt") {
            let mut unshare = tools::command("unshare");
            unshare.args(["--mount", "sh", "-c", READ, "sh"]);
            tools::output(unshare.arg(folder.path()).arg(&script))
                .with_context(|| name_of(&script))?;
            read += 1;
        }
    }
    ensure!(read > 0, "there are no scripts in {SCRIPTS}");
    Ok(())
}

fn name_of(path: &Path) -> String {
    path.display().to_string()
}

impl Event {
    /// Returns the format as the kernel prints it.
    fn format(&self, number: usize) -> Result<String> {
        let name = &self.name;
        let mut text = format!("name: {name}\nID: {number}\nformat:\n{COMMON}");
        let mut offset = COMMON_BYTES;
        for field in &self.fields {
            let (kind, name) = (&field.kind, &field.name);
            let bytes = match kind.as_str() {
                "char" => 1,
                "u32" => 4,
                "u64" | "s64" => 8,
                _ => anyhow::bail!("{name} is of a kind that this does not know: {kind}"),
            };
            let (array, size) = match field.elements {
                Some(elements) => (format!("[{elements}]"), elements * bytes),
                None => (String::new(), bytes),
            };
            let signed = u8::from(matches!(kind.as_str(), "char" | "s64"));
            offset = offset.next_multiple_of(bytes);
            writeln!(
                text,
                "\tfield:{kind} {name}{array};\toffset:{offset};\tsize:{size};\tsigned:{signed};"
            )?;
            offset += size;
        }
        text.push_str("\nprint fmt: \"\"\n");
        Ok(text)
    }
}

/// Returns the events of a header: those that are by themselves, and those of a class.
fn events(header: &str) -> Result<Vec<Event>> {
    let mut events: Vec<Event> = Vec::new();
    let mut classes: Vec<Event> = Vec::new();
    for line in header.lines() {
        let line = line.trim();
        let (head, rest) = line.split_once('(').unwrap_or((line, ""));
        let mut words = rest
            .split(',')
            .map(|word| word.trim_end_matches(')').trim());
        let mut word = || words.next().unwrap_or_default().to_owned();
        match head {
            "TRACE_EVENT" | "TRACE_EVENT_FN" | "DECLARE_EVENT_CLASS" => {
                let list = if head == "DECLARE_EVENT_CLASS" {
                    &mut classes
                } else {
                    &mut events
                };
                list.push(Event {
                    name: word(),
                    fields: Vec::new(),
                });
            }
            "DEFINE_EVENT" => {
                let (class, name) = (word(), word());
                let of_class = classes.iter().find(|one| one.name == class);
                let fields = of_class.context(class)?.fields.clone();
                events.push(Event { name, fields });
            }
            "__field" | "__array" => {
                let (kind, name, elements) = (word(), word(), word());
                let elements = match elements.as_str() {
                    "" => None,
                    constant => Some(number(header, constant)?),
                };
                let field = Field {
                    kind,
                    name,
                    elements,
                };
                // Events of classes are defined behind these, and before events by themselves.
                let last = events.last_mut().or(classes.last_mut());
                last.context("a field of no event")?.fields.push(field);
            }
            _ => {}
        }
    }
    Ok(events)
}

/// Returns the number that a header defines.
fn number(header: &str, name: &str) -> Result<usize> {
    if name == OF_THE_KERNEL.0 {
        return Ok(OF_THE_KERNEL.1);
    }
    let mut lines = header.lines().map(str::split_whitespace);
    let value = lines.find_map(|mut words| {
        let is_it = words.next() == Some("#define") && words.next() == Some(name);
        is_it.then(|| words.next()).flatten()
    });
    let value = value.with_context(|| format!("{HEADER} defines no {name}"))?;
    value.parse().with_context(|| format!("{name} is {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_made_of_the_header() {
        let header = fs::read_to_string(paths::project().join(HEADER)).unwrap();
        let events = events(&header).unwrap();
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "flow_start",
                "flow_stop",
                "batch",
                "merge",
                "given_up",
                "late"
            ]
        );
        assert_eq!(events[0].fields, events[1].fields);
        let format = events[0].format(7).unwrap();
        for line in [
            "\tfield:char device[16];\toffset:8;\tsize:16;\tsigned:1;",
            "\tfield:s64 pps;\toffset:152;\tsize:8;\tsigned:1;",
        ] {
            assert!(format.contains(line), "{format}");
        }
        let merge = events[3].format(8).unwrap();
        assert!(merge.contains("\tfield:u32 slot;\toffset:16;\tsize:4;\tsigned:0;"));
    }

    #[test]
    fn scripts_name_fields_that_there_are() {
        let header = fs::read_to_string(paths::project().join(HEADER)).unwrap();
        let events = events(&header).unwrap();
        let is_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
        let mut read = 0;
        for entry in fs::read_dir(paths::project().join(SCRIPTS)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "bt") {
                continue;
            }
            let script = fs::read_to_string(&path).unwrap();
            assert!(script.starts_with("// SPDX") && script.contains("\n * Prints "));
            for probe in script.split("tracepoint:mflow:").skip(1) {
                let (event, rest) = probe.split_at(probe.find(|one| !is_name(one)).unwrap());
                let event = events.iter().find(|one| one.name == event).unwrap();
                for part in rest.split("args->").skip(1) {
                    let (name, _) = part.split_at(part.find(|one| !is_name(one)).unwrap());
                    let is_there = event.fields.iter().any(|field| field.name == name);
                    assert!(is_there, "{}: {name} of {}", path.display(), event.name);
                    read += 1;
                }
            }
        }
        assert!(read > 10, "{read}");
    }
}
