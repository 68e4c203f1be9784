// SPDX-License-Identifier: GPL-2.0

//! Inner flows of one outer flow that wait in different queues on the ordinary path, while the outer flow begins to be split.

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::slot_pool::NR_SLOTS;
use proptest::prelude::*;

use crate::common::cases;
use crate::world::{nr_overtaken, World};

const INNER_FLOWS: u64 = 3;
const NR_LANES: usize = 3;
const FLOW: u16 = 0;
/// No packet waits on the ordinary path for longer.
const LONGEST_US: u64 = 40_000;

#[derive(Clone, Debug)]
enum Step {
    Receive { pkts: u32 },
    Ordinary { inner_flow: u64, pkts: usize },
    Poll { lane: usize, pkts: usize },
    Wait { us: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (1..12u32).prop_map(|pkts| Step::Receive { pkts }),
        4 => (0..INNER_FLOWS, 1..20usize)
            .prop_map(|(inner_flow, pkts)| Step::Ordinary { inner_flow, pkts }),
        10 => (0..NR_LANES, 1..20usize).prop_map(|(lane, pkts)| Step::Poll { lane, pkts }),
        6 => (1..9_000u64).prop_map(|us| Step::Wait { us }),
    ]
}

fn spread() -> World {
    let mut world = World::new(NR_LANES, 2);
    world.around.fences_inner_flows = true;
    world.around.packets.inner_flows = INNER_FLOWS;
    // Steps leave lanes alone for long: no batch is to be given up for that.
    world.around.socket.timeout_us = 10_000_000;
    world
}

/// Receives packets until the flow's probe has come, and returns its inner flow. What others have sent waits.
fn until_probe_comes(world: &mut World) -> u64 {
    while world.count(Counter::ProbesSent) == 0 {
        world.receive(FLOW, 1);
    }
    world.receive(FLOW, 3);
    for inner_flow in 0..INNER_FLOWS {
        world.around.run_ordinary_of(inner_flow, usize::MAX);
        if world.count(Counter::ProbesSeen) == 1 {
            return inner_flow;
        }
    }
    panic!("the probe does not come");
}

fn overtaken_of(world: &World, inner_flow: u64) -> u64 {
    let delivered: Vec<_> = world
        .delivered(FLOW)
        .into_iter()
        .filter(|number| number % INNER_FLOWS == inner_flow)
        .collect();
    nr_overtaken(&delivered)
}

#[test]
fn each_inner_flow_has_a_fence() {
    let mut world = spread();
    let answered = until_probe_comes(&mut world);
    world.receive(FLOW, 12);
    assert_eq!(world.count(Counter::FlowsSplit), 1);
    // Only what the probe's flow has sent comes in time.
    world.around.run_ordinary_of(answered, usize::MAX);
    for lane in 0..NR_LANES {
        world.around.poll(lane, usize::MAX);
    }
    for inner_flow in 0..INNER_FLOWS {
        world.around.run_ordinary_of(inner_flow, usize::MAX);
    }
    world.settle();
    for inner_flow in 0..INNER_FLOWS {
        assert_eq!(overtaken_of(&world, inner_flow), 0, "{inner_flow}");
    }
    assert_eq!(world.count(Counter::FlowsSplit), 1);
    world.finish();
}

#[test]
fn fences_that_do_not_arrive_hold_a_start_up_for_a_bounded_time() {
    let mut world = spread();
    world.around.socket.timeout_us = 1_000;
    until_probe_comes(&mut world);
    world.receive(FLOW, 30);
    assert_eq!(world.count(Counter::FlowsSplit), 1);
    world.around.ordinary.clear();
    world.settle();
    world.around.wait(110_000);
    world.settle();
    let slot = (0..NR_SLOTS).find(|slot| world.around.slot(*slot).parked_pkts() > 0);
    assert_eq!(slot, None, "packets wait for fences");
    world.finish();
}

proptest! {
    #![proptest_config(cases(256))]

    /// Whatever queue of the ordinary path is the slow one, each inner flow keeps its order.
    #[test]
    fn inner_flows_keep_their_order(steps in prop::collection::vec(step(), 10..120)) {
        let mut world = spread();
        let mut waited_us = 0;
        for step in steps {
            match step {
                Step::Receive { pkts } => {
                    world.receive(FLOW, pkts);
                }
                Step::Ordinary { inner_flow, pkts } => {
                    world.around.run_ordinary_of(inner_flow, pkts);
                }
                Step::Poll { lane, pkts } => {
                    world.around.poll(lane, pkts);
                }
                Step::Wait { us } => {
                    waited_us += us;
                    if waited_us >= LONGEST_US {
                        waited_us = us;
                        world.around.run_ordinary(usize::MAX);
                    }
                    world.around.wait(us);
                }
            }
            world.end_nic_poll();
        }
        world.settle();
        for inner_flow in 0..INNER_FLOWS {
            prop_assert_eq!(overtaken_of(&world, inner_flow), 0, "{}", inner_flow);
        }
        world.finish();
    }
}
