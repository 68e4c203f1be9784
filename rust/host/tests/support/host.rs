// SPDX-License-Identifier: GPL-2.0

//! A host whose cores can run on threads: dispatcher, rings, lanes and slot together, for one flow.

#[cfg(not(loom))]
use std::alloc::{alloc_zeroed, handle_alloc_error, Layout};
use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use mflow_algo::algo::counters::{Counter, Counters};
use mflow_algo::algo::flow::dispatcher::{Config, Dispatched, Dispatcher, Host, Unbuilt};
use mflow_algo::algo::headers::flow_key::{FlowHasher, FlowKey, Ipv4Flow, ETH_P_IP};
use mflow_algo::algo::headers::overlay::Fragment;
use mflow_algo::algo::knobs::Build;
use mflow_algo::algo::lanes::queue::chain::Chain;
use mflow_algo::algo::lanes::queue::ring::{
    BuildingEnd, Consumer, Item, Producer, RequestPlaces, Ring,
};
use mflow_algo::algo::lanes::queue::Packet as _;
use mflow_algo::algo::lanes::ring_bytes::RingBytes;
use mflow_algo::algo::load::flow_orders::Orders;
use mflow_algo::algo::merge::lane_run::{Collector, Run};
use mflow_algo::algo::merge::slot::Slot;
use mflow_algo::algo::merge::slot_pool::SlotPool;
use mflow_algo::algo::tag::{Tag, TagKind};

use super::packet::{TestPacket, TestRequest};
use super::socket::Socket;

/// The slot that the first flow gets.
const SLOT: usize = 0;

/// A ring whose ends are elsewhere. It is dropped after them: every test joins its threads first.
pub(crate) struct OwnedRing {
    ring: NonNull<Ring<TestPacket>>,
    /// Its places for requests, if it has been given some. Dropped after the ring.
    places: Cell<Option<NonNull<RequestPlaces<TestPacket>>>>,
}

impl OwnedRing {
    pub(crate) fn new(
        ring: Box<Ring<TestPacket>>,
    ) -> (Self, Producer<TestPacket>, Consumer<TestPacket>) {
        let (owned, producer, consumer) = Self::without_places(ring);
        owned.give_places();
        (owned, producer, consumer)
    }

    /// Returns a ring that has no places for requests yet.
    pub(crate) fn without_places(
        ring: Box<Ring<TestPacket>>,
    ) -> (Self, Producer<TestPacket>, Consumer<TestPacket>) {
        let owned = Self::owning(ring);
        // SAFETY: The ring is freed in `drop`, after the ends' last use, and this is the only call for it.
        let (producer, consumer) = unsafe { Ring::ends(owned.ring) };
        (owned, producer, consumer)
    }

    fn owning(ring: Box<Ring<TestPacket>>) -> Self {
        Self {
            ring: NonNull::from(Box::leak(ring)),
            places: Cell::new(None),
        }
    }

    /// Gives the ring places for requests. Called once.
    pub(crate) fn give_places(&self) {
        let places = NonNull::from(Box::leak(empty_places()));
        self.places.set(Some(places));
        // SAFETY: They are freed in `drop`, after the ring, and nobody else has them. This is the only call for the ring.
        unsafe { Ring::give_places(self, places) };
    }

    pub(crate) fn with_building(
        ring: Box<Ring<TestPacket>>,
    ) -> (
        Self,
        Producer<TestPacket>,
        BuildingEnd<TestPacket>,
        Consumer<TestPacket>,
    ) {
        let owned = Self::owning(ring);
        owned.give_places();
        // SAFETY: As in `without_places`.
        let (producer, building, consumer) = unsafe { Ring::ends_with_building(owned.ring) };
        (owned, producer, building, consumer)
    }
}

/// Returns places for requests. They never lie on the stack, and Miri would be long at filling them.
#[cfg(not(loom))]
fn empty_places() -> Box<RequestPlaces<TestPacket>> {
    let layout = Layout::new::<RequestPlaces<TestPacket>>();
    // SAFETY: The layout has a size. By their documentation, memory of zeros has empty places: so has a request's, which is a null
    // pointer. The memory is the box's from here on.
    unsafe {
        let places = alloc_zeroed(layout).cast::<RequestPlaces<TestPacket>>();
        if places.is_null() {
            handle_alloc_error(layout);
        }
        Box::from_raw(places)
    }
}

#[cfg(loom)]
fn empty_places() -> Box<RequestPlaces<TestPacket>> {
    Box::default()
}

impl Deref for OwnedRing {
    type Target = Ring<TestPacket>;

    fn deref(&self) -> &Self::Target {
        // SAFETY: Freed in `drop` only.
        unsafe { self.ring.as_ref() }
    }
}

impl Drop for OwnedRing {
    fn drop(&mut self) {
        // SAFETY: Each came from a `Box`, and all ends have been used for the last time.
        unsafe {
            drop(Box::from_raw(self.ring.as_ptr()));
            drop(
                self.places
                    .get()
                    .map(|places| Box::from_raw(places.as_ptr())),
            );
        }
    }
}

pub(crate) struct Shared {
    pub(crate) socket: Arc<Socket>,
    pub(crate) slots: Box<SlotPool<TestPacket>>,
    ring_bytes: RingBytes,
    orders: Orders,
}

impl Shared {
    pub(crate) fn slot(&self) -> &Slot<TestPacket> {
        self.slots.slot(SLOT)
    }

    fn park(&self, run: Run<TestPacket>) {
        let batch = run.tag.batch_near(self.slot().next());
        self.socket.park(self.slot(), batch, run.chain, run.amount);
    }

    fn complete(&self, tag: Tag) {
        self.socket
            .complete(self.slot(), tag.batch_near(self.slot().next()));
    }

    /// Brings a packet to its socket outside of any lane.
    fn arrive(&self, packet: TestPacket) {
        let (tag, amount) = (packet.tag(), packet.amount());
        match tag.kind() {
            TagKind::Split | TagKind::Fence => {
                let mut chain = Chain::new();
                chain.push(packet);
                self.park(Run {
                    chain,
                    amount,
                    tag,
                    socket: 0,
                });
                if tag.kind() == TagKind::Fence {
                    self.complete(tag);
                }
            }
            TagKind::Probe => {
                self.slot().note_probe(tag.batch_bits());
                self.socket.deliver_directly(packet);
            }
            TagKind::None => self.socket.deliver_directly(packet),
            TagKind::Queued => unreachable!("nothing is queued here"),
        }
    }
}

pub(crate) struct Lane {
    shared: Arc<Shared>,
    consumer: Consumer<TestPacket>,
    collector: Collector<TestPacket>,
}

impl Lane {
    fn flush(&mut self) {
        if let Some(run) = self.collector.take() {
            self.shared.park(run);
        }
    }

    fn receive(&mut self, packet: TestPacket) {
        let amount = packet.amount();
        if let Some(run) = self.collector.add(packet.tag(), 0, packet, amount) {
            self.shared.park(run);
        }
    }

    /// Carries at most this many packets. Returns how many there were.
    pub(crate) fn poll(&mut self, budget: usize) -> usize {
        let mut work = 0;
        while work < budget {
            match self.consumer.pop(TestRequest::build) {
                Some(Item::Packet(packet) | Item::Built(packet)) => {
                    work += 1;
                    self.receive(packet);
                }
                // There is no building end.
                Some(Item::Nothing) => {}
                Some(Item::BatchEnd(tag)) => {
                    self.flush();
                    self.shared.complete(tag);
                }
                None => break,
            }
        }
        self.flush();
        work
    }

    pub(crate) fn poll_all(&mut self) {
        while self.poll(64) > 0 {}
    }
}

pub(crate) struct Nic {
    pub(crate) dispatcher: Box<Dispatcher<TestPacket>>,
    counters: Counters,
    shared: Arc<Shared>,
    pub(crate) config: Config,
    /// True if the driver asks who builds a packet.
    pub(crate) driver_asks: bool,
    flow: Ipv4Flow,
    key: FlowKey,
    nr_received: u64,
    /// The ordinary path. It is as slow as the test wants it to be.
    pub(crate) ordinary: Vec<TestPacket>,
}

struct NicHost<'a>(&'a Shared);

impl Host<TestPacket> for NicHost<'_> {
    fn now_ms(&mut self) -> u32 {
        1000
    }

    fn cpu(&self) -> u32 {
        0
    }

    fn slots(&self) -> &SlotPool<TestPacket> {
        &self.0.slots
    }

    fn ring_bytes(&self) -> &RingBytes {
        &self.0.ring_bytes
    }

    fn orders(&self) -> &Orders {
        &self.0.orders
    }

    // What is inline arrives in the call that dispatches it, as without GRO.
    fn flush_inline(&mut self) {}

    fn merge(&mut self, _slot: usize) {
        self.0.socket.merge(self.0.slot());
    }

    fn note_active(&mut self, _taken: bool) {}
}

impl Nic {
    pub(crate) fn receive(&mut self, pkts: usize) {
        for _ in 0..pkts {
            let packet = self.shared.socket.packets.packet(self.nr_received);
            self.nr_received += 1;
            let mut host = NicHost(&self.shared);
            if self.driver_asks {
                let now_ms = host.now_ms();
                let (counters, stopping) = (&self.counters, self.config.stopping);
                let dispatcher = &mut self.dispatcher;
                let unbuilt = Unbuilt {
                    flow: Some(self.flow),
                    key: || Some(self.key),
                    inner_flow: || packet.inner_flow(),
                    fragment: || Fragment::None,
                    bytes: 0,
                    most: 1,
                };
                let requests = match dispatcher.run_of(Some(self.flow), 1, stopping, now_ms) {
                    Some(run) => dispatcher.take_of_run(run, 0),
                    None => dispatcher.take_requests(counters, now_ms, stopping, unbuilt),
                };
                if let Some(request) = requests.first() {
                    request.fill(packet);
                    continue;
                }
            }
            match self
                .dispatcher
                .dispatch(&self.counters, &mut host, self.config, self.key, packet)
            {
                Dispatched::ToLane => {}
                Dispatched::Inline(packet) | Dispatched::InlineAlone(packet) => {
                    self.shared.arrive(packet);
                }
                Dispatched::Ordinary(packet) => self.ordinary.push(packet),
            }
        }
        if self.driver_asks {
            self.dispatcher.end_runs(&self.counters);
            self.dispatcher.lanes.take_touched(&self.shared.ring_bytes);
        }
    }

    pub(crate) fn nr_received(&self) -> u64 {
        self.nr_received
    }

    pub(crate) fn run_ordinary(&mut self) {
        for packet in self.ordinary.drain(..) {
            self.shared.arrive(packet);
        }
    }
}

pub(crate) struct Setup<const N: usize> {
    pub(crate) nic: Nic,
    pub(crate) lanes: [Lane; N],
    pub(crate) shared: Arc<Shared>,
    /// Dropped last.
    pub(crate) _rings: Vec<OwnedRing>,
}

impl<const N: usize> Setup<N> {
    /// Returns a host that has just sent the fence of a flow, with batches of this many packets.
    pub(crate) fn new(slots: Box<SlotPool<TestPacket>>, batch_pkts: u32) -> Self {
        let shared = Arc::new(Shared {
            socket: Socket::new(),
            slots,
            ring_bytes: RingBytes::new(),
            orders: Orders::new(),
        });
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[9] = 17;
        let mut nic = Nic {
            dispatcher: Box::default(),
            counters: Counters::default(),
            shared: shared.clone(),
            config: Config {
                batch_pkts,
                min_window_pkts: 1,
                build: Build::Lane,
                stopping: false,
            },
            driver_asks: false,
            flow: Ipv4Flow::of(&packet).unwrap(),
            key: FlowHasher::new(1).key(ETH_P_IP, &packet).unwrap(),
            nr_received: 0,
            ordinary: Vec::new(),
        };
        let mut rings = Vec::new();
        let lanes = std::array::from_fn(|lane| {
            let (ring, producer, consumer) = OwnedRing::new(Box::default());
            rings.push(ring);
            let id = lane as u32 + 1;
            assert!(nic.dispatcher.lanes.add(producer, id, id).is_ok());
            Lane {
                shared: shared.clone(),
                consumer,
                collector: Collector::new(),
            }
        });
        nic.receive(1);
        nic.run_ordinary();
        nic.receive(1);
        assert_eq!(nic.ordinary[0].tag().kind(), TagKind::Fence);
        Self {
            nic,
            lanes,
            shared,
            _rings: rings,
        }
    }

    /// Returns a host with a flow that is split, and nothing under way.
    pub(crate) fn new_split(slots: Box<SlotPool<TestPacket>>, batch_pkts: u32) -> Self {
        let mut setup = Self::new(slots, batch_pkts);
        setup.nic.run_ordinary();
        setup
    }
}

/// Ends the flow, after all threads have been joined. Returns how many packets there were.
pub(crate) fn end_flow(nic: &mut Nic, lanes: &mut [Lane], shared: &Shared) -> u64 {
    nic.config.stopping = true;
    for _ in 0..4 {
        nic.run_ordinary();
        lanes.iter_mut().for_each(Lane::poll_all);
        nic.receive(1);
    }
    nic.run_ordinary();
    assert_eq!(shared.slots.taken().count(), 0, "the flow has not stopped");
    assert_eq!(shared.slot().parked_pkts(), 0);
    assert_eq!(shared.socket.packets.alive(), 0);
    nic.nr_received()
}

/// Ends the flow, and checks that all packets came in order.
pub(crate) fn check_order(mut nic: Nic, mut lanes: impl AsMut<[Lane]>, shared: &Shared) {
    let nr_received = end_flow(&mut nic, lanes.as_mut(), shared);
    assert!(shared.socket.delivered().into_iter().eq(0..nr_received));
    let counters = &shared.slot().counters;
    assert_eq!(counters.get(Counter::LatePkts), 0);
    assert_eq!(counters.get(Counter::DeadlineBatches), 0);
}
