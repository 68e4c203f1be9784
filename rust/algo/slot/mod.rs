// SPDX-License-Identifier: GPL-2.0

//! A slot: where the micro-flows of one flow are put back in order.
//!
//! The dispatcher numbers batches; lanes park what they have carried ([`Slot::park`]) and say when a batch is complete
//! ([`Slot::complete`]); the core that makes progress possible merges ([`Slot::merge`]). The merging counter `next` (MFLOW,
//! section III-B) is the batch whose turn it is. A batch is complete when its lane says so, never when a number of
//! packets has been seen: packets are dropped, cloned and coalesced on the way.
//!
//! `token` decides which core merges: the first that adds to it merges for all that add while it does (`merging.rs`). The
//! merger has no thread of its own and no core waits for it: one that finds the token taken goes on with its packets.
//!
//! Lost wake-ups. A lane that parks or completes batch `b` merges only if it is `b`'s turn; the merger looks at `b` only
//! when it is `b`'s turn. Both write, then fence, then read the other's word, so at least one of them sees the other (the
//! store-buffering pattern). `park` also merges when nothing was parked before, so that the deadline is started.

mod merging;

use super::amount::Amount;
use super::counters::{Counter, Counters};
use super::queue::chain::{Chain, ParkedChains};
use super::queue::Packet;
use super::sync::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};
use super::tag::is_before;

/// Batches that can be under way at once; a power of two.
pub const WINDOW_BATCHES: u32 = if cfg!(loom) { 4 } else { 1024 };

/// Packets that may be parked in all slots together, each of which has an even share. A slot with more gives up the batch
/// that it waits for.
pub const MAX_PARKED_PKTS: u32 = 65536;

/// The same in bytes of memory.
pub const MAX_PARKED_BYTES: u64 = 128 << 20;

/// What any share holds.
const LEAST_SHARE_PKTS: u32 = MAX_PARKED_PKTS / super::tag::MAX_SLOTS as u32;
const LEAST_SHARE_BYTES: u64 = MAX_PARKED_BYTES / super::tag::MAX_SLOTS as u64;

/// Where merged packets go, and the clock of the deadline. What a socket or a timer is, a slot does not know.
pub trait Sink<P: Packet> {
    /// Delivers packets in order and returns how much they were when they were parked.
    fn deliver(&mut self, chain: Chain<P>) -> Amount;
    /// Returns a time that only grows, in microseconds.
    fn now_us(&mut self) -> u64;
    /// Returns how long the turn of an incomplete batch may hold others up.
    fn timeout_us(&mut self) -> u32;
    /// Returns a number that changes whenever this lane takes a packet from its ring.
    fn lane_progress(&mut self, lane: LaneId) -> u32;
    /// Calls [`Slot::expire`] and merges, after so many microseconds.
    fn arm_deadline(&mut self, after_us: u32);
}

/// A lane, known to the dispatcher and to the [`Sink`]; any number but [`INLINE`] and [`ORDINARY_PATH`].
pub type LaneId = u32;

/// Stands for the core that dispatches. (0, so that a slot of zeros knows no lane.)
pub const INLINE: LaneId = 0;

/// Stands for the ordinary path, which carries the fence.
pub const ORDINARY_PATH: LaneId = LaneId::MAX;

/// Least time that the fence gets: the ordinary path may be some thousand packets long.
const FENCE_TIMEOUT_US: u32 = 50_000;

/// What a call of [`Slot::merge`] has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Everything deliverable is delivered, or another core is merging.
    Done,
    /// The budget is used up; call again soon.
    More,
}

/// What makes a path unsuitable for a split flow: `MFLOW_PATH_*` in `include/net/mflow.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PathFault {
    /// Something queues packets: splitting is of no use at the pace of that queue.
    Queues = 1,
    /// A step before the merge point drops or delays what comes out of order.
    Ordered = 2,
}

impl PathFault {
    /// Returns the fault with this number; others stand for [`Queues`](Self::Queues).
    pub fn of_number(number: u32) -> Self {
        if number == Self::Ordered as u32 {
            Self::Ordered
        } else {
            Self::Queues
        }
    }
}

struct BatchPlace<P: Packet> {
    parked: ParkedChains<P>,
    // The number, plus one, of the batch that was completed here last. (Plus one: zeros mean "none yet".)
    done: AtomicU32,
    // The lane of the batch opened here last. A hint for the deadline.
    lane: AtomicU32,
    // Packets of the batch that something on the path has queued, and that have not arrived yet.
    queued_pkts: AtomicU32,
}

/// The merge point of one split flow. See the head of this file. Memory of zeros is a new one.
pub struct Slot<P: Packet> {
    // The batch whose turn it is. Written by the token's holder.
    next: AtomicU32,
    token: AtomicU32,
    // Bits of the `Amount` that is parked and not yet delivered.
    parked: AtomicU64,
    // The furthest batch of which packets have been parked: those before it can hold it up.
    furthest: AtomicU32,
    // Packets that have reached the merge point, ever; the dispatcher watches it.
    arrived_pkts: AtomicU32,
    // Whether GRO joins the flow's packets, as lanes have found last.
    gro_joins: AtomicBool,
    late: ParkedChains<P>,
    // What was to be delivered when the budget was used up, and whether it is late. Used under the token.
    rest: ParkedChains<P>,
    rest_is_late: AtomicBool,
    overflowed: AtomicBool,
    // Among how many flows MAX_PARKED_PKTS and MAX_PARKED_BYTES are shared; 0 as 1.
    sharers: AtomicU32,
    armed: AtomicBool,
    // Bits of `PathFault`.
    path_faults: AtomicU32,
    // Since when (plus one) batch `blocked_on` has held others up; 0: it holds up none. Written under the token.
    blocked_since_us: AtomicU64,
    blocked_on: AtomicU32,
    // How far that batch's lane had come then.
    blocked_progress: AtomicU32,
    // The socket of the packets parked last. Only compared.
    socket: AtomicU64,
    // The probe (plus one) that has arrived last.
    probe_seen: AtomicU32,
    places: [BatchPlace<P>; WINDOW_BATCHES as usize],
    /// What has happened here. Written under the token, but for what `park` counts.
    pub counters: Counters,
}

impl<P: Packet> Slot<P> {
    /// Returns a new slot.
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// Returns a new slot whose first batch is `batch`.
    pub fn starting_at(batch: u32) -> Self {
        Self {
            next: AtomicU32::new(batch),
            token: AtomicU32::new(0),
            parked: AtomicU64::new(0),
            furthest: AtomicU32::new(batch),
            arrived_pkts: AtomicU32::new(0),
            gro_joins: AtomicBool::new(false),
            late: ParkedChains::new(),
            rest: ParkedChains::new(),
            rest_is_late: AtomicBool::new(false),
            overflowed: AtomicBool::new(false),
            sharers: AtomicU32::new(0),
            armed: AtomicBool::new(false),
            path_faults: AtomicU32::new(0),
            blocked_since_us: AtomicU64::new(0),
            blocked_on: AtomicU32::new(0),
            blocked_progress: AtomicU32::new(0),
            socket: AtomicU64::new(0),
            probe_seen: AtomicU32::new(0),
            places: core::array::from_fn(|_| BatchPlace {
                parked: ParkedChains::new(),
                done: AtomicU32::new(batch),
                lane: AtomicU32::new(0),
                queued_pkts: AtomicU32::new(0),
            }),
            counters: Counters::new(),
        }
    }

    #[inline]
    fn place(&self, batch: u32) -> &BatchPlace<P> {
        // PANIC: masked to below the length.
        &self.places[(batch & (WINDOW_BATCHES - 1)) as usize]
    }

    /// Returns the batch whose turn it is; all before it have been delivered or given up.
    #[inline]
    pub fn next(&self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `advance`: what was delivered before is visible as delivered.
        self.next.load(Ordering::Acquire)
    }

    /// Returns how much waits here.
    #[inline]
    pub fn parked(&self) -> Amount {
        // ORDERING: Acquire pairs with the Release half of `deliver`'s subtraction: zero means delivered.
        Amount::from_bits(self.parked.load(Ordering::Acquire))
    }

    /// Returns how many packets wait here.
    #[inline]
    pub fn parked_pkts(&self) -> u32 {
        self.parked().pkts()
    }

    /// Returns how many packets may wait here.
    #[inline]
    pub fn share_pkts(&self) -> u32 {
        // ORDERING: Relaxed: a bound on memory, not an order.
        MAX_PARKED_PKTS / self.sharers.load(Ordering::Relaxed).max(1)
    }

    /// Sets among how many flows the packets and bytes that may be parked are shared: 1 to
    /// [`MAX_SLOTS`](super::tag::MAX_SLOTS).
    pub fn set_sharers(&self, flows: u32) {
        // ORDERING: Relaxed: a bound on memory, not an order.
        self.sharers.store(flows, Ordering::Relaxed);
    }

    /// Returns whether so much is more than may wait here.
    #[inline]
    fn exceeds_share(&self, parked: Amount) -> bool {
        (parked.pkts() > LEAST_SHARE_PKTS || parked.bytes() > LEAST_SHARE_BYTES) && {
            // ORDERING: Relaxed: a bound on memory, not an order.
            let sharers = self.sharers.load(Ordering::Relaxed).max(1);
            parked.pkts() > MAX_PARKED_PKTS / sharers
                || parked.bytes() > MAX_PARKED_BYTES / u64::from(sharers)
        }
    }

    /// Notes whether GRO joins the flow's packets, on a lane.
    #[inline]
    pub fn note_gro(&self, joins: bool) {
        // ORDERING: Relaxed, both: a hint, and the last one counts.
        if self.gro_joins.load(Ordering::Relaxed) != joins {
            self.gro_joins.store(joins, Ordering::Relaxed);
        }
    }

    /// Returns whether GRO joins the flow's packets, as lanes have found last.
    pub fn gro_joins(&self) -> bool {
        // ORDERING: Relaxed: a hint.
        self.gro_joins.load(Ordering::Relaxed)
    }

    /// Returns how many packets have reached the merge point, modulo 2^32.
    #[inline]
    pub fn arrived_pkts(&self) -> u32 {
        // ORDERING: Relaxed: a statistic.
        self.arrived_pkts.load(Ordering::Relaxed)
    }

    /// Returns whether nothing waits here and it is the turn of `batch`.
    #[inline]
    pub fn is_drained_up_to(&self, batch: u32) -> bool {
        self.next() == batch && self.parked_pkts() == 0
    }

    /// Returns whether packets wait here whose turn it is, so that merging would deliver some.
    pub fn is_ready(&self) -> bool {
        if self.parked_pkts() == 0 {
            return false;
        }
        let batch = self.next();
        !self.place(batch).parked.is_empty() || !self.rest.is_empty() || self.is_complete(batch)
    }

    /// Notes for which socket packets are parked here.
    pub fn note_socket(&self, socket: u64) {
        // ORDERING: Relaxed: a hint.
        self.socket.store(socket, Ordering::Relaxed);
    }

    /// Returns whether the packets parked last were for this socket.
    pub fn is_for(&self, socket: u64) -> bool {
        // ORDERING: Relaxed: a hint; the number is only compared.
        self.socket.load(Ordering::Relaxed) == socket
    }

    /// Notes that a probe has arrived.
    pub fn note_probe(&self, probe: u32) {
        // ORDERING: Relaxed: the number says all there is to know.
        self.probe_seen
            .store(probe.wrapping_add(1), Ordering::Relaxed);
        self.counters.add_shared(Counter::ProbesSeen, 1);
    }

    /// Returns whether this probe was the last to arrive.
    pub fn has_seen_probe(&self, probe: u32) -> bool {
        // ORDERING: Relaxed: the number says all there is to know.
        self.probe_seen.load(Ordering::Relaxed) == probe.wrapping_add(1)
    }

    /// Parks packets of `batch`; true if the caller shall merge. If the batch has had its turn, they are late: the merger
    /// delivers them next.
    #[must_use]
    pub fn park(&self, batch: u32, chain: Chain<P>, amount: Amount) -> bool {
        let pkts = amount.pkts();
        // ORDERING: Relaxed: a statistic.
        self.arrived_pkts.fetch_add(pkts, Ordering::Relaxed);
        // ORDERING: Relaxed, and the update: published by the addition that follows.
        if is_before(self.furthest.load(Ordering::Relaxed), batch) {
            let further = |seen| is_before(seen, batch).then_some(batch);
            let _ = self
                .furthest
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, further);
        }
        // ORDERING: Release pairs with the Acquire in `may_skip`. A read-modify-write, so of this and the merger's last
        // subtraction one sees the other.
        let before = Amount::from_bits(self.parked.fetch_add(amount.bits(), Ordering::Release));
        let mut now = before;
        now += amount;
        let overflows = self.exceeds_share(now);
        if overflows {
            // ORDERING: Relaxed: published by the token that the caller adds to.
            self.overflowed.store(true, Ordering::Relaxed);
        }

        if is_before(batch, self.next()) {
            self.late.park(chain);
            return true;
        }

        let place = self.place(batch);
        place.parked.park(chain);
        // ORDERING: pairs with the fence in `advance`; see "Lost wake-ups".
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: ordered by the fence.
        let next = self.next.load(Ordering::Relaxed);
        if is_before(batch, next) {
            // The turn passed while we parked: the merger may have looked here for the last time.
            self.late.park(place.parked.take_all());
            return true;
        }
        if batch != next {
            self.counters
                .add_shared(Counter::EarlyPkts, u64::from(pkts));
        }
        // A core that parks while packets are held up looks after the deadline, too: the timer's core may be the busy one.
        // ORDERING: Relaxed: a hint; the timer does not rely on it.
        let held_up = self.blocked_since_us.load(Ordering::Relaxed) != 0;
        batch == next || before.pkts() == 0 || held_up || overflows
    }

    /// Opens `batch`, to be carried by `lane`, before any of its packets is handed out.
    pub fn open(&self, batch: u32, lane: LaneId) {
        let place = self.place(batch);
        // ORDERING: Relaxed, both: the ring, or this core's own order, publishes them with the first packet.
        place.lane.store(lane, Ordering::Relaxed);
        place.queued_pkts.store(0, Ordering::Relaxed);
    }

    /// Notes that one more packet of `batch`, `pkts` on the wire, arrives by itself, as it is queued or a copy: the batch is not complete
    /// before. It may be joined with others on its way, or taken apart.
    pub fn note_queued(&self, batch: u32, pkts: u32) {
        // ORDERING: Relaxed: `complete`, which this core calls later, publishes the count, or the arrival of another that
        // is counted already.
        if !is_before(batch, self.next()) {
            self.place(batch)
                .queued_pkts
                .fetch_add(pkts, Ordering::Relaxed);
        }
    }

    /// Notes that such a packet, `pkts` on the wire, has arrived, and is parked; true if the caller shall merge.
    #[must_use]
    pub fn note_arrived(&self, batch: u32, pkts: u32) -> bool {
        if !is_before(batch, self.next()) {
            // ORDERING: Release pairs with the Acquire in `is_complete`: what was parked is visible with it.
            let _ = self.place(batch).queued_pkts.fetch_update(
                Ordering::Release,
                Ordering::Relaxed,
                |left| (left > 0).then(|| left.saturating_sub(pkts)),
            );
        }
        // ORDERING: pairs with the fence in `advance`; see "Lost wake-ups".
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: ordered by the fence.
        self.next.load(Ordering::Relaxed) == batch
    }

    /// Gives up packets of `batch` that were queued and never arrived; true if the caller shall merge.
    #[must_use]
    pub fn forget_queued(&self, batch: u32) -> bool {
        // ORDERING: Release pairs with the Acquire in `is_complete`: what was parked is visible with it.
        self.place(batch).queued_pkts.store(0, Ordering::Release);
        // ORDERING: pairs with the fence in `advance`; see "Lost wake-ups".
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: ordered by the fence.
        self.next.load(Ordering::Relaxed) == batch
    }

    /// Notes that the path does not suit.
    pub fn note_path_fault(&self, fault: PathFault) {
        // ORDERING: Relaxed: a hint.
        // CAST: the enum's values are its bits.
        self.path_faults.fetch_or(fault as u32, Ordering::Relaxed);
    }

    /// Returns what has been found on the path since the last call, the worst first.
    #[inline]
    pub fn take_path_fault(&self) -> Option<PathFault> {
        // ORDERING: Relaxed, both: a hint.
        if self.path_faults.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let faults = self.path_faults.swap(0, Ordering::Relaxed);
        // CAST: the enum's values are its bits.
        let has = |fault: PathFault| (faults & fault as u32 != 0).then_some(fault);
        has(PathFault::Ordered).or(has(PathFault::Queues))
    }

    /// Returns whether the next turn is that of a fence, which has not arrived. Of a batch that is not open yet, this may be
    /// said of the one that had its place before.
    pub(super) fn awaits_fence(&self) -> bool {
        let batch = self.next();
        // ORDERING: Relaxed: a device further on receives on the core that has opened the fence, and so sees it open.
        self.place(batch).lane.load(Ordering::Relaxed) == ORDINARY_PATH && !self.is_complete(batch)
    }

    /// Returns whether all packets of `batch` that will come have been parked.
    fn is_complete(&self, batch: u32) -> bool {
        let place = self.place(batch);
        // ORDERING: Acquire, both: pair with the Release in `complete`, and with those in `note_arrived` and
        // `forget_queued`. In this order: a lane counts what is queued before it completes the batch.
        place.done.load(Ordering::Acquire) == batch.wrapping_add(1)
            && place.queued_pkts.load(Ordering::Acquire) == 0
    }

    /// Notes that no more packets of `batch` will come; true if the caller shall merge.
    #[must_use]
    pub fn complete(&self, batch: u32) -> bool {
        if is_before(batch, self.next()) {
            // It was given up long ago, and its place may be another batch's by now.
            return false;
        }
        // ORDERING: Release pairs with the Acquire in `is_complete`: all that was parked before is visible with it.
        self.place(batch)
            .done
            .store(batch.wrapping_add(1), Ordering::Release);
        // ORDERING: pairs with the fence in `advance`; see "Lost wake-ups".
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: ordered by the fence.
        self.next.load(Ordering::Relaxed) == batch
    }

    /// Notes that the deadline's timer has fired. The caller shall merge.
    pub fn expire(&self) {
        // ORDERING: Relaxed: published by the token that the caller adds to. (A plain store would do; loom wants a swap.)
        self.armed.swap(false, Ordering::Relaxed);
    }
}

impl<P: Packet> Default for Slot<P> {
    fn default() -> Self {
        Self::new()
    }
}
