// SPDX-License-Identifier: GPL-2.0

//! Changes of a configuration, object by object.

use std::collections::BTreeMap;

use super::classes::{class, class_entry, flow, flow_entry};
use super::kernel::{hook, hook_number, kernel_route, kernel_route_entry};
use super::objects::{
    behaviour, behaviour_entry, chain, chain_entry, engine, engine_number, monitor, monitor_entry,
    path, path_entry, route, route_entry,
};
use super::{each, kind, rules, Result};
use crate::configuration::objects::Kind;
use crate::configuration::{Document, Problem};
use crate::v1;

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
                Kind::Hook => all.push(One::Hook(hook_number(self.hook))),
                Kind::Engine => all.push(One::Engine(engine_number(self.engine))),
                Kind::Device => all.extend(self.devices.iter().map(of).map(One::Device)),
                Kind::Port => all.extend(self.ports.iter().map(of).map(One::Port)),
                Kind::Rule => all.extend(self.numbered_rules().map(One::Rule)),
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
                Kind::Flow => all.extend(each(&self.flows, flow).into_iter().map(One::Flow)),
                Kind::Route => all.extend(each(&self.routes, route).into_iter().map(One::Route)),
                Kind::Monitor => {
                    all.extend(each(&self.monitors, monitor).into_iter().map(One::Monitor));
                }
                Kind::KernelRoute => {
                    let routes = each(&self.kernel_routes, kernel_route);
                    all.extend(routes.into_iter().map(One::KernelRoute));
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
            One::Hook(number) => {
                self.hook = hook(number)?;
                Ok(())
            }
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
            One::Rule(one) => self.put_rule(one, known),
            One::Flow(one) => put(&mut self.flows, Kind::Flow, flow_entry(one)?, known),
            One::Route(one) => put(&mut self.routes, Kind::Route, route_entry(one)?, known),
            One::Monitor(one) => put(
                &mut self.monitors,
                Kind::Monitor,
                monitor_entry(one)?,
                known,
            ),
            One::KernelRoute(one) => put(
                &mut self.kernel_routes,
                Kind::KernelRoute,
                kernel_route_entry(one)?,
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
            Some(Kind::Rule) => self.remove_rule(name),
            Some(Kind::Flow) => self.flows.remove(name).is_some(),
            Some(Kind::Route) => self.routes.remove(name).is_some(),
            Some(Kind::Monitor) => self.monitors.remove(name).is_some(),
            Some(Kind::KernelRoute) => self.kernel_routes.remove(name).is_some(),
            Some(Kind::Engine | Kind::Hook) | None => {
                return Err(Problem::new(
                    [],
                    "what is removed is of a kind, and neither engine nor hook",
                ));
            }
        };
        if had {
            return Ok(());
        }
        let section = kind.map_or("", Kind::section);
        Err(Problem::new([section, name], "there is none of this name"))
    }

    fn numbered_rules(&self) -> impl Iterator<Item = v1::NumberedRule> + '_ {
        let numbered = (1..).zip(&self.rules);
        numbered.map(|(number, rule)| v1::NumberedRule {
            number,
            rule: Some(rules::message(rule)),
        })
    }

    /// Puts a rule: instead of the one with its number, or in front of it, or at the end.
    fn put_rule(&mut self, rule: v1::NumberedRule, known: Option<bool>) -> Result<()> {
        // CAST: 32 bits.
        let number = rule.number as usize;
        let name = number.to_string();
        let problem = |text: String| Problem::new([Kind::Rule.section(), &name], text);
        let message = rule
            .rule
            .ok_or_else(|| problem("a rule has to be there".to_owned()))?;
        let entry = rules::entry(number, message)?;
        // The number behind the last one is that of a new rule.
        let most = self.rules.len() + usize::from(known != Some(true));
        if !(1..=most).contains(&number) {
            return Err(problem(format!(
                "there are {} rules; 1 to {most} are allowed here",
                self.rules.len()
            )));
        }
        if known == Some(false) || number > self.rules.len() {
            self.rules.insert(number - 1, entry);
        } else {
            self.rules[number - 1] = entry;
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

pub(super) fn put<E>(
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
