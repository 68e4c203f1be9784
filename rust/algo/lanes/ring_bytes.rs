// SPDX-License-Identifier: GPL-2.0

//! The bound on the memory that waits in rings.
//!
//! A ring bounds its packets, but a host has many rings: one for each lane of each source, and a remote sender may fill them all.
//! So the bytes that wait for one CPU, whatever their source, are bounded, and so are the bytes that wait for all CPUs. Where a
//! bound is reached, batches are carried inline, and a sender that is too fast meets the NIC's own ring, as without a split.
//!
//! | | |
//! |---|---|
//! | writers | sources charge what they have handed over once per poll; lanes release what they have taken once per poll |
//! | readers | sources, before they give a lane a batch |
//! | exact | but for what one poll hands over, and for the rest of a batch that is open when a bound is reached |
//! | cost | two atomic additions per poll and lane, on either side |

use crate::algo::limits;
use crate::algo::sync::{AtomicU64, Ordering};

/// Bytes that may wait for one CPU: some milliseconds of its work.
pub const MAX_CPU_RING_BYTES: u64 = 16 << 20;

/// Bytes that may wait for all CPUs.
pub const MAX_RING_BYTES: u64 = 128 << 20;

const NR_CPUS: usize = if cfg!(loom) {
    2
} else {
    limits::MAX_CPUS as usize
};

/// A count of bytes, in a cache line of its own.
#[repr(align(64))]
struct Bytes(AtomicU64);

/// The bytes in all rings. Memory of zeros has none.
pub struct RingBytes {
    by_cpu: [Bytes; NR_CPUS],
    all: Bytes,
}

impl Bytes {
    fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    // ORDERING: Relaxed, all: a bound on memory, not an order.
    fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn subtract(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes. A lane may release some before they are charged: that is less than none.
    fn get(&self) -> u64 {
        // CAST: two's complement.
        (self.0.load(Ordering::Relaxed) as i64).max(0) as u64
    }
}

impl RingBytes {
    /// Returns counts of zero.
    pub fn new() -> Self {
        Self {
            by_cpu: core::array::from_fn(|_| Bytes::new()),
            all: Bytes::new(),
        }
    }

    fn of_cpu(&self, cpu: u32) -> &Bytes {
        // PANIC: the remainder is below the length.
        // CAST: 32 bits into a usize.
        &self.by_cpu[cpu as usize % NR_CPUS]
    }

    /// Counts what has been handed over to a lane on `cpu`.
    pub fn charge(&self, cpu: u32, bytes: u64) {
        self.of_cpu(cpu).add(bytes);
        self.all.add(bytes);
    }

    /// Takes back what a lane on `cpu` has taken from its ring.
    pub fn release(&self, cpu: u32, bytes: u64) {
        self.of_cpu(cpu).subtract(bytes);
        self.all.subtract(bytes);
    }

    /// Returns whether a lane on `cpu` may get a batch from a source that has not charged this many bytes yet.
    pub fn has_room(&self, cpu: u32, uncharged_bytes: u64) -> bool {
        let with = |bytes: &Bytes| bytes.get().saturating_add(uncharged_bytes);
        with(self.of_cpu(cpu)) < MAX_CPU_RING_BYTES && with(&self.all) < MAX_RING_BYTES
    }

    /// Returns the bytes that wait for one CPU.
    pub fn waiting_for(&self, cpu: u32) -> u64 {
        self.of_cpu(cpu).get()
    }

    /// Returns the bytes that wait for all CPUs.
    pub fn all(&self) -> u64 {
        self.all.get()
    }
}

impl Default for RingBytes {
    fn default() -> Self {
        Self::new()
    }
}
