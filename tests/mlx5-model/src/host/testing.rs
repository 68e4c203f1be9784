// SPDX-License-Identifier: GPL-2.0

//! For tests: packets, and a machine with memory in a vector that keeps interrupts and frames.

use super::bus::{Bus, BusError};
use crate::datapath::packet::{Headers, UDP};

/// Returns a UDP datagram over IPv4 with good checksums.
pub fn datagram(payload: &[u8], ports: [u16; 2]) -> Vec<u8> {
    // CAST: a datagram is shorter than 64 KB.
    let [high, low] = (payload.len() as u16 + 8).to_be_bytes();
    packet(UDP, ports, &[high, low, 0, 0], payload)
}

/// Returns a packet over IPv4, of UDP or TCP, with good checksums; `rest` is its transport header behind the ports.
pub fn packet(protocol: u8, ports: [u16; 2], rest: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0xc0, 0xff, 0xee, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    // CAST: a packet is shorter than 64 KB.
    let bytes = 24 + rest.len() as u16 + payload.len() as u16;
    frame.extend(bytes.to_be_bytes());
    frame.extend([0, 7, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(ports.into_iter().flat_map(u16::to_be_bytes));
    frame.extend(rest);
    frame.extend(payload);
    if let Some(ip) = Headers::parse(&frame).ip {
        ip.write_checksum(&mut frame);
        ip.write_transport_checksum(&mut frame);
    }
    frame
}

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
    /// True if addresses beyond the memory start again at its beginning.
    pub repeats: bool,
}

impl Machine {
    /// Returns a machine with that many bytes of memory.
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
