// SPDX-License-Identifier: GPL-2.0

//! The card's PCI configuration space: a virtual function, for which the driver expects the least.

use crate::firmware::field::put;
use crate::firmware::registers::REGION_BYTES;

/// Bytes of the space.
pub(crate) const BYTES: usize = 256;

/// ConnectX family, virtual function.
const VENDOR: u16 = 0x15b3;
const DEVICE: u16 = 0x101e;

/// The offset of the only capability, message-signalled interrupts.
const CAPABILITY: usize = 0x40;
/// The offset in the region of the capability's tables, which QEMU emulates.
const TABLE: u32 = 0x8_0000;
const PENDING: u32 = 0x9_0000;

const COMMAND: usize = 0x04;
const REGION: usize = 0x10;
const MEMORY_64_PREFETCHABLE: u64 = 0x0c;

#[derive(Clone, Debug)]
pub(crate) struct Space([u8; BYTES]);

impl Space {
    pub(crate) fn new(vectors: u16) -> Self {
        let mut space = [0; BYTES];
        for (at, value) in [
            (0x00, VENDOR),
            (0x02, DEVICE),
            // Status: there is a list of capabilities.
            (0x06, 0x10),
            // Class: Ethernet controller.
            (0x0a, 0x0200),
            (0x2c, VENDOR),
            (0x2e, 1),
            (CAPABILITY, 0x11),
            (CAPABILITY + 2, vectors.saturating_sub(1) & 0x7ff),
        ] {
            put(&mut space, at, &value.to_le_bytes());
        }
        put(&mut space, REGION, &MEMORY_64_PREFETCHABLE.to_le_bytes());
        space[0x34] = CAPABILITY as u8;
        put(&mut space, CAPABILITY + 4, &TABLE.to_le_bytes());
        put(&mut space, CAPABILITY + 8, &PENDING.to_le_bytes());
        Self(space)
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            let at = usize::try_from(offset)
                .unwrap_or(BYTES)
                .saturating_add(index);
            *byte = self.0.get(at).copied().unwrap_or(0);
        }
    }

    /// Writes what can be written: command, address of the region, control of the interrupts.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        for (index, byte) in data.iter().enumerate() {
            let at = usize::try_from(offset)
                .unwrap_or(BYTES)
                .saturating_add(index);
            let writable = [
                COMMAND..COMMAND + 2,
                REGION..REGION + 8,
                CAPABILITY + 3..CAPABILITY + 4,
            ];
            if writable.iter().any(|range| range.contains(&at)) {
                self.0[at] = *byte;
            }
        }
        let mut address = [0; 8];
        address.copy_from_slice(&self.0[REGION..REGION + 8]);
        // A driver that writes ones to learn the size reads zeros in the bits that the size covers.
        let address = u64::from_le_bytes(address) & !(REGION_BYTES - 1) | MEMORY_64_PREFETCHABLE;
        put(&mut self.0, REGION, &address.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_region_can_be_learned() {
        let mut space = Space::new(9);
        space.write(0x10, &[0xff; 4]);
        let mut back = [0; 4];
        space.read(0x10, &mut back);
        assert_eq!(u32::from_le_bytes(back), 0xfff0_000c);
        space.write(0, &[0; 2]);
        space.read(0, &mut back);
        assert_eq!(back, [0xb3, 0x15, 0x1e, 0x10]);
        space.read(0x42, &mut back[..2]);
        assert_eq!(back[0], 8);
        space.read(u64::MAX, &mut back);
        assert_eq!(back, [0; 4]);
    }
}
