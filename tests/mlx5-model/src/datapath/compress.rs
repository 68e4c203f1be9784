// SPDX-License-Identifier: GPL-2.0

//! Compressed completions: one full entry for several frames of a kind, and eight bytes for each of them.
//!
//! The full entry takes the first place. Blocks of eight small entries take the second place, the ninth, the seventeenth and so
//! on. The driver fills the places in between. The hash of all frames but the first is lost: the small entries hold a checksum.

use super::receive::RESPONSE;
use crate::firmware::commands::Status;
use crate::firmware::field::{put, Field};
use crate::firmware::layout::{completion, mini_cqe8};
use crate::host::events::CompletionEntry;

/// The number of small entries that fit into a full one.
const PER_BLOCK: usize = completion::BYTES / mini_cqe8::BYTES;
/// The most completions that are joined. A card stops sooner or later; the driver does not depend on when.
const MOST: usize = 64;
/// The format of small entries that hold a checksum.
const WITHOUT_STRIDE: u32 = 1;
/// The format of small entries that hold a checksum and the first stride.
const WITH_STRIDE: u32 = 3;
/// The format of a full entry that stands for several frames.
const COMPRESSED: u64 = 3;
/// Fields in which completions that are joined do not differ.
const COMMON: [Field; 7] = [
    completion::WQE_ID,
    completion::RSS_HASH_TYPE,
    completion::FLAGS_RQPN,
    completion::HDS_IP_EXT,
    completion::L4_L3_HDR_TYPE,
    completion::VLAN_INFO,
    completion::SOP_DROP_QPN,
];

/// Completions of one kind, collected to be written together.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    with_stride: bool,
    entries: Entries,
    /// The counter that the next frame must have to join this session.
    next_counter: u16,
}

/// The completions that a session has collected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    /// The first one as it was, or none.
    pub(crate) full: Vec<CompletionEntry>,
    /// Every one in small.
    pub(crate) small: Vec<[u8; mini_cqe8::BYTES]>,
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
    pub(crate) fn takes(&self, entry: &CompletionEntry) -> bool {
        let Some(title) = self.entries.full.first() else {
            return true;
        };
        // Frames alone, no errors, no fillers.
        let plain = |entry: &CompletionEntry| {
            completion::OPCODE.get(entry) == RESPONSE && !completion::FILLER.is_set(entry)
        };
        self.entries.small.len() < MOST
            && plain(title)
            && plain(entry)
            && completion::WQE_COUNTER.get16(entry) == self.next_counter
            && COMMON
                .iter()
                .all(|field| field.get(title) == field.get(entry))
    }

    pub(crate) fn push(&mut self, entry: &CompletionEntry) {
        // A cyclic queue has no strides: its counter goes up by one.
        let strides = completion::STRIDES.get16(entry).max(1);
        let counter = completion::WQE_COUNTER.get16(entry);
        self.next_counter = counter.wrapping_add(strides);
        if self.entries.full.is_empty() {
            self.entries.full.push(*entry);
        }
        let mut small = [0; mini_cqe8::BYTES];
        mini_cqe8::CHECKSUM.set(&mut small, completion::CHECK_SUM.get(entry));
        if self.with_stride {
            mini_cqe8::STRIDX.set(&mut small, counter.into());
        }
        mini_cqe8::BYTE_CNT.set(&mut small, completion::BYTE_CNT.get(entry));
        self.entries.small.push(small);
    }

    pub(crate) fn take(&mut self) -> Entries {
        std::mem::take(&mut self.entries)
    }
}

impl Entries {
    /// Returns the blocks of small entries, and the place of each after the full one.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (CompletionEntry, usize)> + '_ {
        self.small
            .chunks(PER_BLOCK)
            .enumerate()
            .map(|(index, chunk)| {
                let mut block = [0; completion::BYTES];
                for (index, small) in chunk.iter().enumerate() {
                    put(&mut block, index * mini_cqe8::BYTES, small);
                }
                (block, if index == 0 { 1 } else { index * PER_BLOCK })
            })
    }

    /// Returns the full entry that stands for all.
    pub(crate) fn title(&self, count: u32) -> CompletionEntry {
        let first = self.full.first().copied();
        let mut title = first.unwrap_or([0; completion::BYTES]);
        completion::BYTE_CNT.set(&mut title, count.into());
        completion::FORMAT.set(&mut title, COMPRESSED);
        title
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(counter: u64, bytes: u64, queue: u64) -> CompletionEntry {
        let mut entry = [0; completion::BYTES];
        completion::CHECK_SUM.set(&mut entry, 0x1234);
        completion::QUEUE.set(&mut entry, queue);
        completion::FRAME_BYTES.set(&mut entry, bytes);
        completion::WQE_COUNTER.set(&mut entry, counter);
        completion::OPCODE.set(&mut entry, RESPONSE);
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
        completion::OPCODE.set(&mut error, 14);
        assert!(!session.takes(&error));
        let mut strides = Session::new(3).unwrap();
        let mut wide = entry(7, 3000, 1);
        completion::STRIDES.set(&mut wide, 2);
        strides.push(&wide);
        assert!(strides.takes(&entry(9, 60, 1)));
    }

    #[test]
    fn small_entries_take_the_places_the_driver_looks_at() {
        let mut session = Session::new(1).unwrap();
        for counter in 0..20 {
            session.push(&entry(counter, 100 + counter, 1));
        }
        let entries = session.take();
        let places: Vec<usize> = entries.blocks().map(|(_, at)| at).collect();
        assert_eq!(places, [1, 8, 16]);
        let (second, _) = entries.blocks().nth(1).unwrap();
        assert_eq!(second[..8], [0x12, 0x34, 0, 0, 0, 0, 0, 108]);
        assert_eq!(completion::BYTE_CNT.get(&entries.title(20)), 20);
        assert_eq!(session.len(), 0);
    }
}
