// SPDX-License-Identifier: GPL-2.0

//! One stream's source and lanes: the module's own dispatcher, rings and merge point, in the time of the model.

use std::ptr::NonNull;

use mflow_algo::algo::counters::Counters;
use mflow_algo::algo::flow::dispatcher::{Config, Dispatched, Dispatcher, Host};
use mflow_algo::algo::headers::flow_key::{FlowHasher, FlowKey, ETH_P_IP, IPPROTO_UDP};
use mflow_algo::algo::knobs::Build;
use mflow_algo::algo::lanes::queue::chain::Chain;
use mflow_algo::algo::lanes::queue::ring::{Consumer, Item, Producer, Ring, RING_ITEMS};
use mflow_algo::algo::lanes::ring_bytes::RingBytes;
use mflow_algo::algo::load::flow_orders::Orders;
use mflow_algo::algo::load::flow_plan::FlowCount;
use mflow_algo::algo::merge::lane_run::{Collector, Run};
use mflow_algo::algo::merge::slot::{LaneId, Sink, Slot};
use mflow_algo::algo::merge::slot_pool::SlotPool;
use mflow_algo::algo::parked_amount::Amount;
use mflow_algo::algo::tag::{is_before, Tag, TagKind};

use super::packet::Packet;
use super::scene::Knobs;

/// The amount of a parked packet: one packet, whose memory is not counted.
const ONE: Amount = Amount::of(1, 0);

/// The time of a call, the merge points of all streams, and the results of the call.
pub(crate) struct Moment<'a> {
    pub(crate) slots: &'a SlotPool<Packet>,
    pub(crate) orders: &'a Orders,
    pub(crate) now_us: u64,
    pub(crate) timeout_us: u32,
    pub(crate) merged: Merged,
}

#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// The packets that the socket gets, in this order.
    pub(crate) packets: Vec<Packet>,
    /// The time after which the deadline is to be checked.
    pub(crate) deadline_us: Option<u32>,
    /// Runs of packets that reached the merge point before their batch's turn.
    pub(crate) early_runs: u64,
}

pub(crate) struct Mflow {
    // Before the lanes, whose rings it holds ends of.
    dispatcher: Box<Dispatcher<Packet>>,
    counters: Counters,
    ring_bytes: Box<RingBytes>,
    config: Config,
    key: FlowKey,
    lanes: Vec<Lane>,
    taken: Vec<u32>,
    /// The flow's place in the pool, from its probe on.
    slot: usize,
    /// True while the flow has that place.
    active: bool,
    gro_joins: bool,
    /// Batches that lanes have ended since it was last asked.
    ended_batches: Vec<u32>,
}

struct Lane {
    consumer: Consumer<Packet>,
    collector: Collector<Packet>,
    _ring: OwnedRing,
}

/// A ring that is freed after its ends have been used for the last time.
struct OwnedRing(NonNull<Ring<Packet>>);

impl OwnedRing {
    fn new() -> (Self, Producer<Packet>, Consumer<Packet>) {
        let ring = NonNull::from(Box::leak(Box::default()));
        // SAFETY: The ring is freed in `drop`, after the ends' last use, and this is the only call for it.
        let (producer, consumer) = unsafe { Ring::ends(ring) };
        (Self(ring), producer, consumer)
    }
}

impl Drop for OwnedRing {
    fn drop(&mut self) {
        // SAFETY: It came from a `Box`. The consumer is in the same `Lane`, the producer in the same `Mflow`, and neither does
        // anything when it is dropped.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Returns a pool in which all slots are free. It never lies on the stack, which would be too small for it.
pub(crate) fn slots() -> Box<SlotPool<Packet>> {
    // SAFETY: By its documentation, memory of zeros is a pool in which all slots are free.
    unsafe { Box::new_zeroed().assume_init() }
}

impl Mflow {
    /// Returns a source that splits its flow as soon as the path has been probed.
    pub(crate) fn new(nr_lanes: usize, gro_joins: bool, knobs: &Knobs) -> Self {
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[9] = IPPROTO_UDP;
        let mut dispatcher = Box::<Dispatcher<Packet>>::default();
        let lane = |id| {
            let (ring, mut producer, consumer) = OwnedRing::new();
            // Room that stays reserved makes the ring smaller.
            // CAST: a small constant.
            let reserved =
                producer.reserve((RING_ITEMS as u32).saturating_sub(knobs.lane_ring_pkts));
            let added = dispatcher.lanes.add(producer, id, id).is_ok();
            assert!(
                reserved && added,
                "the options allow no more than the module"
            );
            Lane {
                consumer,
                collector: Collector::new(),
                _ring: ring,
            }
        };
        Self {
            // 0 stands for the NIC core.
            lanes: (1..).take(nr_lanes).map(lane).collect(),
            dispatcher,
            counters: Counters::default(),
            ring_bytes: Box::default(),
            config: Config {
                batch_pkts: knobs.batch_pkts,
                min_window_pkts: 1,
                build: Build::Nic,
                stopping: false,
            },
            // Any key is good: the source has one flow.
            key: FlowHasher::new(1)
                .key(ETH_P_IP, &packet)
                .expect("UDP has a key"),
            taken: vec![0; nr_lanes],
            slot: 0,
            active: false,
            gro_joins,
            ended_batches: vec![0; nr_lanes],
        }
    }

    /// Dispatches a packet; returns it if the NIC core has to carry it.
    pub(crate) fn dispatch(&mut self, moment: &mut Moment<'_>, packet: Packet) -> Option<Packet> {
        let mut host = MergePoint {
            moment,
            taken: &self.taken,
            ring_bytes: &self.ring_bytes,
            active: self.active,
        };
        let dispatched =
            self.dispatcher
                .dispatch(&self.counters, &mut host, self.config, self.key, packet);
        self.active = host.active;
        match dispatched {
            Dispatched::ToLane => None,
            Dispatched::Ordinary(packet)
            | Dispatched::Inline(packet)
            | Dispatched::InlineAlone(packet) => Some(packet),
        }
    }

    /// Returns the lanes that have got something since the last call.
    pub(crate) fn touched(&mut self) -> impl Iterator<Item = usize> {
        let touched = self.dispatcher.lanes.take_touched(&self.ring_bytes);
        (0..self.lanes.len()).filter(move |lane| touched >> lane & 1 == 1)
    }

    /// Takes a packet at the merge point that the NIC core has carried.
    pub(crate) fn arrive(&mut self, moment: &mut Moment<'_>, packet: Packet) {
        let tag = packet.tag;
        if tag.kind() == TagKind::Probe {
            self.slot = tag.slot();
        }
        let mut point = self.point(moment);
        match tag.kind() {
            TagKind::Split | TagKind::Fence => {
                let mut chain = Chain::new();
                chain.push(packet);
                point.park(Run {
                    chain,
                    amount: ONE,
                    tag,
                    socket: 0,
                });
                if tag.kind() == TagKind::Fence {
                    point.complete(tag);
                }
            }
            TagKind::Probe | TagKind::None | TagKind::Queued => {
                if tag.kind() == TagKind::Probe {
                    point.slot(tag).note_probe(tag.batch_bits());
                }
                point.moment.merged.packets.push(packet);
            }
        }
    }

    /// Takes the next packet from a lane's ring.
    pub(crate) fn take(&mut self, moment: &mut Moment<'_>, lane: usize) -> Option<Packet> {
        loop {
            match self.lanes[lane].consumer.pop(|_, ()| ())? {
                Item::Packet(packet) => {
                    self.taken[lane] = self.taken[lane].wrapping_add(1);
                    return Some(packet);
                }
                Item::Built(()) => unreachable!("all packets are built"),
                // There is no building end.
                Item::Nothing => {}
                Item::BatchEnd(tag) => {
                    self.ended_batches[lane] += 1;
                    self.flush(moment, lane);
                    self.point(moment).complete(tag);
                }
            }
        }
    }

    /// Collects a packet that a lane has carried to the merge point, where it waits for the end of the poll or of the batch.
    pub(crate) fn collect(&mut self, moment: &mut Moment<'_>, lane: usize, packet: Packet) {
        if let Some(run) = self.lanes[lane].collector.add(packet.tag, 0, packet, ONE) {
            self.point(moment).park(run);
        }
    }

    /// Parks the packets that a lane has collected.
    pub(crate) fn flush(&mut self, moment: &mut Moment<'_>, lane: usize) {
        if let Some(run) = self.lanes[lane].collector.take() {
            self.point(moment).park(run);
        }
    }

    fn point<'a, 'm>(&'a self, moment: &'a mut Moment<'m>) -> MergePoint<'a, 'm> {
        MergePoint {
            moment,
            taken: &self.taken,
            ring_bytes: &self.ring_bytes,
            active: self.active,
        }
    }

    /// Returns how many batches a lane has ended since the last call.
    pub(crate) fn take_ended_batches(&mut self, lane: usize) -> u32 {
        std::mem::take(&mut self.ended_batches[lane])
    }

    /// Returns the facts that the controller needs about the flow, if it has a slot.
    pub(crate) fn count(
        &self,
        slots: &SlotPool<Packet>,
        orders: &Orders,
        nic: Option<u8>,
    ) -> Option<FlowCount> {
        self.active.then(|| FlowCount {
            slot: self.slot,
            generation: orders.generation(self.slot),
            arrived_pkts: slots.slot(self.slot).arrived_pkts(),
            gro_joins: self.gro_joins,
            nic,
        })
    }

    pub(crate) fn expire(&mut self, moment: &mut Moment<'_>) {
        moment.slots.slot(self.slot).expire();
        self.point(moment).merge(self.slot);
    }
}

pub(crate) fn is_split(packet: &Packet) -> bool {
    packet.tag.kind() == TagKind::Split
}

/// The surroundings of dispatcher and slot during one call.
struct MergePoint<'a, 'm> {
    moment: &'a mut Moment<'m>,
    taken: &'a [u32],
    ring_bytes: &'a RingBytes,
    active: bool,
}

impl<'m> MergePoint<'_, 'm> {
    fn slot(&self, tag: Tag) -> &'m Slot<Packet> {
        self.moment.slots.slot(tag.slot())
    }

    fn park(&mut self, run: Run<Packet>) {
        let slot = self.slot(run.tag);
        let next = slot.next();
        let batch = run.tag.batch_near(next);
        let merges = slot.park(batch, run.chain, run.amount);
        self.moment.merged.early_runs += u64::from(is_before(next, batch));
        if merges {
            self.merge(run.tag.slot());
        }
    }

    fn complete(&mut self, tag: Tag) {
        let slot = self.slot(tag);
        if slot.complete(tag.batch_near(slot.next())) {
            self.merge(tag.slot());
        }
    }
}

impl Host<Packet> for MergePoint<'_, '_> {
    fn now_ms(&mut self) -> u32 {
        // CAST: it may wrap.
        (self.moment.now_us / 1_000) as u32
    }

    fn cpu(&self) -> u32 {
        0
    }

    fn slots(&self) -> &SlotPool<Packet> {
        self.moment.slots
    }

    fn ring_bytes(&self) -> &RingBytes {
        self.ring_bytes
    }

    fn orders(&self) -> &Orders {
        self.moment.orders
    }

    // What the NIC core carries arrives before it dispatches the next packet.
    fn flush_inline(&mut self) {}

    fn merge(&mut self, slot: usize) {
        // Without a limit on packets nothing is left to do.
        self.moment.slots.slot(slot).merge(self, u32::MAX);
    }

    fn note_active(&mut self, taken: bool) {
        self.active = taken;
    }
}

impl Sink<Packet> for MergePoint<'_, '_> {
    fn deliver(&mut self, mut chain: Chain<Packet>) -> Amount {
        let mut amount = Amount::default();
        while let Some(packet) = chain.pop() {
            self.moment.merged.packets.push(packet);
            amount += ONE;
        }
        amount
    }

    fn now_us(&mut self) -> u64 {
        self.moment.now_us
    }

    fn timeout_us(&mut self) -> u32 {
        self.moment.timeout_us
    }

    fn lane_progress(&mut self, lane: LaneId) -> u32 {
        // CAST: a few lanes.
        self.taken.get(lane as usize - 1).copied().unwrap_or(0)
    }

    fn arm_deadline(&mut self, after_us: u32) {
        self.moment.merged.deadline_us = Some(after_us);
    }
}
