// SPDX-License-Identifier: GPL-2.0

//! Configurations as messages, and back; nothing is checked here but what a message can have that a file cannot.

use std::collections::BTreeMap;

use crate::configuration::document::{
    ActionWord, BehaviourEntry, ClassEntry, DirectionWord, EngineWord, ExceptionsWord, FastEntry,
    FlavourWord, ModeWord, MonitorEntry, PathEntry, RouteEntry,
};
use crate::configuration::objects::{Difference, Key, Kind};
use crate::configuration::{Document, Problem};
use crate::v1;

type Result<T> = std::result::Result<T, Problem>;

impl From<&Document> for v1::Configuration {
    fn from(document: &Document) -> Self {
        Self {
            engine: engine_number(document.engine),
            devices: document.devices.clone(),
            ports: document.ports.clone(),
            chains: each(&document.chains, |name, programs| chain(name, programs)),
            paths: each(&document.paths, path),
            behaviours: each(&document.behaviours, behaviour),
            classes: each(&document.classes, class),
            routes: each(&document.routes, route),
            monitors: each(&document.monitors, monitor),
        }
    }
}

impl Document {
    /// Returns all of its objects, or those of a kind, by the order of a file.
    pub fn messages(&self, kind: Option<Kind>) -> Vec<v1::Object> {
        use v1::object::Object as One;
        let of = |name: &String| name.clone();
        let mut all = Vec::new();
        for one in Kind::ALL
            .into_iter()
            .filter(|one| kind.is_none_or(|kind| kind == *one))
        {
            match one {
                Kind::Engine => all.push(One::Engine(engine_number(self.engine))),
                Kind::Device => all.extend(self.devices.iter().map(of).map(One::Device)),
                Kind::Port => all.extend(self.ports.iter().map(of).map(One::Port)),
                Kind::Chain => all.extend(
                    each(&self.chains, |name, programs| chain(name, programs))
                        .into_iter()
                        .map(One::Chain),
                ),
                Kind::Path => all.extend(each(&self.paths, path).into_iter().map(One::Path)),
                Kind::Behaviour => {
                    all.extend(
                        each(&self.behaviours, behaviour)
                            .into_iter()
                            .map(One::Behaviour),
                    );
                }
                Kind::Class => all.extend(each(&self.classes, class).into_iter().map(One::Class)),
                Kind::Route => all.extend(each(&self.routes, route).into_iter().map(One::Route)),
                Kind::Monitor => {
                    all.extend(each(&self.monitors, monitor).into_iter().map(One::Monitor));
                }
            }
        }
        let all = all.into_iter().map(Some);
        all.map(|object| v1::Object { object }).collect()
    }

    /// Does one operation.
    pub fn change(&mut self, operation: v1::Operation) -> Result<()> {
        use v1::operation::Operation as What;
        match operation.operation {
            Some(What::Set(object)) => self.put(object, None),
            Some(What::Add(object)) => self.put(object, Some(false)),
            Some(What::Replace(object)) => self.put(object, Some(true)),
            Some(What::Remove(key)) => self.remove(&key),
            None => Err(Problem::new([], "an operation says what is done")),
        }
    }

    /// Puts an object; `known`: whether there has to be one with its name already, or must not be.
    fn put(&mut self, object: v1::Object, known: Option<bool>) -> Result<()> {
        use v1::object::Object as One;
        let Some(object) = object.object else {
            return Err(Problem::new([], "an object is of one kind"));
        };
        match object {
            One::Engine(number) => {
                self.engine = engine(number)?;
                Ok(())
            }
            One::Device(name) => put_name(&mut self.devices, Kind::Device, name, known),
            One::Port(name) => put_name(&mut self.ports, Kind::Port, name, known),
            One::Chain(one) => put(&mut self.chains, Kind::Chain, chain_entry(one)?, known),
            One::Path(one) => put(&mut self.paths, Kind::Path, path_entry(one)?, known),
            One::Behaviour(one) => put(
                &mut self.behaviours,
                Kind::Behaviour,
                behaviour_entry(one)?,
                known,
            ),
            One::Class(one) => put(&mut self.classes, Kind::Class, class_entry(one)?, known),
            One::Route(one) => put(&mut self.routes, Kind::Route, route_entry(one)?, known),
            One::Monitor(one) => put(
                &mut self.monitors,
                Kind::Monitor,
                monitor_entry(one)?,
                known,
            ),
        }
    }

    fn remove(&mut self, key: &v1::ObjectKey) -> Result<()> {
        let kind = kind(key.kind)?;
        let name = &key.name;
        let had = match kind {
            Some(Kind::Device) => remove_name(&mut self.devices, name),
            Some(Kind::Port) => remove_name(&mut self.ports, name),
            Some(Kind::Chain) => self.chains.remove(name).is_some(),
            Some(Kind::Path) => self.paths.remove(name).is_some(),
            Some(Kind::Behaviour) => self.behaviours.remove(name).is_some(),
            Some(Kind::Class) => self.classes.remove(name).is_some(),
            Some(Kind::Route) => self.routes.remove(name).is_some(),
            Some(Kind::Monitor) => self.monitors.remove(name).is_some(),
            Some(Kind::Engine) | None => {
                return Err(Problem::new(
                    [],
                    "what is removed is of a kind, and no engine",
                ));
            }
        };
        if had {
            return Ok(());
        }
        let section = kind.map_or("", Kind::section);
        Err(Problem::new([section, name], "there is none of this name"))
    }
}

impl TryFrom<v1::Configuration> for Document {
    type Error = Problem;

    fn try_from(message: v1::Configuration) -> Result<Self> {
        let mut document = Self {
            engine: engine(message.engine)?,
            devices: message.devices,
            ports: message.ports,
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
        Ok(document)
    }
}

fn each<E, M>(entries: &BTreeMap<String, E>, message: impl Fn(&str, &E) -> M) -> Vec<M> {
    let entries = entries.iter();
    entries.map(|(name, entry)| message(name, entry)).collect()
}

fn put<E>(
    entries: &mut BTreeMap<String, E>,
    kind: Kind,
    (name, entry): (String, E),
    known: Option<bool>,
) -> Result<()> {
    check_known(entries.contains_key(&name), kind, &name, known)?;
    entries.insert(name, entry);
    Ok(())
}

fn put_name(names: &mut Vec<String>, kind: Kind, name: String, known: Option<bool>) -> Result<()> {
    let is_there = names.contains(&name);
    check_known(is_there, kind, &name, known)?;
    if !is_there {
        names.push(name);
    }
    Ok(())
}

fn check_known(is_there: bool, kind: Kind, name: &str, wanted: Option<bool>) -> Result<()> {
    let text = match (is_there, wanted) {
        (true, Some(false)) => "there is one already; replace it, or take another name",
        (false, Some(true)) => "there is none of this name; add it",
        _ => return Ok(()),
    };
    Err(Problem::new([kind.section(), name], text))
}

fn remove_name(names: &mut Vec<String>, name: &str) -> bool {
    let before = names.len();
    names.retain(|one| one != name);
    names.len() < before
}

fn engine_number(engine: EngineWord) -> i32 {
    let number = match engine {
        EngineWord::Compiled => v1::Engine::Compiled,
        EngineWord::TailCalls => v1::Engine::TailCalls,
    };
    number.into()
}

fn engine(number: i32) -> Result<EngineWord> {
    match v1::Engine::try_from(number) {
        Ok(v1::Engine::Unspecified | v1::Engine::Compiled) => Ok(EngineWord::Compiled),
        Ok(v1::Engine::TailCalls) => Ok(EngineWord::TailCalls),
        Err(_) => Err(Problem::new(
            [],
            format!("{number} is no engine: 0 to 2 are allowed"),
        )),
    }
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
        Err(_) => {
            return Err(Problem::new(
                [],
                format!("{number} is no kind: 0 to 9 are allowed"),
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

fn chain(name: &str, programs: &str) -> v1::Chain {
    v1::Chain {
        name: name.to_owned(),
        programs: programs
            .split(',')
            .map(|one| one.trim().to_owned())
            .collect(),
    }
}

fn chain_entry(chain: v1::Chain) -> Result<(String, String)> {
    Ok((chain.name, chain.programs.join(",")))
}

fn path(name: &str, path: &PathEntry) -> v1::Path {
    let mode = match path.mode {
        ModeWord::Encaps => v1::PathMode::Encaps,
        ModeWord::Reduced => v1::PathMode::Reduced,
    };
    let exceptions = match path.exceptions {
        ExceptionsWord::Dropped => v1::PathExceptions::Dropped,
        ExceptionsWord::Left => v1::PathExceptions::Left,
    };
    v1::Path {
        name: name.to_owned(),
        source: path.source.clone(),
        sids: path.sids.clone(),
        mode: mode.into(),
        hop_limit: number(path.hop_limit),
        dscp: number(path.dscp),
        flow_label: number(path.flow_label),
        mtu: number(path.mtu),
        exceptions: exceptions.into(),
        flow_id: number(path.flow_id),
    }
}

fn path_entry(path: v1::Path) -> Result<(String, PathEntry)> {
    let unknown = |what: &str, number: i32| {
        let text = format!("{number} is no {what}: 0 to 2 are allowed");
        Problem::new([Kind::Path.section(), &path.name], text)
    };
    let entry = PathEntry {
        source: path.source,
        sids: path.sids,
        mode: match v1::PathMode::try_from(path.mode) {
            Ok(v1::PathMode::Unspecified | v1::PathMode::Encaps) => ModeWord::Encaps,
            Ok(v1::PathMode::Reduced) => ModeWord::Reduced,
            Err(_) => return Err(unknown("mode", path.mode)),
        },
        hop_limit: path.hop_limit.map(i64::from),
        dscp: path.dscp.map(i64::from),
        flow_label: path.flow_label.map(i64::from),
        mtu: path.mtu.map(i64::from),
        exceptions: match v1::PathExceptions::try_from(path.exceptions) {
            Ok(v1::PathExceptions::Unspecified | v1::PathExceptions::Dropped) => {
                ExceptionsWord::Dropped
            }
            Ok(v1::PathExceptions::Left) => ExceptionsWord::Left,
            Err(_) => return Err(unknown("way with exceptions", path.exceptions)),
        },
        flow_id: path.flow_id.map(i64::from),
    };
    Ok((path.name, entry))
}

fn behaviour(name: &str, behaviour: &BehaviourEntry) -> v1::Behaviour {
    let action = match behaviour.action {
        ActionWord::End => v1::Action::End,
        ActionWord::EndX => v1::Action::EndX,
        ActionWord::Dt4 => v1::Action::EndDt4,
        ActionWord::Dt6 => v1::Action::EndDt6,
        ActionWord::Dt46 => v1::Action::EndDt46,
    };
    let flavour = |word: &FlavourWord| match word {
        FlavourWord::Psp => v1::Flavour::Psp.into(),
        FlavourWord::Usp => v1::Flavour::Usp.into(),
        FlavourWord::Usd => v1::Flavour::Usd.into(),
    };
    v1::Behaviour {
        name: name.to_owned(),
        action: action.into(),
        next_hop: behaviour.next_hop.clone(),
        table: number(behaviour.table),
        flavours: behaviour.flavours.iter().map(flavour).collect(),
    }
}

fn behaviour_entry(behaviour: v1::Behaviour) -> Result<(String, BehaviourEntry)> {
    let unknown = |text: String| Problem::new([Kind::Behaviour.section(), &behaviour.name], text);
    let action = match v1::Action::try_from(behaviour.action) {
        Ok(v1::Action::End) => ActionWord::End,
        Ok(v1::Action::EndX) => ActionWord::EndX,
        Ok(v1::Action::EndDt4) => ActionWord::Dt4,
        Ok(v1::Action::EndDt6) => ActionWord::Dt6,
        Ok(v1::Action::EndDt46) => ActionWord::Dt46,
        Ok(v1::Action::Unspecified) | Err(_) => {
            return Err(unknown("its action is a number from 1 to 5".to_owned()));
        }
    };
    let flavour = |number: &i32| match v1::Flavour::try_from(*number) {
        Ok(v1::Flavour::Psp) => Ok(FlavourWord::Psp),
        Ok(v1::Flavour::Usp) => Ok(FlavourWord::Usp),
        Ok(v1::Flavour::Usd) => Ok(FlavourWord::Usd),
        Ok(v1::Flavour::Unspecified) | Err(_) => Err(unknown(format!(
            "{number} is no flavour: 1 to 3 are allowed"
        ))),
    };
    let flavours = behaviour.flavours.iter().map(flavour);
    let entry = BehaviourEntry {
        action,
        flavours: flavours.collect::<Result<_>>()?,
        next_hop: behaviour.next_hop,
        table: behaviour.table.map(i64::from),
    };
    Ok((behaviour.name, entry))
}

fn class(destination: &str, entry: &ClassEntry) -> v1::Class {
    let way = match entry {
        ClassEntry::Kernel => v1::class::Way::Kernel(v1::KernelPath {}),
        ClassEntry::Fast(fast) => v1::class::Way::Fast(v1::FastPath {
            chain: fast.chain.clone(),
            path: fast.path.clone(),
            behaviour: fast.behaviour.clone(),
        }),
    };
    v1::Class {
        destination: destination.to_owned(),
        way: Some(way),
    }
}

fn class_entry(class: v1::Class) -> Result<(String, ClassEntry)> {
    let entry = match class.way {
        Some(v1::class::Way::Kernel(_)) => ClassEntry::Kernel,
        Some(v1::class::Way::Fast(v1::FastPath {
            chain,
            path,
            behaviour,
        })) => ClassEntry::Fast(FastEntry {
            chain,
            path,
            behaviour,
        }),
        None => {
            let at = [Kind::Class.section(), &class.destination];
            return Err(Problem::new(at, "a class is kernel or fast"));
        }
    };
    Ok((class.destination, entry))
}

fn route(destination: &str, route: &RouteEntry) -> v1::Route {
    v1::Route {
        destination: destination.to_owned(),
        port: route.port.clone(),
        next_hop: route.next_hop.clone(),
        source: route.source.clone(),
        mtu: number(route.mtu),
    }
}

fn route_entry(route: v1::Route) -> Result<(String, RouteEntry)> {
    let entry = RouteEntry {
        port: route.port,
        next_hop: route.next_hop,
        source: route.source,
        mtu: route.mtu.map(i64::from),
    };
    Ok((route.destination, entry))
}

fn monitor(name: &str, monitor: &MonitorEntry) -> v1::Monitor {
    let direction = match monitor.direction {
        DirectionWord::In => v1::Direction::In,
        DirectionWord::Out => v1::Direction::Out,
    };
    let flow = match &monitor.path {
        Some(path) => v1::monitor::Flow::Path(path.clone()),
        None => v1::monitor::Flow::Sids(v1::Flow {
            source: monitor.source.clone().unwrap_or_default(),
            sids: monitor.sids.clone().unwrap_or_default(),
        }),
    };
    v1::Monitor {
        name: name.to_owned(),
        direction: direction.into(),
        flow: Some(flow),
        period_ms: number(monitor.period_ms),
        dscp_bit: number(monitor.dscp_bit),
    }
}

fn monitor_entry(monitor: v1::Monitor) -> Result<(String, MonitorEntry)> {
    let direction = match v1::Direction::try_from(monitor.direction) {
        Ok(v1::Direction::In) => DirectionWord::In,
        Ok(v1::Direction::Out) => DirectionWord::Out,
        Ok(v1::Direction::Unspecified) | Err(_) => {
            let at = [Kind::Monitor.section(), &monitor.name];
            return Err(Problem::new(at, "its direction is 1 (in) or 2 (out)"));
        }
    };
    let (path, flow) = match monitor.flow {
        Some(v1::monitor::Flow::Path(path)) => (Some(path), None),
        Some(v1::monitor::Flow::Sids(flow)) => (None, Some(flow)),
        None => (None, None),
    };
    let (source, sids) = flow.map(|flow| (flow.source, flow.sids)).unzip();
    let entry = MonitorEntry {
        direction,
        path,
        source,
        sids,
        period_ms: monitor.period_ms.map(i64::from),
        dscp_bit: monitor.dscp_bit.map(i64::from),
    };
    Ok((monitor.name, entry))
}

/// Documents hold what a person may have written; what does not fit into a message is refused by the other side, too.
fn number(number: Option<i64>) -> Option<u32> {
    number.map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}
