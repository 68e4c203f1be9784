// SPDX-License-Identifier: GPL-2.0

//! A configuration as it is written, in TOML: names and numbers that nobody has looked at yet.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path as FilePath;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::de::{DeTable, DeValue};

use super::exact::FlowEntry;
use super::objects::Kind;
use super::rules::RuleEntry;
use super::{Configuration, Problem};

/// All of it; what is left out is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Document {
    /// How chains are run.
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
    /// What local SIDs do, by name.
    pub behaviours: BTreeMap<String, BehaviourEntry>,
    /// Classes by destination.
    pub classes: BTreeMap<String, ClassEntry>,
    /// Flows that have classes of their own, by name.
    pub flows: BTreeMap<String, FlowEntry>,
    /// Routes of `fw-table` by destination.
    pub routes: BTreeMap<String, RouteEntry>,
    /// Monitors by name.
    pub monitors: BTreeMap<String, MonitorEntry>,
}

/// An engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineWord {
    /// One program for each distinct chain.
    #[default]
    Compiled,
    /// One tail call for each program of a chain.
    TailCalls,
}

/// A path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PathEntry {
    /// The tunnel's source.
    pub source: String,
    /// 1 to 10 SIDs.
    pub sids: Vec<String>,
    /// How packets are encapsulated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: ModeWord,
    /// 1 to 255; absent: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_limit: Option<i64>,
    /// 0 to 63; absent: that of the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<i64>,
    /// 0 to 1048575; absent: one for each flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_label: Option<i64>,
    /// 1280 to 65535; absent: 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i64>,
    /// What becomes of packets that cannot be encapsulated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exceptions: ExceptionsWord,
    /// The FlowMonID of RFC 9343, 0 to 1048575; absent: there is no such option.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_id: Option<i64>,
}

/// How packets are encapsulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeWord {
    /// H.Encaps.
    #[default]
    Encaps,
    /// H.Encaps.Red.
    Reduced,
}

/// What becomes of packets that cannot be encapsulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExceptionsWord {
    /// They are dropped.
    #[default]
    Dropped,
    /// The kernel gets them.
    Left,
}

/// What a local SID does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BehaviourEntry {
    /// Which of those of RFC 8986.
    pub action: ActionWord,
    /// The next hop of End.X.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
    /// The kernel's routing table of End.DT4, DT6 and DT46, 1 to 4294967295; absent: the one that its rules choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<i64>,
    /// What End and End.X do besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavours: Vec<FlavourWord>,
}

/// A behaviour of RFC 8986.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActionWord {
    /// Goes on to the next segment.
    End,
    /// Does so, and forwards to a next hop.
    #[serde(rename = "End.X")]
    EndX,
    /// Takes the outer headers off IPv4.
    #[serde(rename = "End.DT4")]
    Dt4,
    /// The same of IPv6.
    #[serde(rename = "End.DT6")]
    Dt6,
    /// The same of both.
    #[serde(rename = "End.DT46")]
    Dt46,
}

/// A flavour of RFC 8986, 4.16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlavourWord {
    /// Penultimate segment pop.
    Psp,
    /// Ultimate segment pop.
    Usp,
    /// Ultimate segment decapsulation.
    Usd,
}

/// The way of a class: `"kernel"`, or a table with a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassEntry {
    /// The kernel's path.
    Kernel,
    /// A chain.
    Fast(FastEntry),
}

/// A chain, and what its programs need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FastEntry {
    /// The name of the chain.
    pub chain: String,
    /// The name of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The name of the behaviour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behaviour: Option<String>,
    /// What mflow is asked for; absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes: Option<LanesWord>,
}

/// What mflow is asked for the flows of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LanesWord {
    /// To split them.
    Split,
    /// Not to.
    Never,
}

/// A route of `fw-table`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RouteEntry {
    /// The device that packets leave through.
    pub port: String,
    /// The next hop's Ethernet address.
    pub next_hop: String,
    /// The Ethernet address that packets come from; absent: that of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The largest packet, 68 to 65535; absent: what the port takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i64>,
}

/// A monitor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MonitorEntry {
    /// Where the flow is counted.
    pub direction: DirectionWord,
    /// The name of the path that the flow takes; else it has source and SIDs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The flow's source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its SIDs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sids: Option<Vec<String>>,
    /// 10 to 86400000; absent: 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<i64>,
    /// 0 to 5; absent: the colour is in the option of RFC 9343.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp_bit: Option<i64>,
}

/// Where a flow is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectionWord {
    /// Where it enters.
    In,
    /// Where it leaves.
    Out,
}

const KERNEL: &str = "kernel";

impl Serialize for ClassEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Kernel => serializer.serialize_str(KERNEL),
            Self::Fast(fast) => fast.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ClassEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// What a way may be.
        struct Ways;

        impl<'de> Visitor<'de> for Ways {
            type Value = ClassEntry;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(
                    "\"kernel\" or { chain = NAME, path = NAME, behaviour = NAME, lanes = WORD }",
                )
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<ClassEntry, E> {
                if word == KERNEL {
                    return Ok(ClassEntry::Kernel);
                }
                let way = serde::de::Unexpected::Str(word);
                Err(E::invalid_value(way, &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ClassEntry, A::Error> {
                FastEntry::deserialize(MapAccessDeserializer::new(map)).map(ClassEntry::Fast)
            }
        }

        deserializer
            .deserialize_any(Ways)
            .map_err(|error| D::Error::custom(error.to_string()))
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Why a file cannot be a configuration: where, and one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {text}")]
pub struct BadFile {
    /// The file.
    pub file: String,
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong, and what is allowed.
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
        let mut text = format!("engine = {}\n", inline(&self.engine));
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
        let readme = include_str!("../../../README.md");
        let (_, rest) = readme.split_once("```toml\n").expect("an example");
        let (example, _) = rest.split_once("```").expect("its end");
        let configuration = read(example).expect("good");
        let parts = (configuration.classes.len(), configuration.rules.len());
        assert_eq!((parts, configuration.flows.len()), ((3, 2), 1));
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
