// SPDX-License-Identifier: GPL-2.0

//! The lane of the core that dispatches, for what the other lanes have no room for.

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::knobs::Build;
use mflow_algo::algo::lanes::queue::ring::RING_ITEMS;
use mflow_algo::algo::limits::MAX_LANES;
use mflow_algo::algo::load::flow_orders::Order;

use crate::world::World;

const FLOW: u16 = 0;
const BATCH_PKTS: u32 = 16;
/// The mark of the own lane among those that got something.
const OWN_LANE: u32 = 1 << MAX_LANES;

/// Begins to split a flow.
fn split(nr_lanes: usize) -> World {
    let mut world = World::with_own_lane(nr_lanes, BATCH_PKTS);
    world.config.build = Build::Lane;
    world.driver_asks = true;
    world.start_split(FLOW);
    world.settle();
    world
}

/// Receives a batch, and returns whether the own lane got something of it.
fn is_own(world: &mut World) -> bool {
    world.receive(FLOW, BATCH_PKTS) & OWN_LANE != 0
}

#[test]
fn batch_is_for_others_as_long_as_they_have_time() {
    let mut world = split(2);
    for _ in 0..100 {
        assert!(!is_own(&mut world));
        world.settle();
    }
    world.assert_in_order(FLOW);
    world.finish();
}

/// A backlog of less than four batches, times the number of lanes, only means that a CPU was away.
#[test]
fn own_lane_waits_until_the_others_are_behind() {
    for nr_lanes in 1..=3 {
        let mut world = split(nr_lanes);
        let behind = 4 * (nr_lanes as u32).pow(2);
        let own: Vec<bool> = (0..=behind).map(|_| is_own(&mut world)).collect();
        let first = own.iter().position(|own| *own).map(|batch| batch as u32);
        assert_eq!(first, Some(behind), "beside {nr_lanes} lanes");
        world.settle();
        world.assert_in_order(FLOW);
        world.finish();
    }
}

/// Lanes that are behind are helped, but the core that dispatches has that work, too.
#[test]
fn one_batch_in_a_few_is_for_the_own_lane() {
    for nr_lanes in 1..=3 {
        let mut world = split(nr_lanes);
        // Each lane gets that many batches.
        let behind = 4 * nr_lanes as u32;
        world.receive(FLOW, behind * nr_lanes as u32 * BATCH_PKTS);
        let before = world.count(Counter::InlinePkts);
        world.receive(FLOW, 40 * BATCH_PKTS);
        // Its packets count as those of the core that dispatches.
        let own = (world.count(Counter::InlinePkts) - before) / u64::from(BATCH_PKTS);
        assert!(
            own.abs_diff(40 * 2 / 7) <= 1,
            "{own} beside {nr_lanes} lanes"
        );
        world.settle();
        world.assert_in_order(FLOW);
        world.finish();
    }
}

/// With a controller, no lane gets more than eight batches, and the own lane gets the rest.
#[test]
fn own_lane_gets_what_is_too_much_for_the_others() {
    for nr_lanes in 1..=3 {
        let mut world = split(nr_lanes);
        let orders = &world.around.orders;
        let helps = Order {
            helps: true,
            ..Order::NONE
        };
        orders.give(0, orders.generation(0), helps);
        let most = 8 * nr_lanes;
        let own: Vec<bool> = (0..most + 12).map(|_| is_own(&mut world)).collect();
        assert!(own.iter().skip(most + 4).all(|own| *own), "{own:?}");
        assert!(own.iter().filter(|own| **own).count() <= 14, "{own:?}");
        world.settle();
        world.assert_in_order(FLOW);
        world.finish();
    }
}

/// A lane whose CPU is away gets full. What comes then is carried here, and nothing is lost.
#[test]
fn own_lane_stands_in_for_lanes_that_are_full() {
    let mut world = split(1);
    for _ in 0..2_000 {
        world.receive(FLOW, BATCH_PKTS);
        // The own lane is the last one.
        world.around.poll(1, 64);
        world.end_nic_poll();
    }
    let lanes = world.count(Counter::LanePkts);
    assert!(lanes < RING_ITEMS as u64, "{lanes} in a ring");
    world.settle();
    world.assert_in_order(FLOW);
    assert_eq!(world.count(Counter::LatePkts), 0);
    world.finish();
}
