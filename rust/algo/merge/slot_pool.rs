// SPDX-License-Identifier: GPL-2.0

//! The slots of all flows that are split now, shared by all sources.
//!
//! A slot's batch numbers go on from one flow to the next, so a straggler of an earlier flow is late, never early. They begin at
//! random, as those of probes: a packet that is in a queue while the module goes and comes back is late as well, but for chance.

use super::slot::Slot;
use crate::algo::lanes::queue::Packet;
use crate::algo::limits::MAX_SLOTS;
use crate::algo::sync::{AtomicU32, AtomicU64, Ordering};

/// Number of slots.
pub const NR_SLOTS: usize = if cfg!(loom) { 2 } else { MAX_SLOTS };

/// All slots. Memory of zeros is a pool in which all are free.
pub struct SlotPool<P: Packet> {
    // Bit `n`: slot `n` is taken.
    taken: AtomicU64,
    probes: AtomicU32,
    sources: AtomicU32,
    slots: [Slot<P>; NR_SLOTS],
}

impl<P: Packet> SlotPool<P> {
    /// Returns a pool in which all slots are free.
    pub fn new() -> Self {
        Self {
            taken: AtomicU64::new(0),
            probes: AtomicU32::new(0),
            sources: AtomicU32::new(0),
            slots: core::array::from_fn(|_| Slot::new()),
        }
    }

    /// Sets the first numbers of batches and probes at random. Called once, before anything uses the pool.
    pub fn start(&self, mut random: impl FnMut() -> u32) {
        // ORDERING: Relaxed: the caller publishes the pool.
        self.probes.store(random(), Ordering::Relaxed);
        for slot in &self.slots {
            slot.start_at(random());
        }
    }

    /// Takes a free slot. Any context, lock-free.
    pub fn claim(&self) -> Option<usize> {
        // ORDERING: Relaxed: only compared.
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            // CAST: at most 64.
            let free = (!taken).trailing_zeros() as usize;
            if free >= NR_SLOTS {
                return None;
            }
            // ORDERING: Acquire pairs with the Release in `release`: the last owner's writes are visible.
            match self.taken.compare_exchange_weak(
                taken,
                taken | 1 << free,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    self.share_out();
                    return Some(free);
                }
                Err(now) => taken = now,
            }
        }
    }

    /// Gives a slot back. Its last batch has had its turn.
    pub fn release(&self, index: usize) {
        // ORDERING: Release pairs with the Acquire in `claim`.
        self.taken.fetch_and(!(1 << index), Ordering::Release);
        self.share_out();
    }

    /// Gives each slot that is taken an even share of what may be parked. Two calls at once may leave shares
    /// that are some slots old: the bound is that much less exact until the next.
    fn share_out(&self) {
        // ORDERING: Relaxed: a bound on memory, not an order.
        let taken = self.taken.load(Ordering::Relaxed).count_ones();
        for index in self.taken() {
            self.slot(index).set_sharers(taken);
        }
    }

    /// Returns the indices of the slots that are taken.
    pub fn taken(&self) -> impl Iterator<Item = usize> {
        // ORDERING: Relaxed: a snapshot.
        let mut left = self.taken.load(Ordering::Relaxed);
        core::iter::from_fn(move || {
            // CAST: at most 64.
            let index = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (index < NR_SLOTS).then_some(index)
        })
    }

    /// Returns the slot; indices wrap.
    #[inline]
    pub fn slot(&self, index: usize) -> &Slot<P> {
        // PANIC: the remainder is below the length.
        &self.slots[index % NR_SLOTS]
    }

    /// Returns all slots.
    pub fn iter(&self) -> impl Iterator<Item = &Slot<P>> {
        self.slots.iter()
    }

    /// Returns a number for a probe that no other probe under way has.
    pub fn next_probe(&self) -> u32 {
        // ORDERING: Relaxed: unique because it is a read-modify-write.
        self.probes.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that another source takes packets from now on. It may split none before.
    pub fn note_source(&self) {
        // ORDERING: Release pairs with the Acquire in `nr_sources`: with the number it is visible who takes packets.
        self.sources.fetch_add(1, Ordering::Release);
    }

    /// Returns how many sources there have been, modulo 2^32.
    pub fn nr_sources(&self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `note_source`.
        self.sources.load(Ordering::Acquire)
    }

    /// Returns whether a fence may be on its way to its merge point.
    pub fn awaits_fence(&self) -> bool {
        self.taken().any(|index| self.slot(index).awaits_fence())
    }
}

impl<P: Packet> Default for SlotPool<P> {
    fn default() -> Self {
        Self::new()
    }
}
