// SPDX-License-Identifier: GPL-2.0

//! The ring and the parked chains.

use loom::sync::Arc;
use loom::thread;
use mflow_algo::algo::lanes::queue::chain::ParkedChains;
use mflow_algo::algo::lanes::queue::ring::{Item, Producer, RING_ITEMS, RING_REQUESTS};
use mflow_algo::algo::lanes::queue::Packet;
use mflow_algo::algo::tag::{Tag, TagKind};

use crate::support::host::OwnedRing;
use crate::support::packet::{ids_of, Factory, TestPacket, TestRequest};

fn number(item: Item<TestPacket, TestPacket>) -> u64 {
    match item {
        Item::Packet(packet) | Item::Built(packet) => packet.id(),
        Item::Nothing => NOTHING,
        Item::BatchEnd(tag) => u64::from(tag.batch_bits()),
    }
}

/// Of which no packet is built.
const NOTHING: u64 = 1;

/// Numbers `nr_items` items with `push`, which says whether the ring had room, while a consumer pops. What is popped is what was
/// pushed, in order; so much as `at_least` fits in any case, and nothing is lost.
fn check_order(
    nr_items: u64,
    at_least: u64,
    push: fn(&mut Producer<TestPacket>, &Factory, u64) -> bool,
) {
    loom::model(move || {
        let factory = Factory::default();
        let (ring, mut producer, mut consumer) = OwnedRing::new(Box::default());

        let packets = factory.clone();
        let pushing = thread::spawn(move || {
            let mut pushed = 0;
            while pushed < nr_items && push(&mut producer, &packets, pushed) {
                pushed += 1;
            }
            // A request is published by what follows it.
            producer.publish();
            pushed
        });
        let mut popped = Vec::new();
        while let Some(item) = consumer.pop(TestRequest::build) {
            popped.push(number(item));
        }
        let pushed = pushing.join().unwrap();
        assert!(pushed >= at_least);
        while let Some(item) = consumer.pop(TestRequest::build) {
            popped.push(number(item));
        }
        assert_eq!(popped, (0..pushed).collect::<Vec<_>>());
        drop(ring);
        assert_eq!(factory.alive(), 0);
    });
}

/// More items than the ring holds.
#[test]
fn ring_keeps_order_past_its_end() {
    const RING: u64 = RING_ITEMS as u64;
    check_order(RING + 2, RING, |producer, packets, number| {
        if !producer.reserve(1) {
            return false;
        }
        // Every third item is a batch end, which is stored in another form.
        if number % 3 == 2 {
            assert!(producer.push_end(Tag::new(TagKind::Split, 1, number as u32)));
        } else {
            assert!(producer.push(packets.packet(number)).is_ok());
        }
        true
    });
}

/// More requests than the ring has places: a place is filled again only after what was in it has been built.
#[test]
fn places_of_requests_are_used_in_turn() {
    const PLACES: u64 = RING_REQUESTS as u64;
    check_order(PLACES + 2, PLACES, |producer, packets, number| {
        if !producer.reserve_requests(1) || !producer.reserve(1) {
            return false;
        }
        let tag = Tag::new(TagKind::Split, 1, number as u32);
        let request = producer.take_requests(tag, 1).first().unwrap();
        request.fill(packets.packet(number));
        true
    });
}

/// Places are given while the producer asks for some: it has all or none of them, and the consumer finds what lies in them.
#[test]
fn places_are_given_at_any_time() {
    loom::model(|| {
        let factory = Factory::default();
        let (ring, mut producer, mut consumer) = OwnedRing::without_places(Box::default());
        let ring = Arc::new(ring);

        let given = ring.clone();
        let giving = thread::spawn(move || given.give_places());
        let packets = factory.clone();
        let pushing = thread::spawn(move || {
            let has_places = producer.reserve_requests(1);
            assert!(producer.reserve(1));
            if has_places {
                let request = producer.take_requests(Tag::NONE, 1).first().unwrap();
                request.fill(packets.packet(0));
            } else {
                assert!(producer.push(packets.packet(0)).is_ok());
            }
            producer.publish();
        });
        let mut popped: Vec<_> = consumer
            .pop(TestRequest::build)
            .map(number)
            .into_iter()
            .collect();
        giving.join().unwrap();
        pushing.join().unwrap();
        popped.extend(consumer.pop(TestRequest::build).map(number));
        assert_eq!(popped, [0]);
        drop(ring);
        assert_eq!(factory.alive(), 0);
    });
}

/// The core that builds and the one that carries, behind the one that pushes: each item once, in order, and a place is filled
/// again only after what was in it has been built.
#[test]
fn packets_are_built_between_the_ends() {
    fn build(tag: Tag, request: &TestRequest) -> Option<TestPacket> {
        Some(TestRequest::build(tag, request)).filter(|packet| packet.id() != NOTHING)
    }
    const NR_ITEMS: u64 = RING_REQUESTS as u64 + 1;
    loom::model(|| {
        let factory = Factory::default();
        let (ring, mut producer, mut building, mut consumer) =
            OwnedRing::with_building(Box::default());

        let packets = factory.clone();
        let pushing = thread::spawn(move || {
            let mut pushed = 0;
            while pushed < NR_ITEMS && producer.reserve(1) && producer.reserve_requests(1) {
                let tag = Tag::new(TagKind::Split, 1, pushed as u32);
                let request = producer.take_requests(tag, 1).first().unwrap();
                request.fill(packets.packet(pushed));
                pushed += 1;
            }
            producer.publish();
            pushed
        });
        let building = thread::spawn(move || {
            while building.go_on(build) {}
            building.publish();
            building
        });
        let mut popped = Vec::new();
        let mut pop = || {
            while let Some(item) = consumer.pop(|_, _| unreachable!("a request is not built")) {
                popped.push(number(item));
            }
        };
        pop();
        let pushed = pushing.join().unwrap();
        let mut building = building.join().unwrap();
        while building.go_on(build) {}
        building.publish();
        pop();
        assert!(pushed >= RING_REQUESTS as u64);
        assert_eq!(popped, (0..pushed).collect::<Vec<_>>());
        drop(ring);
        assert_eq!(factory.alive(), 0);
    });
}

/// Room for a whole batch is there to the last item, whatever the consumer does meanwhile.
#[test]
fn ring_keeps_what_was_reserved() {
    loom::model(|| {
        let factory = Factory::default();
        let (ring, mut producer, mut consumer) = OwnedRing::new(Box::default());
        assert!(producer.reserve(2));
        for id in 0..2 {
            assert!(producer.push(factory.packet(id)).is_ok());
        }

        let packets = factory.clone();
        let pushing = thread::spawn(move || {
            if !producer.reserve(RING_ITEMS as u32 - 1) {
                assert!(producer.push(packets.packet(99)).is_err());
                return 2;
            }
            for id in 2..RING_ITEMS as u64 + 1 {
                assert!(producer.push(packets.packet(id)).is_ok());
            }
            assert!(producer.push(packets.packet(99)).is_err());
            RING_ITEMS as u64 + 1
        });
        let mut popped: Vec<_> = consumer
            .pop(TestRequest::build)
            .map(number)
            .into_iter()
            .collect();
        let pushed = pushing.join().unwrap();
        popped.extend(std::iter::from_fn(|| consumer.pop(TestRequest::build)).map(number));
        assert_eq!(popped, (0..pushed).collect::<Vec<_>>());
        drop(ring);
        assert_eq!(factory.alive(), 0);
    });
}

/// A core that sees the ring empty sees all that the consumer did with the items before it popped them.
#[test]
fn empty_ring_means_taken_out() {
    loom::model(|| {
        let factory = Factory::default();
        let (ring, mut producer, mut consumer) = OwnedRing::new(Box::default());
        assert!(producer.reserve(2));
        assert!(producer.push(factory.packet(1)).is_ok());
        assert!(producer.push_end(Tag::new(TagKind::Split, 0, 1)));

        let done = Arc::new(loom::cell::UnsafeCell::new(0));
        let consumer_done = done.clone();
        let popping = thread::spawn(move || {
            let packet = consumer.pop(TestRequest::build).map(number);
            consumer_done.with_mut(|done| {
                // SAFETY: The other thread reads only after the ring was seen empty.
                unsafe { *done = packet.unwrap() }
            });
            assert!(matches!(
                consumer.pop(TestRequest::build),
                Some(Item::BatchEnd(_))
            ));
        });
        if ring.is_empty() {
            // SAFETY: The ring was seen empty, so the other thread has written.
            assert_eq!(done.with(|done| unsafe { *done }), 1);
        }
        popping.join().unwrap();
        drop(ring);
    });
}

#[test]
fn dropped_ring_frees_its_packets() {
    loom::model(|| {
        let factory = Factory::default();
        let (ring, mut producer, _) = OwnedRing::new(Box::default());
        assert!(producer.reserve(3));
        assert!(producer.push(factory.packet(0)).is_ok());
        assert!(producer.push_end(Tag::new(TagKind::Split, 0, 0)));
        assert!(producer.push(factory.packet(1)).is_ok());
        drop(ring);
        assert_eq!(factory.alive(), 0);
    });
}

/// Returns those of `ids` that producer `number` has parked.
fn of_producer(ids: &[u64], number: u64) -> Vec<u64> {
    ids.iter().copied().filter(|id| id / 10 == number).collect()
}

/// Two producers and a consumer: every packet comes out once, each producer's in its order.
#[test]
fn parked_chains_lose_nothing() {
    loom::model(|| {
        let factory = Factory::default();
        let parked = Arc::new(ParkedChains::new());
        let producers = [1, 2].map(|producer| {
            let (parked, packets) = (parked.clone(), factory.clone());
            thread::spawn(move || {
                parked.park(packets.chain([producer * 10, producer * 10 + 1]));
                parked.park(packets.chain([producer * 10 + 2]));
            })
        });
        let mut taken = ids_of(parked.take_all());
        for producer in producers {
            producer.join().unwrap();
        }
        taken.extend(ids_of(parked.take_all()));
        assert_eq!(taken.len(), 6);
        assert_eq!(of_producer(&taken, 1), [10, 11, 12]);
        assert_eq!(of_producer(&taken, 2), [20, 21, 22]);
        assert!(parked.is_empty());
        assert_eq!(factory.alive(), 0);
    });
}

/// Two consumers at once get disjoint sets, each in order.
#[test]
fn parked_chains_are_taken_once() {
    loom::model(|| {
        let factory = Factory::default();
        let parked = Arc::new(ParkedChains::new());
        parked.park(factory.chain([10, 11]));
        let taking = [(); 2].map(|()| {
            let parked = parked.clone();
            thread::spawn(move || ids_of(parked.take_all()))
        });
        parked.park(factory.chain([12]));
        let [a, b] = taking.map(|taking| taking.join().unwrap());
        let rest = ids_of(parked.take_all());
        for part in [&a, &b, &rest] {
            assert!(part.is_sorted());
        }
        let mut all = [a, b, rest].concat();
        all.sort_unstable();
        assert_eq!(all, [10, 11, 12]);
        assert_eq!(factory.alive(), 0);
    });
}

/// A node that was taken can be parked again, elsewhere or here.
#[test]
fn nodes_are_used_again() {
    loom::model(|| {
        let factory = Factory::default();
        let parked = Arc::new(ParkedChains::new());
        parked.park(factory.chain([1]));
        let again = {
            let parked = parked.clone();
            thread::spawn(move || {
                let mut chain = parked.take_all();
                if let Some(mut packet) = chain.pop() {
                    packet.set_tag(Tag::new(TagKind::Split, 0, 7));
                    chain.push(packet);
                    parked.park(chain);
                }
            })
        };
        parked.park(factory.chain([2]));
        again.join().unwrap();
        let mut all = ids_of(parked.take_all());
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}
