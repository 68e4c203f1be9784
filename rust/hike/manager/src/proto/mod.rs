// SPDX-License-Identifier: GPL-2.0

//! Configurations as messages, and back; nothing is checked here but what a message can have that a file cannot.
//!
//! Read in this order: this file (configurations), `objects`, `classes`, `rules` and `kernel` (their parts), `operations` (changes of them).

mod classes;
mod kernel;
mod objects;
mod operations;
mod rules;

use std::collections::BTreeMap;

use self::classes::{class, class_entry, flow, flow_entry};
use self::kernel::{hook, hook_number, kernel_route, kernel_route_entry};
use self::objects::{
    behaviour, behaviour_entry, chain, chain_entry, engine, engine_number, monitor, monitor_entry,
    path, path_entry, route, route_entry,
};
use self::operations::put;
use crate::configuration::objects::{Difference, Key, Kind};
use crate::configuration::{Document, Problem};
use crate::v1;

pub(crate) use self::rules::message as rule;

type Result<T> = std::result::Result<T, Problem>;

impl From<&Document> for v1::Configuration {
    fn from(document: &Document) -> Self {
        Self {
            hook: hook_number(document.hook),
            engine: engine_number(document.engine),
            devices: document.devices.clone(),
            ports: document.ports.clone(),
            rules: document.rules.iter().map(rules::message).collect(),
            chains: each(&document.chains, |name, programs| chain(name, programs)),
            paths: each(&document.paths, path),
            behaviours: each(&document.behaviours, behaviour),
            classes: each(&document.classes, class),
            flows: each(&document.flows, flow),
            routes: each(&document.routes, route),
            monitors: each(&document.monitors, monitor),
            kernel_routes: each(&document.kernel_routes, kernel_route),
        }
    }
}

impl TryFrom<v1::Configuration> for Document {
    type Error = Problem;

    fn try_from(message: v1::Configuration) -> Result<Self> {
        let mut document = Self {
            hook: hook(message.hook)?,
            engine: engine(message.engine)?,
            devices: message.devices,
            ports: message.ports,
            rules: rules::entries(message.rules)?,
            ..Self::default()
        };
        let new = Some(false);
        for one in message.chains {
            put(&mut document.chains, Kind::Chain, chain_entry(one)?, new)?;
        }
        for one in message.paths {
            put(&mut document.paths, Kind::Path, path_entry(one)?, new)?;
        }
        for one in message.behaviours {
            put(
                &mut document.behaviours,
                Kind::Behaviour,
                behaviour_entry(one)?,
                new,
            )?;
        }
        for one in message.classes {
            put(&mut document.classes, Kind::Class, class_entry(one)?, new)?;
        }
        for one in message.flows {
            put(&mut document.flows, Kind::Flow, flow_entry(one)?, new)?;
        }
        for one in message.routes {
            put(&mut document.routes, Kind::Route, route_entry(one)?, new)?;
        }
        for one in message.monitors {
            put(
                &mut document.monitors,
                Kind::Monitor,
                monitor_entry(one)?,
                new,
            )?;
        }
        for one in message.kernel_routes {
            put(
                &mut document.kernel_routes,
                Kind::KernelRoute,
                kernel_route_entry(one)?,
                new,
            )?;
        }
        Ok(document)
    }
}

fn each<E, M>(entries: &BTreeMap<String, E>, message: impl Fn(&str, &E) -> M) -> Vec<M> {
    let entries = entries.iter();
    entries.map(|(name, entry)| message(name, entry)).collect()
}

/// Returns the kind of a message; `None`: all.
pub(crate) fn kind(number: i32) -> Result<Option<Kind>> {
    Ok(Some(match v1::Kind::try_from(number) {
        Ok(v1::Kind::Unspecified) => return Ok(None),
        Ok(v1::Kind::Engine) => Kind::Engine,
        Ok(v1::Kind::Device) => Kind::Device,
        Ok(v1::Kind::Port) => Kind::Port,
        Ok(v1::Kind::Chain) => Kind::Chain,
        Ok(v1::Kind::Path) => Kind::Path,
        Ok(v1::Kind::Behaviour) => Kind::Behaviour,
        Ok(v1::Kind::Class) => Kind::Class,
        Ok(v1::Kind::Route) => Kind::Route,
        Ok(v1::Kind::Monitor) => Kind::Monitor,
        Ok(v1::Kind::Rule) => Kind::Rule,
        Ok(v1::Kind::Flow) => Kind::Flow,
        Ok(v1::Kind::Hook) => Kind::Hook,
        Ok(v1::Kind::KernelRoute) => Kind::KernelRoute,
        Err(_) => {
            return Err(Problem::new(
                [],
                format!("{number} is no kind: 0 to 13 are allowed"),
            ))
        }
    }))
}

impl From<Kind> for v1::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Engine => Self::Engine,
            Kind::Device => Self::Device,
            Kind::Port => Self::Port,
            Kind::Chain => Self::Chain,
            Kind::Path => Self::Path,
            Kind::Behaviour => Self::Behaviour,
            Kind::Class => Self::Class,
            Kind::Route => Self::Route,
            Kind::Monitor => Self::Monitor,
            Kind::Rule => Self::Rule,
            Kind::Flow => Self::Flow,
            Kind::Hook => Self::Hook,
            Kind::KernelRoute => Self::KernelRoute,
        }
    }
}

impl From<Difference> for v1::Difference {
    fn from(difference: Difference) -> Self {
        let Key { kind, name } = difference.key;
        Self {
            kind: v1::Kind::from(kind).into(),
            name,
            before: difference.before,
            after: difference.after,
        }
    }
}

/// Documents hold what a person may have written; what does not fit into a message is refused by the other side, too.
fn number(number: Option<i64>) -> Option<u32> {
    number.map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}
