// SPDX-License-Identifier: GPL-2.0

//! The state of the kernel, read back: the configuration that was applied last, and the changes that others have made since.

use std::collections::BTreeMap;

use anyhow::Result;
use mflow_hike::instance::links::programs_at_tcx;
use mflow_hike::{chain_programs, Destination, Direction, Flow, Generation, Hook, Monitor};

use crate::configuration::file::inline;
use crate::configuration::objects::{Key, Kind, Objects, ATTACHED, OPEN, TRUSTED};
use crate::configuration::{Classed, Configuration, Counted, KernelRoute, Way};
use crate::devices::{Device, Devices};
use crate::fill::{chain_names, local_sids, path_names, resolve, way, Names, KERNEL_PLACE};
use crate::kernel_routes;
use crate::note::Note;

/// Stands for what nobody but the kernel knows the text of.
const ALTERED: &str = "(altered in the kernel)";

/// Returns the objects of a generation as they are now.
pub(crate) fn objects(
    generation: &Generation,
    note: &Note,
    configuration: &Configuration,
    devices: &Devices,
) -> Result<Objects> {
    let mut actual = Actual::configured(generation, configuration, devices);
    actual.devices()?;
    actual.inside()?;
    actual.ports()?;
    actual.kernel_routes()?;
    let kernel_is_good = actual.chains(note)?;
    actual.paths()?;
    actual.behaviours()?;
    actual.rules()?;
    actual.classes(kernel_is_good)?;
    actual.flows(kernel_is_good)?;
    actual.routes()?;
    actual.monitors()?;
    Ok(actual.objects)
}

/// Returns the same, with nothing looked at but what goes and comes with devices.
pub(crate) fn of_devices(
    generation: &Generation,
    configuration: &Configuration,
    devices: &Devices,
) -> Result<Objects> {
    let mut actual = Actual::configured(generation, configuration, devices);
    actual.devices()?;
    actual.inside()?;
    actual.ports()?;
    actual.routes()?;
    actual.kernel_routes()?;
    Ok(actual.objects)
}

/// The program that devices of a generation have.
pub(crate) struct Entry {
    number: u32,
    hook: Hook,
}

impl Entry {
    pub(crate) fn of(generation: &Generation) -> Result<Self> {
        Ok(Self {
            number: generation.entry_id()?,
            hook: generation.hook(),
        })
    }

    /// Returns whether a device has it.
    pub(crate) fn is_at(&self, name: &str, device: &Device) -> bool {
        match self.hook {
            Hook::Xdp => device.program == Some(self.number),
            // One that has just gone has none.
            Hook::Tcx => {
                programs_at_tcx(name).is_ok_and(|programs| programs.contains(&self.number))
            }
        }
    }
}

struct Actual<'a> {
    objects: Objects,
    generation: &'a Generation,
    configuration: &'a Configuration,
    devices: &'a Devices,
}

impl<'a> Actual<'a> {
    /// Begins with all objects as they are configured.
    fn configured(
        generation: &'a Generation,
        configuration: &'a Configuration,
        devices: &'a Devices,
    ) -> Self {
        Self {
            objects: configuration.objects(),
            generation,
            configuration,
            devices,
        }
    }

    /// Says what an object is now; `None`: it is not there.
    fn set(&mut self, kind: Kind, name: &str, text: Option<String>) {
        let key = Key::new(kind, name);
        match text {
            Some(text) => self.objects.insert(key, text),
            None => self.objects.remove(&key),
        };
    }

    fn devices(&mut self) -> Result<()> {
        let entry = Entry::of(self.generation)?;
        for name in &self.configuration.devices {
            self.set(Kind::Device, name, None);
        }
        for (name, device) in self.devices.iter() {
            if entry.is_at(name, device) {
                self.set(Kind::Device, name, Some(ATTACHED.to_owned()));
            }
        }
        Ok(())
    }

    fn inside(&mut self) -> Result<()> {
        for name in &self.configuration.inside {
            self.set(Kind::Inside, name, None);
        }
        for index in self.generation.inside()? {
            let name = self.name_of(index);
            if self.configuration.inside.contains(&name) || !self.is_inside_with_bond(&name) {
                self.set(Kind::Inside, &name, Some(TRUSTED.to_owned()));
            }
        }
        Ok(())
    }

    /// Returns whether a device is one of a bond that is inside.
    fn is_inside_with_bond(&self, name: &str) -> bool {
        let device = self.devices.get(name).ok();
        let bond = device.and_then(|device| self.devices.name(device.part_of?));
        bond.is_some_and(|bond| self.configuration.inside.contains(bond))
    }

    fn ports(&mut self) -> Result<()> {
        for name in &self.configuration.ports {
            self.set(Kind::Port, name, None);
        }
        for index in self.generation.ports()? {
            self.set(Kind::Port, &self.name_of(index), Some(OPEN.to_owned()));
        }
        Ok(())
    }

    fn name_of(&self, index: u32) -> String {
        let name = self.devices.name(index).map(str::to_owned);
        name.unwrap_or_else(|| format!("(index {index})"))
    }

    /// Returns whether the chain that hands over to the kernel is there.
    fn chains(&mut self, note: &Note) -> Result<bool> {
        let programs = chain_programs(self.generation.folder())?;
        for (place, name) in chain_names(self.configuration) {
            match programs.get(&place) {
                program if program == note.chain_programs.get(&place) => {}
                Some(_) => self.set(Kind::Chain, name, Some(ALTERED.to_owned())),
                None => self.set(Kind::Chain, name, None),
            }
        }
        Ok(programs.get(&KERNEL_PLACE) == note.chain_programs.get(&KERNEL_PLACE))
    }

    fn paths(&mut self) -> Result<()> {
        let paths = self.configuration.paths.values();
        let others = self.generation.other_paths((0..).zip(paths))?;
        for (place, name) in path_names(self.configuration) {
            if others.contains(&place) {
                self.set(Kind::Path, name, Some(ALTERED.to_owned()));
            }
        }
        Ok(())
    }

    fn behaviours(&mut self) -> Result<()> {
        let sids = local_sids(self.configuration);
        let known = &self.configuration.behaviours;
        let behaviours = sids
            .iter()
            .map(|(place, (_, name))| (*place, &known[*name]));
        let others = self.generation.other_behaviours(behaviours)?;
        for (place, (_, name)) in sids {
            if others.contains(&place) {
                self.set(Kind::Behaviour, name, Some(ALTERED.to_owned()));
            }
        }
        Ok(())
    }

    /// Compares the rules. They are in sets of all of them: which one has been altered nobody can tell.
    fn rules(&mut self) -> Result<()> {
        if self.generation.has_rules(&self.configuration.rules)? {
            return Ok(());
        }
        for number in 1..=self.configuration.rules.len() {
            self.set(Kind::Rule, &number.to_string(), Some(ALTERED.to_owned()));
        }
        if self.configuration.rules.is_empty() {
            self.set(Kind::Rule, "1", Some(ALTERED.to_owned()));
        }
        Ok(())
    }

    fn classes(&mut self, kernel_is_good: bool) -> Result<()> {
        let names = names(self.configuration);
        let classes = self.generation.classes()?;
        let others = |destination: &&Destination| !classes.contains_key(destination);
        for destination in self.configuration.classes.keys().filter(others) {
            self.set(Kind::Class, &destination.to_string(), None);
        }
        for (destination, places) in &classes {
            let way = way(*places, &names);
            let configured = self.configuration.classes.get(destination);
            if way == configured.map(|one| self.configuration.resolved(one))
                && (way != Some(Way::Kernel) || kernel_is_good)
            {
                continue;
            }
            let way = way.filter(|way| *way != Way::Kernel || kernel_is_good);
            let text = way.map_or(ALTERED.to_owned(), |way| inline(&way));
            self.set(Kind::Class, &destination.to_string(), Some(text));
        }
        Ok(())
    }

    fn flows(&mut self, kernel_is_good: bool) -> Result<()> {
        let names = names(self.configuration);
        let mut there = self.generation.flow_classes()?;
        for (name, classed) in &self.configuration.flows {
            let Some(places) = there.remove(&classed.flow()?) else {
                self.set(Kind::Flow, name, None);
                continue;
            };
            let way = way(places, &names).filter(|way| *way != Way::Kernel || kernel_is_good);
            if way.as_ref() == Some(&self.configuration.resolved(&classed.class)) {
                continue;
            }
            let text = way.map_or(ALTERED.to_owned(), |class| {
                let classed = classed.clone();
                inline(&Classed { class, ..classed })
            });
            self.set(Kind::Flow, name, Some(text));
        }
        for (number, flow) in there.into_keys().enumerate() {
            let name = format!("(nameless {})", number + 1);
            self.set(Kind::Flow, &name, Some(format!("{flow}: {ALTERED}")));
        }
        Ok(())
    }

    fn routes(&mut self) -> Result<()> {
        let routes = self.generation.routes()?;
        for (destination, route) in &self.configuration.routes {
            let name = destination.to_string();
            match routes.get(destination) {
                None => self.set(Kind::Route, &name, None),
                // A port that has got another address or MTU makes another route of it, too.
                Some(there) if resolve(route, self.devices).ok().as_ref() != Some(there) => {
                    self.set(Kind::Route, &name, Some(ALTERED.to_owned()));
                }
                Some(_) => {}
            }
        }
        let known =
            |destination: &&Destination| !self.configuration.routes.contains_key(destination);
        let others: Vec<String> = routes
            .keys()
            .filter(known)
            .map(ToString::to_string)
            .collect();
        for name in others {
            self.set(Kind::Route, &name, Some(ALTERED.to_owned()));
        }
        Ok(())
    }

    fn kernel_routes(&mut self) -> Result<()> {
        let mut there = kernel_routes::there(self.configuration.hook, self.devices)?;
        let behaviours = self.configuration.behaviours.iter();
        let hops = behaviours.filter_map(|(name, one)| Some((name, KernelRoute::to_hop(one)?)));
        let hops: Vec<_> = hops.collect();
        for (name, route) in &hops {
            if there.get(&route.key()) != Some(&Some(route.clone())) {
                self.set(Kind::Behaviour, name, Some(ALTERED.to_owned()));
            }
        }
        for (_, route) in &hops {
            there.remove(&route.key());
        }
        let text = |route: Option<KernelRoute>| match route {
            Some(route) => inline(&route),
            None => ALTERED.to_owned(),
        };
        for (name, route) in &self.configuration.kernel_routes {
            match there.remove(&route.key()) {
                Some(is) if is.as_ref() == Some(route) => {}
                is => self.set(Kind::KernelRoute, name, is.map(text)),
            }
        }
        for (number, (key, route)) in there.into_iter().enumerate() {
            let text = match route {
                Some(route) => text(Some(route)),
                None => format!("{} in table {}: {ALTERED}", key.destination, key.table),
            };
            let name = format!("(nameless {})", number + 1);
            self.set(Kind::KernelRoute, &name, Some(text));
        }
        Ok(())
    }

    fn monitors(&mut self) -> Result<()> {
        let wanted = monitors(self.configuration)?;
        let mut there = Monitors::new();
        for (flow, direction, monitor) in self.generation.monitors()? {
            there.insert((flow, direction), ("", monitor));
        }
        for (key, (name, monitor)) in &wanted {
            match there.remove(key) {
                Some((_, is)) if is == *monitor => {}
                Some((_, is)) => {
                    let counted = self.configuration.monitors[*name].clone().with(is);
                    self.set(Kind::Monitor, name, Some(inline(&counted)));
                }
                None => self.set(Kind::Monitor, name, None),
            }
        }
        for (number, ((flow, direction), (_, monitor))) in there.into_iter().enumerate() {
            let counted = Counted {
                direction,
                path: None,
                source: Some(flow.source()),
                sids: Some(flow.sids().to_vec()),
                flow_id: flow.id(),
                period_ms: 0,
                dscp_bit: None,
            };
            let text = inline(&counted.with(monitor));
            let name = format!("(nameless {})", number + 1);
            self.set(Kind::Monitor, &name, Some(text));
        }
        Ok(())
    }
}

fn names(configuration: &Configuration) -> Names<'_> {
    Names {
        chains: chain_names(configuration),
        paths: path_names(configuration),
        behaviours: local_sids(configuration)
            .into_iter()
            .map(|(place, (_, name))| (place, name))
            .collect(),
    }
}

/// Monitors by what they count, with their names.
pub(crate) type Monitors<'a> = BTreeMap<(Flow, Direction), (&'a str, Monitor)>;

/// Returns the monitors of a configuration.
pub(crate) fn monitors(configuration: &Configuration) -> Result<Monitors<'_>> {
    let mut monitors = Monitors::new();
    for (name, counted) in &configuration.monitors {
        let flow = configuration.flow(counted)?;
        monitors.insert((flow, counted.direction), (name, counted.monitor()));
    }
    Ok(monitors)
}
