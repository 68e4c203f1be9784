// SPDX-License-Identifier: GPL-2.0

//! The whole algorithm against a sorted list: whatever the cores do in whatever order, what is delivered of a flow is
//! what was sent of it, in order.

use std::collections::HashSet;

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::knobs::Build;
use mflow_algo::algo::limits::MAX_BATCH_PKTS;
use mflow_algo::algo::load::flow_orders::Order;
use mflow_algo::algo::merge::slot_pool::NR_SLOTS;
use mflow_algo::algo::parked_amount::Amount;
use proptest::prelude::*;

use crate::common::cases;
use crate::support::packet::FLOW_SHIFT;
use crate::world::{expected, nr_overtaken, Fate, World};

const NR_FLOWS: u16 = 3;
const MOST_LANES: usize = 4;
const MAX_STEPS: usize = 120;
const MAX_PKTS: u32 = 4000;

#[derive(Clone, Debug)]
enum Step {
    /// The NIC's core receives packets of a flow; `pkts` in percent of a batch.
    Receive {
        flow: u16,
        percent: u32,
    },
    /// The same with enough packets to fill windows and rings.
    Flood {
        pkts: u32,
    },
    EndNicPoll,
    /// Polls bring one packet each.
    Trickle {
        polls: u32,
    },
    /// A lane polls; `pkts` in percent of a batch.
    Poll {
        lane: usize,
        percent: u32,
    },
    Ordinary {
        pkts: usize,
    },
    /// Packets leave the queue on a lane's core.
    Queue {
        lane: usize,
        pkts: usize,
    },
    Detours {
        pkts: usize,
    },
    Wait {
        us: u64,
    },
    SetBatch {
        batch_pkts: u32,
    },
    SetBuild(Build),
    SetDriverAsks(bool),
    SetPolls {
        asks_for: u32,
        unasked_one_of: u32,
        go_on: bool,
    },
    SetDatagram(u64),
    SetStopping(bool),
    SetOffline {
        lanes: u32,
    },
    /// The load controller has decided something for all slots.
    Order(Order),
    Refuse(bool),
}

fn batch_pkts() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(1u32),
        4 => 2..20u32,
        2 => 20..300u32,
        1 => 300..=MAX_BATCH_PKTS,
    ]
}

fn build() -> impl Strategy<Value = Build> {
    prop_oneof![Just(Build::Auto), Just(Build::Nic), Just(Build::Lane)]
}

fn order() -> impl Strategy<Value = Order> {
    let batch_pkts = prop_oneof![Just(1), 2..20u16, Just(u16::MAX)];
    (
        any::<u16>(),
        batch_pkts,
        any::<bool>(),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(lanes, batch_pkts, helps, stops)| Order {
            lanes,
            batch_pkts,
            helps,
            stops,
        })
}

fn polls() -> impl Strategy<Value = Step> {
    let asks_for = prop_oneof![3 => Just(1), 1 => Just(u32::MAX)];
    let unasked_one_of = prop_oneof![2 => Just(0), 1 => 2..20u32];
    (asks_for, unasked_one_of, any::<bool>()).prop_map(|(asks_for, unasked_one_of, go_on)| {
        Step::SetPolls {
            asks_for,
            unasked_one_of,
            go_on,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..NR_FLOWS, 1..250u32).prop_map(|(flow, percent)| Step::Receive { flow, percent }),
        10 => (0..NR_FLOWS, 1..20u32).prop_map(|(flow, percent)| Step::Receive { flow, percent }),
        20 => (1..1000u32).prop_map(|percent| Step::Receive { flow: 0, percent }),
        3 => (500..4000u32).prop_map(|pkts| Step::Flood { pkts: pkts.min(MAX_PKTS) }),
        8 => Just(Step::EndNicPoll),
        4 => (1..100u32).prop_map(|polls| Step::Trickle { polls }),
        25 => (0..MOST_LANES, 1..400u32).prop_map(|(lane, percent)| Step::Poll { lane, percent }),
        10 => (1..50usize).prop_map(|pkts| Step::Ordinary { pkts }),
        5 => (0..MOST_LANES, 1..200usize).prop_map(|(lane, pkts)| Step::Queue { lane, pkts }),
        3 => (1..10usize).prop_map(|pkts| Step::Detours { pkts }),
        10 => (1..400u64).prop_map(|us| Step::Wait { us }),
        3 => (1..3_000_000u64).prop_map(|us| Step::Wait { us }),
        2 => batch_pkts().prop_map(|batch_pkts| Step::SetBatch { batch_pkts }),
        2 => build().prop_map(Step::SetBuild),
        2 => any::<bool>().prop_map(Step::SetDriverAsks),
        4 => polls(),
        1 => (0..100u64).prop_map(Step::SetDatagram),
        2 => prop::bool::weighted(0.3).prop_map(Step::SetStopping),
        1 => (0..1u32 << MOST_LANES).prop_map(|lanes| Step::SetOffline { lanes }),
        4 => order().prop_map(Step::Order),
        1 => prop::bool::weighted(0.2).prop_map(Step::Refuse),
    ]
}

fn world(nr_lanes: usize, has_own_lane: bool, batch_pkts: u32) -> World {
    if has_own_lane {
        World::with_own_lane(nr_lanes, batch_pkts)
    } else {
        World::new(nr_lanes, batch_pkts)
    }
}

fn apply(world: &mut World, step: &Step) {
    let pkts_of = |world: &World, percent: u32| (world.config.batch_pkts * percent).div_ceil(100);
    let nr_lanes = world.around.lanes.len();
    match *step {
        Step::Receive { flow, percent } => {
            let pkts = pkts_of(world, percent).clamp(5, MAX_PKTS);
            world.receive(flow, pkts);
        }
        Step::Flood { pkts } => {
            world.receive(0, pkts);
        }
        Step::EndNicPoll => world.end_nic_poll(),
        Step::Trickle { polls } => {
            for _ in 0..polls {
                world.receive(0, 1);
                world.end_nic_poll();
            }
        }
        Step::Poll { lane, percent } => {
            let pkts = pkts_of(world, percent) as usize;
            world.around.poll(lane % nr_lanes, pkts);
        }
        Step::Ordinary { pkts } => {
            world.around.run_ordinary(pkts);
        }
        Step::Queue { lane, pkts } => {
            world.around.run_queue(lane % nr_lanes, pkts);
        }
        Step::Detours { pkts } => {
            world.around.run_detours(pkts);
        }
        Step::Wait { us } => world.around.wait(us),
        Step::SetBatch { batch_pkts } => world.config.batch_pkts = batch_pkts,
        Step::SetBuild(build) => world.config.build = build,
        Step::SetDriverAsks(asks) => world.driver_asks = asks,
        Step::SetPolls {
            asks_for,
            unasked_one_of,
            go_on,
        } => {
            (world.asks_for, world.poll_goes_on) = (asks_for, go_on);
            world.unasked_one_of = unasked_one_of;
        }
        Step::SetDatagram(pkts) => world.around.packets.datagram_pkts = pkts,
        Step::SetStopping(stopping) => world.config.stopping = stopping,
        Step::SetOffline { lanes } => world.dispatcher.lanes.set_offline(lanes),
        Step::Order(order) => {
            let orders = &world.around.orders;
            for slot in 0..NR_SLOTS {
                orders.give(slot, orders.generation(slot), order);
            }
        }
        Step::Refuse(refuses) => world.around.orders.refuse(refuses),
    }
    world.around.check_waits();
}

/// Returns a number that looks random for each packet.
fn mix(id: u64) -> u64 {
    let x = (id ^ id >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (x ^ x >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) >> 33
}

fn pass(_: u64) -> Fate {
    Fate::Pass
}

fn drop_some(id: u64) -> Fate {
    match mix(id) % 100 {
        0..5 => Fate::Drop,
        _ => Fate::Pass,
    }
}

fn drop_most(id: u64) -> Fate {
    match mix(id) % 100 {
        0..80 => Fate::Drop,
        _ => Fate::Pass,
    }
}

fn drop_and_duplicate(id: u64) -> Fate {
    match mix(id) % 100 {
        0..5 => Fate::Drop,
        5..10 => Fate::Duplicate,
        _ => Fate::Pass,
    }
}

fn queue_all(_: u64) -> Fate {
    Fate::Queue
}

fn queue_and_drop_some(id: u64) -> Fate {
    match mix(id) % 100 {
        0..5 => Fate::Drop,
        5..7 => Fate::QueueAndDrop,
        _ => Fate::Queue,
    }
}

fn everything(id: u64) -> Fate {
    match mix(id) % 100 {
        0..5 => Fate::Drop,
        5..10 => Fate::Duplicate,
        10..15 => Fate::Detour,
        15..20 => Fate::Queue,
        20..22 => Fate::QueueAndDrop,
        _ => Fate::Pass,
    }
}

/// Returns the first place where two lists differ, with what is there.
fn first_difference(a: &[u64], b: &[u64]) -> Option<(usize, Option<u64>, Option<u64>)> {
    let longest = a.len().max(b.len());
    let at = |list: &[u64], i: usize| list.get(i).copied();
    (0..longest)
        .find(|i| at(a, *i) != at(b, *i))
        .map(|i| (i, at(a, i), at(b, i)))
}

fn check_end(world: &mut World) -> Result<(), TestCaseError> {
    world.finish();
    let fate = world.around.fate;
    for flow in 0..world.nr_sent().len() as u16 {
        let mut delivered = world.delivered(flow);
        delivered.sort_unstable();
        let sent = world.nr_sent()[usize::from(flow)];
        let wrong = first_difference(&delivered, &expected(flow, 0..sent, fate));
        prop_assert_eq!(wrong, None, "lost, invented or delivered twice");
    }
    // Nothing is left anywhere, and all slots are free.
    prop_assert_eq!(world.around.packets.alive(), 0);
    prop_assert_eq!(world.around.nr_active, 0);
    prop_assert_eq!(world.around.slots.taken().count(), 0);
    prop_assert_eq!(world.around.ring_bytes.all(), 0);
    prop_assert!(!world.dispatcher.lanes.takes_requests());
    for slot in 0..NR_SLOTS {
        prop_assert_eq!(world.around.slot(slot).parked(), Amount::default());
    }
    prop_assert_eq!(
        world.count(Counter::FlowsSplit),
        world.count(Counter::FlowsStopped)
    );
    Ok(())
}

proptest! {
    #![proptest_config(cases(512))]

    /// With a deadline that never fires, order is perfect: flows start and stop, lanes come and go, packets are dropped
    /// and copied.
    #[test]
    fn patient_merge_is_a_sort(
        nr_lanes in 1..=MOST_LANES,
        has_own_lane in any::<bool>(),
        batch_pkts in batch_pkts(),
        driver_asks in any::<bool>(),
        budget in prop_oneof![1..20u32, Just(512)],
        fate in prop_oneof![
            Just(pass as fn(u64) -> Fate),
            Just(drop_some as fn(u64) -> Fate),
            Just(drop_most as fn(u64) -> Fate),
            Just(drop_and_duplicate as fn(u64) -> Fate),
            Just(queue_all as fn(u64) -> Fate),
            Just(queue_and_drop_some as fn(u64) -> Fate),
        ],
        steps in prop::collection::vec(step(), 1..MAX_STEPS),
    ) {
        let mut world = world(nr_lanes, has_own_lane, batch_pkts);
        world.driver_asks = driver_asks;
        world.around.fate = fate;
        world.around.merge_budget_pkts = budget;
        // Longer than all that is waited for in a test; only `finish` waits longer.
        world.around.socket.timeout_us = 1_000_000_000;
        let is_queueing = [queue_all as *const () as usize, queue_and_drop_some as *const () as usize]
            .contains(&(fate as usize));
        for step in &steps {
            if matches!(step, Step::Wait { us: 100_000.. }) {
                // A fence that takes so long is assumed to be lost, and so are packets in queues.
                world.around.run_ordinary(usize::MAX);
                if is_queueing {
                    world.settle();
                }
            }
            apply(&mut world, step);
        }
        check_end(&mut world)?;
        let overflows = world.count(Counter::OverflowBatches);
        for flow in 0..world.nr_sent().len() as u16 {
            // Of copies the first counts: that of a fence comes after its turn.
            let mut seen = HashSet::new();
            let mut delivered = world.delivered(flow);
            delivered.retain(|number| seen.insert(*number));
            if overflows == 0 {
                let wrong = delivered.windows(2).find(|pair| pair[0] > pair[1]);
                prop_assert!(wrong.is_none(), "flow {}: {:?}", flow, wrong);
            }
        }
        if overflows == 0 {
            let is_fence_copied = fate as usize == drop_and_duplicate as *const () as usize;
            let fences = world.count(Counter::FlowsSplit);
            let allowed = if is_fence_copied { fences } else { 0 };
            prop_assert!(world.count(Counter::LatePkts) <= allowed);
        }
    }

    /// With a short deadline and packets on detours, what is out of order is at most what is counted as late or was on a
    /// detour, and nothing is lost.
    #[test]
    fn hasty_merge_counts_what_it_breaks(
        nr_lanes in 1..=MOST_LANES,
        has_own_lane in any::<bool>(),
        batch_pkts in batch_pkts(),
        timeout_us in prop_oneof![10..500u32, Just(10_000)],
        fate in prop_oneof![
            Just(pass as fn(u64) -> Fate),
            Just(drop_some as fn(u64) -> Fate),
            Just(queue_and_drop_some as fn(u64) -> Fate),
            Just(everything as fn(u64) -> Fate),
        ],
        steps in prop::collection::vec(step(), 1..MAX_STEPS),
    ) {
        let mut world = world(nr_lanes, has_own_lane, batch_pkts);
        world.around.fate = fate;
        world.around.socket.timeout_us = timeout_us;
        for step in &steps {
            if matches!(step, Step::Wait { .. } | Step::Poll { .. }) {
                // The ordinary path is faster than the deadline. (One that is not: see the dispatcher's tests.)
                world.around.run_ordinary(usize::MAX);
            }
            apply(&mut world, step);
        }
        check_end(&mut world)?;
        let mut overtaken = 0;
        let mut nr_detours = 0;
        // Packets of one batch that take different ways.
        let is_mixed = fate as usize == everything as *const () as usize;
        for flow in 0..world.nr_sent().len() as u16 {
            overtaken += nr_overtaken(&world.delivered(flow));
            nr_detours += (0..world.nr_sent()[usize::from(flow)])
                .map(|number| fate(u64::from(flow) << FLOW_SHIFT | number))
                .filter(|fate| *fate == Fate::Detour || (is_mixed && *fate == Fate::Queue))
                .count() as u64;
        }
        let late = world.count(Counter::LatePkts);
        prop_assert!(overtaken <= late + nr_detours, "{} overtaken, {} late", overtaken, late);
    }

    /// Lanes that build packets change nothing else: each packet takes the same way with the same tag, and all is counted as if
    /// the NIC's core had built it.
    #[test]
    fn requests_go_where_packets_would(
        nr_lanes in 1..=MOST_LANES,
        has_own_lane in any::<bool>(),
        batch_pkts in batch_pkts(),
        steps in prop::collection::vec(step(), 1..MAX_STEPS),
    ) {
        let mut worlds = [Build::Nic, Build::Lane].map(|build| {
            let mut world = world(nr_lanes, has_own_lane, batch_pkts);
            world.driver_asks = build == Build::Lane;
            world.config.build = build;
            world
        });
        for step in &steps {
            if !matches!(step, Step::SetBuild(_) | Step::SetDriverAsks(_)) {
                worlds.iter_mut().for_each(|world| apply(world, step));
            }
        }
        worlds.iter_mut().for_each(World::end_nic_poll);
        let [built_here, built_there] = worlds;
        prop_assert_eq!(&built_here.around.carried, &built_there.around.carried);
        prop_assert_eq!(&built_here.around.socket.delivered, &built_there.around.socket.delivered);
        for counter in Counter::ALL {
            if *counter != Counter::RequestPkts {
                prop_assert_eq!(built_here.count(*counter), built_there.count(*counter), "{}", counter.name());
            }
        }
        prop_assert_eq!(built_here.count(Counter::RequestPkts), 0);
        prop_assert_eq!(built_there.count(Counter::RequestPkts), built_there.left_to_lanes);
    }
}
