// SPDX-License-Identifier: GPL-2.0

//! The prefix lengths of the destinations of classes: packets look for each of these lengths, and for no other.
//!
//! A length that no destination has any more costs packets a look-up and nothing else, so it may stay behind its last entry for a moment.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use anyhow::Result;
use aya::maps::{Array, MapData};

use crate::config::destination::Destination;
use crate::layout::{self, Address};
use crate::maps::open;

/// The lengths of an instance's classes.
pub(super) struct Lengths {
    table: Array<MapData, layout::Lengths>,
    in_use: InUse,
}

/// The number of destinations and flows of each length, of IPv4 and of IPv6.
#[derive(Default)]
struct InUse([BTreeMap<u8, usize>; 2]);

impl Lengths {
    /// Opens the table of an instance that has no classes yet.
    pub(super) fn open(folder: &FilePath) -> Result<Self> {
        let mut lengths = Self {
            table: open(folder, "lengths_in_use")?.try_into()?,
            in_use: InUse::default(),
        };
        lengths.write()?;
        Ok(lengths)
    }

    /// Notes that a destination has an entry, which packets see from now on.
    pub(super) fn add(&mut self, destination: Destination) -> Result<()> {
        match self.in_use.add(destination) {
            true => self.write(),
            false => Ok(()),
        }
    }

    /// Notes that an entry of a destination has gone.
    pub(super) fn remove(&mut self, destination: Destination) -> Result<()> {
        match self.in_use.remove(destination) {
            true => self.write(),
            false => Ok(()),
        }
    }

    fn write(&mut self) -> Result<()> {
        let table = layout::Lengths::of(&self.in_use.0);
        Ok(self.table.set(0, table, 0)?)
    }
}

impl InUse {
    /// Counts one more, and returns whether it is the first of its length.
    fn add(&mut self, destination: Destination) -> bool {
        let mut is_first = false;
        for counts in self.of(destination) {
            let count = counts.entry(Address::length(destination)).or_default();
            *count += 1;
            is_first |= *count == 1;
        }
        is_first
    }

    /// Counts one less, and returns whether it was the last of its length.
    fn remove(&mut self, destination: Destination) -> bool {
        let length = Address::length(destination);
        let mut was_last = false;
        for counts in self.of(destination) {
            if let Some(count) = counts.get_mut(&length) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&length);
                    was_last = true;
                }
            }
        }
        was_last
    }

    /// Returns the counts of the versions that a destination is for.
    fn of(&mut self, destination: Destination) -> &mut [BTreeMap<u8, usize>] {
        match destination.version() {
            Some(4) => &mut self.0[..1],
            Some(_) => &mut self.0[1..],
            None => &mut self.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_in_use_from_its_first_entry_to_its_last() {
        let of = |text: &str| text.parse().expect(text);
        let mut in_use = InUse::default();
        assert!(in_use.add(of("10.0.0.0/8")) && in_use.add(of("1000::/8")));
        assert!(!in_use.add(of("2000::/8")));
        assert!(in_use.add(of("default")));
        let lengths = |in_use: &InUse| {
            let of = |counts: &BTreeMap<u8, usize>| counts.keys().copied().collect::<Vec<_>>();
            [of(&in_use.0[0]), of(&in_use.0[1])]
        };
        assert_eq!(lengths(&in_use), [[0, 40], [0, 40]]);
        assert!(!in_use.remove(of("1000::/8")) && in_use.remove(of("2000::/8")));
        assert!(in_use.remove(of("default")));
        assert_eq!(lengths(&in_use), [vec![40], vec![]]);
    }
}
