// SPDX-License-Identifier: GPL-2.0

//! Batches of fragments: a lane carries all fragments of a datagram.

use std::collections::{BTreeMap, BTreeSet};

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::knobs::Build;
use mflow_algo::algo::tag::TagKind;

use crate::support::packet::number_in_flow;
use crate::world::World;

const FLOW: u16 = 0;
/// The fragments of a datagram of 64 KB.
const DATAGRAM_PKTS: u64 = 48;
const BATCH_PKTS: u32 = 256;
const NR_LANES: usize = 3;

/// Begins to split a flow of fragments.
fn split(batch_pkts: u32, driver_asks: bool) -> World {
    let mut world = World::new(NR_LANES, batch_pkts);
    world.around.packets.datagram_pkts = DATAGRAM_PKTS;
    world.driver_asks = driver_asks;
    world.config.build = Build::Lane;
    world.start_split(FLOW);
    world
}

/// Receives `pkts` packets, and returns how many batches each of their datagrams has. Datagrams at both ends are left out.
fn batches_of_datagrams(world: &mut World, pkts: u32) -> Vec<usize> {
    world.settle();
    world.around.carried.clear();
    world.around.carried_ids.clear();
    world.receive(FLOW, pkts);
    world.settle();
    let carried = world.around.carried_ids.iter().zip(&world.around.carried);
    let mut datagrams = BTreeMap::<u64, BTreeSet<u64>>::new();
    for (id, (lane, tag)) in carried {
        assert_eq!((lane.is_some(), tag.kind()), (true, TagKind::Split));
        let batches = datagrams.entry(number_in_flow(*id) / DATAGRAM_PKTS);
        batches.or_default().insert(tag.batch_bits().into());
    }
    datagrams.pop_first();
    datagrams.pop_last();
    datagrams
        .into_values()
        .map(|batches| batches.len())
        .collect()
}

/// A batch that ends in the middle of a datagram leaves fragments in the stack's memory until another lane has carried the rest. That
/// memory is the same for all, and where it is full, no datagram is put together any more.
#[test]
fn datagram_is_in_one_batch() {
    for driver_asks in [false, true] {
        let mut world = split(BATCH_PKTS, driver_asks);
        // The first batch may begin anywhere.
        world.receive(FLOW, 2 * BATCH_PKTS);
        let before = world.count(Counter::Batches);
        let batches = batches_of_datagrams(&mut world, 10_000);
        assert!(batches.len() > 200);
        assert_eq!(batches.iter().filter(|number| **number != 1).count(), 0);
        // Batches of 192 to 239 packets: four whole datagrams each.
        let nr_batches = world.count(Counter::Batches) - before;
        assert!((50..=54).contains(&nr_batches), "{nr_batches}");
        if driver_asks {
            // The core that dispatches builds the first of each batch.
            let requests = world.count(Counter::RequestPkts);
            assert!(requests > 9_900, "{requests}");
        }
        world.finish();
    }
}

/// A batch does not wait for the end of a datagram that is longer than it may grow.
#[test]
fn batch_of_fragments_has_no_more_packets_than_any_other() {
    for batch_pkts in [1, 2, 7, 100] {
        let mut world = split(batch_pkts, false);
        world.around.packets.datagram_pkts = u64::MAX;
        world.receive(FLOW, 2 * batch_pkts);
        world.settle();
        let before = world.count(Counter::Batches);
        world.receive(FLOW, 20 * batch_pkts);
        assert_eq!(world.count(Counter::Batches) - before, 20, "{batch_pkts}");
        world.finish();
    }
}
