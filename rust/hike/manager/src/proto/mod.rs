// SPDX-License-Identifier: GPL-2.0

//! Configurations as messages, and back.
//!
//! Read in this order: this file (configurations, and readers of fields), `enums` (numbers), `objects`, `classes` and `kernel` (their
//! parts), `operations` (changes of them).

mod classes;
mod enums;
mod kernel;
mod objects;
mod operations;

use std::collections::BTreeMap;

use serde::de::value::Error;
use serde::de::IntoDeserializer;

pub(crate) use self::enums::write_word;
pub use self::enums::{word_of, Numbered};
use crate::configuration::objects::{Difference, Kind};
use crate::configuration::{Configuration, Problem};
use crate::v1::{self, object::Object};

impl From<&Configuration> for v1::Configuration {
    fn from(configuration: &Configuration) -> Self {
        Self {
            hook: v1::Hook::from(configuration.hook).into(),
            engine: v1::Engine::from(configuration.engine).into(),
            mode: v1::XdpMode::from(configuration.mode).into(),
            cache: v1::Cache::from(configuration.cache).into(),
            cache_entries: configuration.cache_entries.get(),
            devices: configuration.devices.iter().cloned().collect(),
            inside: configuration.inside.iter().cloned().collect(),
            ports: configuration.ports.iter().cloned().collect(),
            rules: configuration.rules.iter().map(v1::Rule::from).collect(),
            chains: each(&configuration.chains, objects::chain),
            paths: each(&configuration.paths, objects::path),
            behaviours: each(&configuration.behaviours, objects::behaviour),
            classes: each(&configuration.classes, classes::class),
            flows: each(&configuration.flows, classes::flow),
            routes: each(&configuration.routes, objects::route),
            monitors: each(&configuration.monitors, objects::monitor),
            sessions: each(&configuration.sessions, objects::session),
            kernel_routes: each(&configuration.kernel_routes, kernel::kernel_route),
        }
    }
}

/// Returns a message for each object, by the order of their names.
fn each<K: ToString, T, M>(objects: &BTreeMap<K, T>, message: impl Fn(String, &T) -> M) -> Vec<M> {
    let name = |(key, object): (&K, _)| (key.to_string(), object);
    let named: BTreeMap<_, _> = objects.iter().map(name).collect();
    let named = named.into_iter();
    named.map(|(name, object)| message(name, object)).collect()
}

impl TryFrom<v1::Configuration> for Configuration {
    type Error = Problem;

    fn try_from(message: v1::Configuration) -> Result<Self, Problem> {
        let mut configuration = Self::default();
        for (_, object) in objects_of(message) {
            configuration.put(object, Some(false))?;
        }
        // What was applied by an earlier version can be shown, too.
        configuration.checked_as_applied()
    }
}

impl Configuration {
    /// Returns all of its objects, or those of a kind, by the order of a file.
    pub fn messages(&self, kind: Option<Kind>) -> Vec<v1::Object> {
        let objects = objects_of(self.into()).into_iter();
        let objects = objects.filter(|one| kind.is_none_or(|kind| kind == one.0));
        let objects = objects.map(|(_, object)| v1::Object {
            object: Some(object),
        });
        objects.collect()
    }
}

/// Returns the objects of a configuration by the order of a file.
fn objects_of(message: v1::Configuration) -> Vec<(Kind, Object)> {
    let mut all = Vec::new();
    macro_rules! add {
        ($($kind:ident: $objects:expr;)+) => {$(
            let objects = $objects.into_iter();
            all.extend(objects.map(|object| (Kind::$kind, Object::$kind(object))));
        )+};
    }
    let rules = (1..).zip(message.rules.into_iter().map(Some));
    add! {
        Hook: [message.hook];
        Engine: [message.engine];
        Mode: [message.mode];
        Cache: [message.cache];
        CacheEntries: [message.cache_entries];
        Device: message.devices;
        Inside: message.inside;
        Port: message.ports;
        Rule: rules.map(|(number, rule)| v1::NumberedRule { number, rule });
        Chain: message.chains;
        Path: message.paths;
        Behaviour: message.behaviours;
        Class: message.classes;
        Flow: message.flows;
        Route: message.routes;
        Monitor: message.monitors;
        Session: message.sessions;
        KernelRoute: message.kernel_routes;
    }
    all
}

impl From<Difference> for v1::Difference {
    fn from(difference: Difference) -> Self {
        Self {
            kind: v1::Kind::from(difference.key.kind).into(),
            name: difference.key.name,
            before: difference.before,
            after: difference.after,
        }
    }
}

/// Reads a field of a message as that of a file is read.
fn read<V: IntoDeserializer<'static, Error>, T>(
    value: V,
    reader: impl FnOnce(V::Deserializer) -> Result<T, Error>,
) -> anyhow::Result<T> {
    Ok(reader(value.into_deserializer())?)
}

/// Reads a field that may be absent.
fn given<V: IntoDeserializer<'static, Error>, T>(
    value: Option<V>,
    reader: impl FnOnce(V::Deserializer) -> Result<T, Error>,
    absent: T,
) -> anyhow::Result<T> {
    value.map_or(Ok(absent), |value| read(value, reader))
}

fn texts<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_as_it_is_in_a_file() {
        let path = || v1::Path {
            name: "p".to_owned(),
            source: "fd00::1".to_owned(),
            ..v1::Path::default()
        };
        let rule = |message| v1::NumberedRule {
            number: 1,
            rule: Some(message),
        };
        let objects = [
            Object::Hook(3),
            Object::CacheEntries(5_000),
            Object::Path(v1::Path {
                source: "10.0.0.1".to_owned(),
                ..path()
            }),
            Object::Path(v1::Path {
                flow_id: Some(1 << 20),
                ..path()
            }),
            Object::Path(v1::Path { mode: -1, ..path() }),
            Object::Class(v1::Class {
                destination: "10.0.0.0/8".to_owned(),
                way: None,
            }),
            Object::Monitor(v1::Monitor::default()),
            Object::Behaviour(v1::Behaviour {
                name: "b".to_owned(),
                action: v1::Action::End.into(),
                table: Some(7),
                ..v1::Behaviour::default()
            }),
            Object::Rule(rule(v1::Rule {
                action: v1::RuleAction::Deny.into(),
                source_ports: Some(v1::Ports {
                    first: 1,
                    last: 70_000,
                }),
                ..v1::Rule::default()
            })),
        ];
        let said = objects.map(|object| {
            let put = Configuration::default().put(object, None);
            put.expect_err("refused").to_string()
        });
        assert_eq!(
            said,
            [
                "3 is no hook: 0 to 2 are allowed",
                "cache-entries is 5000: powers of two from 1024 to 131072 are allowed",
                "path p: source is `10.0.0.1`: an IPv6 address is allowed, such as 2001:db8::1",
                "path p: flow-id is 1048576: 0 to 1048575 are allowed",
                "path p: -1 is no mode: 0 to 2 are allowed",
                "class 10.0.0.0/8: a class is kernel or fast",
                "0 is no direction: 1 to 2 are allowed",
                "behaviour b: End has flavours, End.X a next-hop, flavours and perhaps a device, End.DT4, DT6 and DT46 a table, and none has more",
                "rule 1: source-ports is 70000: 0 to 65535 are allowed",
            ]
        );
    }
}
