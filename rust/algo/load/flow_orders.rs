// SPDX-License-Identifier: GPL-2.0

//! The decisions of the controller, where the packet path reads them.
//!
//! | | |
//! |---|---|
//! | writer | the controller, for each slot once per sample; the dispatcher only says that a slot has a flow, and on which CPU |
//! | readers | the dispatcher, when it opens a batch |
//! | order | none: each word is complete in itself, and an old one is as good as a sample that came late |
//! | cost | three loads per batch; a store where the flow's CPU has changed |

// Not from `sync`: no interleaving of these words matters, so a loom build need not look at any.
use crate::algo::limits::{MAX_BATCH_PKTS, MAX_LANES, MAX_SLOTS};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The lanes and the batch size that one flow has been given. The default lets it have everything, as without a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The lanes that may get batches (bit mask).
    pub lanes: u16,
    /// Packets in a batch; if the knob says less, that holds.
    pub batch_pkts: u16,
    /// The core that dispatches carries a batch if all of these lanes have enough to do.
    pub helps: bool,
    /// The flow is to go back to the ordinary path.
    pub stops: bool,
}

impl Order {
    /// Without a controller.
    pub const NONE: Self = Self {
        lanes: u16::MAX,
        batch_pkts: u16::MAX,
        helps: false,
        stops: false,
    };

    const HELPS: u64 = 1 << 48;
    const STOPS: u64 = 1 << 49;
    /// Set in every order that was given, so that zero stands for none.
    const GIVEN: u64 = 1 << 50;

    fn word(self, generation: u16) -> u64 {
        u64::from(self.lanes)
            | u64::from(self.batch_pkts) << 16
            | u64::from(generation) << 32
            | if self.helps { Self::HELPS } else { 0 }
            | if self.stops { Self::STOPS } else { 0 }
            | Self::GIVEN
    }

    fn of_word(word: u64, generation: u16) -> Option<Self> {
        // CAST: the fields of the word, 16 bits each.
        let field = |at: u32| (word >> at) as u16;
        (word & Self::GIVEN != 0 && field(32) == generation).then_some(Self {
            lanes: field(0),
            batch_pkts: field(16),
            helps: word & Self::HELPS != 0,
            stops: word & Self::STOPS != 0,
        })
    }
}

const _: () = assert!(MAX_LANES <= u16::BITS as usize && MAX_BATCH_PKTS <= u16::MAX as u32);

struct SlotOrder {
    // Counts the flows that the slot has had: an order is for one of them.
    generation: AtomicU32,
    word: AtomicU64,
    // Plus one: the CPU that opened the last batch. Zero: the slot's flow has had none.
    cpu: AtomicU32,
}

/// All orders. Memory of zeros has none: everything is as without a controller.
pub struct Orders {
    slots: [SlotOrder; MAX_SLOTS],
    // Lanes (bit mask) that no new flow is to use.
    barred: AtomicU32,
    // Not zero: no new flow is to be split.
    refuses: AtomicU32,
}

// ORDERING: Relaxed, everywhere in this file: each word is complete in itself, see the table above.
impl Orders {
    /// Returns a table without orders.
    pub fn new() -> Self {
        Self {
            slots: core::array::from_fn(|_| SlotOrder {
                generation: AtomicU32::new(0),
                word: AtomicU64::new(0),
                cpu: AtomicU32::new(0),
            }),
            barred: AtomicU32::new(0),
            refuses: AtomicU32::new(0),
        }
    }

    fn of(&self, slot: usize) -> &SlotOrder {
        // PANIC: the remainder is below the length.
        &self.slots[slot % MAX_SLOTS]
    }

    /// A flow begins to be split in `slot`: orders for the one before are void.
    pub(in super::super) fn begin_flow(&self, slot: usize) {
        self.of(slot).generation.fetch_add(1, Ordering::Relaxed);
    }

    /// A batch of the slot's flow is opened on this CPU.
    #[inline]
    pub(in super::super) fn note_cpu(&self, slot: usize, cpu: u32) {
        let place = &self.of(slot).cpu;
        // Not stored again for each batch: slots of other CPUs are on the same cache line.
        if place.load(Ordering::Relaxed) != cpu + 1 {
            place.store(cpu + 1, Ordering::Relaxed);
        }
    }

    /// The slot has no flow any more.
    pub(in super::super) fn end_flow(&self, slot: usize) {
        self.of(slot).cpu.store(0, Ordering::Relaxed);
    }

    /// Returns the CPU that opened the last batch of the slot's flow; none if it has had none.
    pub fn cpu(&self, slot: usize) -> Option<u32> {
        self.of(slot).cpu.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Returns a number that changes with the slot's flow.
    pub fn generation(&self, slot: usize) -> u16 {
        // CAST: modulo 2^16.
        self.of(slot).generation.load(Ordering::Relaxed) as u16
    }

    /// Returns the order for the slot's flow.
    #[inline]
    pub fn order(&self, slot: usize) -> Order {
        let word = self.of(slot).word.load(Ordering::Relaxed);
        Order::of_word(word, self.generation(slot)).unwrap_or_else(|| Order {
            // CAST: a mask of MAX_LANES.
            lanes: !(self.barred.load(Ordering::Relaxed) as u16),
            ..Order::NONE
        })
    }

    /// Gives an order to the flow that had this generation.
    pub fn give(&self, slot: usize, generation: u16, order: Order) {
        let word = order.word(generation);
        self.of(slot).word.store(word, Ordering::Relaxed);
    }

    /// Returns whether no new flow is to be split.
    #[inline]
    pub fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed) != 0
    }

    /// Sets whether new flows are refused.
    pub fn refuse(&self, refuses: bool) {
        self.refuses.store(u32::from(refuses), Ordering::Relaxed);
    }

    /// Bars new flows from lanes whose cores something else has; a mask.
    pub(super) fn bar(&self, lanes: u16) {
        self.barred.store(u32::from(lanes), Ordering::Relaxed);
    }

    /// Takes all orders back: there is no controller any more.
    pub fn clear(&self) {
        for slot in &self.slots {
            slot.word.store(0, Ordering::Relaxed);
        }
        self.bar(0);
        self.refuse(false);
    }
}

impl Default for Orders {
    fn default() -> Self {
        Self::new()
    }
}
