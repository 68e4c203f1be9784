// SPDX-License-Identifier: GPL-2.0

//! Polls that bring one packet each: the core that dispatches carries it.

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::load::flow_orders::Order;

use crate::world::World;

const FLOW: u16 = 0;
const OTHER_FLOW: u16 = 1;
/// Longer than the time that polls have to bring single packets.
const POLLS: u32 = 400;

/// Begins to split a flow on two lanes.
fn split(batch_pkts: u32, helps: bool) -> World {
    let mut world = World::new(2, batch_pkts);
    world.start_split(FLOW);
    give(&world, helps);
    world
}

fn give(world: &World, helps: bool) {
    let orders = &world.around.orders;
    for slot in 0..2 {
        let order = Order {
            helps,
            ..Order::NONE
        };
        orders.give(slot, orders.generation(slot), order);
    }
}

/// Receives `pkts` packets of each of `flows` in each of many polls. Returns the number of packets that this core has carried, and that
/// lanes have carried.
fn carried(world: &mut World, flows: &[(u16, u32)], polls: u32) -> (u64, u64) {
    let before = [Counter::InlinePkts, Counter::LanePkts].map(|counter| world.count(counter));
    for _ in 0..polls {
        for (flow, pkts) in flows {
            world.receive(*flow, *pkts);
        }
        world.end_nic_poll();
        world.settle();
    }
    (
        world.count(Counter::InlinePkts) - before[0],
        world.count(Counter::LanePkts) - before[1],
    )
}

#[test]
fn packets_that_come_one_per_poll_wake_no_lane() {
    for batch_pkts in [1, 2, 7, 64] {
        let mut world = split(batch_pkts, true);
        let (_, lanes) = carried(&mut world, &[(FLOW, 1)], POLLS);
        assert!((32..=64).contains(&lanes), "{lanes} in lanes before");
        assert_eq!(
            carried(&mut world, &[(FLOW, 1)], POLLS),
            (POLLS.into(), 0),
            "batches of {batch_pkts}"
        );
        world.assert_in_order(FLOW);
        world.finish();
    }
}

/// A burst is for lanes, but for the few packets that the batch of this core has room for.
#[test]
fn burst_finds_its_lanes() {
    let mut world = split(16, true);
    carried(&mut world, &[(FLOW, 1)], POLLS);
    let (inline, lanes) = carried(&mut world, &[(FLOW, 64)], 1);
    assert!(inline <= 12, "{inline} inline");
    assert_eq!(inline + lanes, 64);
    let (inline, lanes) = carried(&mut world, &[(FLOW, 64)], 50);
    assert_eq!((inline, lanes), (0, 50 * 64));
    // And single packets have to come for a while again.
    let (_, lanes) = carried(&mut world, &[(FLOW, 1)], POLLS);
    assert!(lanes >= 32, "{lanes} in lanes");
    world.assert_in_order(FLOW);
    world.finish();
}

/// A burst does not leave a large batch open, whose other packets would each wake its lane.
#[test]
fn burst_is_soon_over() {
    let mut world = split(256, true);
    carried(&mut world, &[(FLOW, 1)], POLLS);
    for pkts in [16, 20, 30, 64] {
        let before = world.count(Counter::LanePkts);
        carried(&mut world, &[(FLOW, pkts)], 1);
        carried(&mut world, &[(FLOW, 1)], POLLS);
        let lanes = world.count(Counter::LanePkts) - before;
        assert!(lanes <= 3 * 32, "{lanes} in lanes for a burst of {pkts}");
    }
    world.assert_in_order(FLOW);
    world.finish();
}

/// A pair now and then, as of an interrupt that was late, makes no difference. A burst that ends within the batch of this core is in order,
/// too, although the rest of it goes to lanes.
#[test]
fn pairs_are_rare() {
    let mut world = split(16, true);
    carried(&mut world, &[(FLOW, 1)], POLLS);
    for _ in 0..20 {
        let (_, lanes) = carried(&mut world, &[(FLOW, 1)], 9);
        assert_eq!(lanes, 0);
        let (_, lanes) = carried(&mut world, &[(FLOW, 2)], 1);
        assert_eq!(lanes, 0);
    }
    for pkts in 3..40 {
        carried(&mut world, &[(FLOW, pkts)], 1);
        carried(&mut world, &[(FLOW, 1)], 90);
    }
    world.assert_in_order(FLOW);
    world.finish();
}

/// Packets of a batch that this core carries for another reason wait in GRO until the poll ends. Those that come alone stay behind them.
#[test]
fn packet_that_comes_alone_overtakes_none_in_gro() {
    const BATCH_PKTS: u32 = 16;
    for before in 0..BATCH_PKTS {
        let mut world = split(BATCH_PKTS, false);
        // The batches that lanes would have are this core's.
        world.dispatcher.lanes.set_offline(!0);
        carried(&mut world, &[(FLOW, 1)], POLLS + before);
        give(&world, true);
        carried(&mut world, &[(FLOW, 6)], 1);
        world.assert_in_order(FLOW);
        world.finish();
    }
}

#[test]
fn pairs_are_for_lanes() {
    let mut world = split(16, true);
    assert_eq!(
        carried(&mut world, &[(FLOW, 2)], POLLS),
        (0, 2 * u64::from(POLLS))
    );
    world.finish();
}

/// Without a controller nobody knows whether this core has time.
#[test]
fn lanes_carry_all_without_an_order() {
    let mut world = split(16, false);
    assert_eq!(
        carried(&mut world, &[(FLOW, 1)], POLLS),
        (0, u64::from(POLLS))
    );
    world.finish();
}

#[test]
fn flows_that_share_polls_have_their_lanes() {
    let mut world = split(16, true);
    world.start_split(OTHER_FLOW);
    give(&world, true);
    let flows = [(FLOW, 1), (OTHER_FLOW, 1)];
    assert_eq!(
        carried(&mut world, &flows, POLLS),
        (0, 2 * u64::from(POLLS))
    );
    world.finish();
}

/// This core has the packets of a whole flow to carry, so it does not carry those of a split one, too.
#[test]
fn packets_of_whole_flows_count() {
    let mut world = split(16, true);
    world.around.orders.refuse(true);
    let flows = [(FLOW, 1), (OTHER_FLOW, 1)];
    assert_eq!(carried(&mut world, &flows, POLLS), (0, POLLS.into()));
    world.finish();
}
