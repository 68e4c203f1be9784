// SPDX-License-Identifier: GPL-2.0

//! Generations: instances that stay in the kernel when their process ends, and devices that go from one to the next.
//!
//! A generation is filled before any packet comes to it, and is not changed after that. A device goes over to the next one by an
//! update of its link, so each packet has all of the one or all of the other. Only counters are those of both: the maps that have
//! them are pinned in both folders.

use std::collections::BTreeSet;
use std::path::{Path as FilePath, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{bail, Context as _, Result};
use aya::maps::{Array, Map, MapData, PerCpuArray};
use aya::programs::Program;

use super::drops::Drops;
use super::hike::ports::Ports;
use super::hike::{remove, Engine, Hike};
use super::hook::{Hook, XdpMode};
use super::host_tables::{Facts, HostTables};
use super::links;
use super::ports::is_closed;
use super::tracing;
use super::watch::Watch;
use crate::config::cache::{Caching, Notice};
use crate::config::flow::{Counts, Direction, Flow, Monitor};
use crate::config::path::Path;
use crate::config::rule::Rule;
use crate::counters::cache::{self, CacheCounts};
use crate::counters::monitors;
use crate::counters::path_flows;
use crate::counters::reason::{self, Reason};
use crate::counters::sids::{self, Traffic};
use crate::host::Host;
use crate::maps::open;
use crate::routing::Facts as RoutingFacts;
use crate::stamp::Clock;
use crate::tables::access_list::{hits_in, is_in, HITS};
use crate::tables::epoch::Epoch;
use crate::tables::packets;
use crate::tables::stamp_clock;

/// The pins that a generation has beside its maps; the entry says by its name which hook it is for.
const ENTRY_XDP: &str = "entry";
const ENTRY_TCX: &str = "entry_tcx";
const NOTE: &str = "note";

/// A note is kept in pieces of this size.
const PIECE_BYTES: usize = 4096;
type Piece = [u8; PIECE_BYTES];

/// The wait where the kernel cannot say that all packets are through: no packet is in a program for nearly as long.
const LONG: Duration = Duration::from_secs(1);

/// The generation whose counters go on.
#[derive(Clone, Copy)]
pub struct Before<'a> {
    /// The generation that has them now.
    pub generation: &'a Generation,
    /// True if it has the same reasons as this program, in the same order.
    pub same_reasons: bool,
    /// True if it has the same rules as the new generation.
    pub same_rules: bool,
    /// True if its programs are those of this program.
    pub same_programs: bool,
}

/// An instance that stays in the kernel.
#[derive(Debug)]
pub struct Generation {
    folder: PathBuf,
    hook: Hook,
}

fn entry_name(hook: Hook) -> &'static str {
    match hook {
        Hook::Xdp => ENTRY_XDP,
        Hook::Tcx => ENTRY_TCX,
    }
}

impl Generation {
    /// Begins one in a folder that is not there yet. Until it [stays](Self::stay), it ends with what is returned.
    pub fn begin(
        hook: Hook,
        folder: &FilePath,
        engine: Engine,
        caching: Caching,
        before: Option<Before<'_>>,
    ) -> Result<Hike> {
        Hike::prepared(hook, folder, engine, caching, |folder| match before {
            Some(before) => {
                share_epoch(before, caching.notice, folder)?;
                share_counters(before, folder)
            }
            None => Ok(()),
        })
    }

    /// Makes an instance stay in the kernel, with a note of its maker.
    pub fn stay(hike: Hike, note: &[u8]) -> Result<Self> {
        let (folder, hook) = (hike.folder().to_owned(), hike.hook());
        // The note comes first: what has an entry is whole.
        pin_note(&folder.join(NOTE), note)?;
        hike.stay(entry_name(hook))?;
        Ok(Self { folder, hook })
    }

    /// Opens one that has stayed.
    pub fn open(folder: PathBuf) -> Result<Self> {
        let mut hooks = [Hook::Xdp, Hook::Tcx].into_iter();
        let Some(hook) = hooks.find(|hook| folder.join(entry_name(*hook)).exists()) else {
            bail!("{} has no entry", folder.display());
        };
        let generation = Self { folder, hook };
        generation.entry()?;
        Ok(generation)
    }

    /// Returns where it gets packets.
    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// Returns where its maps are.
    pub fn folder(&self) -> &FilePath {
        &self.folder
    }

    /// Returns its maker's note.
    pub fn note(&self) -> Result<Vec<u8>> {
        let pieces: Array<MapData, Piece> = open(&self.folder, NOTE)?.try_into()?;
        let mut note = Vec::new();
        for piece in pieces.iter() {
            note.extend(piece?);
        }
        // Its length is in front.
        let (bytes, rest) = note.split_first_chunk().context("the note is too short")?;
        let rest = rest.get(..usize::try_from(u64::from_ne_bytes(*bytes))?);
        Ok(rest.context("the note is too short")?.to_vec())
    }

    fn entry(&self) -> Result<Program> {
        links::entry(self.hook, &self.folder.join(entry_name(self.hook)))
    }

    /// Returns the kernel's number of the program that devices of this generation have.
    pub fn entry_id(&self) -> Result<u32> {
        Ok(match self.entry()? {
            Program::Xdp(entry) => entry.info()?.id(),
            Program::SchedClassifier(entry) => entry.info()?.id(),
            _ => bail!("an entry is for one of the hooks"),
        })
    }

    /// Directs packets of a device, by its name and index, to this generation from the next packet on; the link is pinned in a
    /// folder.
    pub fn take(&self, links: &FilePath, name: &str, device: u32, mode: XdpMode) -> Result<()> {
        links::take(&mut self.entry()?, links, name, device, mode)
    }

    /// Makes its tables say what a host is, whose packets come from these devices, by their indices, some of which are inside of the SR
    /// domain.
    pub fn follow(
        &self,
        host: &Host,
        devices: impl IntoIterator<Item = u32>,
        inside: impl IntoIterator<Item = u32>,
    ) -> Result<()> {
        if self.hook == Hook::Tcx {
            return Ok(());
        }
        let mut facts = Facts::default();
        facts.add(host, devices);
        for device in inside {
            facts.add_inside(Some(host), device);
        }
        HostTables::open(&self.folder)?.write(&facts)
    }

    /// Makes a port of its send frames of XDP, as [`Hike::add_port`] does.
    pub fn open_port(&self, device: u32) -> Result<()> {
        match self.hook {
            Hook::Xdp => Ports::open(&self.folder)?.keep(&self.folder, device),
            Hook::Tcx => Ok(()),
        }
    }

    /// Begins to count what ports drop, unless that is done; returns whether this kernel can. Only one generation at a time may, as its
    /// counters are those of the one before.
    pub fn count_drops(&self) -> Result<bool> {
        if self.hook == Hook::Tcx || Drops::are_in(&self.folder) {
            return Ok(true);
        }
        let Some(drops) = Drops::count(&self.folder)? else {
            return Ok(false);
        };
        drops.stay(&self.folder)?;
        Ok(true)
    }

    /// Opens the ports again that have lost their program.
    pub fn mend_ports(&self, host: &Host) -> Result<()> {
        if self.hook == Hook::Tcx {
            return Ok(());
        }
        for device in self.ports()? {
            if host.links.get(&device).is_some_and(is_closed) {
                self.open_port(device)
                    .with_context(|| format!("port {device}"))?;
            }
        }
        Ok(())
    }

    /// Tells the programs what there is of the host's routing now, for devices with these names.
    pub fn tell_routing<'a>(
        &self,
        facts: &RoutingFacts,
        attached: impl IntoIterator<Item = &'a str>,
    ) -> Result<()> {
        if self.hook == Hook::Tcx {
            return Ok(());
        }
        if self.is_traced() {
            Epoch::open(&self.folder)?.trust_kernel(!facts.host.is_untraced);
        }
        facts.routing(attached).write(&self.folder)
    }

    /// Tells the program `reflect` what the kernel knows of this host's clock now.
    pub fn tell_clock(&self) -> Result<()> {
        match self.hook {
            Hook::Xdp => stamp_clock::write(&self.folder, Clock::read()?),
            Hook::Tcx => Ok(()),
        }
    }

    /// Returns how many packets each reason has had.
    pub fn reasons(&self) -> Result<Vec<(&'static Reason, u64)>> {
        let counts: PerCpuArray<MapData, u64> = open(&self.folder, REASONS)?.try_into()?;
        let counts = reason::reasons().iter().zip(0..).map(|(reason, number)| {
            let of_cpus = counts.get(&number, 0)?;
            Ok((reason, of_cpus.iter().sum()))
        });
        Ok(reason::settled(counts.collect::<Result<_>>()?))
    }

    /// Lets its cache learn of changes in the calling thread's network namespace: as long as what is returned is there, unless the
    /// kernel itself tells of them.
    pub fn watch(&self) -> Result<Option<Watch>> {
        Watch::begin(&self.folder)
    }

    /// Returns whether the kernel itself tells of changes.
    pub fn is_traced(&self) -> bool {
        tracing::stays(&self.folder)
    }

    /// Returns how many packets the cache was good for since this generation was made.
    pub fn cache_counts(&self) -> Result<CacheCounts> {
        cache::read(&self.folder)
    }

    /// Returns how many packets each rule of its access list, of which there are this many, has decided on.
    pub fn rule_hits(&self, rules: usize) -> Result<Vec<u64>> {
        hits_in(&self.folder, rules)
    }

    /// Returns whether its access list is this one.
    pub fn has_rules(&self, rules: &[Rule]) -> Result<bool> {
        is_in(&self.folder, rules)
    }

    /// Returns whether its programs count flows as those of this crate do. If not, which flows it counts cannot be said.
    pub fn counts_alike(&self) -> bool {
        monitors::are_alike(&self.folder)
    }

    /// Returns which flows are counted, and how.
    pub fn monitors(&self) -> Result<Vec<(Flow, Direction, Monitor)>> {
        monitors::list(&self.folder)
    }

    /// Begins to count a flow that is not counted yet, from 0. When that has been done of all, [tell its paths](Self::tell_paths).
    ///
    /// Nothing is counted of a flow whose packets have no place for the colour ([`Monitor::check_flow`]), which earlier versions took.
    pub fn add_monitor(&self, flow: &Flow, direction: Direction, monitor: &Monitor) -> Result<()> {
        let _moves = Epoch::open(&self.folder)?.moves_behind();
        monitors::add(&self.folder, flow, direction, monitor.counters()?).map(drop)
    }

    /// Lets packets that are put on these paths, by their places, be counted by the numbers of their flows, which costs less.
    pub fn tell_paths<'a>(&self, paths: impl IntoIterator<Item = (u32, &'a Path)>) -> Result<()> {
        path_flows::tell(&self.folder, paths)
    }

    /// Counts a flow no more.
    pub fn remove_monitor(&self, flow: &Flow, direction: Direction) -> Result<()> {
        let _moves = Epoch::open(&self.folder)?.moves_behind();
        monitors::remove(&self.folder, flow, direction)
    }

    /// Returns the packets that a behaviour was done to, by the number of its counts.
    pub fn traffic(&self, number: u64) -> Result<Traffic> {
        sids::read(&self.folder, number)
    }

    /// Ends all counts of behaviours but those of these numbers.
    pub fn keep_traffic(&self, numbers: &BTreeSet<u64>) -> Result<()> {
        sids::keep(&self.folder, numbers)
    }

    /// Returns what was counted of a flow.
    pub fn counts(&self, flow: &Flow, direction: Direction) -> Result<Counts> {
        Ok(Counts::sum(&monitors::read(&self.folder, flow, direction)?))
    }
}

/// Removes generations, whole or not, to which no packet comes any more.
pub fn remove_all<'a>(folders: impl IntoIterator<Item = &'a FilePath>) -> Result<()> {
    // An array of programs is emptied when nobody can name it any more, even if packets are still on their way through it.
    if packets::wait().is_err() {
        thread::sleep(LONG);
    }
    for folder in folders {
        remove(folder);
        anyhow::ensure!(!folder.exists(), "cannot remove {}", folder.display());
    }
    Ok(())
}

const REASONS: &str = "reasons";

/// Lets the programs that move the epoch of a generation serve the next one, too. It has none if they are not wanted, or of another
/// version.
fn share_epoch(before: Before<'_>, notice: Notice, folder: &FilePath) -> Result<()> {
    let old = &before.generation.folder;
    if !before.same_programs || notice == Notice::Told || !tracing::stays(old) {
        return Ok(());
    }
    for name in EPOCH_MAPS {
        pin_again(old, folder, name)?;
    }
    tracing::share(old, folder)
}

/// The maps that the programs write to which move the epoch.
const EPOCH_MAPS: [&str; 2] = ["epoch", "neighbours"];

/// Pins the maps with counters in another folder, too, where the objects find them; those of another shape begin again.
fn share_counters(before: Before<'_>, folder: &FilePath) -> Result<()> {
    let old = &before.generation.folder;
    if before.same_reasons {
        pin_again(old, folder, REASONS)?;
    }
    if before.same_rules {
        pin_again(old, folder, HITS)?;
    }
    for name in monitors::maps_alike(old) {
        pin_again(old, folder, &name)?;
    }
    if sids::is_alike(old) {
        pin_again(old, folder, sids::NAME)?;
    }
    Ok(())
}

fn pin_again(from: &FilePath, to: &FilePath, name: &str) -> Result<()> {
    let map = MapData::from_pin(from.join(name));
    map.with_context(|| format!("cannot open {}", from.join(name).display()))?
        .pin(to.join(name))
        .with_context(|| format!("cannot pin {}", to.join(name).display()))
}

fn pin_note(pin: &FilePath, note: &[u8]) -> Result<()> {
    // CAST: usize has 64 bits here.
    let mut bytes = (note.len() as u64).to_ne_bytes().to_vec();
    bytes.extend(note);
    let pieces = u32::try_from(bytes.len().div_ceil(PIECE_BYTES))?;
    let mut map: Array<MapData, Piece> =
        Array::create(pieces, 0).context("the kernel has no room for the configuration")?;
    for (piece, number) in bytes.chunks(PIECE_BYTES).zip(0..) {
        let mut whole = [0; PIECE_BYTES];
        whole[..piece.len()].copy_from_slice(piece);
        map.set(number, whole, 0)?;
    }
    map.pin(pin)
        .with_context(|| format!("cannot pin {}", pin.display()))
}

/// Opens an array of programs as what it looks like from here: an array of their numbers.
pub(crate) fn program_ids(folder: &FilePath, name: &str) -> Result<Array<MapData, u32>> {
    let pin = folder.join(name);
    let data = MapData::from_pin(&pin).with_context(|| format!("cannot open {}", pin.display()))?;
    Ok(Map::Array(data).try_into()?)
}
