// SPDX-License-Identifier: GPL-2.0

//! The dispatcher's response to the load controller's orders.

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::load::flow_orders::Order;

use crate::world::{World, NIC_CPU};

const FLOW: u16 = 0;
const TO_STOP: Order = Order {
    stops: true,
    ..Order::NONE
};

fn of_lanes(lanes: u16) -> Order {
    Order {
        lanes,
        ..Order::NONE
    }
}

/// Returns a world whose flow is split, and the flow's slot.
fn split(nr_lanes: usize, batch_pkts: u32) -> (World, usize) {
    let mut world = World::new(nr_lanes, batch_pkts);
    world.start_split(FLOW);
    world.settle();
    let slot = world.around.slots.taken().next().expect("a slot");
    (world, slot)
}

fn give(world: &World, slot: usize, order: Order) {
    let orders = &world.around.orders;
    orders.give(slot, orders.generation(slot), order);
}

/// Receives packets, has lanes carry them, and returns which lanes (bit mask) had some.
fn lanes_of(world: &mut World, pkts: u32) -> u32 {
    let before = world.around.carried.len();
    world.receive(FLOW, pkts);
    world.settle();
    let carried = world.around.carried[before..].iter();
    carried.fold(0, |mask, (lane, _)| mask | lane.map_or(0, |lane| 1 << lane))
}

fn assert_whole(world: &World) {
    let delivered = world.delivered(FLOW);
    assert!(delivered.is_sorted());
    assert_eq!(delivered.len() as u64, world.nr_sent()[usize::from(FLOW)]);
}

#[test]
fn the_controller_is_told_where_a_flow_is_dispatched_as_long_as_it_has_a_slot() {
    let (mut world, slot) = split(2, 4);
    world.receive(FLOW, 8);
    assert_eq!(world.around.orders.cpu(slot), Some(NIC_CPU));
    // The flow goes back to the ordinary path, and gives its slot back there.
    give(&world, slot, TO_STOP);
    for _ in 0..16 {
        world.receive(FLOW, 4);
        world.settle();
    }
    assert_eq!(world.around.slots.taken().next(), None);
    assert_eq!(world.around.orders.cpu(slot), None);
}

#[test]
fn only_the_lanes_of_the_order_get_batches() {
    let (mut world, slot) = split(4, 4);
    assert_eq!(lanes_of(&mut world, 64), 0b1111);
    for lanes in [0b0101, 0b1000, 0b0110, 0b1111] {
        give(&world, slot, of_lanes(lanes));
        // The open batch goes on where it is.
        world.receive(FLOW, 4);
        world.settle();
        assert_eq!(lanes_of(&mut world, 64), u32::from(lanes));
    }
    assert_whole(&world);
}

/// Lanes leave and come back while batches of theirs are under way.
#[test]
fn a_lane_that_leaves_breaks_no_order() {
    let (mut world, slot) = split(4, 3);
    for n in 0..400u32 {
        let lanes = (n.wrapping_mul(0x9e37_79b9) >> 28) as u16 | 1 << (n % 4);
        give(&world, slot, of_lanes(lanes));
        world.receive(FLOW, 5);
        world.around.poll(n as usize % 4, 4);
    }
    world.settle();
    assert_whole(&world);
    assert_eq!(world.count(Counter::DeadlineBatches), 0);
}

#[test]
fn an_order_for_lanes_that_are_not_there_is_one_for_all() {
    let (mut world, slot) = split(3, 4);
    for lanes in [0, 0b1000] {
        give(&world, slot, of_lanes(lanes));
        assert_eq!(lanes_of(&mut world, 64), 0b111);
    }
    // Nor are those there whose CPU is going offline.
    give(&world, slot, of_lanes(0b010));
    world.dispatcher.lanes.set_offline(0b010);
    world.receive(FLOW, 4);
    world.settle();
    assert_eq!(lanes_of(&mut world, 64), 0b101);
}

#[test]
fn batches_have_the_size_of_the_order_or_of_the_knob_if_that_is_less() {
    let (mut world, slot) = split(2, 64);
    for (ordered, expected) in [(8, 8), (1, 1), (64, 64), (500, 64), (0, 1)] {
        give(
            &world,
            slot,
            Order {
                batch_pkts: ordered,
                ..Order::NONE
            },
        );
        world.receive(FLOW, 64);
        world.settle();
        let before = world.count(Counter::Batches);
        world.receive(FLOW, 640);
        world.settle();
        assert_eq!(
            world.count(Counter::Batches) - before,
            640 / expected,
            "{ordered}"
        );
    }
    assert_whole(&world);
}

/// With lanes that have two batches to do, the next one is the dispatching core's; without such an order it is a lane's.
#[test]
fn the_core_that_dispatches_helps_lanes_that_have_enough() {
    for (helps, inline_pkts) in [(true, 10), (false, 0)] {
        let (mut world, slot) = split(2, 10);
        give(
            &world,
            slot,
            Order {
                helps,
                ..Order::NONE
            },
        );
        world.receive(FLOW, 10);
        world.settle();
        let before = world.count(Counter::InlinePkts);
        world.receive(FLOW, 40);
        assert_eq!(world.count(Counter::InlinePkts), before);
        world.receive(FLOW, 10);
        assert_eq!(world.count(Counter::InlinePkts) - before, inline_pkts);
        world.settle();
        assert_whole(&world);
    }
}

#[test]
fn a_flow_that_is_told_to_goes_back_in_order_and_stays_there_for_a_while() {
    let (mut world, slot) = split(2, 4);
    world.receive(FLOW, 50);
    give(&world, slot, TO_STOP);
    world.receive(FLOW, 50);
    world.settle();
    world.receive(FLOW, 10);
    world.settle();
    assert_eq!(world.around.nr_active, 0);
    assert_eq!(world.count(Counter::CpusBusy), 1);
    world.receive(FLOW, 100);
    world.settle();
    assert_eq!(world.count(Counter::FlowsSplit), 1);
    assert_whole(&world);
    world.around.wait(1_000_000);
    world.start_split(FLOW);
    // The order was for the flow that the slot had before.
    world.settle();
    lanes_of(&mut world, 64);
    assert_eq!(world.count(Counter::FlowsStopped), 1);
    assert_whole(&world);
}

#[test]
fn a_new_flow_is_refused_and_asks_again() {
    let mut world = World::new(2, 4);
    world.around.orders.refuse(true);
    for _ in 0..5 {
        for _ in 0..10 {
            world.receive(FLOW, 20);
            world.settle();
        }
        world.around.wait(1_000_000);
    }
    assert_eq!(world.count(Counter::ProbesSent), 0);
    // Once a second, not for each packet.
    assert_eq!(world.count(Counter::CpusBusy), 5);
    world.around.orders.refuse(false);
    world.start_split(FLOW);
    assert_whole(&world);
}
