// SPDX-License-Identifier: GPL-2.0

//! A place of the window, which belongs to one batch after the other.
//!
//! It is open for one batch at a time: from [`open`](Place::open), before any of the batch's packets is handed out, until the
//! merger gives its turn away ([`close`](Place::close)). One word names the batch and says how far it has come. Each change of
//! the word is an exchange that succeeds only while the place is open for the batch that the caller means. So a call that comes
//! too late changes nothing, nor does a call for a batch that nobody has opened, however long its core stands still in between.
//!
//! A core [enters](Place::enter) the place before it parks packets. The next batch gets the place after the core has left. So all
//! packets that such a core finds in the place are of its own batch.
//!
//! | bits of the word | |
//! |---|---|
//! | 0 to 23 | packets of the batch that something on the path has queued, and that have not arrived yet |
//! | 24 to 39 | cores that are in the place |
//! | 40 | whether the batch is carried: its lane is done with it |
//! | 41 | whether the place is open |
//! | 42 to 63 | the batch's number, without the bits that choose the place |

use super::{LaneId, WINDOW_BATCHES};
use crate::algo::lanes::queue::chain::{Chain, ParkedChains};
use crate::algo::lanes::queue::Packet;
use crate::algo::sync::{AtomicU32, AtomicU64, Ordering};

const QUEUED: u64 = (1 << 24) - 1;
const ONE_CORE: u64 = 1 << 24;
const CORES: u64 = 0xffff << 24;
const CARRIED: u64 = 1 << 40;
const OPEN: u64 = 1 << 41;
const NUMBER_SHIFT: u32 = 42;
/// The bits that say whether the place is open, and for which batch.
const NAME: u64 = !0 << 41;

/// Returns the bits under `NAME` in the word of a place that is open for `batch`.
#[inline]
const fn name(batch: u32) -> u64 {
    // CAST: 32 bits into 64.
    ((batch / WINDOW_BATCHES) as u64) << NUMBER_SHIFT | OPEN
}

/// A place of the window. Memory of zeros is one that has had no batch.
pub(super) struct Place<P: Packet> {
    parked: ParkedChains<P>,
    word: AtomicU64,
    // The lane of the batch opened here last. A hint for the deadline.
    lane: AtomicU32,
}

/// A core that parks packets in a place. No other batch gets the place while this value lives.
pub(super) struct Parking<'a, P: Packet> {
    place: &'a Place<P>,
}

impl<P: Packet> Place<P> {
    /// Returns a place that has had no batch.
    pub(super) fn new() -> Self {
        Self {
            parked: ParkedChains::new(),
            word: AtomicU64::new(0),
            lane: AtomicU32::new(0),
        }
    }

    /// Returns whether a batch can have the place: the batch before has had its turn, and no core still parks packets for that
    /// batch. A free place stays free until it is opened, because no core enters a closed place.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `Parking::drop`: the next batch's packets come after what such a core does.
        self.word.load(Ordering::Acquire) & (OPEN | CORES) == 0
    }

    /// Opens the place, which is free, for `batch`, to be carried by `lane`.
    #[inline]
    pub(super) fn open(&self, batch: u32, lane: LaneId) {
        // ORDERING: Relaxed: a hint, published by the word.
        self.lane.store(lane, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `enter` and `is_complete`: what the dispatcher has seen of the place's last
        // batch comes before this one. Nobody else changes the word of a place that is free.
        self.word.store(name(batch), Ordering::Release);
    }

    /// Closes the place. The merger calls this before it gives the turn away.
    #[inline]
    pub(super) fn close(&self) {
        // ORDERING: Relaxed: who opens the place next has seen a later turn, which the merger's store of `next` publishes.
        self.word.fetch_and(!OPEN, Ordering::Relaxed);
    }

    /// Applies `change` to the word if the place is open for `batch`. Returns whether it is open and `change` has returned a new
    /// word.
    #[inline]
    fn update(&self, batch: u32, order: Ordering, change: impl Fn(u64) -> Option<u64>) -> bool {
        let change = |word| {
            if word & NAME == name(batch) {
                change(word)
            } else {
                None
            }
        };
        // ORDERING: Relaxed on failure: nothing is changed.
        self.word
            .fetch_update(order, Ordering::Relaxed, change)
            .is_ok()
    }

    /// Enters the place to park packets of `batch`. Returns `None` if the place is not open for that batch: its packets are late.
    #[inline]
    pub(super) fn enter(&self, batch: u32) -> Option<Parking<'_, P>> {
        // ORDERING: Acquire pairs with the Release in `open`. A core is here but once, and the bits can count them all.
        self.update(batch, Ordering::Acquire, |word| {
            Some(word.wrapping_add(ONE_CORE))
        })
        .then(|| Parking { place: self })
    }

    /// Notes that `batch` is carried; returns whether the place is open for it.
    pub(super) fn complete(&self, batch: u32) -> bool {
        // ORDERING: Release pairs with the Acquire in `is_complete`: all that was parked before is visible with it.
        self.update(batch, Ordering::Release, |word| Some(word | CARRIED))
    }

    /// Counts packets of `batch` that something has queued.
    pub(super) fn note_queued(&self, batch: u32, pkts: u32) {
        // ORDERING: Relaxed: `complete`, which this core calls later, publishes the count, or the arrival of another that is
        // counted already.
        self.update(batch, Ordering::Relaxed, |word| {
            let queued = (word & QUEUED).saturating_add(u64::from(pkts));
            Some(word & !QUEUED | queued.min(QUEUED))
        });
    }

    /// Counts packets of `batch` that have been queued and have arrived; returns whether the place is open for it.
    pub(super) fn note_arrived(&self, batch: u32, pkts: u32) -> bool {
        // ORDERING: Release pairs with the Acquire in `is_complete`: what was parked is visible with it.
        self.update(batch, Ordering::Release, |word| {
            let queued = (word & QUEUED).saturating_sub(u64::from(pkts));
            Some(word & !QUEUED | queued)
        })
    }

    /// Gives up packets of `batch` that were queued; returns whether there were any.
    pub(super) fn forget_queued(&self, batch: u32) -> bool {
        // ORDERING: Release pairs with the Acquire in `is_complete`: what was parked is visible with it.
        self.update(batch, Ordering::Release, |word| {
            (word & QUEUED != 0).then_some(word & !QUEUED)
        })
    }

    /// Returns whether all packets of `batch` that will come have been parked, or `None` if the place is not open for that batch.
    #[inline]
    pub(super) fn is_complete(&self, batch: u32) -> Option<bool> {
        // ORDERING: Acquire pairs with the Release in `complete`, `note_arrived` and `forget_queued`, also where others have
        // changed the word since: each change is a read-modify-write. It pairs with that in `open`, too.
        let word = self.word.load(Ordering::Acquire);
        (word & NAME == name(batch)).then_some(word & (CARRIED | QUEUED) == CARRIED)
    }

    /// Returns whether `batch` is carried, whatever of it has been queued.
    pub(super) fn is_carried(&self, batch: u32) -> bool {
        // ORDERING: Relaxed: nothing is read that it publishes; if we miss the change in `complete`, its caller merges.
        self.word.load(Ordering::Relaxed) & (NAME | CARRIED) == name(batch) | CARRIED
    }

    /// Returns the lane of the batch opened here last.
    #[inline]
    pub(super) fn lane(&self) -> LaneId {
        // ORDERING: Relaxed: a hint.
        self.lane.load(Ordering::Relaxed)
    }

    /// Returns whether nothing is parked here.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// Takes all that is parked here. Only the merger calls this.
    #[inline]
    pub(super) fn take_all(&self) -> Chain<P> {
        self.parked.take_all()
    }
}

impl<P: Packet> Parking<'_, P> {
    /// Parks packets of the batch.
    #[inline]
    pub(super) fn park(&self, chain: Chain<P>) {
        self.place.parked.park(chain);
    }

    /// Takes all that is parked here, which is of the batch.
    pub(super) fn take_all(&self) -> Chain<P> {
        self.place.parked.take_all()
    }
}

impl<P: Packet> Drop for Parking<'_, P> {
    /// Leaves the place.
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire in `is_free`: what we have parked or taken comes before the next batch.
        self.place.word.fetch_sub(ONE_CORE, Ordering::Release);
    }
}
