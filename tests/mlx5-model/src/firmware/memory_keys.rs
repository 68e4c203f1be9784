// SPDX-License-Identifier: GPL-2.0

//! Memory keys: what the addresses in work queue entries mean.

use super::commands::Status;
use super::field::be64;
use super::layout::{
    control_segment, create_mkey_in, mkc, mkey_seg, wqe_umr_ctrl_seg as update_segment,
};
use super::objects::Objects;
use crate::host::bus::{Bus, BusError};

const PHYSICAL: u64 = 0;
const TRANSLATED: u64 = 1;
/// Eight bytes per translation; no key of a network driver has more.
const MOST_ENTRIES: usize = 1 << 21;
const LOG_PAGE: u64 = 12;
const PAGE: u64 = 1 << LOG_PAGE;
/// Low bits of a translation are rights.
const RIGHTS: u64 = 7;
/// The offset of the translations in an update of translations, behind its other segments (`struct mlx5e_umr_wqe`).
const TRANSLATIONS_AT: usize = control_segment::BYTES + update_segment::BYTES + mkey_seg::BYTES;

#[derive(Clone, Debug)]
struct Key {
    /// The part of the key that the driver chooses.
    low: u8,
    /// The pages, unless addresses are the machine's own.
    pages: Option<Vec<u64>>,
    start: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct MemoryKeys(Objects<Key>);

/// An access the key does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied;

impl From<BusError> for Denied {
    fn from(_: BusError) -> Self {
        Self
    }
}

impl MemoryKeys {
    pub(crate) fn new() -> Self {
        Self(Objects::new(0x100, 0xff_ffff))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Carries out CREATE_MKEY; returns the upper 24 bits of the key.
    pub(crate) fn create(&mut self, input: &[u8]) -> Result<u32, Status> {
        let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of(input);
        let pages = match mkc::ACCESS_MODE_1_0.get(context) | mkc::ACCESS_MODE_4_2.get(context) << 2
        {
            PHYSICAL => None,
            TRANSLATED => {
                // Pages of another size are nothing that the model knows.
                if mkc::LOG_PAGE_SIZE.get(context) != LOG_PAGE {
                    return Err(Status::BadParameter);
                }
                let octowords = |count: u32| {
                    usize::try_from(count)
                        .unwrap_or(usize::MAX)
                        .saturating_mul(2)
                };
                let count = octowords(mkc::TRANSLATIONS_OCTWORD_SIZE.get32(context));
                if count > MOST_ENTRIES {
                    return Err(Status::BadParameter);
                }
                let given =
                    octowords(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.get32(input))
                        .min(count);
                let list = create_mkey_in::KLM_PAS_MTT.of(input);
                let mut pages = vec![0; count];
                for (index, page) in pages[..given].iter_mut().enumerate() {
                    *page = be64(list, index * 8) & !RIGHTS;
                }
                Some(pages)
            }
            _ => return Err(Status::BadParameter),
        };
        let start = mkc::START_ADDR.get(context);
        // CAST: eight bits.
        let low = mkc::MKEY_7_0.get(context) as u8;
        self.0.add(Key { low, pages, start })
    }

    /// Carries out DESTROY_MKEY.
    pub(crate) fn destroy(&mut self, number: u32) -> Result<(), Status> {
        self.0.remove(number).map(drop)
    }

    /// Carries out a work queue entry that changes translations.
    pub(crate) fn update(&mut self, entry: &[u8]) -> Result<(), Denied> {
        let key = self.key_mut(control_segment::UMR_MKEY.get32(entry))?;
        let pages = key.pages.as_mut().ok_or(Denied)?;
        let update = &entry[control_segment::BYTES..];
        let count = usize::from(update_segment::XLT_OCTOWORDS.get16(update)) * 2;
        let high = update_segment::XLT_OFFSET_47_16.get(update) << 16;
        let octoword = high | update_segment::XLT_OFFSET.get(update);
        let first = usize::try_from(octoword * 2).map_err(|_| Denied)?;
        let end = first.checked_add(count).ok_or(Denied)?;
        let list = entry
            .get(TRANSLATIONS_AT..TRANSLATIONS_AT + count * 8)
            .ok_or(Denied)?;
        let place = pages.get_mut(first..end).ok_or(Denied)?;
        for (index, page) in place.iter_mut().enumerate() {
            *page = be64(list, index * 8) & !RIGHTS;
        }
        Ok(())
    }

    pub(crate) fn write(
        &self,
        bus: &mut dyn Bus,
        key: u32,
        address: u64,
        from: &[u8],
    ) -> Result<(), Denied> {
        self.pieces(key, address, from.len(), |address, range| {
            Ok(bus.dma_write(address, &from[range])?)
        })
    }

    pub(crate) fn read(
        &self,
        bus: &mut dyn Bus,
        key: u32,
        address: u64,
        into: &mut [u8],
    ) -> Result<(), Denied> {
        self.pieces(key, address, into.len(), |address, range| {
            Ok(bus.dma_read(address, &mut into[range])?)
        })
    }

    fn pieces(
        &self,
        key: u32,
        address: u64,
        bytes: usize,
        mut take: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), Denied>,
    ) -> Result<(), Denied> {
        let found = self.0.get(key >> 8).map_err(|_| Denied)?;
        if found.low != key as u8 {
            return Err(Denied);
        }
        let Some(pages) = &found.pages else {
            return take(address, 0..bytes);
        };
        let mut done = 0;
        while done < bytes {
            let at = address
                .checked_sub(found.start)
                .and_then(|at| at.checked_add(done as u64))
                .ok_or(Denied)?;
            let page = usize::try_from(at / PAGE)
                .ok()
                .and_then(|index| pages.get(index))
                .ok_or(Denied)?;
            let within = at % PAGE;
            // CAST: at most a page.
            let count = (bytes - done).min((PAGE - within) as usize);
            take(page.checked_add(within).ok_or(Denied)?, done..done + count)?;
            done += count;
        }
        Ok(())
    }

    fn key_mut(&mut self, key: u32) -> Result<&mut Key, Denied> {
        let found = self.0.get_mut(key >> 8).map_err(|_| Denied)?;
        if found.low == key as u8 {
            Ok(found)
        } else {
            Err(Denied)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firmware::field::put;
    use crate::host::testing::Machine;

    fn create(keys: &mut MemoryKeys, mode: u64, octowords: u64) -> Result<u32, Status> {
        let mut input = vec![0; create_mkey_in::BYTES];
        let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
        mkc::ACCESS_MODE_1_0.set(context, mode);
        mkc::MKEY_7_0.set(context, 0x5a);
        mkc::TRANSLATIONS_OCTWORD_SIZE.set(context, octowords);
        mkc::LOG_PAGE_SIZE.set(context, LOG_PAGE);
        keys.create(&input).map(|number| number << 8 | 0x5a)
    }

    /// Returns a work queue entry that sets two translations from `octoword * 2` on.
    fn update(key: u32, octoword: u16, pages: [u64; 2]) -> Vec<u8> {
        let mut entry = vec![0; 192];
        control_segment::UMR_MKEY.set(&mut entry, key.into());
        let update = &mut entry[control_segment::BYTES..];
        update_segment::XLT_OCTOWORDS.set(update, 1);
        update_segment::XLT_OFFSET.set(update, octoword.into());
        for (index, page) in pages.iter().enumerate() {
            put(
                &mut entry,
                TRANSLATIONS_AT + index * 8,
                &(page | 3).to_be_bytes(),
            );
        }
        entry
    }

    #[test]
    fn translated_memory_is_found_page_by_page() {
        let mut keys = MemoryKeys::new();
        let mut machine = Machine::new(0x10_000);
        let key = create(&mut keys, TRANSLATED, 2).unwrap();
        keys.update(&update(key, 1, [0x5000, 0x3000])).unwrap();
        // Translations 2 and 3.
        keys.write(&mut machine, key, 2 * PAGE + 4094, b"abcd")
            .unwrap();
        assert_eq!(&machine.memory[0x5ffe..0x6000], b"ab");
        assert_eq!(&machine.memory[0x3000..0x3002], b"cd");
        let mut back = [0; 4];
        keys.read(&mut machine, key, 2 * PAGE + 4094, &mut back)
            .unwrap();
        assert_eq!(&back, b"abcd");
        assert_eq!(
            keys.write(&mut machine, key, 4 * PAGE - 1, b"ab"),
            Err(Denied)
        );
        assert_eq!(keys.update(&update(key, 2, [0, 0])), Err(Denied));
    }

    #[test]
    fn wrong_keys_are_denied() {
        let mut keys = MemoryKeys::new();
        let mut machine = Machine::new(0x1000);
        let key = create(&mut keys, PHYSICAL, 0).unwrap();
        assert_eq!(keys.write(&mut machine, key, 4, b"x"), Ok(()));
        assert_eq!(keys.write(&mut machine, key ^ 1, 4, b"x"), Err(Denied));
        assert_eq!(keys.write(&mut machine, key, 0x1000, b"x"), Err(Denied));
        assert_eq!(keys.update(&update(key, 0, [0, 0])), Err(Denied));
        assert_eq!(
            create(&mut keys, TRANSLATED, 0xffff_ffff),
            Err(Status::BadParameter)
        );
        assert_eq!(create(&mut keys, 2, 0), Err(Status::BadParameter));
    }
}
