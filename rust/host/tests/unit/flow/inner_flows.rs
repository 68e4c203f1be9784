// SPDX-License-Identifier: GPL-2.0

//! Inner flows of one outer flow that wait in different queues on the ordinary path, while the outer flow begins to be split.

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::knobs::Build;
use mflow_algo::algo::lanes::queue::Packet as _;
use mflow_algo::algo::merge::slot_pool::NR_SLOTS;
use mflow_algo::algo::tag::Tag;
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
    Receive {
        pkts: u32,
    },
    Ordinary {
        inner_flow: u64,
        pkts: usize,
    },
    Poll {
        lane: usize,
        pkts: usize,
    },
    Wait {
        us: u64,
    },
    /// No CPU runs meanwhile.
    Away {
        us: u64,
    },
    Stop {
        stopping: bool,
    },
    AnotherSource,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (1..12u32).prop_map(|pkts| Step::Receive { pkts }),
        4 => (0..INNER_FLOWS, 1..20usize)
            .prop_map(|(inner_flow, pkts)| Step::Ordinary { inner_flow, pkts }),
        10 => (0..NR_LANES, 1..20usize).prop_map(|(lane, pkts)| Step::Poll { lane, pkts }),
        6 => (1..9_000u64).prop_map(|us| Step::Wait { us }),
        1 => (LONGEST_US..3 * LONGEST_US).prop_map(|us| Step::Away { us }),
        1 => any::<bool>().prop_map(|stopping| Step::Stop { stopping }),
        1 => Just(Step::AnotherSource),
    ]
}

fn spread() -> World {
    let mut world = World::new(NR_LANES, 2);
    world.around.fences_inner_flows = true;
    world.around.packets.inner_flows = INNER_FLOWS;
    world.around.packets.inner_run_pkts = 1;
    // Steps leave lanes alone for long: no batch is to be given up for that.
    world.around.socket.timeout_us = 10_000_000;
    world
}

/// Lanes build what they may.
fn spread_with_requests() -> World {
    let mut world = spread();
    world.driver_asks = true;
    world.config.build = Build::Lane;
    world
}

/// Receives packets until the flow's probe has come, and returns its inner flow. What others have sent waits.
fn until_probe_comes(world: &mut World) -> u64 {
    while world.count(Counter::ProbesSent) == 0 {
        world.receive(FLOW, 1);
    }
    world.receive(FLOW, 3);
    let inner_flow = inner_flow_with_tag(world);
    world.around.run_ordinary_of(inner_flow, usize::MAX);
    assert_eq!(world.count(Counter::ProbesSeen), 1);
    inner_flow
}

/// Returns the inner flow whose packet is a probe or a fence on the ordinary path.
fn inner_flow_with_tag(world: &World) -> u64 {
    let mut waiting = world.around.ordinary.iter();
    let lone = waiting.find(|packet| packet.tag() != Tag::NONE);
    lone.expect("a probe or a fence").inner_flow()
}

fn overtaken_of(world: &World, inner_flow: u64) -> u64 {
    let delivered: Vec<_> = world
        .delivered(FLOW)
        .into_iter()
        .filter(|number| number / world.around.packets.inner_run_pkts % INNER_FLOWS == inner_flow)
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

/// Begins to split a flow of which one inner flow has had its fence, and others have packets on the ordinary path.
fn starting() -> World {
    let mut world = spread();
    until_probe_comes(&mut world);
    world.receive(FLOW, 1);
    assert_eq!(world.count(Counter::FlowsSplit), 1);
    let fence = inner_flow_with_tag(&world);
    world.around.run_ordinary_of(fence, usize::MAX);
    assert!(!world.around.ordinary.is_empty());
    world
}

/// Receives packets, and lets lanes and inline ones be first.
fn receive_before_ordinary(world: &mut World) {
    world.receive(FLOW, 12);
    world.end_nic_poll();
    for lane in 0..NR_LANES {
        world.around.poll(lane, usize::MAX);
    }
}

fn finish_in_order(mut world: World) {
    world.settle();
    for inner_flow in 0..INNER_FLOWS {
        assert_eq!(overtaken_of(&world, inner_flow), 0, "{inner_flow}");
    }
    world.finish();
}

#[test]
fn a_cpu_that_was_away_has_emptied_no_queue() {
    let mut world = starting();
    world.around.wait(2 * LONGEST_US);
    receive_before_ordinary(&mut world);
    finish_in_order(world);
}

#[test]
fn a_flow_that_is_told_to_stop_as_it_starts_keeps_its_order() {
    let mut world = starting();
    world.config.stopping = true;
    receive_before_ordinary(&mut world);
    assert_eq!(world.count(Counter::FlowsStopped), 1);
    finish_in_order(world);
}

#[test]
fn a_source_that_begins_as_a_flow_starts_ends_the_start() {
    let mut world = starting();
    world.around.slots.note_source();
    receive_before_ordinary(&mut world);
    assert_eq!(world.count(Counter::FlowsStopped), 1);
    finish_in_order(world);
}

/// While a flow begins to be split, lanes build packets of the inner flows that have had their fence, and of no other.
#[test]
fn lanes_build_behind_fences() {
    let mut world = spread_with_requests();
    world.config.batch_pkts = 64;
    world.around.packets.inner_run_pkts = 1_000;
    let fenced = until_probe_comes(&mut world);
    while world.count(Counter::RequestPkts) == 0 {
        world.receive(FLOW, 1);
        world.around.run_ordinary_of(fenced, usize::MAX);
    }
    world.around.packets.inner_run_pkts = 1;
    world.receive(FLOW, 3);
    assert_eq!(world.count(Counter::RequestPkts), 1);
    assert_eq!(world.around.ordinary.len(), 2);
    finish_in_order(world);
}

#[test]
fn inner_flows_get_no_fences_for_ever() {
    let mut world = spread();
    until_probe_comes(&mut world);
    for _ in 0..30 {
        // Always of the same inner flow, which has its fence.
        world.receive(FLOW, u32::try_from(INNER_FLOWS).expect("a few"));
        world.around.run_ordinary(usize::MAX);
        world.end_nic_poll();
        world.around.wait(LONGEST_US / 20);
    }
    world.around.packets.inner_flows = 100;
    world.receive(FLOW, 100);
    assert_eq!(world.around.ordinary.len(), 0, "there are fences still");
    world.settle();
    world.finish();
}

proptest! {
    #![proptest_config(cases(256))]

    /// Each inner flow keeps its order, whatever queue of the ordinary path is the slow one, and whatever core builds packets.
    #[test]
    fn inner_flows_keep_their_order(
        lanes_build: bool,
        batch_pkts in 2..6u32,
        inner_run_pkts in 1..10u64,
        steps in prop::collection::vec(step(), 10..120),
    ) {
        let mut world = if lanes_build { spread_with_requests() } else { spread() };
        world.config.batch_pkts = batch_pkts;
        world.around.packets.inner_run_pkts = inner_run_pkts;
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
                Step::Away { us } => world.around.wait(us),
                Step::Stop { stopping } => world.config.stopping = stopping,
                Step::AnotherSource => world.around.slots.note_source(),
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
