// SPDX-License-Identifier: GPL-2.0

//! Changes of a configuration, object by object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;

use anyhow::Error;
use mflow_hike::{Cache, CacheEntries, Destination, Engine, Hook, Rule, XdpMode};

use super::Numbered as _;
use crate::configuration::objects::Kind;
use crate::configuration::{Configuration, Problem};
use crate::v1::{self, object::Object};

type Result<T> = std::result::Result<T, Problem>;

impl Configuration {
    /// Does one operation; the parts of what comes out need not fit together yet.
    pub fn change(&mut self, operation: v1::Operation) -> Result<()> {
        use v1::operation::Operation as What;
        let object = |one: v1::Object| {
            let missing = || Problem::of_none("an object is of one kind");
            one.object.ok_or_else(missing)
        };
        match operation.operation {
            Some(What::Set(one)) => self.put(object(one)?, None),
            Some(What::Add(one)) => self.put(object(one)?, Some(false)),
            Some(What::Replace(one)) => self.put(object(one)?, Some(true)),
            Some(What::Remove(key)) => self.remove(&key),
            None => Err(Problem::of_none("an operation says what is done")),
        }
    }

    /// Puts an object; `known`: whether there has to be one with its name already, or must not be.
    pub(super) fn put(&mut self, object: Object, known: Option<bool>) -> Result<()> {
        match object {
            Object::Hook(number) => {
                let hook = Hook::or_none(number).map_err(Problem::of_none)?;
                self.hook = hook.unwrap_or_default();
                Ok(())
            }
            Object::Engine(number) => {
                let engine = Engine::or_none(number).map_err(Problem::of_none)?;
                self.engine = engine.unwrap_or_default();
                Ok(())
            }
            Object::Mode(number) => {
                let mode = XdpMode::or_none(number).map_err(Problem::of_none)?;
                self.mode = mode.unwrap_or_default();
                Ok(())
            }
            Object::Cache(number) => {
                let cache = Cache::or_none(number).map_err(Problem::of_none)?;
                self.cache = cache.unwrap_or_default();
                Ok(())
            }
            Object::CacheEntries(number) => {
                self.cache_entries = match number {
                    0 => CacheEntries::default(),
                    _ => i64::from(number).try_into().map_err(Problem::of_none)?,
                };
                Ok(())
            }
            Object::Device(name) => put_name(&mut self.devices, Kind::Device, name, known),
            Object::Inside(name) => put_name(&mut self.inside, Kind::Inside, name, known),
            Object::Port(name) => put_name(&mut self.ports, Kind::Port, name, known),
            Object::Rule(one) => self.put_rule(one, known),
            Object::Chain(one) => put(&mut self.chains, one, known),
            Object::Path(one) => put(&mut self.paths, one, known),
            Object::Behaviour(one) => put(&mut self.behaviours, one, known),
            Object::Class(one) => put(&mut self.classes, one, known),
            Object::Flow(one) => put(&mut self.flows, one, known),
            Object::Route(one) => put(&mut self.routes, one, known),
            Object::Monitor(one) => put(&mut self.monitors, one, known),
            Object::Session(one) => put(&mut self.sessions, one, known),
            Object::KernelRoute(one) => put(&mut self.kernel_routes, one, known),
        }
    }

    fn remove(&mut self, key: &v1::ObjectKey) -> Result<()> {
        let kind = Kind::or_none(key.kind).map_err(Problem::of_none)?;
        let name = &key.name;
        let had = match kind {
            Some(Kind::Device) => self.devices.remove(name),
            Some(Kind::Inside) => self.inside.remove(name),
            Some(Kind::Port) => self.ports.remove(name),
            Some(Kind::Chain) => self.chains.remove(name).is_some(),
            Some(Kind::Path) => self.paths.remove(name).is_some(),
            Some(Kind::Behaviour) => self.behaviours.remove(name).is_some(),
            Some(Kind::Class) => remove(&mut self.classes, name),
            Some(Kind::Rule) => self.remove_rule(name),
            Some(Kind::Flow) => self.flows.remove(name).is_some(),
            Some(Kind::Route) => remove(&mut self.routes, name),
            Some(Kind::Monitor) => self.monitors.remove(name).is_some(),
            Some(Kind::Session) => self.sessions.remove(name).is_some(),
            Some(Kind::KernelRoute) => self.kernel_routes.remove(name).is_some(),
            Some(Kind::Engine | Kind::Hook | Kind::Mode | Kind::Cache | Kind::CacheEntries)
            | None => {
                return Err(Problem::of_none(
                    "what is removed is of a kind, and none of engine, hook, mode, cache and cache-entries",
                ));
            }
        };
        match (had, kind) {
            (false, Some(kind)) => Err(Problem::new(kind, name, "there is none of this name")),
            _ => Ok(()),
        }
    }

    /// Puts a rule: instead of the one with its number, or in front of it, or at the end.
    fn put_rule(&mut self, message: v1::NumberedRule, known: Option<bool>) -> Result<()> {
        // CAST: 32 bits.
        let number = message.number as usize;
        let name = number.to_string();
        let problem = |text: &dyn Display| Problem::new(Kind::Rule, &name, text);
        let rule = message.rule;
        let rule = rule.ok_or_else(|| problem(&"a rule has to be there"))?;
        let rule = Rule::try_from(rule).map_err(|error| problem(&error))?;
        // The number behind the last one is that of a new rule.
        let most = self.rules.len() + usize::from(known != Some(true));
        if !(1..=most).contains(&number) {
            return Err(problem(&format_args!(
                "there are {} rules; 1 to {most} are allowed here",
                self.rules.len()
            )));
        }
        if known == Some(false) || number > self.rules.len() {
            self.rules.insert(number - 1, rule);
        } else {
            self.rules[number - 1] = rule;
        }
        Ok(())
    }

    fn remove_rule(&mut self, name: &str) -> bool {
        let number = name.parse::<usize>().unwrap_or(0);
        let is_there = (1..=self.rules.len()).contains(&number);
        if is_there {
            self.rules.remove(number - 1);
        }
        is_there
    }
}

/// A message about one object.
trait Message {
    const KIND: Kind;

    /// Returns the object's name, or its destination.
    fn name(&self) -> String;
}

macro_rules! messages {
    ($($message:ident: $kind:ident, $name:ident;)+) => {$(
        impl Message for v1::$message {
            const KIND: Kind = Kind::$kind;

            fn name(&self) -> String {
                self.$name.clone()
            }
        }
    )+};
}

messages! {
    Chain: Chain, name;
    Path: Path, name;
    Behaviour: Behaviour, name;
    Class: Class, destination;
    FlowClass: Flow, name;
    Route: Route, destination;
    Monitor: Monitor, name;
    Session: Session, name;
    KernelRoute: KernelRoute, name;
}

fn put<K: FromStr<Err: Display> + Ord, T: TryFrom<M, Error = Error>, M: Message>(
    objects: &mut BTreeMap<K, T>,
    message: M,
    known: Option<bool>,
) -> Result<()> {
    let name = message.name();
    let problem = |error: &dyn Display| Problem::new(M::KIND, &name, error);
    let key: K = name.parse().map_err(|error| problem(&error))?;
    check_known(objects.contains_key(&key), M::KIND, &name, known)?;
    let object = T::try_from(message).map_err(|error| problem(&error))?;
    objects.insert(key, object);
    Ok(())
}

fn put_name(
    names: &mut BTreeSet<String>,
    kind: Kind,
    name: String,
    known: Option<bool>,
) -> Result<()> {
    check_known(names.contains(&name), kind, &name, known)?;
    names.insert(name);
    Ok(())
}

fn check_known(is_there: bool, kind: Kind, name: &str, wanted: Option<bool>) -> Result<()> {
    let text = match (is_there, wanted) {
        (true, Some(false)) => "there is one already; replace it, or take another name",
        (false, Some(true)) => "there is none of this name; add it",
        _ => return Ok(()),
    };
    Err(Problem::new(kind, name, text))
}

fn remove<T>(objects: &mut BTreeMap<Destination, T>, name: &str) -> bool {
    let destination = name.parse();
    destination.is_ok_and(|destination| objects.remove(&destination).is_some())
}
