// SPDX-License-Identifier: GPL-2.0

//! Compressed completions: one full entry for several frames of a kind, and eight bytes for each of them.
//!
//! The full one takes the first place, the small ones, eight at a time, the second, the ninth, the seventeenth and so on;
//! places between are left to the driver. The hash of all frames but the first is lost: the small entries hold a checksum.

use crate::field::{be16, be32, put};
use crate::status::Status;

/// How many small entries fit into one full one.
const PER_BLOCK: usize = 8;
/// A card stops sooner or later; the driver does not depend on when.
const MOST: usize = 64;
/// Small entries hold a checksum.
const WITHOUT_STRIDE: u32 = 1;
/// They hold the first stride, too.
const WITH_STRIDE: u32 = 3;

/// Completions of one kind, collected to be written together.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    with_stride: bool,
    entries: Entries,
    /// Where the next frame of this session must be.
    next_counter: u16,
}

/// What a session has collected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    /// The first one as it was, or none.
    pub(crate) full: Vec<[u8; 64]>,
    /// Every one in small.
    pub(crate) small: Vec<[u8; 8]>,
}

impl Session {
    /// Returns a session of small entries in one of the formats that the model knows: with a checksum each.
    pub(crate) fn new(format: u32) -> Result<Self, Status> {
        if !matches!(format, WITHOUT_STRIDE | WITH_STRIDE) {
            return Err(Status::BadParameter);
        }
        Ok(Self {
            with_stride: format == WITH_STRIDE,
            entries: Entries::default(),
            next_counter: 0,
        })
    }

    pub(crate) fn len(&self) -> u32 {
        // CAST: at most 64.
        self.entries.small.len() as u32
    }

    /// Returns whether an entry may join those that are there.
    pub(crate) fn takes(&self, entry: &[u8; 64]) -> bool {
        let Some(title) = self.entries.full.first() else {
            return true;
        };
        // Frames alone, no errors, no fillers.
        let plain = |entry: &[u8; 64]| entry[63] == 0x20 && entry[44] & 0x80 == 0;
        self.entries.small.len() < MOST
            && plain(title)
            && plain(entry)
            && be16(entry, 60) == self.next_counter
            // Work queue entry, hash type, queue and flags, header types, tag, flow tag.
            && [2..4, 16..18, 24..36, 56..60].into_iter().all(|range| title[range.clone()] == entry[range])
    }

    pub(crate) fn push(&mut self, entry: &[u8; 64]) {
        let strides = be32(entry, 44) >> 16 & 0x7fff;
        // CAST: 15 bits. A cyclic queue has no strides: its counter goes up by one.
        self.next_counter = be16(entry, 60).wrapping_add(strides.max(1) as u16);
        if self.entries.full.is_empty() {
            self.entries.full.push(*entry);
        }
        let mut small = [0; 8];
        put(&mut small, 0, &entry[20..22]);
        if self.with_stride {
            put(&mut small, 2, &entry[60..62]);
        }
        put(&mut small, 4, &entry[44..48]);
        self.entries.small.push(small);
    }

    pub(crate) fn take(&mut self) -> Entries {
        std::mem::take(&mut self.entries)
    }
}

impl Entries {
    /// Returns the blocks of small entries, and the place of each after the full one.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = ([u8; 64], usize)> + '_ {
        self.small
            .chunks(PER_BLOCK)
            .enumerate()
            .map(|(index, chunk)| {
                let mut block = [0; 64];
                for (index, small) in chunk.iter().enumerate() {
                    put(&mut block, index * 8, small);
                }
                (block, if index == 0 { 1 } else { index * PER_BLOCK })
            })
    }

    /// Returns the full entry that stands for all.
    pub(crate) fn title(&self, count: u32) -> [u8; 64] {
        let mut title = self.full.first().copied().unwrap_or([0; 64]);
        put(&mut title, 44, &count.to_be_bytes());
        // Format: compressed.
        title[63] = 0x20 | 3 << 2;
        title
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(counter: u16, bytes: u32, queue: u8) -> [u8; 64] {
        let mut entry = [0; 64];
        put(&mut entry, 20, &0x1234_u16.to_be_bytes());
        entry[27] = queue;
        put(&mut entry, 44, &bytes.to_be_bytes());
        put(&mut entry, 60, &counter.to_be_bytes());
        entry[63] = 0x20;
        entry
    }

    #[test]
    fn only_a_gapless_run_of_one_kind_is_joined() {
        let mut session = Session::new(1).unwrap();
        session.push(&entry(7, 60, 1));
        assert!(session.takes(&entry(8, 1500, 1)));
        assert!(!session.takes(&entry(9, 60, 1)));
        assert!(!session.takes(&entry(8, 60, 2)));
        let mut error = entry(8, 60, 1);
        error[63] = 0xe0;
        assert!(!session.takes(&error));
        let mut strides = Session::new(3).unwrap();
        strides.push(&entry(7, 2 << 16 | 3000, 1));
        assert!(strides.takes(&entry(9, 60, 1)));
    }

    #[test]
    fn small_entries_take_the_places_the_driver_looks_at() {
        let mut session = Session::new(1).unwrap();
        for counter in 0..20 {
            session.push(&entry(counter, 100 + u32::from(counter), 1));
        }
        let entries = session.take();
        let places: Vec<usize> = entries.blocks().map(|(_, at)| at).collect();
        assert_eq!(places, [1, 8, 16]);
        let (second, _) = entries.blocks().nth(1).unwrap();
        assert_eq!(second[..8], [0x12, 0x34, 0, 0, 0, 0, 0, 108]);
        assert_eq!(be32(&entries.title(20), 44), 20);
        assert_eq!(session.len(), 0);
    }
}
