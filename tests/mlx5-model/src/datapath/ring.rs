// SPDX-License-Identifier: GPL-2.0

//! The memory of a queue: elements of one size in pages that need not be adjacent.

use crate::firmware::commands::Status;
use crate::firmware::field::be64;
use crate::firmware::layout::{cqe64, eqe, wq};
use crate::host::bus::{Bus, BusError};

/// The card's page, whatever the machine's is.
const LOG_PAGE: u32 = 12;
/// No queue has more elements.
const MOST_LOG_ELEMENTS: u32 = 20;

/// Bytes of an event or a completion, the last of which says whose it is.
const ENTRY_BYTES: usize = cqe64::BYTES;
const OWNER: usize = ENTRY_BYTES - 1;
const _: () = assert!(cqe64::OP_OWN.byte() == OWNER);
const _: () = assert!(eqe::BYTES == ENTRY_BYTES && eqe::OWNER.byte() == OWNER);

/// The place of a queue's elements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ring {
    pages: Vec<u64>,
    log_page: u32,
    first_byte: u64,
    log_element: u32,
    log_elements: u32,
}

impl Ring {
    /// Returns a ring; it has to fit into its pages.
    pub(crate) fn new(
        pages: &[u8],
        log_page: u32,
        page_offset: u32,
        log_element: u32,
        log_elements: u32,
    ) -> Result<Self, Status> {
        let log_page = LOG_PAGE + log_page;
        let first_byte = u64::from(page_offset) << 6;
        if log_elements > MOST_LOG_ELEMENTS || log_element > LOG_PAGE || log_page > 31 {
            return Err(Status::BadParameter);
        }
        let bytes = first_byte + (1 << (log_elements + log_element));
        let count = usize::try_from(bytes.div_ceil(1 << log_page)).unwrap_or(usize::MAX);
        if pages.len() / 8 < count {
            return Err(Status::BadInputLength);
        }
        // The low bits are flags.
        let pages = (0..count)
            .map(|index| be64(pages, index * 8) & !0xfff)
            .collect();
        Ok(Self {
            pages,
            log_page,
            first_byte,
            log_element,
            log_elements,
        })
    }

    /// Returns the ring of a receive or send queue's context.
    pub(crate) fn of_work_queue(context: &[u8]) -> Result<Self, Status> {
        Self::new(
            wq::PAS.of(context),
            wq::LOG_WQ_PG_SZ.get32(context),
            wq::PAGE_OFFSET.get32(context),
            wq::LOG_WQ_STRIDE.get32(context),
            wq::LOG_WQ_SZ.get32(context),
        )
    }

    pub(crate) fn elements(&self) -> u32 {
        1 << self.log_elements
    }

    /// Returns how many times a counter that starts at zero has gone round.
    pub(crate) fn rounds(&self, counter: u32) -> u32 {
        counter >> self.log_elements
    }

    pub(crate) fn element_bytes(&self) -> usize {
        1 << self.log_element
    }

    /// Returns the address of the element that a counter points at.
    pub(crate) fn address(&self, counter: u32) -> u64 {
        let index = u64::from(counter & (self.elements() - 1));
        let byte = self.first_byte + (index << self.log_element);
        // Checked when the ring was made; elements do not cross pages.
        let page = usize::try_from(byte >> self.log_page)
            .ok()
            .and_then(|page| self.pages.get(page));
        page.copied()
            .unwrap_or(0)
            .wrapping_add(byte & ((1 << self.log_page) - 1))
    }

    /// Reads an element's first bytes.
    pub(crate) fn read(
        &self,
        bus: &mut dyn Bus,
        counter: u32,
        into: &mut [u8],
    ) -> Result<(), BusError> {
        bus.dma_read(self.address(counter), into)
    }

    /// Writes an event or a completion at the end of its element: the byte that says whose it is goes last.
    pub(crate) fn publish(
        &self,
        bus: &mut dyn Bus,
        counter: u32,
        entry: &[u8; ENTRY_BYTES],
    ) -> Result<(), BusError> {
        let skipped = self.element_bytes() - ENTRY_BYTES;
        let address = self.address(counter).wrapping_add(skipped as u64);
        bus.dma_write(address, &entry[..OWNER])?;
        bus.dma_write(address.wrapping_add(OWNER as u64), &entry[OWNER..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_across_pages() {
        let pages: Vec<u8> = [0x7001_u64, 0x3000]
            .iter()
            .flat_map(|page| page.to_be_bytes())
            .collect();
        let ring = Ring::new(&pages, 0, 0, 6, 7).unwrap();
        assert_eq!(ring.address(1), 0x7040);
        assert_eq!(ring.address(64), 0x3000);
        assert_eq!(ring.address(128 + 65), 0x3040);
        assert_eq!(ring.rounds(128 + 65), 1);
        assert_eq!(
            Ring::new(&pages, 0, 1, 6, 7).unwrap_err(),
            Status::BadInputLength
        );
        assert_eq!(
            Ring::new(&pages, 0, 0, 6, 30).unwrap_err(),
            Status::BadParameter
        );
    }
}
