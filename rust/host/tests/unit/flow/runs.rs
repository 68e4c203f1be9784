// SPDX-License-Identifier: GPL-2.0

//! Runs of packets that lanes build (`algo/flow/run.rs`). The model (`model.rs`) compares them with packets that the driver builds.

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::knobs::Build;
use mflow_algo::algo::limits::RATE_WINDOW_MS;
use mflow_algo::algo::load::flow_orders::Order;
use mflow_algo::algo::merge::slot_pool::NR_SLOTS;

use crate::world::World;

const BATCH_PKTS: u32 = 100;
const WINDOW_US: u64 = RATE_WINDOW_MS as u64 * 1000;

/// Returns a world with two lanes whose driver asks for each packet, in a poll that goes on.
fn world() -> World {
    let mut world = World::new(2, BATCH_PKTS);
    (world.driver_asks, world.asks_for) = (true, 1);
    world
}

fn split(world: &mut World, flow: u16) {
    world.start_split(flow);
    // The fence and the first packets of inner flows are behind it.
    world.around.wait(WINDOW_US / 2);
}

/// Ends the poll. Then the sockets of flows 0 to `flows` have all of their packets in order.
fn finish_in_order(world: &mut World, flows: u16) {
    world.end_nic_poll();
    world.finish();
    for flow in 0..flows {
        world.assert_in_order(flow);
    }
}

#[test]
fn a_flow_is_looked_up_three_times_per_batch() {
    let mut world = world();
    split(&mut world, 0);
    world.poll_goes_on = true;
    (world.keys_needed, world.left_to_lanes) = (0, 0);
    let batches = world.count(Counter::Batches);
    world.receive(0, 10 * BATCH_PKTS);
    let batches = world.count(Counter::Batches) - batches;
    assert!((10..=12).contains(&batches), "{batches} batches");
    // One packet opens the batch. The next begins a run, the last finds no room.
    assert!(world.left_to_lanes >= u64::from(10 * BATCH_PKTS) - 2 * batches);
    assert!(
        world.keys_needed <= 2 * batches + 2,
        "{} keys for {batches} batches",
        world.keys_needed
    );
    finish_in_order(&mut world, 1);
}

#[test]
fn counters_have_all_packets_when_a_poll_has_ended() {
    let mut world = world();
    split(&mut world, 0);
    world.end_nic_poll();
    let before = world.count(Counter::LanePkts);
    (world.poll_goes_on, world.left_to_lanes) = (true, 0);
    world.receive(0, BATCH_PKTS / 2);
    let lacking = world.count(Counter::LanePkts) - before;
    assert!(lacking < world.left_to_lanes, "no run is open");
    world.end_nic_poll();
    assert!(world.left_to_lanes >= u64::from(BATCH_PKTS / 2) - 2);
    assert_eq!(world.count(Counter::RequestPkts), world.left_to_lanes);
    assert!(world.count(Counter::LanePkts) - before >= world.left_to_lanes);
}

/// The packets of runs count for the flow's rate, and a window that ends in a run ends it.
#[test]
fn a_flow_of_runs_stays_split_while_it_is_fast() {
    let mut world = world();
    world.config.min_window_pkts = 40;
    for _ in 0..3 {
        world.receive(0, 50);
        world.settle();
        world.around.wait(WINDOW_US);
    }
    assert_eq!(world.count(Counter::FlowsSplit), 1);
    world.poll_goes_on = true;
    for _ in 0..20 {
        world.receive(0, 50);
        world.settle();
        world.around.wait(WINDOW_US);
    }
    assert_eq!(world.count(Counter::FlowsStopped), 0);
    assert!(world.left_to_lanes > 900);
    for _ in 0..20 {
        world.receive(0, 5);
        world.settle();
        world.around.wait(WINDOW_US);
    }
    assert_eq!(world.count(Counter::FlowsStopped), 1);
    finish_in_order(&mut world, 1);
}

/// Flows 0 and 1 have one place. While they take turns, neither has a run.
#[test]
fn flows_that_share_a_place_take_turns() {
    let mut world = world();
    split(&mut world, 0);
    split(&mut world, 1);
    world.poll_goes_on = true;
    for pkts in [1, 7, 1, 1, 30, 2, 60] {
        for _ in 0..40 {
            world.receive(0, pkts);
            world.receive(1, pkts);
        }
    }
    world.end_nic_poll();
    assert_eq!(world.count(Counter::RequestPkts), world.left_to_lanes);
    let batches = world.count(Counter::Batches);
    let pkts: u64 = world.nr_sent().iter().sum();
    // A batch may have fewer packets, and never more.
    assert!(batches * u64::from(BATCH_PKTS) + 200 >= pkts);
    finish_in_order(&mut world, 2);
}

/// A look at the pace of polls counts what open runs of other flows have taken.
#[test]
fn the_pace_of_polls_counts_open_runs() {
    for polls in (30..70).step_by(5) {
        for pkts in (5..45).step_by(5) {
            let [built_here, built_there] = [Build::Nic, Build::Lane].map(|build| {
                let mut world = trickle(build, polls);
                world.poll_goes_on = true;
                world.receive(0, pkts);
                world.receive(1, 2 * BATCH_PKTS);
                world.end_nic_poll();
                [Counter::InlinePkts, Counter::Batches].map(|counter| world.count(counter))
            });
            assert_eq!(built_here, built_there, "{polls} polls, {pkts} packets");
        }
    }
}

/// Returns a world with flows 0 and 1, whose last polls have brought one packet each.
fn trickle(build: Build, polls: u32) -> World {
    let mut world = world();
    (world.driver_asks, world.config.build) = (build == Build::Lane, build);
    let helps = Order {
        lanes: u16::MAX,
        batch_pkts: u16::MAX,
        helps: true,
        stops: false,
    };
    for slot in 0..NR_SLOTS {
        let orders = &world.around.orders;
        orders.give(slot, orders.generation(slot), helps);
    }
    split(&mut world, 0);
    split(&mut world, 1);
    // Flow 1 has no batch left, so its next packet is a look at the pace.
    world.receive(1, BATCH_PKTS);
    world.receive(0, BATCH_PKTS + 5);
    world.end_nic_poll();
    for _ in 0..polls {
        world.receive(0, 1);
        world.end_nic_poll();
    }
    world
}
