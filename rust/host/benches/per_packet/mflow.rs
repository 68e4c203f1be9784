// SPDX-License-Identifier: GPL-2.0

//! Split and merge as the module does them.

use std::ptr::NonNull;

use mflow_algo::algo::amount::Amount;
use mflow_algo::algo::collector::{Collector, Run};
use mflow_algo::algo::counters::{Counter, Counters};
use mflow_algo::algo::dispatcher::{Config, Dispatched, Dispatcher, Host};
use mflow_algo::algo::flow_key::{FlowHasher, FlowKey, ETH_P_IP};
use mflow_algo::algo::knobs::Build;
use mflow_algo::algo::load::orders::Orders;
use mflow_algo::algo::queue::chain::Chain;
use mflow_algo::algo::queue::ring::{Consumer, Item, Ring};
use mflow_algo::algo::ring_bytes::RingBytes;
use mflow_algo::algo::slot::{LaneId, Merged, Sink, Slot};
use mflow_algo::algo::slot_pool::SlotPool;
use mflow_algo::algo::tag::{Tag, TagKind};

use crate::packet::{BenchPacket, Packets, Receiver, PACKET_BYTES};
use crate::whole_way::{Way, BATCH_PKTS, POLL_PKTS};

/// How much a packet is where it is parked.
const ONE: Amount = Amount::of(1, PACKET_BYTES);

impl Sink<BenchPacket> for Receiver {
    fn deliver(&mut self, mut chain: Chain<BenchPacket>) -> Amount {
        let mut amount = Amount::default();
        while let Some(packet) = chain.pop() {
            Receiver::deliver(self, packet);
            amount += ONE;
        }
        amount
    }

    fn now_us(&mut self) -> u64 {
        0
    }

    fn timeout_us(&mut self) -> u32 {
        200
    }

    fn lane_progress(&mut self, _lane: LaneId) -> u32 {
        0
    }

    fn arm_deadline(&mut self, _after_us: u32) {}
}

struct Lane {
    consumer: Consumer<BenchPacket>,
    collector: Collector<BenchPacket>,
}

struct MergePoint {
    slots: Box<SlotPool<BenchPacket>>,
    ring_bytes: Box<RingBytes>,
    orders: Box<Orders>,
    receiver: Receiver,
    now_ms: u32,
}

impl MergePoint {
    fn slot(&self) -> &Slot<BenchPacket> {
        self.slots.slot(0)
    }

    fn merge(&mut self) {
        let merged = self.slots.slot(0).merge(&mut self.receiver, u32::MAX);
        assert_eq!(merged, Merged::Done);
    }

    fn park(&mut self, run: Run<BenchPacket>) {
        let slot = self.slot();
        if slot.park(run.tag.batch_near(slot.next()), run.chain, run.amount) {
            self.merge();
        }
    }

    fn complete(&mut self, tag: Tag) {
        let slot = self.slot();
        if slot.complete(tag.batch_near(slot.next())) {
            self.merge();
        }
    }
}

impl Host<BenchPacket> for MergePoint {
    fn now_ms(&mut self) -> u32 {
        self.now_ms
    }

    fn cpu(&self) -> u32 {
        0
    }

    fn slots(&self) -> &SlotPool<BenchPacket> {
        &self.slots
    }

    fn ring_bytes(&self) -> &RingBytes {
        &self.ring_bytes
    }

    fn orders(&self) -> &Orders {
        &self.orders
    }

    fn flush_inline(&mut self) {}

    fn merge(&mut self, _slot: usize) {
        MergePoint::merge(self);
    }

    fn note_active(&mut self, _taken: bool) {}
}

pub(crate) struct Mflow {
    packets: Packets,
    dispatcher: Box<Dispatcher<BenchPacket>>,
    counters: Counters,
    config: Config,
    key: FlowKey,
    lanes: Vec<Lane>,
    merge_point: MergePoint,
}

impl Mflow {
    fn dispatch(&mut self) -> Dispatched<BenchPacket> {
        let packet = self.packets.next();
        self.dispatcher.dispatch(
            &self.counters,
            &mut self.merge_point,
            self.config,
            self.key,
            packet,
        )
    }

    /// Has the flow split: its first packets, the probe and the fence go the ordinary way.
    fn start(&mut self) {
        for _ in 0..100 {
            let packet = match self.dispatch() {
                Dispatched::Ordinary(packet) => packet,
                _ => panic!("split before the fence"),
            };
            let tag = packet.tag();
            match tag.kind() {
                TagKind::Fence => {
                    let mut chain = Chain::new();
                    chain.push(packet);
                    self.merge_point.park(Run {
                        chain,
                        amount: ONE,
                        tag,
                        socket: 0,
                    });
                    self.merge_point.complete(tag);
                    return;
                }
                kind => {
                    if kind == TagKind::Probe {
                        self.merge_point.slot().note_probe(tag.batch_bits());
                    }
                    self.merge_point.receiver.deliver(packet);
                }
            }
        }
        panic!("the flow is not split");
    }
}

impl Way for Mflow {
    fn new(nr_lanes: usize) -> Self {
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[9] = 17;
        let mut way = Self {
            packets: Packets::new(),
            dispatcher: Box::default(),
            counters: Counters::default(),
            config: Config {
                batch_pkts: BATCH_PKTS,
                min_window_pkts: 4,
                build: Build::Nic,
                stopping: false,
            },
            key: FlowHasher::new(1)
                .key(ETH_P_IP, &packet)
                .expect("UDP has a key"),
            lanes: Vec::new(),
            merge_point: MergePoint {
                slots: Box::default(),
                ring_bytes: Box::default(),
                orders: Box::default(),
                receiver: Receiver::default(),
                now_ms: 0,
            },
        };
        for lane in 1..=nr_lanes as LaneId {
            let ring = NonNull::from(Box::leak(Box::new(Ring::new())));
            // SAFETY: The ring is never freed, and this is the only call for it.
            let (producer, consumer) = unsafe { Ring::ends(ring) };
            assert!(way.dispatcher.lanes.add(producer, lane, lane).is_ok());
            way.lanes.push(Lane {
                consumer,
                collector: Collector::new(),
            });
        }
        way.start();
        way
    }

    #[inline]
    fn receive(&mut self) {
        let dispatched = self.dispatch();
        assert!(matches!(dispatched, Dispatched::ToLane), "a lane has room");
    }

    #[inline]
    fn poll(&mut self, lane: usize) -> bool {
        let Lane {
            consumer,
            collector,
        } = &mut self.lanes[lane];
        // The source's poll has ended.
        self.dispatcher
            .lanes
            .take_touched(&self.merge_point.ring_bytes);
        let mut work = 0;
        let mut has_work = false;
        // About as fast as it is for a million packets a second.
        self.merge_point.now_ms += u32::from(lane == 0);
        while work < POLL_PKTS {
            let Some(item) = consumer.pop(|_, ()| ()) else {
                break;
            };
            has_work = true;
            match item {
                Item::Packet(packet) => {
                    work += 1;
                    if let Some(run) = collector.add(packet.tag(), 0, packet, ONE) {
                        self.merge_point.park(run);
                    }
                }
                Item::Built(()) => unreachable!("all packets are built"),
                // There is no building end.
                Item::Nothing => {}
                Item::BatchEnd(tag) => {
                    if let Some(run) = collector.take() {
                        self.merge_point.park(run);
                    }
                    self.merge_point.complete(tag);
                }
            }
        }
        if let Some(run) = collector.take() {
            self.merge_point.park(run);
        }
        let bytes = work as u64 * u64::from(PACKET_BYTES);
        self.merge_point.ring_bytes.release(lane as u32 + 1, bytes);
        has_work
    }

    fn nr_delivered(&self) -> u64 {
        let late = self.merge_point.slot().counters.get(Counter::LatePkts);
        assert_eq!(late, 0);
        self.merge_point.receiver.next_seq
    }
}
