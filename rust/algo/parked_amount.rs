// SPDX-License-Identifier: GPL-2.0

//! The number of parked packets, counted as they were on the wire, and the memory that they hold. Both are in one word, so that
//! one atomic operation counts them.

use core::ops::AddAssign;

/// Memory is counted in blocks of this many bytes.
const BLOCK_BYTES: u32 = 256;

/// The half of a word.
const HALF: u32 = u16::MAX as u32;

/// A number of packets and their memory. Zeros are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount(u64);

impl Amount {
    /// Returns the amount of one packet of the stack. More than 65,535 packets on the wire count as that many, more than
    /// 16 MiB as that much: no `struct sk_buff` has more.
    #[inline]
    pub const fn of(wire_pkts: u32, bytes: u32) -> Self {
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        let pkts = if wire_pkts > HALF { HALF } else { wire_pkts };
        let blocks = if blocks > HALF { HALF } else { blocks };
        // CAST: wider.
        Self((blocks as u64) << 32 | pkts as u64)
    }

    /// Returns the word in which a parked packet keeps the amount that it was counted for. The sum of such words, half by
    /// half, is what `mflow_deliver()` returns.
    #[inline]
    pub const fn word(self) -> u32 {
        // CAST: both halves of one packet have 16 bits.
        (self.0 >> 16) as u32 | self.pkts()
    }

    /// Returns the amount whose [`bits`](Self::bits) these are.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns packets in the lower half, blocks of memory in the upper one. Amounts are added and subtracted as these are.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the packets as they were on the wire.
    #[inline]
    pub const fn pkts(self) -> u32 {
        // CAST: the lower half.
        self.0 as u32
    }

    /// Returns the memory in bytes, each packet's rounded up to a block.
    #[inline]
    pub const fn bytes(self) -> u64 {
        // CAST: wider.
        (self.0 >> 32) * BLOCK_BYTES as u64
    }

    /// Returns how many packets like these fit into so much memory.
    #[inline]
    pub const fn fit_into(self, bytes: u32) -> u32 {
        // CAST: 32 bits into 64, and back: there are no fewer bytes than packets.
        match self.bytes() {
            0 => 0,
            all => (bytes as u64 * self.pkts() as u64 / all) as u32,
        }
    }
}

impl AddAssign for Amount {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}
