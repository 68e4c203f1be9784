// SPDX-License-Identifier: GPL-2.0

//! Ring, chains and collector on one thread, against queues of the standard library.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::thread;

use mflow_algo::algo::lanes::queue::chain::{Chain, ParkedChains};
use mflow_algo::algo::lanes::queue::ring::{Item, Producer, RING_ITEMS, RING_REQUESTS};
use mflow_algo::algo::lanes::queue::Packet;
use mflow_algo::algo::limits::MAX_BATCH_PKTS;
use mflow_algo::algo::merge::lane_run::Collector;
use mflow_algo::algo::parked_amount::Amount;
use mflow_algo::algo::tag::{Tag, TagKind};
use proptest::prelude::*;

use crate::common::cases;
use crate::support::host::OwnedRing;
use crate::support::packet::{ids_of, Factory, TestPacket, TestRequest};
use crate::zeroed::zeroed;

/// A ring full of packets, where that does not take too long.
const MANY: usize = if cfg!(miri) { 20 } else { RING_ITEMS };

const MAX_OPS: usize = if cfg!(miri) { 10 } else { 60 };

/// From one thread over a ring to another, and parked there for a third. Miri looks for data races, and a native run for
/// what the machine's own memory model allows.
#[test]
fn queues_on_threads() {
    let nr_pkts: u64 = if cfg!(miri) { 25 } else { 200_000 };
    let factory = Factory::default();
    let (ring, mut producer, mut consumer) = OwnedRing::new(zeroed());
    let parked = ParkedChains::new();
    let mut taken = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..nr_pkts {
                while !producer.reserve(1) {
                    thread::yield_now();
                }
                assert!(producer.push(factory.packet(id)).is_ok());
            }
        });
        scope.spawn(|| {
            let mut nr_popped = 0;
            while nr_popped < nr_pkts {
                let mut chain = Chain::new();
                while let Some(Item::Packet(packet)) = consumer.pop(TestRequest::build) {
                    chain.push(packet);
                    nr_popped += 1;
                }
                parked.park(chain);
                thread::yield_now();
            }
        });
        while (taken.len() as u64) < nr_pkts {
            taken.extend(ids_of(parked.take_all()));
            thread::yield_now();
        }
    });
    assert!(taken.into_iter().eq(0..nr_pkts));
    assert!(ring.is_empty());
    assert_eq!(factory.alive(), 0);
}

#[test]
fn ring_is_dropped_after_use() {
    for (nr_pushed, nr_popped) in [(0, 0), (3, 0), (3, 1), (3, 3), (MANY, 1)] {
        let factory = Factory::default();
        let (ring, mut producer, mut consumer) = OwnedRing::new(zeroed());
        assert!(producer.reserve(nr_pushed as u32));
        for id in 0..nr_pushed {
            assert!(producer.push(factory.packet(id as u64)).is_ok());
        }
        for _ in 0..nr_popped {
            assert!(consumer.pop(TestRequest::build).is_some());
        }
        assert_eq!(factory.alive(), nr_pushed - nr_popped);
        drop(ring);
        assert_eq!(factory.alive(), 0);
    }
}

/// Requests that nobody has built are discarded with the ring.
#[test]
fn requests_are_discarded() {
    for nr_popped in 0..4 {
        let factory = Factory::default();
        let (ring, mut producer, mut consumer) = OwnedRing::new(zeroed());
        assert!(producer.reserve(3) && producer.reserve_requests(3));
        for id in 0..3 {
            let request = producer.take_requests(Tag::NONE, 1).first().unwrap();
            request.fill(factory.packet(id));
        }
        producer.publish();
        for _ in 0..nr_popped {
            drop(consumer.pop(TestRequest::build));
        }
        assert_eq!(factory.alive(), 3_usize.saturating_sub(nr_popped));
        drop(ring);
        assert_eq!(factory.alive(), 0);
    }
}

/// A request may be filled until the producer goes on, so only then is it seen.
#[test]
fn a_request_is_seen_once_the_producer_goes_on() {
    let goes_on: [fn(&mut Producer<TestPacket>, &Factory); 4] = [
        |producer, _| producer.publish(),
        |producer, _| assert!(producer.push_end(Tag::NONE)),
        |producer, factory| assert!(producer.push(factory.packet(1)).is_ok()),
        |producer, factory| {
            let request = producer.take_requests(Tag::NONE, 1).first().unwrap();
            request.fill(factory.packet(1));
        },
    ];
    for go_on in goes_on {
        let factory = Factory::default();
        let (_ring, mut producer, mut consumer) = OwnedRing::new(zeroed());
        assert!(producer.reserve(2) && producer.reserve_requests(2));
        let request = producer.take_requests(Tag::NONE, 1).first().unwrap();
        assert!(consumer.pop(TestRequest::build).is_none());
        request.fill(factory.packet(0));
        go_on(&mut producer, &factory);
        assert!(is_same(
            consumer.pop(TestRequest::build),
            Some(ModelItem::Request(Tag::NONE, 0))
        ));
        // What the second one left is the ring's to discard.
        producer.publish();
    }
}

#[test]
fn a_mark_is_passed_once_all_before_it_are_popped() {
    let factory = Factory::default();
    let (ring, mut producer, mut consumer) = OwnedRing::new(zeroed());
    let mut push = |id| {
        assert!(producer.reserve(1));
        assert!(producer.push(factory.packet(id)).is_ok());
    };
    let empty = ring.mark();
    assert!(ring.has_passed(empty));
    push(0);
    push(1);
    let mark = ring.mark();
    // What comes behind it is not waited for.
    push(2);
    for passed in [false, true, true] {
        assert!(!ring.is_empty());
        assert!(consumer.pop(TestRequest::build).is_some());
        assert_eq!(ring.has_passed(mark), passed);
        assert!(ring.has_passed(empty));
    }
    assert!(ring.is_empty());
}

#[test]
fn ring_holds_the_largest_batch_with_its_end() {
    let (_ring, mut producer, _) = OwnedRing::new(zeroed());
    assert!(producer.reserve(MAX_BATCH_PKTS + 1));
}

#[test]
fn ring_has_room_for_exactly_what_was_taken_out() {
    let factory = Factory::default();
    let (_ring, mut producer, mut consumer) = OwnedRing::new(zeroed());
    assert!(producer.reserve(RING_ITEMS as u32));
    for id in 0..3 {
        assert!(producer.push(factory.packet(id)).is_ok());
        assert!(consumer.pop(TestRequest::build).is_some());
    }
    assert!(producer.reserve(3));
    assert!(!producer.reserve(1));
}

#[derive(Clone, Debug)]
enum RingOp {
    Reserve(u32),
    Unreserve(u32),
    Push(u32),
    PushEnd(Tag),
    ReserveRequests(u32),
    UnreserveRequests(u32),
    PushRequests(u32, Tag),
    GoOn(u32),
    Pop(u32),
}

fn ring_op() -> impl Strategy<Value = RingOp> {
    prop_oneof![
        (0..RING_ITEMS as u32 + 2).prop_map(RingOp::Reserve),
        (0..2000u32).prop_map(RingOp::Reserve),
        (0..50u32).prop_map(RingOp::Unreserve),
        (0..MANY as u32).prop_map(RingOp::Push),
        any::<u32>().prop_map(|word| RingOp::PushEnd(Tag::from_word(word))),
        (0..RING_REQUESTS as u32 + 2).prop_map(RingOp::ReserveRequests),
        (0..300u32).prop_map(RingOp::ReserveRequests),
        (0..50u32).prop_map(RingOp::UnreserveRequests),
        (0..MANY as u32, any::<u32>())
            .prop_map(|(requests, word)| RingOp::PushRequests(requests, Tag::from_word(word))),
        (0..MANY as u32).prop_map(RingOp::GoOn),
        (0..MANY as u32).prop_map(RingOp::Pop),
    ]
}

/// The content of a ring, in a form that can be compared.
#[derive(Debug, PartialEq)]
enum ModelItem {
    Packet(u64),
    Request(Tag, u64),
    Nothing,
    End(Tag),
}

impl ModelItem {
    /// Returns what the building end makes of it: of each fifth request, nothing.
    fn built(self) -> Self {
        match self {
            Self::Request(_, id) if id % 5 == 0 => Self::Nothing,
            Self::Request(_, id) => Self::Packet(id),
            other => other,
        }
    }
}

fn build_most(tag: Tag, request: &TestRequest) -> Option<TestPacket> {
    Some(TestRequest::build(tag, request)).filter(|packet| packet.id() % 5 != 0)
}

fn is_same(item: Option<Item<TestPacket, TestPacket>>, expected: Option<ModelItem>) -> bool {
    let item = item.map(|item| match item {
        Item::Packet(packet) => ModelItem::Packet(packet.id()),
        Item::Built(packet) => ModelItem::Request(packet.tag(), packet.id()),
        Item::Nothing => ModelItem::Nothing,
        Item::BatchEnd(tag) => ModelItem::End(tag),
    });
    item == expected
}

/// A ring has places for requests only once it was given some: until then the core of the NIC builds all packets.
#[test]
fn places_come_when_they_are_given() {
    let factory = Factory::default();
    let (ring, mut producer, mut consumer) = OwnedRing::without_places(zeroed());
    assert!(producer.reserve(2));
    for _ in 0..2 {
        assert!(!ring.has_places());
        assert!(!producer.reserve_requests(1));
        assert!(producer.take_requests(Tag::NONE, 1).is_empty());
    }
    assert!(producer.push(factory.packet(0)).is_ok());
    ring.give_places();
    assert!(ring.has_places());
    assert!(producer.reserve_requests(RING_REQUESTS as u32));
    let request = producer.take_requests(Tag::NONE, 1).first().unwrap();
    request.fill(factory.packet(1));
    producer.publish();
    for expected in [ModelItem::Packet(0), ModelItem::Request(Tag::NONE, 1)] {
        assert!(is_same(consumer.pop(TestRequest::build), Some(expected)));
    }
}

/// The property below hardly ever draws numbers that fit to the last place.
#[test]
fn all_places_can_be_reserved_and_no_more() {
    let factory = Factory::default();
    let (_ring, mut producer, mut consumer) = OwnedRing::new(zeroed());
    let places = RING_REQUESTS as u32;
    assert!(!producer.reserve_requests(places + 1));
    assert!(producer.reserve_requests(places));
    assert!(!producer.reserve_requests(1));
    // All again, once the only one that was filled is free.
    assert!(producer.reserve(1));
    let request = producer.take_requests(Tag::NONE, 1).first().unwrap();
    request.fill(factory.packet(0));
    producer.publish();
    producer.unreserve_requests(places - 1);
    assert!(consumer.pop(TestRequest::build).is_some());
    assert!(producer.reserve_requests(places));
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn ring_is_a_queue_with_reservations(
        ops in prop::collection::vec(ring_op(), 0..MAX_OPS),
        builds_apart: bool,
    ) {
        let factory = Factory::default();
        let (ring, mut producer, mut building, mut consumer) = if builds_apart {
            let (ring, producer, building, consumer) = OwnedRing::with_building(zeroed());
            (ring, producer, Some(building), consumer)
        } else {
            let (ring, producer, consumer) = OwnedRing::new(zeroed());
            (ring, producer, None, consumer)
        };
        let mut model: VecDeque<ModelItem> = VecDeque::new();
        // This many of the first ones the building end has gone over.
        let mut built = 0;
        let (mut reserved, mut reserved_requests) = (0u32, 0u32);
        let mut next_id = 0;
        let mut nr_requests = 0u32;
        let requests = |model: &VecDeque<ModelItem>| {
            model.iter().filter(|item| matches!(item, ModelItem::Request(..))).count()
        };
        for op in ops {
            match op {
                RingOp::Reserve(items) => {
                    let fits = model.len() + (reserved + items) as usize <= RING_ITEMS;
                    prop_assert_eq!(producer.reserve(items), fits);
                    if fits {
                        reserved += items;
                    }
                }
                RingOp::Unreserve(items) => {
                    producer.unreserve(items);
                    reserved = reserved.saturating_sub(items);
                }
                RingOp::Push(pkts) => {
                    for _ in 0..pkts.min(reserved + 1) {
                        let pushed = producer.push(factory.packet(next_id));
                        prop_assert_eq!(pushed.is_ok(), reserved > 0);
                        if pushed.is_ok() {
                            reserved -= 1;
                            model.push_back(ModelItem::Packet(next_id));
                            next_id += 1;
                        }
                    }
                }
                RingOp::PushEnd(tag) => {
                    prop_assert_eq!(producer.push_end(tag), reserved > 0);
                    if reserved > 0 {
                        reserved -= 1;
                        model.push_back(ModelItem::End(tag));
                    }
                }
                RingOp::ReserveRequests(wanted) => {
                    let fits = requests(&model) + (reserved_requests + wanted) as usize <= RING_REQUESTS;
                    prop_assert_eq!(producer.reserve_requests(wanted), fits);
                    if fits {
                        reserved_requests += wanted;
                    }
                }
                RingOp::UnreserveRequests(unused) => {
                    producer.unreserve_requests(unused);
                    reserved_requests = reserved_requests.saturating_sub(unused);
                }
                RingOp::PushRequests(wanted, tag) => {
                    let mut wanted = wanted;
                    loop {
                        let most = wanted.min(reserved).min(reserved_requests);
                        let requests = producer.take_requests(tag, wanted);
                        // CAST: `wanted` at most.
                        let taken = requests.len() as u32;
                        prop_assert!(taken <= most && (taken > 0) == (most > 0));
                        if taken == 0 {
                            break;
                        }
                        for request in requests {
                            request.fill(factory.packet(next_id));
                            model.push_back(ModelItem::Request(tag, next_id));
                            next_id += 1;
                        }
                        // Less than that only where the places begin again.
                        nr_requests += taken;
                        prop_assert!(taken == most || nr_requests % RING_REQUESTS as u32 == 0);
                        reserved -= taken;
                        reserved_requests -= taken;
                        wanted -= taken;
                    }
                    // Otherwise the last one is seen after the next item.
                    producer.publish();
                }
                RingOp::GoOn(items) => {
                    let Some(building) = &mut building else { continue };
                    for _ in 0..items.min((model.len() - built) as u32 + 1) {
                        let item = model.get_mut(built);
                        prop_assert_eq!(building.go_on(build_most), item.is_some());
                        if let Some(item) = item {
                            *item = std::mem::replace(item, ModelItem::Nothing).built();
                            built += 1;
                        }
                    }
                    building.publish();
                    prop_assert_eq!(producer.unbuilt_items() as usize, model.len() - built);
                }
                RingOp::Pop(items) => {
                    for _ in 0..items.min(model.len() as u32 + 1) {
                        let may_pop = built > 0 || building.is_none();
                        let expected = may_pop.then(|| model.pop_front()).flatten();
                        prop_assert!(is_same(consumer.pop(TestRequest::build), expected));
                        built = built.saturating_sub(1);
                    }
                    // Not each time: it looks at what was pushed, which `pop` does by itself.
                    if items % 2 == 0 {
                        let waiting = if building.is_some() { built } else { model.len() };
                        prop_assert_eq!(consumer.waiting_items() as usize, waiting);
                    }
                }
            }
            prop_assert_eq!(ring.is_empty(), model.is_empty());
            prop_assert_eq!(producer.waiting_items() as usize, model.len());
        }
        // What is left, requests and packets alike, goes with the ring.
        drop(ring);
        prop_assert_eq!(factory.alive(), 0);
    }

    #[test]
    fn chains_are_lists(parts in prop::collection::vec(0..6u64, 0..8), nr_popped in 0..20usize) {
        let factory = Factory::default();
        let mut chain = Chain::new();
        let mut model = VecDeque::new();
        let mut next_id = 0;
        for pkts in parts {
            let ids = next_id..next_id + pkts;
            next_id += pkts;
            // Odd parts one by one, even ones as a whole.
            if pkts % 2 == 1 {
                ids.clone().for_each(|id| chain.push(factory.packet(id)));
            } else {
                chain.append(factory.chain(ids.clone()));
            }
            model.extend(ids);
            prop_assert_eq!(chain.is_empty(), model.is_empty());
            prop_assert_eq!(chain.last_node().is_some(), !model.is_empty());
        }
        for _ in 0..nr_popped {
            prop_assert_eq!(chain.pop().map(|packet| packet.id()), model.pop_front());
        }
        chain.append(factory.chain([1000]));
        model.push_back(1000);
        prop_assert_eq!(factory.alive(), model.len());
        prop_assert_eq!(ids_of(chain), Vec::from(model));
        prop_assert_eq!(factory.alive(), 0);
    }

    #[test]
    fn parked_chains_come_out_in_order(ops in prop::collection::vec(prop::option::of(0..5u64), 0..20)) {
        let factory = Factory::default();
        let parked = ParkedChains::new();
        let mut model = Vec::new();
        let mut next_id = 0;
        for op in ops {
            match op {
                Some(pkts) => {
                    parked.park(factory.chain(next_id..next_id + pkts));
                    model.extend(next_id..next_id + pkts);
                    next_id += pkts;
                }
                None => prop_assert_eq!(ids_of(parked.take_all()), std::mem::take(&mut model)),
            }
            prop_assert_eq!(parked.is_empty(), model.is_empty());
        }
        prop_assert_eq!(factory.alive(), model.len());
        // What is left is freed with it.
        drop(parked);
        prop_assert_eq!(factory.alive(), 0);
    }

    #[test]
    fn collector_cuts_where_tag_or_socket_changes(
        packets in prop::collection::vec((0..3u32, 0..2usize, 1..45u32), 0..40)
    ) {
        let factory = Factory::default();
        let mut collector = Collector::new();
        let mut runs = Vec::new();
        for (id, (batch, socket, pkts)) in packets.iter().enumerate() {
            let tag = Tag::new(TagKind::Split, 0, *batch);
            runs.extend(collector.add(tag, *socket, factory.packet(id as u64), Amount::of(*pkts, 100)));
        }
        runs.extend(collector.take());
        prop_assert!(collector.take().is_none());

        let expected = packets.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1));
        prop_assert_eq!(runs.len(), expected.clone().count());
        let mut next_id = 0;
        for (run, expected) in runs.into_iter().zip(expected) {
            let (batch, socket, _) = expected[0];
            prop_assert_eq!((run.tag.batch_bits(), run.socket), (batch, socket));
            prop_assert_eq!(run.amount.pkts(), expected.iter().map(|(_, _, pkts)| pkts).sum::<u32>());
            prop_assert_eq!(run.amount.bytes(), expected.len() as u64 * 256);
            prop_assert_eq!(ids_of(run.chain), (next_id..next_id + expected.len() as u64).collect::<Vec<_>>());
            next_id += expected.len() as u64;
        }
    }
}

#[test]
fn chain_gives_its_list_away() {
    let factory = Factory::default();
    let mut rest = factory.chain(0..3).into_first();
    let mut chain = Chain::new();
    while let Some(node) = NonNull::new(rest) {
        // SAFETY: The list's packets are ours.
        rest = unsafe { *TestPacket::next(node) };
        // SAFETY: Each of them is taken once.
        chain.push(unsafe { TestPacket::from_node(node) });
    }
    assert_eq!(ids_of(chain), [0, 1, 2]);
}

#[test]
fn chain_is_split_where_it_is_asked_to() {
    let factory = Factory::default();
    for nr_pkts in 0..4 {
        for kept in 0..6 {
            let mut chain = factory.chain(0..nr_pkts);
            let mut rest = chain.split_off(kept);
            let kept = u64::from(kept).min(nr_pkts);
            // Both can still be added to.
            chain.push(factory.packet(98));
            rest.push(factory.packet(99));
            assert!(ids_of(chain).into_iter().eq((0..kept).chain([98])));
            assert!(ids_of(rest).into_iter().eq((kept..nr_pkts).chain([99])));
        }
    }
}
