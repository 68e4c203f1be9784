// SPDX-License-Identifier: GPL-2.0

//! Transactions: all of a configuration or nothing, whatever happens in between.
//!
//! | step | if it fails | if the process is killed after it |
//! |---|---|---|
//! | a new generation is made and filled; no packet comes to it | it goes | the same, at the next start |
//! | flows are monitored that were not | they are not, as before | the same |
//! | the kernel's routes that are new or other are put | they are as before | the same |
//! | devices go over to it, one after the other | they go back | the same |
//! | it is the one that counts: a rename | they go back | the rest is done at the next start |
//! | flows, SIDs' counts, devices and routes that are no more are left alone | it is said; tried again with the next transaction | the same |
//! | the old generation goes, when no packet is in it | the same | the same |
//!
//! To undo a transaction and to end one is the same work: [`Manager::settle`] makes devices, monitors, counts and the kernel's routes
//! those of the generation that counts, and removes all others. It asks the kernel for its state, so it need not know how far a
//! transaction has come.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};
use mflow_hike::instance::generation::{remove_all, Before};
use mflow_hike::instance::links::{linked, release, Linked};
use mflow_hike::{possible_cpus, Caching, Facts, Generation, Hook, Host, Notice, Watch, XdpMode};

use crate::actual::Entry;
use crate::configuration::file::parse;
use crate::configuration::objects::{differences, Difference, Key, Kind, Objects};
use crate::configuration::Configuration;
use crate::devices::{Device, Devices};
use crate::fill::fill;
use crate::note::Note;
use crate::store::Store;
use crate::{actual, kernel_routes};

/// The configuration of this host, and the transactions that change it.
#[derive(Debug)]
pub struct Manager {
    store: Store,
    current: Option<Current>,
    /// The host's routing, as far as it is known.
    facts: Facts,
    /// The last generation there ever was in this folder, as far as is known.
    last_revision: u64,
    /// True once it has been told that drops of ports are not counted.
    drops_are_told: bool,
    /// The way in which new generations learn of changes.
    notice: Notice,
    /// The thread that tells the generation that counts, where the kernel does not.
    watch: Option<Watch>,
}

/// The generation that counts.
#[derive(Debug)]
struct Current {
    revision: u64,
    generation: Generation,
    /// The note and the configuration that were applied; `None`: its maker was of a version that this one cannot read.
    known: Option<(Note, Configuration)>,
}

/// The state of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// True if its packets come to the generation that counts.
    pub attached: bool,
    /// The part of the kernel that runs programs for it; none at tcx.
    pub mode: Option<XdpMode>,
}

/// The result of a transaction that has succeeded.
#[derive(Debug)]
pub struct Applied {
    /// The differences from before.
    pub changes: Vec<Difference>,
    /// The steps that could not be done afterwards, and are tried again with the next transaction; and what may not be meant.
    pub warnings: Vec<String>,
}

impl Manager {
    /// Takes over what is in the kernel: what a transaction that was killed has left half done is finished or undone. Also returns
    /// what should be told.
    pub fn start(store: Store, devices: &Devices, notice: Notice) -> Result<(Self, Vec<String>)> {
        let mut warnings = Vec::new();
        let current = match store.current()? {
            Some(revision) => {
                let generation = Generation::open(store.generation(revision));
                let generation = generation.with_context(|| {
                    format!("cannot take over revision {revision}; to begin again: hiked --remove")
                })?;
                let known = read(&generation);
                let known = known.map_err(|error| {
                    warnings.push(format!(
                        "what revision {revision} is cannot be said ({error:#}); it goes on until something is applied"
                    ));
                });
                Some(Current {
                    revision,
                    generation,
                    known: known.ok(),
                })
            }
            None => None,
        };
        let last_revision = store.generations()?.last().copied().unwrap_or(0);
        let mut manager = Self {
            store,
            current,
            facts: Facts::read()?,
            last_revision,
            drops_are_told: false,
            notice,
            watch: None,
        };
        if let Err(error) = manager.tell_routing() {
            warnings.push(format!("{error:#}"));
        }
        warnings.extend(manager.settle(devices)?);
        warnings.extend(manager.watch());
        warnings.extend(manager.upgrade(devices));
        Ok((manager, warnings))
    }

    /// Returns which transaction has led to what there is; 0: none.
    pub fn revision(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.revision)
    }

    /// Returns whether it can be said what was applied last. If not, changes of that cannot be, and only all of it can be replaced.
    pub fn is_known(&self) -> bool {
        self.current.as_ref().is_none_or(|one| one.known.is_some())
    }

    /// Returns what was applied last; one with nothing in it, if that cannot be [said](Self::is_known).
    pub fn configuration(&self) -> Configuration {
        let known = self.current.as_ref().and_then(|one| one.known.as_ref());
        known.map_or_else(Configuration::default, |(_, configuration)| {
            configuration.clone()
        })
    }

    /// Returns the generation that counts.
    pub fn generation(&self) -> Option<&Generation> {
        self.current.as_ref().map(|current| &current.generation)
    }

    /// Returns the numbers under which the local SIDs are counted, by destination.
    pub fn sid_numbers(&self) -> BTreeMap<String, u64> {
        let known = self.current.as_ref().and_then(|one| one.known.as_ref());
        known.map(|(note, _)| note.sids.clone()).unwrap_or_default()
    }

    /// Tells the programs of the host's routing, which has changed.
    pub fn routing_changed(&mut self, facts: Facts) -> Result<()> {
        self.facts = facts;
        self.tell_routing()
    }

    fn tell_routing(&self) -> Result<()> {
        let Some(Current {
            generation,
            known: Some((note, configuration)),
            ..
        }) = &self.current
        else {
            return Ok(());
        };
        // Programs of another version may have no such tables.
        if !note.is_of_this_version() {
            return Ok(());
        }
        let devices = configuration.devices.iter().map(String::as_str);
        generation
            .tell_routing(&self.facts, devices)
            .context("cannot tell the programs of the host's routing")
    }

    /// Returns what is in the kernel now.
    pub fn actual(&self, devices: &Devices) -> Result<Objects> {
        match &self.current {
            Some(Current {
                generation,
                known: Some((note, configuration)),
                ..
            }) => actual::objects(generation, note, configuration, devices)
                .context("cannot read back what is in the kernel"),
            _ => Ok(Configuration::default().objects()),
        }
    }

    /// Returns the state of the devices that are configured.
    pub fn status(&self, devices: &Devices) -> Result<Vec<DeviceStatus>> {
        let Some(current) = &self.current else {
            return Ok(Vec::new());
        };
        let Some((_, configuration)) = &current.known else {
            return Ok(Vec::new());
        };
        let entry = Entry::of(&current.generation)?;
        let status = configuration.devices.iter().map(|name| {
            let device = devices.get(name).ok();
            let attached = device.is_some_and(|device| entry.is_at(name, &device));
            DeviceStatus {
                name: name.clone(),
                attached,
                mode: device.and_then(|device| device.mode).filter(|_| attached),
            }
        });
        Ok(status.collect())
    }

    /// Makes this what there is, or leaves all as it is and says why.
    pub fn apply(&mut self, wanted: Configuration, devices: &Devices) -> Result<Applied> {
        // What cannot be read back is certainly not as it should be.
        let actual = self.actual(devices).unwrap_or_default();
        let changes = differences(&actual, &wanted.objects());
        let mut cautions = wanted.warnings(most_mtu(&wanted, devices));
        cautions.extend(memory_warning(&wanted)?);
        let is_there = match &self.current {
            Some(current) => current.known.is_some(),
            None => wanted == Configuration::default(),
        };
        let mut warnings = if is_there && changes.is_empty() {
            Vec::new()
        } else {
            self.replace(wanted, devices)?
        };
        warnings.extend(cautions);
        Ok(Applied { changes, warnings })
    }

    /// Applies what a file says, if it is there; returns what should be told.
    pub fn apply_file(&mut self, file: &Path, devices: &Devices) -> Result<Vec<String>> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.with_context(|| format!("cannot read {}", file.display()))?,
        };
        let applied = self.apply(parse(file, &text)?, devices);
        Ok(applied
            .with_context(|| file.display().to_string())?
            .warnings)
    }

    /// Replaces the programs of another version by those of this version, with the same configuration.
    fn upgrade(&mut self, devices: &Devices) -> Vec<String> {
        let known = self.current.as_ref().and_then(|one| one.known.as_ref());
        let Some((note, configuration)) = known else {
            return Vec::new();
        };
        if note.is_of_this_version() {
            return Vec::new();
        }
        let wanted = configuration.clone();
        let cautions = wanted.warnings(most_mtu(&wanted, devices));
        let mut said = self.replace(wanted, devices).unwrap_or_else(|error| {
            vec![format!(
                "the programs of another version go on, as those of this one cannot take over: {error:#}"
            )]
        });
        said.extend(cautions);
        said
    }

    /// Applies the configuration to devices that have come, come again, or changed. Returns what has been done or could not be done;
    /// nothing if devices are as they were.
    pub fn devices_changed(&mut self, devices: &Devices) -> Result<Vec<String>> {
        let Some(Current {
            generation,
            known: Some((_, configuration)),
            ..
        }) = &self.current
        else {
            return Ok(Vec::new());
        };
        let is_of_devices = |kind| {
            matches!(
                kind,
                Kind::Device
                    | Kind::Inside
                    | Kind::Port
                    | Kind::Route
                    | Kind::KernelRoute
                    | Kind::Behaviour
            )
        };
        let is_of_routes = |kind| matches!(kind, Kind::KernelRoute | Kind::Behaviour);
        let actual = actual::of_devices(generation, configuration, devices)?;
        let wanted = configuration.objects();
        let missing: Vec<_> = differences(&actual, &wanted)
            .into_iter()
            .filter(|one| is_of_devices(one.key.kind) && one.after.is_some())
            .filter(|one| {
                let device = device_of(configuration, &one.key);
                let device = device.and_then(|name| devices.get(name).ok());
                device.is_some_and(|device| device.is_up || !is_of_routes(one.key.kind))
            })
            .collect();
        let Some(first) = missing.first() else {
            return Ok(Vec::new());
        };
        let was = match first.before {
            Some(_) => "as it should be",
            None => "there",
        };
        let done = format!("{} was not {was}, and is again", first.key);
        // Tables name devices by numbers, which are others when a device comes again.
        let in_tables = missing
            .iter()
            .any(|one| matches!(one.key.kind, Kind::Inside | Kind::Port | Kind::Route));
        let all_there = configuration
            .device_names()
            .all(|name| devices.get(name).is_ok());
        let mut said = match in_tables && all_there {
            true => {
                let wanted = configuration.clone();
                self.replace(wanted, devices)?
            }
            false => {
                self.facts = self.facts.again()?;
                self.tell_routing()?;
                self.settle(devices)?
            }
        };
        said.insert(0, done);
        Ok(said)
    }

    /// Makes the generation that counts know what this host is now: the addresses of its devices, its own, and its clock.
    pub fn follow(&self) -> Result<()> {
        match &self.current {
            Some(Current {
                generation,
                known: Some((note, configuration)),
                ..
            }) if note.is_of_this_version() => {
                // Whatever keeps it from the rest: nobody else tells the clock.
                generation.tell_clock()?;
                let host = Host::read()?;
                follow(generation, configuration, &host)?;
                generation.mend_ports(&host)
            }
            _ => Ok(()),
        }
    }

    fn replace(&mut self, wanted: Configuration, devices: &Devices) -> Result<Vec<String>> {
        let revision = self.last_revision + 1;
        // Devices may have come since, of which programs have to know before they get packets from there.
        self.facts = self.facts.again()?;
        let next = self.make(revision, wanted, devices);
        let next = next.map_err(|error| match self.forget_unmade(revision) {
            Ok(()) => error,
            Err(left) => error.context(format!("{left:#}")),
        })?;
        self.last_revision = revision;
        let committed = self
            .enter(&next, devices)
            .and_then(|()| self.store.set_current(Some(revision)));
        if let Err(error) = committed {
            drop(next);
            return Err(match self.settle(devices) {
                Ok(warnings) if warnings.is_empty() => error,
                Ok(warnings) => error.context(warnings.join("; ")),
                Err(undo) => error.context(format!("{undo:#}")),
            });
        }
        self.current = Some(next);
        let said = self.watch();
        // It has been done: what is left over is not the caller's.
        let settled = step("committed").and_then(|()| self.settle(devices));
        let settled = settled.unwrap_or_else(|error| vec![format!("{error:#}")]);
        Ok(said.into_iter().chain(settled).collect())
    }

    /// Lets the cache of the generation that counts learn of changes; packets do without it meanwhile. Returns what should be told.
    fn watch(&mut self) -> Option<String> {
        self.watch = None;
        let current = self.current.as_ref()?;
        let (note, _) = current.known.as_ref()?;
        // Those of another version may have no such tables.
        if !note.is_of_this_version() {
            return None;
        }
        match current.generation.watch() {
            Ok(watch) => {
                self.watch = watch;
                None
            }
            Err(error) if current.generation.is_traced() => Some(format!(
                "the kernel gets a packet each second for each next hop, as its neighbours are not known: {error:#}"
            )),
            Err(error) => Some(format!("packets do without the cache: {error:#}")),
        }
    }

    /// Makes a generation to which no packet comes yet.
    fn make(&self, revision: u64, wanted: Configuration, devices: &Devices) -> Result<Current> {
        for name in &wanted.devices {
            let device = devices.with_chains(wanted.hook, wanted.mode, name)?;
            self.check_mode(name, &device, wanted.mode)?;
        }
        kernel_routes::check(&wanted.wanted_routes(), devices)?;
        if let Some(current) = &self.current {
            let hook = current.generation.hook();
            ensure!(
                hook == wanted.hook,
                "what is there is at {hook}, and stays there: for the other hook run another hiked, with --pins, --socket and --file of its own, or begin again: hiked --remove"
            );
        }
        let before = self.current.as_ref().map(|current| Before {
            generation: &current.generation,
            same_reasons: matches!(&current.known, Some((note, _)) if note.has_same_reasons()),
            same_programs: matches!(&current.known, Some((note, _)) if note.is_of_this_version()),
            same_rules: matches!(&current.known, Some((note, known)) if note.is_of_this_version() && known.rules == wanted.rules),
        });
        let folder = self.store.generation(revision);
        let caching = Caching {
            cache: wanted.cache,
            entries: wanted.cache_entries,
            notice: self.notice,
        };
        let mut hike = Generation::begin(wanted.hook, &folder, wanted.engine, caching, before)?;
        step("begun")?;
        let sids = fill(&mut hike, &wanted, devices, &self.sid_numbers())?;
        if wanted.hook == Hook::Xdp {
            let names = wanted.devices.iter().map(String::as_str);
            hike.set_routing(&self.facts.routing(names))?;
        }
        step("filled")?;
        let note = Note::of(&hike, &wanted, sids)?;
        let generation = Generation::stay(hike, &note.bytes()?)?;
        follow(&generation, &wanted, &Host::read()?)?;
        Ok(Current {
            revision,
            generation,
            known: Some((note, wanted)),
        })
    }

    /// Fails if the link of a device is of a mode that is not asked for: an update does not change it.
    fn check_mode(&self, name: &str, device: &Device, mode: XdpMode) -> Result<()> {
        let own = Linked {
            hook: Hook::Xdp,
            device: device.index,
        };
        let is_generic = device.mode == Some(XdpMode::Generic) && mode == XdpMode::Native;
        ensure!(
            !is_generic || !linked(self.store.links())?.contains(&own),
            "device {name}: the stack runs its programs (generic XDP); write mode = \"generic\", or apply a configuration without the \
             device first"
        );
        Ok(())
    }

    /// Directs packets to a generation that does not count yet.
    fn enter(&self, next: &Current, devices: &Devices) -> Result<()> {
        let Some((_, wanted)) = &next.known else {
            return Ok(());
        };
        step("made")?;
        let mut missing = actual::monitors(wanted)?;
        for (flow, direction, _) in next.generation.monitors()? {
            missing.remove(&(flow, direction));
        }
        add_monitors(&next.generation, wanted, missing)?;
        step("monitored")?;
        kernel_routes::put(wanted.hook, &wanted.wanted_routes(), devices)?;
        step("routed")?;
        for name in &wanted.devices {
            next.generation
                .take(
                    self.store.links(),
                    name,
                    devices.get(name)?.index,
                    wanted.mode,
                )
                .with_context(|| format!("device {name}"))?;
            step("switched")?;
        }
        // Those that are devices, too, have an entry now.
        for name in wanted.ports.intersection(&wanted.devices) {
            next.generation
                .open_port(devices.get(name)?.index)
                .with_context(|| format!("port {name}"))?;
        }
        Ok(())
    }

    /// Makes devices and monitors those of the generation that counts, and removes all other generations. Returns what could not be
    /// done for a reason that is not this program's.
    fn settle(&mut self, devices: &Devices) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        match &self.current {
            // Whose devices and monitors there are nobody knows, so they stay.
            Some(Current { known: None, .. }) => return Ok(warnings),
            Some(Current {
                generation,
                known: Some((note, configuration)),
                ..
            }) => {
                // Of another version they stay as they are, until this one takes over.
                if generation.counts_alike() {
                    settle_monitors(generation, configuration)?;
                }
                self.settle_counts()?;
                step("counted")?;
                warnings = self.settle_devices(generation, configuration, devices)?;
                if note.is_of_this_version() {
                    // One that was a device, too, has no program any more.
                    let mended = Host::read().and_then(|host| generation.mend_ports(&host));
                    warnings.extend(mended.err().map(|error| format!("{error:#}")));
                }
                warnings.extend(settle_routes(configuration, devices));
            }
            None => release_all(&self.store, devices)?,
        }
        step("settled")?;
        let counts = self.current.as_ref().map(|current| current.revision);
        remove_others(&self.store, counts)?;
        // Those of the generation before have gone with it.
        warnings.extend(self.count_drops());
        Ok(warnings)
    }

    /// Makes the generation that counts tell what ports drop. Returns what should be told if this cannot be, once.
    fn count_drops(&mut self) -> Option<String> {
        let Some(Current {
            generation,
            known: Some((note, _)),
            ..
        }) = &self.current
        else {
            return None;
        };
        if !note.is_of_this_version() {
            return None;
        }
        let why = match generation.count_drops() {
            Ok(true) => return None,
            Ok(false) => "this kernel has no BTF".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        let is_told = std::mem::replace(&mut self.drops_are_told, true);
        (!is_told).then(|| format!("what ports drop is counted as forwarded: {why}"))
    }

    /// Removes what there is of a generation that could not be made, and the counts that were begun for it in the map that it would have
    /// shared.
    fn forget_unmade(&self, revision: u64) -> Result<()> {
        let folder = self.store.generation(revision);
        if folder.exists() {
            remove_all([folder.as_path()])?;
        }
        self.settle_counts()
    }

    /// Ends the counts of local SIDs that the generation which counts does not have.
    fn settle_counts(&self) -> Result<()> {
        match &self.current {
            Some(Current {
                generation,
                known: Some((note, _)),
                ..
            }) => generation.keep_traffic(&note.sids.values().copied().collect()),
            _ => Ok(()),
        }
    }

    fn settle_devices(
        &self,
        generation: &Generation,
        configuration: &Configuration,
        devices: &Devices,
    ) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        let mut wanted = Vec::new();
        for name in &configuration.devices {
            let taken = devices.get(name).and_then(|device| {
                wanted.push(Linked {
                    hook: generation.hook(),
                    device: device.index,
                });
                let (links, mode) = (self.store.links(), configuration.mode);
                generation.take(links, name, device.index, mode)
            });
            if let Err(error) = taken {
                warnings.push(format!("device {name}: {error:#}"));
            }
        }
        for device in linked(self.store.links())? {
            if !wanted.contains(&device) {
                release(self.store.links(), device)?;
            }
        }
        Ok(warnings)
    }
}

/// Makes a generation know what this host is.
fn follow(generation: &Generation, configuration: &Configuration, host: &Host) -> Result<()> {
    let indices = |names: &BTreeSet<String>| -> Vec<u32> {
        let names = names.iter();
        names.filter_map(|name| host.index(name)).collect()
    };
    let (devices, inside) = (&configuration.devices, &configuration.inside);
    generation.follow(host, indices(devices), indices(inside))
}

/// Returns the largest MTU of the devices by which packets can leave, if there are any.
fn most_mtu(configuration: &Configuration, devices: &Devices) -> Option<u32> {
    // At tcx a packet may stay at its device.
    let own = configuration.devices.iter();
    let own = own.filter(|_| configuration.hook == Hook::Tcx);
    let names = configuration.ports.iter().chain(own);
    let mtus = names.filter_map(|name| Some(devices.get(name).ok()?.mtu));
    mtus.max()
}

/// Returns what should be said of the memory that the cache takes on this host.
fn memory_warning(configuration: &Configuration) -> Result<Option<String>> {
    let host = rustix::system::sysinfo();
    let memory = host.totalram * u64::from(host.mem_unit);
    Ok(configuration.memory_warning(possible_cpus()?, memory))
}

/// Removes all that is in the kernel: packets take the kernel's path.
pub fn remove(store: &Store, devices: &Devices) -> Result<()> {
    store.set_current(None)?;
    release_all(store, devices)?;
    remove_others(store, None)
}

/// Gives all packets back to the kernel, as it was.
fn release_all(store: &Store, devices: &Devices) -> Result<()> {
    for device in linked(store.links())? {
        release(store.links(), device)?;
    }
    // Routes are put when a generation is whole, so one of these says at which hook.
    let generations = store.generations()?.into_iter();
    let whole = generations.filter_map(|one| Generation::open(store.generation(one)).ok());
    let hooks: BTreeSet<Hook> = whole.map(|generation| generation.hook()).collect();
    for hook in hooks {
        kernel_routes::remove_others(hook, &[], devices)?;
    }
    Ok(())
}

/// Makes the kernel's routes those of a configuration, and removes all others of ours. Returns what could not be done.
fn settle_routes(configuration: &Configuration, devices: &Devices) -> Vec<String> {
    let (hook, routes) = (configuration.hook, configuration.wanted_routes());
    let mut warnings = Vec::new();
    // One whose device has gone does not hold up the others.
    for route in &routes {
        if let Err(error) = kernel_routes::put(hook, std::slice::from_ref(route), devices) {
            warnings.push(format!("{error:#}"));
        }
    }
    if let Err(error) = kernel_routes::remove_others(hook, &routes, devices) {
        warnings.push(format!("{error:#}"));
    }
    warnings
}

/// Removes all generations but the one that counts.
fn remove_others(store: &Store, counts: Option<u64>) -> Result<()> {
    let others = store.generations()?.into_iter();
    let others = others.filter(|one| Some(*one) != counts);
    let others: Vec<PathBuf> = others.map(|one| store.generation(one)).collect();
    if !others.is_empty() {
        remove_all(others.iter().map(PathBuf::as_path))?;
    }
    Ok(())
}

/// Makes a generation count the flows that are to be counted, and no others. Flows that are counted as they should be go on.
fn settle_monitors(generation: &Generation, configuration: &Configuration) -> Result<()> {
    let mut missing = actual::monitors(configuration)?;
    for (flow, direction, monitor) in generation.monitors()? {
        let key = (flow, direction);
        if missing
            .get(&key)
            .is_some_and(|(_, wanted)| *wanted == monitor)
        {
            missing.remove(&key);
        } else {
            generation.remove_monitor(&key.0, direction)?;
        }
    }
    add_monitors(generation, configuration, missing)
}

/// Makes a generation count more flows.
fn add_monitors(
    generation: &Generation,
    configuration: &Configuration,
    monitors: actual::Monitors<'_>,
) -> Result<()> {
    if monitors.is_empty() {
        return Ok(());
    }
    for ((flow, direction), (name, monitor)) in monitors {
        generation
            .add_monitor(&flow, direction, &monitor)
            .with_context(|| format!("monitor {name}"))?;
    }
    // Where fill() has put them.
    generation.tell_paths((0..).zip(configuration.paths.values()))
}

/// Returns the name of the device that an object is about.
fn device_of<'a>(configuration: &'a Configuration, key: &'a Key) -> Option<&'a str> {
    match key.kind {
        Kind::Device | Kind::Inside | Kind::Port => Some(&key.name),
        Kind::Route => {
            let destination = key.name.parse().ok()?;
            Some(&configuration.routes.get(&destination)?.port)
        }
        Kind::KernelRoute => Some(&configuration.kernel_routes.get(&key.name)?.device),
        Kind::Behaviour => {
            let device = configuration.behaviours.get(&key.name)?.device()?;
            Some(device.as_str())
        }
        _ => None,
    }
}

fn read(generation: &Generation) -> Result<(Note, Configuration)> {
    let note = Note::read(&generation.note()?)?;
    let configuration = note.configuration()?;
    Ok((note, configuration))
}

/// Marks a step of a transaction, at which tests kill this process, or have the step fail.
#[cfg(feature = "fail-points")]
fn step(name: &str) -> Result<()> {
    fail::fail_point!(name, |what| {
        if what.as_deref() == Some("kill") {
            use rustix::process::{getpid, kill_process, Signal};
            kill_process(getpid(), Signal::KILL)?;
        }
        Err(anyhow::anyhow!("made to fail at `{name}`"))
    });
    Ok(())
}

/// Marks a step of a transaction; only in tests does anything happen at it.
#[cfg(not(feature = "fail-points"))]
fn step(_: &str) -> Result<()> {
    Ok(())
}
