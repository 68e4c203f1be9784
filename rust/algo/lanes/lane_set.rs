// SPDX-License-Identifier: GPL-2.0

//! The lanes as the dispatcher sees them: which one gets the next batch. The [own lane](OWN_LANE) gets what the others are late for.

use super::lane_id::LaneId;
use super::queue::ring::{Producer, RING_ITEMS, RING_REQUESTS};
use super::queue::Packet;
use super::ring_bytes::RingBytes;
use crate::algo::limits::{MAX_BATCH_PKTS, MAX_LANES};
use crate::algo::load::flow_orders::Order;
use crate::algo::tag::Tag;

const _: () = assert!(cfg!(loom) || (MAX_BATCH_PKTS as usize) < RING_ITEMS);

// Requests are counted in 16 bits where a flow's state has little room.
const _: () = assert!(RING_REQUESTS <= u16::MAX as usize);

/// A lane is late for a batch if it still has more than this many batches to do when it gets this one.
const IN_TIME_BATCHES: u32 = 1;

/// A lane with this many whole batches to do does not run dry while the core that dispatches carries one.
const ENOUGH_BATCHES: u32 = 2;

/// The number of the own lane, behind the numbers of all others. The core that dispatches polls the own lane, too. So a batch that no other
/// lane has room for is joined and built as on any lane, which costs that core much less than to carry the batch inline.
// CAST: a small constant.
pub(crate) const OWN_LANE: u8 = MAX_LANES as u8;

/// Without a load controller, the own lane gets the next batch in its turn once each lane has this many whole batches to do, times the
/// number of lanes. Lanes that have fewer keep up: a CPU was away for a moment. The more lanes there are, the sooner the core that
/// dispatches is the limit. From eight lanes on, whole batches of 256 packets fill the rings before; if lanes build all their packets,
/// from four on.
const BEHIND_BATCHES: u32 = 2 * ENOUGH_BATCHES;

/// With a load controller, a lane that has this many whole batches to do gets no more; the own lane does. So packets wait for as long as
/// these batches take, and not for as long as a full ring takes.
const MOST_BATCHES: u32 = 2 * BEHIND_BATCHES;

/// For every [`OTHERS_BATCHES`] batches of others the own lane has [`OWN_BATCHES`]: its CPU has the work of dispatching, too.
const OTHERS_BATCHES: u32 = 5;
const OWN_BATCHES: u32 = 2;

/// Lanes are behind while they have been late for more than this many batches more than they were in time for. A CPU that was
/// away for a moment has a backlog, too, and works it off by itself.
const LATE_BEHIND: u8 = 8;

/// No more than this is remembered, so that lanes which keep up again do not count as behind for long.
const LATE_MAX: u8 = 2 * LATE_BEHIND;

/// The batches that lanes were late for, less those that they were in time for; from 0 to [`LATE_MAX`].
///
/// One for all lanes of a source: they take turns, so a flow is as fast as the slowest of them.
#[derive(Clone, Copy, Debug)]
struct Lateness(u8);

impl Lateness {
    /// Notes whether a lane is late for the batch that it gets; returns whether the lanes are behind, so that they have more to
    /// do than the core that dispatches.
    fn note(&mut self, is_late: bool) -> bool {
        self.0 = if is_late {
            self.0.saturating_add(1).min(LATE_MAX)
        } else {
            self.0.saturating_sub(1)
        };
        self.0 > LATE_BEHIND
    }
}

/// A lane as its source sees it.
struct LaneEnd<P: Packet> {
    producer: Producer<P>,
    id: LaneId,
    cpu: u32,
    // Handed over, and not charged yet.
    uncharged_bytes: u64,
}

/// A place for a lane. Memory of zeros is a free one: the tag of an enum with this representation is its first byte, and a variant
/// without fields is valid whatever the other bytes are.
#[repr(u8)]
enum Place<P: Packet> {
    Free = 0,
    Taken(LaneEnd<P>) = 1,
}

impl<P: Packet> Place<P> {
    #[inline]
    fn end(&self) -> Option<&LaneEnd<P>> {
        match self {
            Self::Free => None,
            Self::Taken(end) => Some(end),
        }
    }

    #[inline]
    fn end_mut(&mut self) -> Option<&mut LaneEnd<P>> {
        match self {
            Self::Free => None,
            Self::Taken(end) => Some(end),
        }
    }
}

/// The core that builds the packets of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builder {
    /// The NIC's.
    Nic,
    /// The lane's, if it has places for all of them; else the NIC's.
    Lane,
    /// The lane's; else no lane gets the batch.
    LaneAlone,
    /// The lane's, as long as lanes are in time; else the NIC's.
    LaneInTime,
}

/// Returns whether all packets of a batch may be left to a lane that has nothing to do.
const fn may_be_requests(batch_pkts: u32) -> bool {
    // Of a batch of one packet that one is built by the NIC's core. CAST: a small constant.
    batch_pkts > 1 && batch_pkts <= RING_REQUESTS as u32
}

/// The room that was reserved for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    pub(crate) lane: u8,
    pub(crate) id: LaneId,
    /// The number of its packets that the lane may build.
    pub(crate) requests: u16,
}

/// The reason why no lane got a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The rings are full, or their CPUs are going offline.
    Rings,
    /// Too many bytes wait already (`ring_bytes.rs`).
    Memory,
    /// The flow's window has no number for a lane. The dispatcher, which knows the window, says so.
    Window,
    /// Polls bring one packet each, which need no lane. The dispatcher says so, too.
    Single,
}

impl<P: Packet> LaneEnd<P> {
    /// Returns whether the lane is late for a batch that it gets now.
    fn is_late(&mut self, batch_pkts: u32) -> bool {
        // Building loads the CPU that builds: a lane's first CPU, if the lane has two. So only the items that wait for that CPU
        // count.
        self.producer.unbuilt_items() > batch_pkts.saturating_mul(IN_TIME_BATCHES)
    }

    /// Returns whether the lane has this many whole batches to do.
    fn has_batches(&mut self, batches: u32, batch_pkts: u32) -> bool {
        // The end of a batch is an item, too.
        self.producer.waiting_items() >= batch_pkts.saturating_add(1).saturating_mul(batches)
    }

    /// Reserves places for the packets of a batch if the lane is to build them, and returns how many.
    fn reserve_requests(&mut self, batch_pkts: u32, lane_builds: bool) -> u16 {
        // All or none: if built and unbuilt packets took turns in a batch, neither core would gain much.
        let pkts = u16::try_from(batch_pkts).unwrap_or(0);
        // Of a batch of one packet that one is built here.
        if lane_builds && pkts > 1 && self.producer.reserve_requests(batch_pkts) {
            pkts
        } else {
            0
        }
    }
}

/// The producing ends of a source's lanes. Memory of zeros has none.
pub struct LaneSet<P: Packet> {
    lanes: [Place<P>; MAX_LANES],
    own: Place<P>,
    nr_lanes: usize,
    // The lane that got the last batch.
    last: usize,
    // Grows by `OWN_BATCHES` with each batch of others, and falls by `OTHERS_BATCHES` with each of the own lane.
    own_credit: u32,
    // Bit `n`: lane `n` got items since the last `take_touched`. The own lane has one, too.
    touched: u32,
    // Bit `n`: lane `n`'s CPU is going offline; it gets no new batches.
    offline: u32,
    // Of all lanes; only `Builder::LaneInTime` asks, and notes.
    lateness: Lateness,
    // Open batches whose packets lanes may build.
    open_for_requests: u32,
}

impl<P: Packet> LaneSet<P> {
    /// Returns a set without lanes.
    pub const fn new() -> Self {
        Self {
            lanes: [const { Place::Free }; MAX_LANES],
            own: Place::Free,
            nr_lanes: 0,
            last: 0,
            own_credit: 0,
            touched: 0,
            offline: 0,
            lateness: Lateness(0),
            open_for_requests: 0,
        }
    }

    /// Adds a lane on `cpu`, which the [`Sink`](crate::algo::merge::slot::Sink) knows as `id`; gives the end back if there are
    /// [`MAX_LANES`] already.
    pub fn add(&mut self, producer: Producer<P>, id: LaneId, cpu: u32) -> Result<(), Producer<P>> {
        match self.lanes.get_mut(self.nr_lanes) {
            Some(place) => {
                *place = Place::Taken(LaneEnd {
                    producer,
                    id,
                    cpu,
                    uncharged_bytes: 0,
                });
                self.nr_lanes += 1;
                Ok(())
            }
            None => Err(producer),
        }
    }

    /// Adds the [own lane](OWN_LANE), of which there is one at most. `cpu` stands for its CPU in [`RingBytes`].
    pub fn add_own(&mut self, producer: Producer<P>, id: LaneId, cpu: u32) {
        self.own = Place::Taken(LaneEnd {
            producer,
            id,
            cpu,
            uncharged_bytes: 0,
        });
    }

    /// Returns whether there is a lane.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.nr_lanes == 0
    }

    /// Sets which lanes (bit mask) get no new batches for now.
    #[inline]
    pub fn set_offline(&mut self, offline: u32) {
        self.offline = offline;
    }

    #[inline]
    fn lane(&mut self, lane: u8) -> Option<&mut LaneEnd<P>> {
        let place = self.lanes.get_mut(usize::from(lane));
        place.unwrap_or(&mut self.own).end_mut()
    }

    /// Returns the CPU of each lane.
    pub fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        self.lanes.iter().filter_map(Place::end).map(|end| end.cpu)
    }

    /// Returns the CPU of a lane, or nothing if it is the [own one](OWN_LANE): the core that dispatches polls that.
    #[inline]
    pub(crate) fn cpu(&self, lane: u8) -> Option<u32> {
        let place = self.lanes.get(usize::from(lane))?;
        place.end().map(|end| end.cpu)
    }

    /// Returns the lanes in `wanted` that can get batches; all lanes that can, if none of these does.
    pub(crate) fn usable(&self, wanted: u16) -> u32 {
        let online = !self.offline & ((1 << self.nr_lanes) - 1);
        match online & u32::from(wanted) {
            0 => online,
            usable => usable,
        }
    }

    /// Returns the number of cores that may carry batches, with lanes in `wanted`.
    pub(crate) fn nr_carriers(&self, wanted: u16) -> u32 {
        self.usable(wanted).count_ones() + u32::from(self.own.end().is_some())
    }

    /// Chooses a lane and reserves room for a whole batch and its end.
    pub(crate) fn reserve_batch(
        &mut self,
        batch_pkts: u32,
        builder: Builder,
        order: Order,
        ring_bytes: &RingBytes,
    ) -> Result<Reserved, NoRoom> {
        let usable = self.usable(order.lanes);
        let has_own = self.own.end().is_some();
        let nr_usable = usable.count_ones();
        let is_own_due = has_own && self.own_credit >= OTHERS_BATCHES;
        let behind_batches = BEHIND_BATCHES * nr_usable;
        let enough_batches = match (order.helps, has_own) {
            (true, true) if is_own_due => Some(behind_batches.min(MOST_BATCHES)),
            (true, true) => Some(MOST_BATCHES),
            (true, false) => Some(ENOUGH_BATCHES),
            (false, _) if is_own_due => Some(behind_batches),
            (false, _) => None,
        };
        self.reserve_in_turn(usable, enough_batches, batch_pkts, builder, ring_bytes)
            .or_else(|no_room| {
                self.reserve_own(batch_pkts, builder, ring_bytes)
                    .ok_or(no_room)
            })
            .or_else(|no_room| match enough_batches {
                Some(_) if !order.helps => {
                    self.reserve_in_turn(usable, None, batch_pkts, builder, ring_bytes)
                }
                Some(_) | None => Err(no_room),
            })
    }

    /// Chooses one of the `usable` lanes in turn, and reserves room for a batch there. Passes over lanes with `enough_batches` to do.
    fn reserve_in_turn(
        &mut self,
        usable: u32,
        enough_batches: Option<u32>,
        batch_pkts: u32,
        builder: Builder,
        ring_bytes: &RingBytes,
    ) -> Result<Reserved, NoRoom> {
        let mut no_room = NoRoom::Rings;
        let mut lane = self.last;
        for _ in 0..self.nr_lanes {
            lane += 1;
            if lane >= self.nr_lanes {
                lane = 0;
            }
            if usable >> lane & 1 == 0 {
                continue;
            }
            let Some(end) = self.lanes.get_mut(lane).and_then(Place::end_mut) else {
                break;
            };
            if !ring_bytes.has_room(end.cpu, end.uncharged_bytes) {
                no_room = NoRoom::Memory;
                continue;
            }
            if enough_batches.is_some_and(|enough| end.has_batches(enough, batch_pkts)) {
                continue;
            }
            if end.producer.reserve(batch_pkts.saturating_add(1)) {
                let lane_builds = match builder {
                    Builder::Nic => false,
                    Builder::Lane | Builder::LaneAlone => true,
                    Builder::LaneInTime => !self.lateness.note(end.is_late(batch_pkts)),
                };
                let requests = end.reserve_requests(batch_pkts, lane_builds);
                if builder == Builder::LaneAlone && requests == 0 && may_be_requests(batch_pkts) {
                    end.producer.unreserve(batch_pkts.saturating_add(1));
                    continue;
                }
                self.last = lane;
                self.own_credit = (self.own_credit + OWN_BATCHES).min(OTHERS_BATCHES + 1);
                self.open_for_requests += u32::from(requests > 0);
                return Ok(Reserved {
                    // CAST: below MAX_LANES.
                    lane: lane as u8,
                    id: end.id,
                    requests,
                });
            }
        }
        Err(no_room)
    }

    /// Reserves room in the own lane, if there is one. Its poll takes turns with the poll that fills it, so not much waits there.
    fn reserve_own(
        &mut self,
        batch_pkts: u32,
        builder: Builder,
        ring_bytes: &RingBytes,
    ) -> Option<Reserved> {
        let end = self.own.end_mut()?;
        let has_room = ring_bytes.has_room(end.cpu, end.uncharged_bytes)
            && end.producer.reserve(batch_pkts.saturating_add(1));
        // This core builds in either case; what it builds in the lane can be joined.
        let requests =
            has_room.then(|| end.reserve_requests(batch_pkts, builder != Builder::Nic))?;
        self.own_credit = self.own_credit.saturating_sub(OTHERS_BATCHES);
        self.open_for_requests += u32::from(requests > 0);
        Some(Reserved {
            lane: OWN_LANE,
            id: end.id,
            requests,
        })
    }

    /// Hands a packet to a lane; gives it back if no room was reserved.
    #[inline]
    pub(crate) fn push(&mut self, lane: u8, packet: P) -> Result<(), P> {
        match self.lane(lane) {
            Some(end) => {
                let bytes = u64::from(packet.memory_bytes());
                end.producer.push(packet)?;
                end.uncharged_bytes += bytes;
                self.touched |= 1 << lane;
                Ok(())
            }
            None => Err(packet),
        }
    }

    /// Hands a packet to a lane outside of any batch; gives it back if too much waits there, or for all CPUs.
    #[inline]
    pub fn hand_on(&mut self, lane: u8, packet: P, ring_bytes: &RingBytes) -> Result<(), P> {
        let is_untouched = self.touched >> lane & 1 == 0;
        let Some(end) = self.lane(lane) else {
            return Err(packet);
        };
        // Nothing is charged meanwhile but what this source hands over: once until it is charged is enough.
        if is_untouched && !ring_bytes.has_room(end.cpu, 0) || !end.producer.reserve(1) {
            return Err(packet);
        }
        self.push(lane, packet)
    }

    /// Returns how many lanes there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.nr_lanes
    }

    /// Returns whether a batch is open whose packets lanes may build: if not, no packet's flow need be searched for.
    #[inline]
    pub fn takes_requests(&self) -> bool {
        self.open_for_requests != 0
    }

    /// Returns the places for requests that a lane gets, `most` at most, of this many bytes each; none if no room was reserved. The
    /// caller fills them before it calls anything else of this set: the lane sees them then, and after
    /// [`take_touched`](Self::take_touched) at the latest.
    #[inline(always)]
    pub(crate) fn take_requests(
        &mut self,
        lane: u8,
        tag: Tag,
        most: u32,
        bytes: u32,
    ) -> &[P::Request] {
        let place = self.lanes.get_mut(usize::from(lane));
        let Some(end) = place.unwrap_or(&mut self.own).end_mut() else {
            return &[];
        };
        let places = end.producer.take_requests(tag, most);
        if places.is_empty() {
            return places;
        }
        // CAST: a usize into 64 bits.
        let bytes = u64::from(bytes).wrapping_mul(places.len() as u64);
        end.uncharged_bytes = end.uncharged_bytes.wrapping_add(bytes);
        self.touched |= 1 << lane;
        places
    }

    /// Ends a batch that has used all but `unused_items` and `unused_requests` of its room.
    pub(crate) fn end_batch(
        &mut self,
        lane: u8,
        tag: Tag,
        unused_items: u32,
        unused_requests: u16,
    ) {
        if let Some(end) = self.lane(lane) {
            end.producer.unreserve_requests(u32::from(unused_requests));
            end.producer.unreserve(unused_items);
            end.producer.push_end(tag);
            self.touched |= 1 << lane;
            // INVARIANT: the first packet of a batch is no request, so one place is left of a batch that has any. (The dispatcher opens
            // a batch for a packet that is built: `on_split` in `flow/dispatcher.rs`.)
            self.open_for_requests -= u32::from(unused_requests > 0);
        }
    }

    /// Returns the lanes (bit mask, the own lane by its number) that have got items since the last call, lets them see all of these, and
    /// charges for them.
    #[inline]
    pub fn take_touched(&mut self, ring_bytes: &RingBytes) -> u32 {
        let touched = core::mem::take(&mut self.touched);
        let mut left = touched;
        while left != 0 {
            // CAST: below 32.
            if let Some(end) = self.lane(left.trailing_zeros() as u8) {
                end.producer.publish();
                let bytes = core::mem::take(&mut end.uncharged_bytes);
                if bytes != 0 {
                    ring_bytes.charge(end.cpu, bytes);
                }
            }
            left &= left - 1;
        }
        touched
    }
}

impl<P: Packet> Default for LaneSet<P> {
    fn default() -> Self {
        Self::new()
    }
}
