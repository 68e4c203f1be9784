// SPDX-License-Identifier: GPL-2.0

//! A socket, a clock and a deadline timer that several threads share.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use mflow_algo::algo::lanes::queue::chain::Chain;
use mflow_algo::algo::merge::slot::{LaneId, Merged, Sink, Slot};
use mflow_algo::algo::parked_amount::Amount;

use super::cell::{AtomicBool, AtomicU32, AtomicU64, UnsafeCell};
use super::packet::{Factory, TestPacket};

pub(crate) const TIMEOUT_US: u32 = 100;

/// The receiver of merged packets. Time passes when a test says so.
pub(crate) struct Socket {
    /// Without a lock: the checker reports two mergers at once, or one that does not see what the last one did.
    delivered: UnsafeCell<Vec<u64>>,
    is_busy: AtomicBool,
    now_us: AtomicU64,
    /// The number of timers that have been armed and have not fired.
    pub(crate) armed: AtomicU32,
    pub(crate) packets: Factory,
}

// SAFETY: Only one thread at a time delivers. That this is so is what the tests let the checker verify.
unsafe impl Send for Socket {}
// SAFETY: `delivered` is written by one thread at a time, which the tests let the checker verify; the rest are atomics.
unsafe impl Sync for Socket {}

impl Socket {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            delivered: UnsafeCell::new(Vec::new()),
            is_busy: AtomicBool::new(false),
            now_us: AtomicU64::new(1_000),
            armed: AtomicU32::new(0),
            packets: Factory::default(),
        })
    }

    /// Delivers one packet past the merge point, as the ordinary path does.
    pub(crate) fn deliver_directly(&self, packet: TestPacket) {
        self.push(packet.id());
    }

    fn push(&self, id: u64) {
        // Relaxed, so that it orders nothing that the slot has not ordered.
        assert!(
            !self.is_busy.swap(true, Ordering::Relaxed),
            "two deliver at once"
        );
        self.delivered.with_mut(|delivered| {
            // SAFETY: Only one thread at a time delivers, which the tests let the checker verify.
            unsafe { (*delivered).push(id) }
        });
        self.is_busy.store(false, Ordering::Relaxed);
    }

    /// Returns what has been delivered. The other threads have been joined.
    pub(crate) fn delivered(&self) -> Vec<u64> {
        // SAFETY: The threads that delivered have been joined.
        self.delivered
            .with(|delivered| unsafe { (*delivered).clone() })
    }

    pub(crate) fn pass_time(&self, us: u32) {
        self.now_us.fetch_add(u64::from(us), Ordering::Relaxed);
    }

    pub(crate) fn fire(&self, slot: &Slot<TestPacket>) -> bool {
        if self.armed.swap(0, Ordering::Relaxed) == 0 {
            return false;
        }
        slot.expire();
        self.merge(slot);
        true
    }

    /// Merges as a lane does, but until nothing is left to do.
    pub(crate) fn merge(&self, slot: &Slot<TestPacket>) {
        while slot.merge(&mut &*self, u32::MAX) == Merged::More {}
    }

    /// Parks packets of one batch as a lane does at the end of its poll.
    pub(crate) fn park(
        &self,
        slot: &Slot<TestPacket>,
        batch: u32,
        chain: Chain<TestPacket>,
        amount: Amount,
    ) {
        if slot.park(batch, chain, amount) {
            self.merge(slot);
        }
    }

    pub(crate) fn complete(&self, slot: &Slot<TestPacket>, batch: u32) {
        if slot.complete(batch) {
            self.merge(slot);
        }
    }
}

impl Sink<TestPacket> for &Socket {
    fn deliver(&mut self, mut chain: Chain<TestPacket>) -> Amount {
        let mut amount = Amount::default();
        while let Some(packet) = chain.pop() {
            self.push(packet.id());
            amount += packet.amount();
        }
        amount
    }

    fn now_us(&mut self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }

    fn timeout_us(&mut self) -> u32 {
        TIMEOUT_US
    }

    // All lanes are as silent as can be: so the deadline is the strictest.
    fn lane_progress(&mut self, _lane: LaneId) -> u32 {
        0
    }

    fn arm_deadline(&mut self, after_us: u32) {
        assert!(after_us > 0);
        self.armed.fetch_add(1, Ordering::Relaxed);
    }
}
