// SPDX-License-Identifier: GPL-2.0

//! All the model needs from the world around it.

use std::fmt;

use crate::firmware::field::Field;

/// A machine the card is plugged into, and a wire.
pub trait Bus {
    /// Reads the machine's memory.
    fn dma_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), BusError>;
    /// Writes the machine's memory; earlier writes are visible first.
    fn dma_write(&mut self, address: u64, from: &[u8]) -> Result<(), BusError>;
    /// Raises an interrupt.
    fn raise_msix(&mut self, vector: u16);
    /// Returns a time that never goes back.
    fn now_ns(&mut self) -> u64;
    /// Sends a frame, without its check sequence.
    fn tx_frame(&mut self, frame: &[u8]);
}

/// An access to memory that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusError {
    /// Its first byte.
    pub address: u64,
    /// Its length.
    pub bytes: usize,
}

impl fmt::Display for BusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no memory at {:#x} for {} bytes",
            self.address, self.bytes
        )
    }
}

impl std::error::Error for BusError {}

/// Reads a whole word of a structure in memory.
pub(crate) fn read_word(bus: &mut dyn Bus, address: u64, word: Field) -> Result<u32, BusError> {
    let mut bytes = [0; 4];
    bus.dma_read(address.wrapping_add(word.word()), &mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}
