// SPDX-License-Identifier: GPL-2.0

//! The monitored flow to which the packets of each path belong, so that `mon-in` behind `enc` need not look for their addresses.
//!
//! A path without a number, or with one that has gone, costs packets more, but no packet is left uncounted: they are counted by
//! their headers. So a path may be told late, and by another process than the one that has made it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use anyhow::Result;
use aya::maps::{Array, MapData};

use crate::config::flow::Flow;
use crate::config::path::Path;
use crate::counters::monitors;
use crate::maps::open;

const NAME: &str = "path_flows";

/// The paths of an instance, by their flows.
pub(crate) struct PathFlows {
    table: Array<MapData, u64>,
    places: BTreeMap<Flow, BTreeSet<u32>>,
}

impl PathFlows {
    /// Opens the table of an instance that has no paths yet.
    pub(crate) fn open(folder: &FilePath) -> Result<Self> {
        Ok(Self {
            table: table(folder)?,
            places: BTreeMap::new(),
        })
    }

    /// Notes that a path has come to this place, whose flow may be monitored already.
    pub(crate) fn add(&mut self, folder: &FilePath, place: u32, path: &Path) -> Result<()> {
        let flow = Flow::of(path)?;
        self.table.set(place, monitors::number(folder, &flow)?, 0)?;
        self.places.entry(flow).or_default().insert(place);
        Ok(())
    }

    /// Notes that the path of this place has gone, and all packets that had it.
    pub(crate) fn remove(&mut self, place: u32, path: &Path) -> Result<()> {
        self.table.set(place, 0, 0)?;
        let flow = Flow::of(path)?;
        if let Some(places) = self.places.get_mut(&flow) {
            places.remove(&place);
            if places.is_empty() {
                self.places.remove(&flow);
            }
        }
        Ok(())
    }

    /// Lets the packets of all paths with this flow be counted by its number; 0: by their headers.
    pub(crate) fn tell(&mut self, flow: &Flow, number: u64) -> Result<()> {
        for &place in self.places.get(flow).into_iter().flatten() {
            self.table.set(place, number, 0)?;
        }
        Ok(())
    }
}

/// Tells paths, by their places, of the monitored flows in an instance of which no more is known than its folder.
pub(crate) fn tell<'a>(
    folder: &FilePath,
    paths: impl IntoIterator<Item = (u32, &'a Path)>,
) -> Result<()> {
    if !folder.join(NAME).exists() {
        // The programs there are of a version that looks at headers alone.
        return Ok(());
    }
    let mut table = table(folder)?;
    for (place, path) in paths {
        table.set(place, monitors::number(folder, &Flow::of(path)?)?, 0)?;
    }
    Ok(())
}

fn table(folder: &FilePath) -> Result<Array<MapData, u64>> {
    Ok(open(folder, NAME)?.try_into()?)
}
