// SPDX-License-Identifier: GPL-2.0

//! One instance: its tables, and changes that each packet sees whole or not at all.
//!
//! | change | why it is whole |
//! |---|---|
//! | a chain is replaced | one slot of a program array; a packet that has begun a chain ends that one |
//! | a class is replaced | its entry is, by another one; chain and path are one word, which the dispatcher reads once |
//! | a path or a behaviour is made | its slot is written before a class refers to it |
//! | a path, a behaviour or a chain is removed | no class refers to it, and no packet that had such a class is still on its way |
//! | a length of prefixes is used first, or no more | its prefix is there before packets look for that length; one without prefixes leads on |
//! | a flow has a class of its own | its entry is there before the class of its destination says so |
//! | the rules are replaced | packets see the tables that one word names, and it names the new ones when they are complete |
//!
//! Each change moves the epoch at its end. Entries that the cache has made before are not good any more then.

mod behaviours;
mod chains;
mod classes;
mod entry;
mod flow_classes;
mod host;
mod lengths;
pub(super) mod ports;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path as FilePath, PathBuf};

use anyhow::{bail, ensure, Context as _, Result};
use aya::maps::lpm_trie::Key;
use aya::maps::{Array, HashMap, LpmTrie, MapData, PerCpuArray, ProgramArray};
use aya::Ebpf;
use serde::{Deserialize, Serialize};

use self::behaviours::Counted;
use self::chains::Loaded;
use self::classes::Entry;
use self::flow_classes::FlowClasses;
use self::host::Hosts;
use self::lengths::Lengths;
use self::ports::Ports;
use super::drops::Drops;
use super::hook::{Attached, Hook};
use super::loader::{self, TELL_PROGRAM};
use super::tracing::{self, Tracing};
use super::watch::{self, Watch};
use crate::config::cache::{Cache, Caching, Notice};
use crate::config::chain::Chain;
use crate::config::destination::Destination;
use crate::config::flow::{Counts, Direction, Flow, Monitor};
use crate::config::lanes::Lanes;
use crate::config::manifest;
use crate::config::path::Path;
use crate::config::rule::Rule;
use crate::counters::cache::{self, CacheCounts};
use crate::counters::monitors;
use crate::counters::path_flows::PathFlows;
use crate::counters::reason::{self, Reason};
use crate::host::namespace;
use crate::layout::{self, Address};
use crate::limits::{BEHAVIOURS, CHAINS, PATHS, ROUTES, TELL};
use crate::maps::{open, or_full};
use crate::routing::{runs_behind_functions, Routing};
use crate::stamp::Clock;
use crate::tables::access_list::AccessList;
use crate::tables::epoch::Epoch;
use crate::tables::packets;
use crate::tables::slots::Slots;
use crate::tables::stamp_clock;

/// The way in which chains are run; the chains do the same either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// One program is made of each distinct chain: one indirect jump for a packet.
    #[default]
    Compiled,
    /// One tail call for each program of a chain: chains are loaded faster, packets are slower.
    TailCalls,
}

/// A chain of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChainId(u32);

/// A path of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathId(u32);

/// A behaviour of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BehaviourId(u16);

/// The treatment of packets of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// The chain they take.
    pub chain: ChainId,
    /// The path that its programs use.
    pub path: Option<PathId>,
    /// The request to mflow for its flows, which its program `lanes` hands on; `None`: none.
    pub lanes: Option<Lanes>,
}

impl Class {
    /// Returns a class with this chain, and nothing else.
    pub const fn of(chain: ChainId) -> Self {
        Self {
            chain,
            path: None,
            lanes: None,
        }
    }
}

/// The next hop to which `fw-table` sends packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The index of a device that is a port.
    pub port: u32,
    /// The largest packet that the link carries.
    pub mtu: u16,
    /// The Ethernet address of the port.
    pub source: [u8; 6],
    /// The Ethernet address of the next hop.
    pub destination: [u8; 6],
}

/// The programs and maps of one instance. When it is dropped, its programs leave their devices, and its maps go.
pub struct Hike {
    folder: PathBuf,
    hook: Hook,
    engine: Engine,
    dispatcher: Ebpf,
    tables: Tables,
    links: BTreeMap<String, Attached>,
    hosts: Hosts,
    /// The routing of each network namespace that packets come from, by its number.
    routings: BTreeMap<u64, Routing>,
    ports: Ports,
    /// The programs that count what its ports drop.
    drops: Option<Drops>,
    /// True if it begins to count drops by itself. A generation is told to.
    counts_by_itself: bool,
    chains: Slots<Chain>,
    /// The program of each distinct chain, and how many chains have it.
    loaded: Vec<Loaded>,
    paths: Slots<Path>,
    path_flows: PathFlows,
    /// The first stands for none, and is never free.
    behaviours: Slots<Option<Counted>>,
    classes: BTreeMap<Destination, Entry>,
    exact_flows: FlowClasses,
    lengths: Lengths,
    access_list: AccessList,
    cache: Cache,
    epoch: Epoch,
    /// The programs that move the epoch, unless they are those of another instance, too, or the kernel takes none.
    tracing: Option<Tracing>,
    /// Why the kernel takes none.
    untraced: Option<String>,
    /// The thread that moves it then, and the network namespace of the devices; `None`: none was attached, or there are several.
    watch: Option<Watch>,
    namespace: Option<u64>,
    /// True if there are several.
    are_several: bool,
    /// True if all of it stays in the kernel when this is dropped.
    stays: bool,
}

/// The maps that are written here, opened once.
struct Tables {
    classes: HashMap<MapData, Key<Address>, layout::Class>,
    prefixes: HashMap<MapData, Key<Address>, layout::Class>,
    exact_flows: HashMap<MapData, layout::ExactFlow, layout::Class>,
    chains: ProgramArray<MapData>,
    programs: ProgramArray<MapData>,
    paths: Array<MapData, layout::Path>,
    behaviours: Array<MapData, layout::Behaviour>,
    routes: LpmTrie<MapData, Address, layout::Route>,
    reasons: PerCpuArray<MapData, u64>,
}

impl Tables {
    fn open(folder: &FilePath) -> Result<Self> {
        Ok(Self {
            classes: open(folder, "classes")?.try_into()?,
            prefixes: open(folder, "prefixes")?.try_into()?,
            exact_flows: open(folder, "exact_flows")?.try_into()?,
            chains: open(folder, "chains")?.try_into()?,
            programs: open(folder, "programs")?.try_into()?,
            paths: open(folder, "paths")?.try_into()?,
            behaviours: open(folder, "behaviours")?.try_into()?,
            routes: open(folder, "routes")?.try_into()?,
            reasons: open(folder, "reasons")?.try_into()?,
        })
    }
}

impl Hike {
    /// Makes an instance at XDP, whose maps are pinned in a folder on a BPF file system that is not there yet.
    pub fn new(folder: &FilePath, engine: Engine) -> Result<Self> {
        Self::at(Hook::Xdp, folder, engine)
    }

    /// Makes one at a hook. What it has is its own: two instances for both hooks do not know of each other.
    pub fn at(hook: Hook, folder: &FilePath, engine: Engine) -> Result<Self> {
        Self::with_cache(hook, folder, engine, Caching::default())
    }

    /// Makes one with a cache like this, or without.
    pub fn with_cache(
        hook: Hook,
        folder: &FilePath,
        engine: Engine,
        caching: Caching,
    ) -> Result<Self> {
        let mut hike = Self::prepared(hook, folder, engine, caching, |_| Ok(()))?;
        hike.counts_by_itself = hook == Hook::Xdp;
        Ok(hike)
    }

    /// Makes an instance in a folder into which maps of others may be pinned first.
    pub(crate) fn prepared(
        hook: Hook,
        folder: &FilePath,
        engine: Engine,
        caching: Caching,
        prepare: impl FnOnce(&FilePath) -> Result<()>,
    ) -> Result<Self> {
        make_folder(folder).with_context(|| {
            format!(
                "cannot make {}: it must be a new folder on a mounted BPF file system",
                folder.display()
            )
        })?;
        let made = prepare(folder).and_then(|()| Self::make(hook, folder, engine, caching));
        if made.is_err() {
            remove(folder);
        }
        made
    }

    fn make(hook: Hook, folder: &FilePath, engine: Engine, caching: Caching) -> Result<Self> {
        let dispatcher = loader::dispatcher(hook, folder, caching)?;
        let mut programs = loader::tail_calls(hook, folder)?;
        let epoch = Epoch::open(folder)?;
        let traces =
            hook == Hook::Xdp && caching.notice == Notice::Traced && !tracing::stays(folder);
        // Where the kernel has no place for them, a thread watches.
        let (tracing, untraced) = match traces.then(|| trace(folder, &epoch)) {
            Some(Ok(tracing)) => (Some(tracing), None),
            Some(Err(error)) => (None, Some(format!("{error:#}"))),
            None => (None, None),
        };
        let mut hike = Self {
            folder: folder.to_owned(),
            hook,
            engine,
            dispatcher,
            tables: Tables::open(folder)?,
            links: BTreeMap::new(),
            hosts: Hosts::open(folder)?,
            routings: BTreeMap::new(),
            ports: Ports::open(folder)?,
            drops: None,
            counts_by_itself: false,
            chains: Slots::new(CHAINS),
            loaded: Vec::new(),
            paths: Slots::new(PATHS),
            path_flows: PathFlows::open(folder)?,
            behaviours: Slots::new(BEHAVIOURS),
            classes: BTreeMap::new(),
            exact_flows: FlowClasses::default(),
            lengths: Lengths::open(folder)?,
            access_list: AccessList::open(folder)?,
            cache: caching.cache,
            epoch,
            tracing,
            untraced,
            watch: None,
            namespace: None,
            are_several: false,
            stays: false,
        };
        hike.behaviours.put(0, None);
        if hook == Hook::Xdp {
            let loaded = loader::load(&mut programs, TELL_PROGRAM)?;
            // CAST: behind the programs, of which there are less than 256.
            hike.tables.programs.set(TELL as u32, &loaded, 0)?;
            hike.tell_clock()?;
        }
        hike.set_routing(&Routing::default())?;
        if engine == Engine::TailCalls {
            let here = |program: &&manifest::Program| hook == Hook::Xdp || program.at_tcx;
            for program in manifest::programs().iter().filter(here) {
                let loaded = loader::load(&mut programs, program.call)?;
                let number = u32::from(program.number);
                hike.tables.programs.set(number, &loaded, 0)?;
            }
        }
        Ok(hike)
    }

    /// Returns where its maps are pinned.
    pub fn folder(&self) -> &FilePath {
        &self.folder
    }

    /// Learns from now on of changes in the calling thread's network namespace. That is done for devices that are
    /// [attached](Self::attach). With devices of several namespaces, packets do without the cache, until one is attached when all others
    /// are in its namespace.
    pub fn watch(&mut self) -> Result<()> {
        let here = namespace()?;
        let are_several = !self.hosts.are_all_in(here);
        if self.hook != Hook::Xdp || (self.namespace == Some(here) && !are_several) {
            return Ok(());
        }
        self.watch = None;
        self.namespace = None;
        self.are_several = are_several;
        // Devices have numbers, which others have elsewhere.
        self.epoch.moves();
        if are_several {
            self.epoch.watch_until(0);
            return Ok(());
        }
        if self.is_traced() {
            watch::note_neighbours(&self.folder)?;
            self.trust_kernel(runs_behind_functions());
        } else {
            self.watch = Watch::begin(&self.folder)?;
        }
        self.namespace = Some(here);
        Ok(())
    }

    /// Lets packets trust the programs behind the kernel's functions, if there are some, where the kernel runs them.
    fn trust_kernel(&self, runs_them: bool) {
        if self.is_traced() {
            self.epoch.trust_kernel(runs_them && !self.are_several);
        }
    }

    /// Returns whether the kernel itself tells of changes; else a thread does.
    pub fn is_traced(&self) -> bool {
        self.tracing.is_some() || tracing::stays(&self.folder)
    }

    /// Returns why this kernel does not, if it was tried.
    pub fn why_untraced(&self) -> Option<&str> {
        self.untraced.as_deref()
    }

    /// Tells the program `reflect` what the kernel knows of this host's clock now: say it again from time to time.
    pub fn tell_clock(&self) -> Result<()> {
        match self.hook {
            Hook::Xdp => stamp_clock::write(&self.folder, Clock::read()?),
            Hook::Tcx => Ok(()),
        }
    }

    /// Returns how many packets the cache was good for.
    pub fn cache_counts(&self) -> Result<CacheCounts> {
        cache::read(&self.folder)
    }

    /// Adds a path.
    pub fn add_path(&mut self, path: &Path) -> Result<PathId> {
        let layout = path.layout()?;
        let number = self.paths.free().context("no path is free")?;
        self.tables.paths.set(number, layout, 0)?;
        self.path_flows.add(&self.folder, number, path)?;
        self.paths.put(number, path.clone());
        Ok(PathId(number))
    }

    /// Removes a path that no class uses.
    pub fn remove_path(&mut self, id: PathId) -> Result<()> {
        self.paths.get(id.0).context("no such path")?;
        let _moves = self.epoch.moves_behind();
        if let Some(destination) = self.user(|entry| entry.class.path == Some(id)) {
            bail!("the class of {destination} uses this path; change that first");
        }
        packets::wait()?;
        self.tables.paths.set(id.0, layout::Path::NONE, 0)?;
        if let Some(path) = self.paths.take(id.0) {
            self.path_flows.remove(id.0, &path)?;
        }
        Ok(())
    }

    /// Says where `fw-table` sends packets of a destination; a default is the prefix of 0 bits.
    pub fn set_route(&mut self, destination: Destination, route: &Route) -> Result<()> {
        let _moves = self.epoch.moves_behind();
        let value = layout::Route {
            port: route.port,
            mtu: route.mtu,
            source: route.source,
            destination: route.destination,
            zero: [0; 2],
        };
        let key = route_key(destination)?;
        or_full(self.tables.routes.insert(&key, value, 0), "routes", ROUTES)
    }

    /// Removes such a route.
    pub fn remove_route(&mut self, destination: Destination) -> Result<()> {
        let _moves = self.epoch.moves_behind();
        self.tables
            .routes
            .remove(&route_key(destination)?)
            .with_context(|| format!("{destination} has no route"))
    }

    /// Replaces all rules of the access list, which `acl` holds packets against: each packet meets the old or the new ones.
    pub fn set_rules(&mut self, rules: &[Rule]) -> Result<()> {
        self.access_list.replace(rules)
    }

    /// Returns the rules, each with how many packets it has decided on since the rules were set.
    pub fn rules(&self) -> Result<Vec<(&Rule, u64)>> {
        let hits = self.access_list.hits()?;
        Ok(self.access_list.rules().iter().zip(hits).collect())
    }

    /// Begins to count a flow that is not counted yet, from 0.
    pub fn add_monitor(
        &mut self,
        flow: &Flow,
        direction: Direction,
        monitor: &Monitor,
    ) -> Result<()> {
        let _moves = self.epoch.moves_behind();
        let number = monitors::add(&self.folder, flow, direction, monitor.counters_of(flow)?)?;
        match direction {
            Direction::In => self.path_flows.tell(flow, number),
            Direction::Out => Ok(()),
        }
    }

    /// Counts a flow no more.
    pub fn remove_monitor(&mut self, flow: &Flow, direction: Direction) -> Result<()> {
        let _moves = self.epoch.moves_behind();
        monitors::remove(&self.folder, flow, direction)?;
        match direction {
            Direction::In => self.path_flows.tell(flow, 0),
            Direction::Out => Ok(()),
        }
    }

    /// Returns what was counted of a flow.
    pub fn counts(&self, flow: &Flow, direction: Direction) -> Result<Counts> {
        Ok(Counts::sum(&monitors::read(&self.folder, flow, direction)?))
    }

    /// Returns how many packets each reason has had since the instance was made.
    pub fn reasons(&self) -> Result<Vec<(&'static Reason, u64)>> {
        let counts = reason::reasons().iter().zip(0..).map(|(reason, number)| {
            let of_cpus = self.tables.reasons.get(&number, 0)?;
            Ok((reason, of_cpus.iter().sum()))
        });
        Ok(reason::settled(counts.collect::<Result<_>>()?))
    }
}

impl Drop for Hike {
    fn drop(&mut self) {
        if !self.stays {
            remove(&self.folder);
        }
    }
}

pub(crate) fn remove(folder: &FilePath) {
    // What is not removed here was removed by hand; there is nobody to tell.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let _gone = fs::remove_file(entry.path());
    }
    let _gone = fs::remove_dir(folder);
}

/// Lets the kernel tell of changes, before any packet comes.
fn trace(folder: &FilePath, epoch: &Epoch) -> Result<Tracing> {
    let tracing = Tracing::attach(folder, epoch)?;
    watch::note_neighbours(folder)?;
    epoch.trust_kernel(true);
    Ok(tracing)
}

/// Makes a folder that nobody but its owner can look into, as nobody else can open the maps in it.
fn make_folder(folder: &FilePath) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)
}

fn route_key(destination: Destination) -> Result<Key<Address>> {
    ensure!(
        destination != Destination::Default,
        "a route has an address or a prefix; write the default as 0.0.0.0/0 and ::/0"
    );
    Ok(Address::prefix(destination))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_folder_is_new_and_its_owners_alone() {
        let folder = std::env::temp_dir().join(format!("mflow-hike-{}", std::process::id()));
        make_folder(&folder).expect("new");
        let again = make_folder(&folder);
        let mode = fs::metadata(&folder).expect("there").permissions().mode();
        remove(&folder);
        assert!(again.is_err() && !folder.exists());
        assert_eq!(mode & 0o777, 0o700);
    }
}
