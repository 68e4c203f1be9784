// SPDX-License-Identifier: GPL-2.0

//! The lanes as the dispatcher sees them: which one gets the next batch.

use super::queue::ring::{Producer, RING_ITEMS};
use super::queue::Packet;
use super::ring_bytes::RingBytes;
use super::slot::LaneId;
use super::tag::Tag;

/// Lanes a source can have, each on a CPU of its own.
pub const MAX_LANES: usize = 16;

/// Packets a batch can have: a ring holds all of them, and the batch's end.
pub const MAX_BATCH_PKTS: u32 = 4096;

const _: () = assert!(cfg!(loom) || (MAX_BATCH_PKTS as usize) < RING_ITEMS);

/// A lane as its source sees it.
struct LaneEnd<P: Packet> {
    producer: Producer<P>,
    id: LaneId,
    cpu: u32,
    // Handed over, and not charged yet.
    uncharged_bytes: u64,
}

/// Why no lane got a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The rings are full, or their CPUs are going offline.
    Rings,
    /// Too many bytes wait already (`ring_bytes.rs`).
    Memory,
}

/// The producing ends of a source's lanes. Memory of zeros has none: a producer's pointer is never null.
pub struct LaneSet<P: Packet> {
    lanes: [Option<LaneEnd<P>>; MAX_LANES],
    nr_lanes: usize,
    // The lane that got the last batch.
    last: usize,
    // Bit `n`: lane `n` got items since the last `take_touched`.
    touched: u32,
    // Bit `n`: lane `n`'s CPU is going offline; it gets no new batches.
    offline: u32,
}

impl<P: Packet> LaneSet<P> {
    /// Returns a set without lanes.
    pub const fn new() -> Self {
        Self {
            lanes: [const { None }; MAX_LANES],
            nr_lanes: 0,
            last: 0,
            touched: 0,
            offline: 0,
        }
    }

    /// Adds a lane on `cpu`, which the [`Sink`](super::slot::Sink) knows as `id`; gives the end back if there are
    /// [`MAX_LANES`] already.
    pub fn add(&mut self, producer: Producer<P>, id: LaneId, cpu: u32) -> Result<(), Producer<P>> {
        match self.lanes.get_mut(self.nr_lanes) {
            Some(place) => {
                *place = Some(LaneEnd {
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
        self.lanes.get_mut(usize::from(lane))?.as_mut()
    }

    /// Chooses a lane in turn and reserves room for a whole batch and its end.
    pub(super) fn reserve_batch(
        &mut self,
        batch_pkts: u32,
        ring_bytes: &RingBytes,
    ) -> Result<(u8, LaneId), NoRoom> {
        let mut no_room = NoRoom::Rings;
        let mut lane = self.last;
        for _ in 0..self.nr_lanes {
            lane += 1;
            if lane >= self.nr_lanes {
                lane = 0;
            }
            if self.offline >> lane & 1 == 1 {
                continue;
            }
            let Some(Some(end)) = self.lanes.get_mut(lane) else {
                break;
            };
            if !ring_bytes.has_room(end.cpu, end.uncharged_bytes) {
                no_room = NoRoom::Memory;
                continue;
            }
            if end.producer.reserve(batch_pkts.saturating_add(1)) {
                self.last = lane;
                // CAST: below MAX_LANES.
                return Ok((lane as u8, end.id));
            }
        }
        Err(no_room)
    }

    /// Hands a packet to a lane; gives it back if no room was reserved.
    #[inline]
    pub(super) fn push(&mut self, lane: u8, packet: P) -> Result<(), P> {
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

    /// Ends a batch that has used all but `unused` packets of its room.
    pub(super) fn end_batch(&mut self, lane: u8, tag: Tag, unused: u32) {
        if let Some(end) = self.lane(lane) {
            end.producer.unreserve(unused);
            end.producer.push_end(tag);
            self.touched |= 1 << lane;
        }
    }

    /// Returns the lanes (bit mask) that have got items since the last call, and charges for them.
    #[inline]
    pub fn take_touched(&mut self, ring_bytes: &RingBytes) -> u32 {
        if self.touched == 0 {
            return 0;
        }
        for end in self.lanes.iter_mut().flatten() {
            let bytes = core::mem::take(&mut end.uncharged_bytes);
            if bytes != 0 {
                ring_bytes.charge(end.cpu, bytes);
            }
        }
        core::mem::take(&mut self.touched)
    }
}

impl<P: Packet> Default for LaneSet<P> {
    fn default() -> Self {
        Self::new()
    }
}
