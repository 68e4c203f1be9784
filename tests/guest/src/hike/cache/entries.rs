// SPDX-License-Identifier: GPL-2.0

//! The number of entries, which a file says: hiked changes it under traffic.
//!
//! The case fails if a change has no effect, if packets do without the cache or leave otherwise after it, or if what cannot be has one.

use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use aya::maps::MapData;
use mflow_hike::limits::CACHE_ENTRIES;
use mflow_hike::Generation;

use super::ways::{configuration, is_used, Seen, Ways, ROUTER, TO_V6};
use crate::hike::manager::daemon::{Daemon, Place};

pub(super) fn run() -> Result<()> {
    let ways = Ways::up()?;
    let place = Place::new(ROUTER);
    ways.under_traffic(TO_V6.into(), |seen| {
        let change = Change {
            place: &place,
            seen,
        };
        let daemon = place.start()?;
        daemon.apply(&configuration())?;
        change.is_done(CACHE_ENTRIES)?;
        for entries in [32_768, 1_024] {
            change.lead(&daemon, entries)?;
        }
        change.refuse(&daemon)?;
        daemon.kill()?;
        let daemon = place.start()?;
        change.is_done(1_024)?;
        let shown = daemon.show("show cache-entries")?;
        ensure!(shown == "cache-entries = 1024\n", "it shows {shown}");
        // Without the line, there are as many as before there was one.
        change.lead(&daemon, CACHE_ENTRIES)?;
        daemon.stop()
    })
}

struct Change<'a> {
    place: &'a Place,
    seen: &'a Seen,
}

impl Change<'_> {
    fn generation(&self) -> Result<Generation> {
        let last = self.place.generations()?.into_iter().max();
        let last = last.context("there is no generation")?;
        Generation::open(self.place.pins.join(last.to_string()))
    }

    /// Holds that the cache of the generation that counts has so many entries, and is used.
    fn is_done(&self, entries: usize) -> Result<()> {
        let generation = self.generation()?;
        let map = MapData::from_pin(generation.folder().join("cache"))?;
        let there = map.info()?.max_entries();
        // CAST: u32 has less bits.
        ensure!(
            there as usize == entries,
            "the cache has {there} entries, and not {entries}"
        );
        let hits = || -> Result<u64> { Ok(generation.cache_counts()?.hits) };
        is_used(&format!("it has {entries} entries"), &hits)
    }

    /// Changes the number: packets go on as they did, and the cache is used.
    fn lead(&self, daemon: &Daemon<'_>, entries: usize) -> Result<()> {
        let text = match entries {
            CACHE_ENTRIES => configuration(),
            _ => format!("cache-entries = {entries}\n{}", configuration()),
        };
        let apply = || daemon.apply(&text).map(drop);
        let what = format!("{entries} entries");
        self.seen
            .changed(&what, Duration::ZERO, apply, |one| one.way == 0)?;
        self.is_done(entries)
    }

    /// Applies what cannot be.
    fn refuse(&self, daemon: &Daemon<'_>) -> Result<()> {
        let before = self.generation()?.entry_id()?;
        for bad in [0, 512, 5_000, 262_144] {
            let text = format!("cache-entries = {bad}\n{}", configuration());
            let said = daemon.apply_refused(&text)?;
            let expected = format!(
                "FILE:1: cache-entries is {bad}: powers of two from 1024 to 131072 are allowed"
            );
            ensure!(said.ends_with(&expected), "it says `{said}`");
        }
        ensure!(
            self.generation()?.entry_id()? == before,
            "what was refused has made another generation"
        );
        self.is_done(1_024)
    }
}
