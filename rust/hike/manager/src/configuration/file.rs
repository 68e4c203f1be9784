// SPDX-License-Identifier: GPL-2.0

//! A configuration as a person writes it, in TOML.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path as FilePath;

use serde::Serialize;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::objects::{Key, Kind};
use super::{Configuration, Problem};

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
    parse_as(file, text, Configuration::checked)
}

/// Makes a configuration of the text of one that was applied, perhaps by an earlier version.
pub(crate) fn parse_applied(file: &FilePath, text: &str) -> Result<Configuration, BadFile> {
    parse_as(file, text, Configuration::checked_as_applied)
}

fn parse_as(
    file: &FilePath,
    text: &str,
    check: impl FnOnce(Configuration) -> Result<Configuration, Problem>,
) -> Result<Configuration, BadFile> {
    let bad = |offset: usize, said: &str| BadFile {
        file: file.display().to_string(),
        line: line_of(text, offset),
        text: said.lines().collect::<Vec<_>>().join(", "),
    };
    let configuration: Configuration = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let problem = Problem {
            at: object_at(text, offset),
            text: error.message().to_owned(),
        };
        bad(offset, &problem.to_string())
    })?;
    check(configuration).map_err(|problem| bad(offset_of(text, &problem), &problem.to_string()))
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.bytes().take(offset);
    1 + before.filter(|&byte| byte == b'\n').count()
}

/// Returns the object in whose text this place is.
fn object_at(text: &str, offset: usize) -> Option<Key> {
    let document = DeTable::parse(text).ok()?;
    let mut objects = objects(document.get_ref()).into_iter();
    let object = objects.rfind(|one| one.span.contains(&offset) || holds(one.value, offset));
    object.map(|one| one.key)
}

/// Returns the place of the object with a problem, or that of its section.
fn offset_of(text: &str, problem: &Problem) -> usize {
    let document = DeTable::parse(text);
    let (Ok(document), Some(key)) = (&document, &problem.at) else {
        return 0;
    };
    let objects = objects(document.get_ref());
    let section = Key::new(key.kind, "");
    let object = objects.iter().rfind(|one| one.key == *key);
    let object = object.or_else(|| objects.iter().find(|one| one.key == section));
    object.map_or(0, |one| one.span.start)
}

/// An object in a file's text.
struct Object<'a> {
    key: Key,
    /// The place of its name, or of all of it if it has none.
    span: Range<usize>,
    value: &'a Spanned<DeValue<'a>>,
}

/// Returns all objects of a text, each section in front of those in it.
fn objects<'a>(document: &'a DeTable<'a>) -> Vec<Object<'a>> {
    let mut all = Vec::new();
    for (section, value) in document {
        let Some(kind) = Kind::of_section(section.get_ref()) else {
            continue;
        };
        let mut add = |name: &str, span, value| {
            let key = Key::new(kind, name);
            all.push(Object { key, span, value });
        };
        add("", section.span(), value);
        match value.get_ref() {
            DeValue::Table(table) => {
                for (name, value) in table {
                    add(name.get_ref(), name.span(), value);
                }
            }
            DeValue::Array(list) => {
                for (value, number) in list.iter().zip(1..) {
                    let number: usize = number;
                    match value.get_ref().as_str() {
                        Some(name) => add(name, value.span(), value),
                        None if kind == Kind::Rule => add(&number.to_string(), value.span(), value),
                        None => {}
                    }
                }
            }
            _ => {}
        }
    }
    all
}

/// Returns whether a place is in a value, or in a part of it that is written elsewhere.
fn holds(value: &Spanned<DeValue<'_>>, offset: usize) -> bool {
    value.span().contains(&offset)
        || match value.get_ref() {
            DeValue::Table(table) => table
                .iter()
                .any(|(name, value)| name.span().contains(&offset) || holds(value, offset)),
            DeValue::Array(list) => list.iter().any(|value| holds(value, offset)),
            _ => false,
        }
}

impl Configuration {
    /// Returns a file's text for it, with a line for each object.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let sections = self.sections();
        for kind in Kind::ALL {
            let section = kind.section();
            // Writing to a string cannot fail.
            let _written = match &sections[section] {
                Value::Table(objects) if objects.is_empty() => Ok(()),
                Value::Table(objects) => {
                    let lines = objects.iter();
                    let lines = lines.map(|(name, object)| format!("{} = {object}\n", key(name)));
                    write!(text, "\n[{section}]\n{}", lines.collect::<String>())
                }
                Value::Array(list) if kind == Kind::Rule => {
                    let lines = list.iter().map(|rule| format!("  {rule},\n"));
                    match list.is_empty() {
                        true => Ok(()),
                        false => writeln!(text, "{section} = [\n{}]", lines.collect::<String>()),
                    }
                }
                value => writeln!(text, "{section} = {value}"),
            };
        }
        text
    }

    /// Returns all of it by sections, each as serde writes it.
    pub(super) fn sections(&self) -> Table {
        match Table::try_from(self) {
            Ok(sections) => sections,
            Err(error) => unreachable!("a configuration is no TOML: {error}"),
        }
    }
}

fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !name.is_empty() && name.chars().all(bare) {
        true => name.to_owned(),
        false => inline(&name),
    }
}

/// Returns the word for a value that a file has as one.
pub fn word(value: &impl Serialize) -> String {
    let value = Value::try_from(value).ok();
    let word = value.as_ref().and_then(Value::as_str);
    word.unwrap_or_default().to_owned()
}

/// Returns a value as it stands on one line.
pub fn inline<T: Serialize>(value: &T) -> String {
    match Value::try_from(value) {
        Ok(value) => value.to_string(),
        // Objects are strings, numbers, and tables of these.
        Err(error) => unreachable!("an object is no TOML: {error}"),
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
        let text = read_once.to_toml();
        assert_eq!(read(&text).expect("what it wrote"), read_once, "{text}");
        assert!(text.contains("\n\"2001:db8::/32\" = { chain = \"edge\", path = \"berlin\" }\n"));
        assert_eq!(
            read("").expect("nothing is a configuration, too"),
            Configuration::default()
        );
    }

    #[test]
    fn the_examples_of_the_documents_are_good() {
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
        let delay = include_str!("../../../DELAY.md");
        let (_, rest) = delay.split_once("```toml\n").expect("an example");
        let (sessions, _) = rest.split_once("```").expect("its end");
        assert_eq!(read(sessions).expect("good").sessions.len(), 1);
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
            "hike.toml:2: class default: invalid value: string \"kernels\", expected \"kernel\" or { chain = NAME, path = NAME, behaviour = NAME, lanes = WORD, from = WORD }"
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
