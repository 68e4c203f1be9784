// SPDX-License-Identifier: GPL-2.0

//! The parts of a configuration, each with a name and one line of text, and how two configurations differ.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::document::inline;
use super::{Configuration, Document};

/// The kinds of objects in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The hook, which has no name.
    Hook,
    /// The engine, which has no name.
    Engine,
    /// A device.
    Device,
    /// A port.
    Port,
    /// A rule of the access list.
    Rule,
    /// A chain.
    Chain,
    /// A path.
    Path,
    /// A behaviour.
    Behaviour,
    /// A class.
    Class,
    /// A flow with a class of its own.
    Flow,
    /// A route of `fw-table`.
    Route,
    /// A monitor.
    Monitor,
    /// A route of the kernel's own.
    KernelRoute,
}

impl Kind {
    /// All kinds, in the order of a file.
    pub const ALL: [Self; 13] = [
        Self::Hook,
        Self::Engine,
        Self::Device,
        Self::Port,
        Self::Rule,
        Self::Chain,
        Self::Path,
        Self::Behaviour,
        Self::Class,
        Self::Flow,
        Self::Route,
        Self::Monitor,
        Self::KernelRoute,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hook => "hook",
            Self::Engine => "engine",
            Self::Device => "device",
            Self::Port => "port",
            Self::Rule => "rule",
            Self::Chain => "chain",
            Self::Path => "path",
            Self::Behaviour => "behaviour",
            Self::Class => "class",
            Self::Flow => "flow",
            Self::Route => "route",
            Self::Monitor => "monitor",
            Self::KernelRoute => "kernel-route",
        }
    }

    /// Returns the name of its section in a file.
    pub fn section(self) -> &'static str {
        match self {
            Self::Hook => "hook",
            Self::Engine => "engine",
            Self::Device => "devices",
            Self::Port => "ports",
            Self::Rule => "rules",
            Self::Chain => "chains",
            Self::Path => "paths",
            Self::Behaviour => "behaviours",
            Self::Class => "classes",
            Self::Flow => "flows",
            Self::Route => "routes",
            Self::Monitor => "monitors",
            Self::KernelRoute => "kernel-routes",
        }
    }

    /// Returns the kind that has this section.
    pub fn of_section(section: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.section() == section)
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
    /// By the order of a file.
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
        let document = Document::from(self);
        let mut objects = Objects::new();
        let mut add = |kind, name: &str, text| drop(objects.insert(Key::new(kind, name), text));
        add(Kind::Hook, "", inline(&document.hook));
        add(Kind::Engine, "", inline(&document.engine));
        for name in &document.devices {
            add(Kind::Device, name, ATTACHED.to_owned());
        }
        for name in &document.ports {
            add(Kind::Port, name, OPEN.to_owned());
        }
        for (rule, number) in document.rules.iter().zip(1..) {
            let number: usize = number;
            add(Kind::Rule, &number.to_string(), inline(rule));
        }
        for (name, chain) in &document.chains {
            add(Kind::Chain, name, inline(chain));
        }
        for (name, path) in &document.paths {
            add(Kind::Path, name, inline(path));
        }
        for (name, behaviour) in &document.behaviours {
            add(Kind::Behaviour, name, inline(behaviour));
        }
        for (name, class) in &document.classes {
            add(Kind::Class, name, inline(class));
        }
        for (name, flow) in &document.flows {
            add(Kind::Flow, name, inline(flow));
        }
        for (name, route) in &document.routes {
            add(Kind::Route, name, inline(route));
        }
        for (name, monitor) in &document.monitors {
            add(Kind::Monitor, name, inline(monitor));
        }
        for (name, route) in &document.kernel_routes {
            add(Kind::KernelRoute, name, inline(route));
        }
        objects
    }
}

/// The text of devices and ports, of which a file has no more than names.
pub(crate) const ATTACHED: &str = "attached";
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
