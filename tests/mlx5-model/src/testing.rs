// SPDX-License-Identifier: GPL-2.0

//! A machine for tests: memory in a vector, interrupts and frames kept for inspection.

use crate::bus::{Bus, BusError};

/// The machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Its memory, from address 0.
    pub memory: Vec<u8>,
    /// Interrupts in the order they came.
    pub interrupts: Vec<u16>,
    /// Frames the card sent.
    pub frames: Vec<Vec<u8>>,
    /// The time.
    pub now_ns: u64,
    /// Whether what is above the memory is the same memory again.
    pub repeats: bool,
}

impl Machine {
    /// Returns a machine with so much memory.
    pub fn new(bytes: usize) -> Self {
        Self {
            memory: vec![0; bytes],
            ..Self::default()
        }
    }

    fn range(&self, address: u64, bytes: usize) -> Result<std::ops::Range<usize>, BusError> {
        let error = BusError { address, bytes };
        let mut start = usize::try_from(address).map_err(|_| error)?;
        if self.repeats {
            start %= self.memory.len();
        }
        let end = start
            .checked_add(bytes)
            .filter(|end| *end <= self.memory.len())
            .ok_or(error)?;
        Ok(start..end)
    }
}

impl Bus for Machine {
    fn dma_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        let range = self.range(address, into.len())?;
        into.copy_from_slice(&self.memory[range]);
        Ok(())
    }

    fn dma_write(&mut self, address: u64, from: &[u8]) -> Result<(), BusError> {
        let range = self.range(address, from.len())?;
        self.memory[range].copy_from_slice(from);
        Ok(())
    }

    fn raise_msix(&mut self, vector: u16) {
        self.interrupts.push(vector);
    }

    fn now_ns(&mut self) -> u64 {
        self.now_ns += 1;
        self.now_ns
    }

    fn tx_frame(&mut self, frame: &[u8]) {
        self.frames.push(frame.to_vec());
    }
}
