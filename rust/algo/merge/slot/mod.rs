// SPDX-License-Identifier: GPL-2.0

//! A slot: where the micro-flows of one flow are put back in order.
//!
//! The dispatcher numbers batches; lanes park what they have carried ([`Slot::park`]) and say when a batch is complete
//! ([`Slot::complete`]); the core that makes progress possible merges ([`Slot::merge`]). The merging counter `next` (MFLOW,
//! section III-B) is the batch whose turn it is. A batch is complete when its lane says so, never when a number of
//! packets has been seen: packets are dropped, cloned and coalesced on the way.
//!
//! `token` decides which core merges: the first that adds to it merges for all that add while it does (`merger.rs`). The
//! merger has no thread of its own and no core waits for it: one that finds the token taken goes on with its packets.
//!
//! Each batch has a place in the window (`window_place.rs`), which is open for it from [`Slot::open`] until its turn has passed.
//! A number whose place is not open for it is late, whether its turn has passed or nobody has opened it. Its packets are
//! delivered at once and counted, and all other calls for it change nothing. A packet that was held for long can have a tag that
//! is so old.
//!
//! Lost wake-ups. A lane that parks or completes batch `b` merges only if it is `b`'s turn; the merger looks at `b` only
//! when it is `b`'s turn. Both write, then fence, then read the other's word, so at least one of them sees the other (the
//! store-buffering pattern). `park` also merges when nothing was parked before, so that the deadline is started.

mod merger;
mod window_place;

use crate::algo::counters::{Counter, Counters};
use crate::algo::join::DatagramForm;
pub use crate::algo::lanes::lane_id::{LaneId, INLINE, ORDINARY_PATH};
use crate::algo::lanes::queue::chain::{Chain, ParkedChains};
use crate::algo::lanes::queue::Packet;
use crate::algo::limits::MAX_SLOTS;
use crate::algo::parked_amount::Amount;
use crate::algo::sync::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::algo::tag::{is_before, TagKind};
use window_place::Place;

/// The places of a slot's window, of which one always stays free; a power of two.
pub const WINDOW_BATCHES: u32 = if cfg!(loom) { 4 } else { 1024 };

/// The most packets that may be parked in all slots together. Each slot has an even share. A slot that exceeds its share gives up
/// the batch that it waits for.
pub const MAX_PARKED_PKTS: u32 = 65536;

/// The most memory of parked packets in bytes, shared in the same way.
pub const MAX_PARKED_BYTES: u64 = 128 << 20;

/// The least that any share holds.
const LEAST_SHARE_PKTS: u32 = MAX_PARKED_PKTS / MAX_SLOTS as u32;
const LEAST_SHARE_BYTES: u64 = MAX_PARKED_BYTES / MAX_SLOTS as u64;

/// The receiver of merged packets, and the clock of the deadline. A slot knows neither sockets nor timers.
pub trait Sink<P: Packet> {
    /// Delivers packets in order. Returns their amount, as it was when they were parked.
    fn deliver(&mut self, chain: Chain<P>) -> Amount;
    /// Returns a time that only grows, in microseconds.
    fn now_us(&mut self) -> u64;
    /// Returns the time for which an incomplete batch may hold others up in its turn, in microseconds.
    fn timeout_us(&mut self) -> u32;
    /// Returns a number that changes whenever this lane takes a packet from its ring.
    fn lane_progress(&mut self, lane: LaneId) -> u32;
    /// Calls [`Slot::expire`] and merges, after this many microseconds.
    fn arm_deadline(&mut self, after_us: u32);
    /// Returns whether somebody listens to [`note_merged`](Self::note_merged), which is not called otherwise.
    fn is_traced(&self) -> bool {
        false
    }
    /// Notes that the turn of `batch` has passed. Packets of later batches have waited for it since `since_us`, if any have.
    fn note_merged(&mut self, _batch: u32, _since_us: Option<u64>) {}
    /// Notes a batch that is given up.
    fn note_given_up(&mut self, _given_up: GivenUp) {}
    /// Notes that this many packets, on the wire, were delivered after their turn, in the turn of `batch`.
    fn note_late(&mut self, _batch: u32, _pkts: u32) {}
}

/// A batch that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// Its number.
    pub batch: u32,
    /// The time for which packets of later batches have waited for it, in microseconds.
    pub waited_us: u64,
    /// The number of packets that wait.
    pub parked_pkts: u32,
    /// True if it is given up because too much waits; else its time has passed.
    pub has_overflowed: bool,
}

/// The time that a fence gets, unless its start has less left ([`START_TIMEOUT_US`]). The ordinary path may be some thousand
/// packets long. A fence never gets less than [`Sink::timeout_us`].
pub(crate) const FENCE_TIMEOUT_US: u32 = 50_000;

/// The time that the fences of one start share if they do not arrive.
const START_TIMEOUT_US: u32 = 2 * FENCE_TIMEOUT_US;

/// The work of lanes on frames of a flow that they get unbuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Joining {
    /// No batch has shown it.
    Untried = 0,
    /// Frames of the last batch have joined a packet before them (`join`).
    Joined = 1,
    /// A packet was built of each frame of the last batch.
    Built = 2,
}

/// The answers to whether a flow's socket takes aggregates of datagrams. A race of two may lose one of them: the next list answers again.
const UNTOLD: u32 = 0;
const TAKES: u32 = 1;
const REFUSES: u32 = 2;

/// The result of a call of [`Slot::merge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Everything deliverable is delivered, or another core is merging.
    Done,
    /// The budget is used up; call again soon.
    More,
}

/// The fault that makes a path unsuitable for a split flow: `MFLOW_PATH_*` in `include/net/mflow.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PathFault {
    /// Something queues packets: splitting is of no use at the pace of that queue.
    Queues = 1,
    /// A step before the merge point drops or delays packets that come out of order.
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

/// The merge point of one split flow. See the head of this file. Memory of zeros is a new one.
pub struct Slot<P: Packet> {
    // The batch whose turn it is. Written by the token's holder.
    next: AtomicU32,
    token: AtomicU32,
    // Bits of the `Amount` that is parked and not yet delivered.
    parked: AtomicU64,
    // The latest batch that has parked packets: earlier batches can hold it up. It has been opened, unless nothing has been
    // parked yet.
    furthest: AtomicU32,
    // The number after that of the last fence; the dispatcher writes it.
    fences_end: AtomicU32,
    // The time for which fences of this start have held others up before they were given up. Written under the token, except
    // where a start begins.
    fences_waited_us: AtomicU32,
    // The number of packets that have ever reached the merge point. The dispatcher watches it.
    arrived_pkts: AtomicU32,
    // Whether GRO joins the flow's packets, as lanes have found last.
    gro_joins: AtomicBool,
    takes_lists: AtomicBool,
    takes_aggregates: AtomicU32,
    // A value of `Joining`.
    joining: AtomicU32,
    // The device at which something watches the flow's datagrams, so that its last batch had no lists; 0: none does.
    watched_device: AtomicU32,
    late: ParkedChains<P>,
    // The packets that were left when the budget was used up, and whether these are late. Used under the token.
    rest: ParkedChains<P>,
    rest_is_late: AtomicBool,
    overflowed: AtomicBool,
    // The number of flows that share MAX_PARKED_PKTS and MAX_PARKED_BYTES. 0 counts as 1.
    sharers: AtomicU32,
    armed: AtomicBool,
    // Bits of `PathFault`.
    path_faults: AtomicU32,
    // The time (plus one) since which batch `blocked_on` has held others up; 0 if it holds up none. Written under the token.
    blocked_since_us: AtomicU64,
    blocked_on: AtomicU32,
    // The time since which that batch has held others up, whether its lane has worked meanwhile or not. Written under the token.
    held_up_since_us: AtomicU64,
    // The progress of that batch's lane at that time.
    blocked_progress: AtomicU32,
    // The socket of the packets parked last. Only compared.
    socket: AtomicU64,
    // The number of the flow's packets that fit into the receiver's buffer; 0 if that is not known, or if the sender looks after
    // it (TCP).
    receive_pkts: AtomicU32,
    // The last probe (plus one) that has arrived.
    probe_seen: AtomicU32,
    places: [Place<P>; WINDOW_BATCHES as usize],
    /// The counters of the slot. Written under the token, except for those of `park`.
    pub counters: Counters,
}

impl<P: Packet> Slot<P> {
    /// Returns a new slot.
    pub fn new() -> Self {
        Self {
            next: AtomicU32::new(0),
            token: AtomicU32::new(0),
            parked: AtomicU64::new(0),
            furthest: AtomicU32::new(0),
            fences_end: AtomicU32::new(0),
            fences_waited_us: AtomicU32::new(0),
            arrived_pkts: AtomicU32::new(0),
            gro_joins: AtomicBool::new(false),
            takes_lists: AtomicBool::new(false),
            takes_aggregates: AtomicU32::new(UNTOLD),
            joining: AtomicU32::new(Joining::Untried as u32),
            watched_device: AtomicU32::new(0),
            late: ParkedChains::new(),
            rest: ParkedChains::new(),
            rest_is_late: AtomicBool::new(false),
            overflowed: AtomicBool::new(false),
            sharers: AtomicU32::new(0),
            armed: AtomicBool::new(false),
            path_faults: AtomicU32::new(0),
            blocked_since_us: AtomicU64::new(0),
            blocked_on: AtomicU32::new(0),
            held_up_since_us: AtomicU64::new(0),
            blocked_progress: AtomicU32::new(0),
            socket: AtomicU64::new(0),
            receive_pkts: AtomicU32::new(0),
            probe_seen: AtomicU32::new(0),
            places: core::array::from_fn(|_| Place::new()),
            counters: Counters::new(),
        }
    }

    /// Returns a new slot whose first batch is `batch`.
    pub fn starting_at(batch: u32) -> Self {
        let slot = Self::new();
        slot.start_at(batch);
        slot
    }

    /// Sets the number of the first batch. Nothing has used the slot before.
    pub fn start_at(&self, batch: u32) {
        // ORDERING: Relaxed, all: the caller publishes the slot.
        self.next.store(batch, Ordering::Relaxed);
        self.fences_end.store(batch, Ordering::Relaxed);
        self.furthest.store(batch, Ordering::Relaxed);
    }

    #[inline]
    fn place(&self, batch: u32) -> &Place<P> {
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

    /// Sets the number of flows that share the bounds on parked packets and bytes: 1 to
    /// [`MAX_SLOTS`].
    pub fn set_sharers(&self, flows: u32) {
        // ORDERING: Relaxed: a bound on memory, not an order.
        self.sharers.store(flows, Ordering::Relaxed);
    }

    /// Returns whether `parked` exceeds this slot's share.
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

    /// Notes whether the flow's packets are datagrams that may pass the stack in lists.
    pub fn note_takes_lists(&self, takes: bool) {
        // ORDERING: Relaxed: a hint: a list is as good as its datagrams.
        self.takes_lists.store(takes, Ordering::Relaxed);
    }

    /// Notes whether the flow's socket takes aggregates of datagrams. After one was taken apart, no other answer counts.
    pub fn note_takes_aggregates(&self, takes: bool) {
        // ORDERING: Relaxed, all: hints: a socket that does not take an aggregate has it taken apart.
        match (takes, self.takes_aggregates.load(Ordering::Relaxed)) {
            (true, UNTOLD) => self.takes_aggregates.store(TAKES, Ordering::Relaxed),
            (false, UNTOLD | TAKES) => self.takes_aggregates.store(REFUSES, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Forgets whether the flow's socket takes aggregates of datagrams.
    pub fn forget_takes_aggregates(&self) {
        // ORDERING: Relaxed: a hint.
        self.takes_aggregates.store(UNTOLD, Ordering::Relaxed);
    }

    /// Returns the form in which the flow's packets, if they are datagrams, pass the stack: as its last probe and its last list have found.
    #[inline]
    pub fn datagram_form(&self) -> DatagramForm {
        // ORDERING: Relaxed, both: hints.
        if !self.takes_lists.load(Ordering::Relaxed) {
            DatagramForm::Single
        } else if self.takes_aggregates.load(Ordering::Relaxed) == TAKES {
            DatagramForm::Aggregate
        } else {
            DatagramForm::List
        }
    }

    /// Notes the number of the device at which something watches datagrams of the batch that begins, or 0.
    #[inline]
    pub fn note_watched_device(&self, device: u32) {
        // ORDERING: Relaxed, both: for a file that somebody reads, and the last one counts.
        if self.watched_device.load(Ordering::Relaxed) != device {
            self.watched_device.store(device, Ordering::Relaxed);
        }
    }

    /// Returns the number of the device at which something watches the flow's datagrams, or 0.
    pub fn watched_device(&self) -> u32 {
        // ORDERING: Relaxed: a recent value will do.
        self.watched_device.load(Ordering::Relaxed)
    }

    /// Notes whether a lane has joined frames of a batch, instead of building packets of all.
    #[inline]
    pub fn note_joining(&self, joined: bool) {
        let joining = if joined {
            Joining::Joined
        } else {
            Joining::Built
        } as u32;
        // ORDERING: Relaxed, both: a hint, and the last one counts.
        if self.joining.load(Ordering::Relaxed) != joining {
            self.joining.store(joining, Ordering::Relaxed);
        }
    }

    /// Returns what lanes have done with frames of the flow last.
    #[inline]
    pub fn joining(&self) -> Joining {
        // ORDERING: Relaxed: a hint.
        match self.joining.load(Ordering::Relaxed) {
            1 => Joining::Joined,
            2 => Joining::Built,
            _ => Joining::Untried,
        }
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
        let place = self.place(batch);
        !place.is_empty() || !self.rest.is_empty() || place.is_complete(batch) == Some(true)
    }

    /// Notes the socket for which packets are parked here.
    pub fn note_socket(&self, socket: u64) {
        // ORDERING: Relaxed: a hint.
        self.socket.store(socket, Ordering::Relaxed);
    }

    /// Notes how many packets fit into the receiver's buffer; 0 if that is not known.
    pub fn note_receive_pkts(&self, pkts: u32) {
        // ORDERING: Relaxed, both: a hint, and the last one counts.
        if self.receive_pkts.load(Ordering::Relaxed) != pkts {
            self.receive_pkts.store(pkts, Ordering::Relaxed);
        }
    }

    /// Returns how many packets may come to the receiver at once: half of what fits into its buffer, if that is known.
    #[inline]
    pub fn burst_pkts(&self) -> u32 {
        // ORDERING: Relaxed: a hint.
        match self.receive_pkts.load(Ordering::Relaxed) {
            0 => u32::MAX,
            pkts => (pkts / 2).max(1),
        }
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

    /// Parks packets of `batch`. Returns true if the caller has to merge. If the batch has had its turn, or was never opened, its
    /// packets are late: the merger delivers them next.
    #[must_use]
    pub fn park(&self, batch: u32, chain: Chain<P>, amount: Amount) -> bool {
        let pkts = amount.pkts();
        // ORDERING: Relaxed: a statistic.
        self.arrived_pkts.fetch_add(pkts, Ordering::Relaxed);
        let parking = self.place(batch).enter(batch);
        // ORDERING: Relaxed, and the update: published by the addition that follows.
        if parking.is_some() && is_before(self.furthest.load(Ordering::Relaxed), batch) {
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

        let Some(parking) = parking else {
            self.late.park(chain);
            return true;
        };
        parking.park(chain);
        // ORDERING: pairs with the fence in `advance`; see "Lost wake-ups".
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: ordered by the fence.
        let next = self.next.load(Ordering::Relaxed);
        if is_before(batch, next) {
            // The turn passed while we parked: the merger may have looked here for the last time.
            self.late.park(parking.take_all());
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

    /// Returns how many batches the dispatcher may open from `batch` on, which is the next to be opened; at most `most`. The
    /// answer holds until the dispatcher opens a batch. One place of the window stays free, so 1,023 batches are open at most:
    /// the merger gives the turn away before its last look at the batch's place. And no batch gets a place where a core still
    /// parks for an earlier batch.
    #[inline]
    pub fn room(&self, batch: u32, most: u32) -> u32 {
        let ahead = batch.wrapping_sub(self.next());
        let left = (WINDOW_BATCHES - 1).saturating_sub(ahead).min(most);
        for nr in 0..left {
            if !self.place(batch.wrapping_add(nr)).is_free() {
                return nr;
            }
        }
        left
    }

    /// Opens `batch`, for which there is [`room`](Self::room), to be carried by `lane`, before any of its packets is handed out.
    pub fn open(&self, batch: u32, lane: LaneId) {
        self.place(batch).open(batch, lane);
    }

    /// Opens `batch`, for which there is [`room`](Self::room), for a fence.
    pub fn open_fence(&self, batch: u32) {
        // ORDERING: Relaxed pairs with the load in `awaits_fence`, on this core.
        self.fences_end
            .store(batch.wrapping_add(1), Ordering::Relaxed);
        self.open(batch, ORDINARY_PATH);
    }

    /// Notes that a flow begins to be split. Its fences have the whole of [`START_TIMEOUT_US`].
    pub(crate) fn begin_start(&self) {
        // ORDERING: Relaxed pairs with the load in `fence_timeout_us`: it bounds a time, and orders nothing.
        self.fences_waited_us.store(0, Ordering::Relaxed);
        // ORDERING: Relaxed: a hint.
        self.joining
            .store(Joining::Untried as u32, Ordering::Relaxed);
    }

    /// Notes that one more packet of `batch`, `pkts` on the wire, arrives by itself, because it is queued or a copy. The batch is
    /// not complete before the packet has arrived. The packet may be joined with others on its way, or taken apart.
    pub fn note_queued(&self, batch: u32, pkts: u32) {
        self.place(batch).note_queued(batch, pkts);
    }

    /// Notes that a queued or copied packet of `batch`, `pkts` on the wire, has arrived and is parked. Returns true if the caller
    /// has to merge.
    #[must_use]
    pub fn note_arrived(&self, batch: u32, pkts: u32) -> bool {
        self.place(batch).note_arrived(batch, pkts) && self.is_turn_of(batch)
    }

    /// Gives up packets of `batch` that were queued and never arrived. Returns true if the caller has to merge.
    #[must_use]
    pub fn forget_queued(&self, batch: u32) -> bool {
        self.place(batch).forget_queued(batch) && self.is_turn_of(batch)
    }

    /// Returns whether a packet of this kind and batch may come: its batch is a window or less from the one whose turn it is, and a
    /// fence is one that has not come.
    pub fn may_come(&self, kind: TagKind, batch: u32) -> bool {
        let ahead = batch.wrapping_sub(self.next()).wrapping_add(WINDOW_BATCHES);
        let place = self.place(batch);
        match kind {
            TagKind::Split | TagKind::Queued => ahead < 2 * WINDOW_BATCHES,
            TagKind::Fence => {
                place.is_complete(batch) == Some(false) && place.lane() == ORDINARY_PATH
            }
            TagKind::Probe | TagKind::None => false,
        }
    }

    /// Returns whether it is the turn of `batch`. Called after a change of the batch's place.
    fn is_turn_of(&self, batch: u32) -> bool {
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

    /// Returns the worst fault that has been found on the path since the last call.
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

    /// Returns whether there is a fence whose turn has not passed.
    pub(super) fn awaits_fence(&self) -> bool {
        // ORDERING: Relaxed pairs with the store in `open_fence`: a device further on receives on the core that has opened the fence.
        let end = self.fences_end.load(Ordering::Relaxed);
        // Numbers come round: one that is further ahead than the window is an old one.
        end.wrapping_sub(self.next()).wrapping_sub(1) < WINDOW_BATCHES
    }

    /// Returns the batch whose turn it is, if it is a fence that has not arrived and no packet is parked.
    pub(crate) fn lonely_fence(&self) -> Option<u32> {
        let batch = self.next();
        let place = self.place(batch);
        let is_missing = place.is_complete(batch) == Some(false) && place.lane() == ORDINARY_PATH;
        (is_missing && self.parked_pkts() == 0).then_some(batch)
    }

    /// Notes that no more packets of `batch` will come. Returns true if the caller has to merge.
    #[must_use]
    pub fn complete(&self, batch: u32) -> bool {
        self.place(batch).complete(batch) && self.is_turn_of(batch)
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
