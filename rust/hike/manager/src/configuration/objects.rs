// SPDX-License-Identifier: GPL-2.0

//! The parts of a configuration, each with a name and one line of text, and how two configurations differ.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use clap::builder::PossibleValue;
use clap::ValueEnum;
use serde::Serialize;
use toml::Value;

use super::Configuration;

/// Makes the kinds, each with its name, the name of its section in a file, and what that holds.
macro_rules! kinds {
    ($($kind:ident: $name:literal, $section:literal, $holds:literal;)+) => {
        /// The kinds of objects in a configuration.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Kind {
            $(#[doc = $holds] $kind,)+
        }

        impl Kind {
            /// All kinds, in the order of a file.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$kind),+];

            fn words(self) -> [&'static str; 3] {
                match self {
                    $(Self::$kind => [$name, $section, $holds],)+
                }
            }
        }
    };
}

kinds! {
    Hook: "hook", "hook", "The hook at which packets take chains";
    Engine: "engine", "engine", "The engine that runs chains";
    Mode: "mode", "mode", "The part of the kernel that runs programs at XDP";
    Cache: "cache", "cache", "The cache by flow: true or false";
    CacheEntries: "cache-entries", "cache-entries", "Entries of each CPU's cache: a power of two";
    Device: "device", "devices", "Devices whose packets are looked at";
    Inside: "inside", "inside", "Devices inside of the SR domain";
    Port: "port", "ports", "Devices through which packets may leave";
    Rule: "rule", "rules", "Rules of the access list";
    Chain: "chain", "chains", "Chains";
    Path: "path", "paths", "Paths";
    Behaviour: "behaviour", "behaviours", "Behaviours of local SIDs";
    Class: "class", "classes", "Classes";
    Flow: "flow", "flows", "Flows with classes of their own";
    Route: "route", "routes", "Routes of fw-table";
    Monitor: "monitor", "monitors", "Monitors";
    Session: "session", "sessions", "Sessions of test packets that measure delay";
    KernelRoute: "kernel-route", "kernel-routes", "Routes of the kernel's own";
}

impl Kind {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.words()[0]
    }

    /// Returns the name of its section in a file.
    pub fn section(self) -> &'static str {
        self.words()[1]
    }

    /// Returns the kind that has this section.
    pub fn of_section(section: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.section() == section)
    }
}

impl ValueEnum for Kind {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let [_, section, holds] = self.words();
        Some(PossibleValue::new(section).help(holds))
    }
}

/// The name by which one object is told from all others; its text is `kind name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Its name, its destination, or its number.
    pub name: String,
}

impl Key {
    /// Returns the key of an object.
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { kind, name }
    }
}

impl Ord for Key {
    /// Compares keys by the order of a file.
    fn cmp(&self, other: &Self) -> Ordering {
        // Of numbers, the longer one is larger.
        let digits = |key: &Self| match key.kind {
            Kind::Rule => key.name.len(),
            _ => 0,
        };
        let order = |key: &Self| (key.kind, digits(key));
        order(self)
            .cmp(&order(other))
            .then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = format!("{} {}", self.kind.name(), self.name);
        f.write_str(line.trim_end())
    }
}

/// Objects, each with the text that it has in a file.
pub type Objects = BTreeMap<Key, String>;

impl Configuration {
    /// Returns its parts.
    pub fn objects(&self) -> Objects {
        let mut objects = Objects::new();
        let sections = self.sections();
        for kind in Kind::ALL {
            let mut add = |name: &str, text| drop(objects.insert(Key::new(kind, name), text));
            match &sections[kind.section()] {
                Value::Table(table) => {
                    for (name, object) in table {
                        add(name, object.to_string());
                    }
                }
                Value::Array(list) => {
                    for (object, number) in list.iter().zip(1..) {
                        let number: usize = number;
                        match (kind, object) {
                            (Kind::Device, Value::String(name)) => add(name, ATTACHED.to_owned()),
                            (Kind::Inside, Value::String(name)) => add(name, TRUSTED.to_owned()),
                            (Kind::Port, Value::String(name)) => add(name, OPEN.to_owned()),
                            _ => add(&number.to_string(), object.to_string()),
                        }
                    }
                }
                value => add("", value.to_string()),
            }
        }
        objects
    }
}

/// The text of devices, of those inside and of ports, of which a file has no more than names.
pub(crate) const ATTACHED: &str = "attached";
pub(crate) const TRUSTED: &str = "trusted";
pub(crate) const OPEN: &str = "open";

/// The difference in one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The object.
    pub key: Key,
    /// The object's text before; `None`: it was not there.
    pub before: Option<String>,
    /// The object's text afterwards; `None`: it is not there.
    pub after: Option<String>,
}

/// Returns what differs, by the order of a file.
pub fn differences(before: &Objects, after: &Objects) -> Vec<Difference> {
    let keys: BTreeSet<&Key> = before.keys().chain(after.keys()).collect();
    let both = keys.into_iter().map(|key| Difference {
        key: key.clone(),
        before: before.get(key).cloned(),
        after: after.get(key).cloned(),
    });
    both.filter(|one| one.before != one.after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_told_once_and_by_the_order_of_a_file() {
        let of = |entries: &[(Kind, &str, &str)]| {
            let entries = entries.iter();
            let entries =
                entries.map(|(kind, name, text)| (Key::new(*kind, *name), (*text).to_owned()));
            entries.collect::<Objects>()
        };
        let before = of(&[
            (Kind::Class, "a", "1"),
            (Kind::Chain, "a", "1"),
            (Kind::Path, "a", "1"),
        ]);
        let after = of(&[
            (Kind::Class, "a", "2"),
            (Kind::Chain, "b", "1"),
            (Kind::Path, "a", "1"),
        ]);
        let said: Vec<_> = differences(&before, &after)
            .into_iter()
            .map(|one| (one.key.to_string(), one.before, one.after))
            .collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            said,
            [
                ("chain a".to_owned(), text("1"), None),
                ("chain b".to_owned(), None, text("1")),
                ("class a".to_owned(), text("1"), text("2")),
            ]
        );
        assert!(differences(&before, &before).is_empty());
        assert_eq!(Key::new(Kind::Engine, "").to_string(), "engine");
    }
}
