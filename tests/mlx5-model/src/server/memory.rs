// SPDX-License-Identifier: GPL-2.0

//! The guest's memory, as QEMU shares it, and the guest's interrupts.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{fence, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result};
use vm_memory::{Bytes as _, FileOffset, MmapRegion, VolatileMemory as _};

use crate::host::bus::{Bus, BusError};

/// One piece of guest memory.
struct Piece {
    address: u64,
    bytes: u64,
    /// None if QEMU does not share it with the card.
    region: Option<MmapRegion>,
}

/// The machine a card is attached to.
pub(crate) struct Guest {
    pieces: Vec<Piece>,
    interrupts: Vec<Option<File>>,
    /// Interrupts that were raised while there was nowhere to raise them: QEMU takes all away when it adds one.
    pending: Vec<bool>,
    start: Instant,
    /// Frames that the card has sent.
    pub(crate) frames: VecDeque<Vec<u8>>,
}

impl Guest {
    /// Returns a machine without memory, with room for this many interrupts.
    pub(crate) fn new(vectors: u16) -> Self {
        Self {
            pieces: Vec::new(),
            interrupts: (0..vectors).map(|_| None).collect(),
            pending: vec![false; usize::from(vectors)],
            start: Instant::now(),
            frames: VecDeque::new(),
        }
    }

    /// Adds memory; memory without a file is not shared with the card.
    pub(crate) fn map(
        &mut self,
        address: u64,
        bytes: u64,
        file: Option<File>,
        offset: u64,
    ) -> Result<()> {
        let region = match file {
            None => None,
            Some(file) => {
                let size = usize::try_from(bytes)?;
                let region = MmapRegion::from_file(FileOffset::new(file, offset), size);
                Some(region.with_context(|| format!("cannot map {bytes} bytes of guest memory"))?)
            }
        };
        self.pieces.push(Piece {
            address,
            bytes,
            region,
        });
        Ok(())
    }

    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        self.pieces.retain(|piece| {
            piece.address < address || piece.address.saturating_add(piece.bytes) > end
        });
    }

    /// Sets the files through which interrupts are raised, from `first` on.
    pub(crate) fn set_interrupts(&mut self, first: usize, files: Vec<File>) {
        for (vector, file) in (first..self.interrupts.len()).zip(files) {
            if std::mem::take(&mut self.pending[vector]) {
                raise(&file);
            }
            self.interrupts[vector] = Some(file);
        }
    }

    /// Forgets interrupts that were not raised.
    pub(crate) fn forget_pending(&mut self) {
        self.pending.fill(false);
    }

    pub(crate) fn clear_interrupts(&mut self) {
        self.interrupts.fill_with(|| None);
    }

    fn find(&self, address: u64, bytes: usize) -> Result<(&MmapRegion, usize), BusError> {
        let error = BusError { address, bytes };
        for piece in &self.pieces {
            let Some(offset) = address.checked_sub(piece.address) else {
                continue;
            };
            if offset
                .checked_add(bytes as u64)
                .is_some_and(|end| end <= piece.bytes)
            {
                let region = piece.region.as_ref().ok_or(error)?;
                return Ok((region, usize::try_from(offset).map_err(|_| error)?));
            }
        }
        Err(error)
    }
}

fn raise(mut file: &File) {
    // Only a full counter could refuse, and then the interrupt is pending anyway.
    let _pending = file.write(&1_u64.to_ne_bytes());
}

impl Bus for Guest {
    fn dma_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        let error = BusError {
            address,
            bytes: into.len(),
        };
        let (region, offset) = self.find(address, into.len())?;
        region
            .as_volatile_slice()
            .read_slice(into, offset)
            .map_err(|_| error)?;
        // A later read must not return older data.
        fence(Ordering::Acquire);
        Ok(())
    }

    fn dma_write(&mut self, address: u64, from: &[u8]) -> Result<(), BusError> {
        let error = BusError {
            address,
            bytes: from.len(),
        };
        let (region, offset) = self.find(address, from.len())?;
        // The guest must see earlier writes first.
        fence(Ordering::Release);
        region
            .as_volatile_slice()
            .write_slice(from, offset)
            .map_err(|_| error)
    }

    fn raise_msix(&mut self, vector: u16) {
        match self.interrupts.get(usize::from(vector)) {
            Some(Some(file)) => raise(file),
            Some(None) => self.pending[usize::from(vector)] = true,
            None => {}
        }
    }

    fn now_ns(&mut self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn tx_frame(&mut self, frame: &[u8]) {
        self.frames.push_back(frame.to_vec());
    }
}
