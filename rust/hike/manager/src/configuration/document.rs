// SPDX-License-Identifier: GPL-2.0

//! A configuration as it is written, in TOML: names and numbers that have not been checked yet; its parts are in `entries`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path as FilePath;

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use super::entries::{
    BehaviourEntry, ClassEntry, EngineWord, HookWord, MonitorEntry, PathEntry, RouteEntry,
};
use super::exact::FlowEntry;
use super::kernel::KernelRouteEntry;
use super::objects::Kind;
use super::rules::RuleEntry;
use super::{Configuration, Problem};

/// All of it; what is left out is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Document {
    /// The hook at which packets take chains.
    pub hook: HookWord,
    /// The engine that runs chains.
    pub engine: EngineWord,
    /// The devices whose packets are looked at, by name.
    pub devices: Vec<String>,
    /// The devices through which packets may leave, by name.
    pub ports: Vec<String>,
    /// The access list, in order.
    pub rules: Vec<RuleEntry>,
    /// Chains by name: programs with commas in between.
    pub chains: BTreeMap<String, String>,
    /// Paths by name.
    pub paths: BTreeMap<String, PathEntry>,
    /// The behaviours of local SIDs, by name.
    pub behaviours: BTreeMap<String, BehaviourEntry>,
    /// Classes by destination.
    pub classes: BTreeMap<String, ClassEntry>,
    /// Flows that have classes of their own, by name.
    pub flows: BTreeMap<String, FlowEntry>,
    /// Routes of `fw-table` by destination.
    pub routes: BTreeMap<String, RouteEntry>,
    /// Monitors by name.
    pub monitors: BTreeMap<String, MonitorEntry>,
    /// Routes of the kernel's own, by name.
    pub kernel_routes: BTreeMap<String, KernelRouteEntry>,
}

/// Why a file cannot be a configuration: where, and one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {text}")]
pub struct BadFile {
    /// The file.
    pub file: String,
    /// The line, from 1 on.
    pub line: usize,
    /// The error, and the values that are allowed.
    pub text: String,
}

/// Makes a configuration of a file's text.
pub fn parse(file: &FilePath, text: &str) -> Result<Configuration, BadFile> {
    let bad = |offset: usize, said: &str| BadFile {
        file: file.display().to_string(),
        line: line_of(text, offset),
        text: said.lines().collect::<Vec<_>>().join(", "),
    };
    let document: Document = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        bad(offset, error.message())
    })?;
    Configuration::try_from(&document)
        .map_err(|problem: Problem| bad(place(text, &problem.at), &problem.to_string()))
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.bytes().take(offset);
    1 + before.filter(|&byte| byte == b'\n').count()
}

/// Returns where something stands: section, name and field as far as they are there.
fn place(text: &str, at: &[String]) -> usize {
    let Ok(document) = DeTable::parse(text) else {
        return 0;
    };
    let mut offset = 0;
    let mut value = &DeValue::Table(document.into_inner());
    for word in at {
        match value {
            DeValue::Table(table) => {
                let Some((key, inner)) = table.iter().find(|(key, _)| key.get_ref() == word) else {
                    return offset;
                };
                offset = key.span().start;
                value = inner.get_ref();
            }
            DeValue::Array(array) => {
                // What has no name has its place, from 1 on.
                let place = word
                    .parse::<usize>()
                    .ok()
                    .and_then(|number| number.checked_sub(1));
                let one = place.and_then(|place| array.get(place));
                if let Some(one) = one.filter(|one| one.get_ref().is_table()) {
                    offset = one.span().start;
                    value = one.get_ref();
                    continue;
                }
                let is_it = |one: &DeValue<'_>| one.as_str() == Some(word);
                // What stands twice is wrong where it stands again.
                let found = array.iter().rfind(|one| is_it(one.get_ref()));
                return found.map_or(offset, |one| one.span().start);
            }
            _ => return offset,
        }
    }
    offset
}

impl Document {
    /// Returns a file's text for it, with a line for each object.
    pub fn to_toml(&self) -> String {
        let (hook, engine) = (inline(&self.hook), inline(&self.engine));
        let mut text = format!("hook = {hook}\nengine = {engine}\n");
        for (name, list) in [("devices", &self.devices), ("ports", &self.ports)] {
            // Writing to a string cannot fail.
            let _written = writeln!(text, "{name} = {}", inline(list));
        }
        if !self.rules.is_empty() {
            let _written = writeln!(text, "{} = [", Kind::Rule.section());
            for rule in &self.rules {
                let _written = writeln!(text, "  {},", inline(rule));
            }
            text.push_str("]\n");
        }
        section(&mut text, Kind::Chain, &self.chains);
        section(&mut text, Kind::Path, &self.paths);
        section(&mut text, Kind::Behaviour, &self.behaviours);
        section(&mut text, Kind::Class, &self.classes);
        section(&mut text, Kind::Flow, &self.flows);
        section(&mut text, Kind::Route, &self.routes);
        section(&mut text, Kind::Monitor, &self.monitors);
        section(&mut text, Kind::KernelRoute, &self.kernel_routes);
        text
    }
}

fn section<T: Serialize>(text: &mut String, kind: Kind, entries: &BTreeMap<String, T>) {
    if entries.is_empty() {
        return;
    }
    let _written = writeln!(text, "\n[{}]", kind.section());
    for (name, entry) in entries {
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let key = if !name.is_empty() && name.chars().all(bare) {
            name.clone()
        } else {
            inline(name)
        };
        let _written = writeln!(text, "{key} = {}", inline(entry));
    }
}

/// Returns a value as it stands on one line.
pub(crate) fn inline<T: Serialize>(value: &T) -> String {
    match toml::Value::try_from(value) {
        Ok(value) => value.to_string(),
        // Entries are strings, numbers, and tables of these.
        Err(error) => unreachable!("an entry is no TOML: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
engine = "tail-calls"
devices = ["eth0"]
ports = ["eth1"]

[chains]
edge = "enc,mon-in,fw-fib"
table = "5"

[paths.berlin]
source = "fd00:1::1"
sids = ["fc00:1::1", "fc00:3::6"]
mode = "reduced"
flow-id = 7

[classes]
"2001:db8::/32" = { chain = "edge", path = "berlin" }
"10.0.0.0/8" = { chain = "table" }
default = "kernel"

[routes]
"0.0.0.0/0" = { port = "eth1", next-hop = "02:00:00:00:00:02" }

[monitors]
berlin = { direction = "in", path = "berlin" }
"#;

    fn read(text: &str) -> Result<Configuration, BadFile> {
        parse(FilePath::new("hike.toml"), text)
    }

    fn error(text: &str) -> String {
        read(text).expect_err(text).to_string()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let read_once = read(GOOD).expect("good");
        let text = Document::from(&read_once).to_toml();
        assert_eq!(read(&text).expect("what it wrote"), read_once, "{text}");
        assert!(text.contains("\n\"2001:db8::/32\" = { chain = \"edge\", path = \"berlin\" }\n"));
        assert_eq!(
            read("").expect("nothing is a configuration, too"),
            Configuration::default()
        );
    }

    #[test]
    fn the_example_of_the_readme_is_good() {
        let readme = include_str!("../../README.md");
        let (_, rest) = readme.split_once("```toml\n").expect("an example");
        let (example, _) = rest.split_once("```").expect("its end");
        let configuration = read(example).expect("good");
        let parts = (configuration.classes.len(), configuration.rules.len());
        assert_eq!((parts, configuration.flows.len()), ((3, 2), 1));
        for example in readme.split("```toml\n").skip(2) {
            let (example, _) = example.split_once("```").expect("its end");
            read(example).expect("good");
        }
        let wrong = example.replace("flow-id = 1 ", "flow-id = 1048576 ");
        assert!(readme.contains(&error(&wrong).replace("hike.toml", "/etc/hike.toml")));
    }

    #[test]
    fn errors_say_file_and_line_and_what_is_allowed() {
        assert_eq!(
            error("engine = \"fast\""),
            "hike.toml:1: unknown variant `fast`, expected `compiled` or `tail-calls`"
        );
        assert!(error("\n\n[chain]\n")
            .starts_with("hike.toml:3: unknown field `chain`, expected one of"));
        assert!(
            error("devices = [\n\"a\",\n 5]").starts_with("hike.toml:3: invalid type: integer `5`")
        );
        assert_eq!(
            error("[classes]\ndefault = \"kernels\""),
            "hike.toml:2: invalid value: string \"kernels\", expected \"kernel\" or { chain = NAME, path = NAME, behaviour = NAME, lanes = WORD }"
        );
        let line = "hike.toml:13: path berlin: ";
        assert_eq!(
            error(&GOOD.replace("flow-id = 7", "flow-id = 1048576")),
            format!(
                "{}flow-id is 1048576: 0 to 1048575 are allowed",
                line.replace("13", "14")
            )
        );
        assert_eq!(
            error(&GOOD.replace("mode = \"reduced\"", "hop-limit = 0")),
            format!("{line}hop-limit is 0: 1 to 255 are allowed")
        );
        assert_eq!(
            error(&GOOD.replace("path = \"berlin\" }\n\"10", "path = \"bonn\" }\n\"10")),
            "hike.toml:17: class 2001:db8::/32: there is no path `bonn`; there are berlin"
        );
        assert_eq!(
            error("devices = [\"a\",\n\"b\",\n\"a\"]"),
            "hike.toml:3: device a: it stands here twice"
        );
    }
}
