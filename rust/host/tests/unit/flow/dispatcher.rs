// SPDX-License-Identifier: GPL-2.0

//! The dispatcher, rule by rule, with a whole host around it.

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::flow::dispatcher::{Dispatcher, Host as _};
use mflow_algo::algo::knobs::Build;
use mflow_algo::algo::lanes::queue::ring::{RING_ITEMS, RING_REQUESTS};
use mflow_algo::algo::lanes::queue::Packet;
use mflow_algo::algo::lanes::ring_bytes::{MAX_CPU_RING_BYTES, MAX_RING_BYTES};
use mflow_algo::algo::limits::RATE_WINDOW_MS;
use mflow_algo::algo::limits::{MAX_BATCH_PKTS, MAX_LANES};
use mflow_algo::algo::load::flow_orders::Order;
use mflow_algo::algo::merge::slot::{PathFault, WINDOW_BATCHES};
use mflow_algo::algo::merge::slot_pool::NR_SLOTS;
use mflow_algo::algo::tag::{Tag, TagKind, BATCH_BITS};

use crate::support::host::OwnedRing;
use crate::support::packet::TestPacket;
use crate::world::{nr_overtaken, Fate, World};
use crate::zeroed::zeroed;

const MS: u64 = 1000;

/// Receives packets of a flow at a steady rate for so long, each carried to its end at once.
fn stream(world: &mut World, flow: u16, pkts_per_ms: u32, ms: u64) {
    for _ in 0..ms {
        world.receive(flow, pkts_per_ms);
        world.settle();
        world.around.wait(MS);
        world.end_nic_poll();
    }
}

fn is_split(world: &mut World, flow: u16) -> bool {
    let before = world.count(Counter::LanePkts) + world.count(Counter::InlinePkts);
    world.receive(flow, 1);
    let is_split = world.count(Counter::LanePkts) + world.count(Counter::InlinePkts) > before;
    world.settle();
    is_split
}

fn kinds(world: &World) -> Vec<TagKind> {
    world
        .around
        .ordinary
        .iter()
        .map(|packet| packet.tag().kind())
        .collect()
}

#[test]
fn slow_flow_is_left_alone() {
    let mut world = World::new(2, 16);
    // One packet below the rate, in every window.
    for _ in 0..20 {
        world.receive(0, world.config.min_window_pkts - 1);
        world.settle();
        world.around.wait(u64::from(RATE_WINDOW_MS) * MS);
    }
    assert_eq!(world.count(Counter::ProbesSent), 0);
    assert_eq!(world.around.nr_active, 0);
    world.assert_in_order(0);
}

/// The module's dispatchers begin as zeros.
#[test]
fn memory_of_zeros_has_no_lanes() {
    let dispatcher: Box<Dispatcher<TestPacket>> = zeroed();
    assert!(dispatcher.lanes.is_empty());
    assert_eq!(dispatcher.lanes.cpus().next(), None);
}

/// Lets a flow have a packet in each of `polls` polls, spread over `ms` milliseconds.
fn poll_often(world: &mut World, flow: u16, polls: u32, ms: u32) {
    for _ in 0..polls {
        world.receive(flow, 1);
        world.settle();
        world.end_nic_poll();
        world.around.wait(u64::from(ms) * MS / u64::from(polls));
    }
}

/// A source that has seen slow flows for a while looks at some polls only.
#[test]
fn slow_flow_is_seen_now_and_then() {
    let mut world = World::new(2, 16);
    world.config.min_window_pkts = 100;
    poll_often(&mut world, 0, 200, 500);
    assert!(world.rests());
    // Of 13 polls one is looked at; of 29, after a second.
    for (polls, looks) in [(78, 6), (100, 4), (290, 10)] {
        let mut seen = 0;
        for _ in 0..polls {
            poll_often(&mut world, 0, 1, 5);
            seen += u32::from(!world.rests());
        }
        assert_eq!(seen, looks);
    }
    assert_eq!(world.count(Counter::ProbesSent), 0);
    world.assert_in_order(0);
}

/// Packets that pass unseen are counted by those that are looked at, but no flow is split for a count of that kind.
#[test]
fn flow_that_becomes_fast_is_counted_packet_by_packet() {
    let mut world = World::new(2, 16);
    world.config.min_window_pkts = 100;
    poll_often(&mut world, 0, 200, 1_100);
    assert!(world.rests());
    // Two packets that are looked at stand for half of a fast flow's, and four of those that are looked at then. From there on,
    // all are counted.
    let mut looked_at_in_a_row = 0;
    while world.count(Counter::ProbesSent) == 0 {
        looked_at_in_a_row = if world.rests() {
            0
        } else {
            looked_at_in_a_row + 1
        };
        poll_often(&mut world, 0, 1, 0);
    }
    assert_eq!(looked_at_in_a_row, 100);
    poll_often(&mut world, 0, 50, 1);
    assert_eq!(world.count(Counter::FlowsSplit), 1);
    world.assert_in_order(0);
}

/// A fast flow that is kept whole for a time needs no looks until that time is over.
#[test]
fn source_rests_while_its_fast_flow_is_held() {
    let mut world = World::new(2, 16);
    world.around.fate = |_| Fate::Queue;
    poll_often(&mut world, 0, 40, 10);
    assert_eq!(world.count(Counter::PathsAsync), 1);
    poll_often(&mut world, 0, 1_100, 1_100);
    assert!((0..12).any(|_| {
        poll_often(&mut world, 0, 1, 1);
        world.rests()
    }));
    // It is tried again when its five seconds are over.
    poll_often(&mut world, 0, 4_000, 4_000);
    assert_eq!(world.count(Counter::PathsAsync), 2);
    world.assert_in_order(0);
}

/// A window begins with the first packet of a flow, whatever the clock says.
#[test]
fn new_flow_has_a_whole_window() {
    let mut world = World::new(2, 16);
    world.around.socket.now_us = 50 * MS;
    world.receive(0, world.config.min_window_pkts - 1);
    world.around.wait(60 * MS);
    world.receive(0, 1);
    assert_eq!(kinds(&world).last(), Some(&TagKind::Probe));
}

#[test]
fn fast_flow_is_probed_fenced_and_split() {
    let mut world = World::new(2, 16);
    world.receive(0, 5);
    use TagKind::{Fence, None, Probe};
    assert_eq!(kinds(&world), [None, None, None, Probe, None]);
    assert_eq!(world.around.nr_active, 1);

    // Nothing happens until the probe has arrived.
    world.receive(0, 2);
    assert_eq!(kinds(&world), [None, None, None, Probe, None, None, None]);
    world.around.run_ordinary(4);
    world.receive(0, 3);
    assert_eq!(kinds(&world), [None, None, None, Fence]);
    assert_eq!(world.count(Counter::LanePkts), 2);

    // What is split waits for the fence.
    world.around.poll(0, 100);
    world.around.poll(1, 100);
    assert_eq!(world.delivered(0), [0, 1, 2, 3]);
    world.settle();
    world.assert_in_order(0);
    assert_eq!(world.count(Counter::FlowsSplit), 1);
    assert_eq!(world.count(Counter::LatePkts), 0);
}

/// The other may be further on the way, and split the flow without having met the probe.
#[test]
fn no_fence_follows_a_probe_that_another_source_may_not_have_met() {
    use TagKind::{Fence, None, Probe};
    let mut world = World::new(2, 16);
    world.receive(0, 5);
    assert_eq!(kinds(&world), [None, None, None, Probe, None]);
    world.around.slots.note_source();
    world.around.run_ordinary(5);

    world.receive(0, 3);
    assert_eq!(kinds(&world), [None, Probe, None]);
    world.around.run_ordinary(3);
    world.receive(0, 2);
    assert_eq!(kinds(&world), [Fence]);
    world.settle();
    world.assert_in_order(0);
}

/// A fence is not stopped by a source further on, so what that one has split must not be before it.
#[test]
fn new_source_waits_for_the_fences_of_others() {
    let mut world = World::new(2, 16);
    let slots = &world.around.slots;
    let others = slots.claim().unwrap();
    let fence = slots.slot(others).next();
    slots.slot(others).open_fence(fence);
    world.receive(0, 8);
    assert_eq!(world.count(Counter::ProbesSent), 0);

    assert!(world.around.slots.slot(others).complete(fence));
    world.around.merge(others);
    world.receive(0, 1);
    assert_eq!(world.count(Counter::ProbesSent), 1);

    // Those sent later belong to flows that do not come this way.
    let other = world.around.slots.slot(others);
    other.open_fence(fence + 1);
    world.receive(1, 8);
    assert_eq!(world.count(Counter::ProbesSent), 2);
}

#[test]
fn what_may_not_arrive_is_no_probe_and_no_fence() {
    use TagKind::{Fence, None, Probe};
    let mut world = World::new(2, 16);
    world.around.packets.strays = true;
    world.receive(0, 6);
    world.around.packets.strays = false;
    world.receive(0, 1);
    assert_eq!(kinds(&world), [None, None, None, None, None, None, Probe]);
    world.around.run_ordinary(7);

    world.around.packets.strays = true;
    world.receive(0, 2);
    world.around.packets.strays = false;
    world.receive(0, 2);
    assert_eq!(kinds(&world), [None, None, Fence]);
    assert_eq!(world.count(Counter::LanePkts), 1);
    world.settle();
    world.assert_in_order(0);
}

/// However many packets came before, one that may not arrive is no fence while there are others.
#[test]
fn a_packet_that_suits_is_waited_for() {
    let mut world = World::new(2, 16);
    world.receive(0, 250);
    world.around.run_ordinary(250);
    world.around.packets.strays = true;
    world.receive(0, 250);
    assert!(kinds(&world).iter().all(|kind| *kind == TagKind::None));
    world.around.packets.strays = false;
    world.receive(0, 1);
    assert_eq!(kinds(&world).last(), Some(&TagKind::Fence));
    world.settle();
    world.assert_in_order(0);
}

#[test]
fn a_flow_of_nothing_else_is_split_nevertheless() {
    let mut world = World::new(2, 16);
    world.around.packets.strays = true;
    stream(&mut world, 0, 10, 300);
    assert_eq!(world.count(Counter::FlowsSplit), 1);
    assert!(is_split(&mut world, 0));
    world.assert_in_order(0);
}

#[test]
fn batches_go_round_the_lanes() {
    const BATCH_PKTS: u32 = 16;
    let mut world = World::new(3, BATCH_PKTS);
    world.start_split(0);
    world.around.carried.clear();
    world.receive(0, BATCH_PKTS * 7 + 5);
    world.settle();
    world.assert_in_order(0);

    let mut loads = [0; 3];
    let mut batches = std::collections::BTreeMap::new();
    for (lane, tag) in &world.around.carried {
        let lane = lane.expect("all packets go to lanes");
        loads[lane] += 1;
        let (own, pkts) = batches.entry(tag.batch_bits()).or_insert((lane, 0));
        assert_eq!(*own, lane, "a batch has one lane");
        *pkts += 1;
    }
    let lanes: Vec<_> = batches.values().map(|(lane, _)| *lane).collect();
    for pair in lanes.windows(2) {
        assert_eq!(pair[1], (pair[0] + 1) % 3, "{lanes:?}");
    }
    let sizes: Vec<_> = batches.values().map(|(_, pkts)| *pkts).collect();
    assert_eq!(sizes, [16, 16, 16, 16, 16, 16, 16, 5]);
    assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= BATCH_PKTS);
}

#[test]
fn each_batch_is_told_with_the_cpu_that_carries_it() {
    const BATCH_PKTS: u32 = 16;
    let mut world = World::new(3, BATCH_PKTS);
    world.start_split(0);
    let before = world.count(Counter::Batches);
    world.around.carried.clear();
    world.around.opened.take();
    world.receive(0, BATCH_PKTS * 7 + 5);
    world.config.stopping = true;
    world.receive(0, 3);
    world.settle();
    // A batch that was open before is among these, too.
    let mut carried: Vec<(u32, Option<u32>)> = Vec::new();
    for (lane, tag) in &world.around.carried {
        // CAST: few lanes, whose CPUs begin with 1.
        let batch = (tag.batch_bits(), lane.map(|lane| lane as u32 + 1));
        if carried.last() != Some(&batch) && !carried.contains(&batch) {
            carried.push(batch);
        }
    }
    let mask = (1 << BATCH_BITS) - 1;
    let opened = world.around.opened.take();
    let mut told: Vec<_> = opened
        .iter()
        .map(|(batch, cpu)| (batch & mask, *cpu))
        .collect();
    assert_eq!(told.len() as u64, world.count(Counter::Batches) - before);
    assert_eq!(told.last().unwrap().1, None, "the NIC's core carries it");
    carried.sort_unstable();
    told.sort_unstable();
    assert!(
        told.iter().all(|one| carried.contains(one)),
        "{told:?}, {carried:?}"
    );
}

/// Lanes are woken for what they have got since the last time, also where that is the end of a batch alone, or requests.
#[test]
fn lanes_that_got_items_are_told() {
    for driver_asks in [false, true] {
        let mut world = World::new(3, 4);
        world.config.build = Build::Lane;
        world.start_split(0);
        world.driver_asks = driver_asks;
        for (pkts, lanes) in [
            (0, 0),
            (1, 0b010),
            (3, 0b010),
            (1, 0b110),
            (0, 0),
            (7, 0b101),
        ] {
            let touched = world.receive(0, pkts);
            assert_eq!(touched, lanes, "{touched:#b}");
        }
    }
}

#[test]
fn batch_size_follows_the_knob() {
    let mut world = World::new(2, MAX_BATCH_PKTS);
    world.start_split(0);
    for batch_pkts in [MAX_BATCH_PKTS, 1, 300, 7] {
        // The batch that is open keeps its size; with the next one the knob holds.
        world.config.batch_pkts = batch_pkts;
        let before = world.count(Counter::Batches);
        while world.count(Counter::Batches) == before {
            world.receive(0, 1);
        }
        world.settle();
        let before = world.count(Counter::Batches);
        for _ in 0..3 {
            // So that a lane has room for the next one.
            world.receive(0, batch_pkts);
            world.settle();
        }
        assert_eq!(world.count(Counter::Batches), before + 3, "{batch_pkts}");
    }
    world.assert_in_order(0);
}

#[test]
fn packets_that_gro_has_joined_count_as_on_the_wire() {
    let mut world = World::new(2, 1024);
    world.start_split(0);
    world.around.packets.joined_pkts = 10;
    let before = world.count(Counter::LanePkts);
    world.around.carried.clear();
    // More batches than rings could hold if what a batch leaves of its room were not given back.
    for _ in 0..103 * 100 {
        world.receive(0, 1);
        world.settle();
    }
    world.assert_in_order(0);
    assert_eq!(world.count(Counter::InlinePkts), 0);
    assert_eq!(world.count(Counter::LanePkts) - before, 103 * 100 * 10);
    let mut batches = std::collections::BTreeMap::new();
    for (_, tag) in &world.around.carried {
        *batches.entry(tag.batch_bits()).or_insert(0) += 1;
    }
    // This many are the first to make up 1024 or more.
    let whole = || batches.values().skip(1).take(batches.len() - 2);
    assert!(whole().count() >= 98 && whole().all(|pkts| *pkts == 103));
}

#[test]
fn open_batch_holds_nothing_up() {
    let mut world = World::new(2, 256);
    world.start_split(0);
    world.receive(0, 100);
    world.settle();
    // The flow pauses in the middle of the batch, and all of it is there.
    world.assert_in_order(0);
    world.around.wait(500 * MS);
    world.receive(0, 300);
    world.settle();
    world.assert_in_order(0);
    assert_eq!(world.count(Counter::DeadlineBatches), 0);
}

#[test]
fn lanes_of_cpus_that_go_offline_get_nothing() {
    let mut world = World::new(3, 4);
    world.start_split(0);
    world.receive(0, 1);
    world.dispatcher.lanes.set_offline(0b101);
    world.receive(0, 3);
    world.settle();
    world.around.carried.clear();
    world.receive(0, 40);
    world.settle();
    assert!(world
        .around
        .carried
        .iter()
        .all(|(lane, _)| *lane == Some(1)));

    world.dispatcher.lanes.set_offline(0b111);
    world.around.carried.clear();
    world.receive(0, 40);
    world.settle();
    assert!(world.around.carried.iter().all(|(lane, _)| lane.is_none()));
    world.assert_in_order(0);
}

/// Lanes that do not run: nothing is lost, the NIC's core carries what finds no room, and the order is kept.
#[test]
fn full_rings_lose_nothing() {
    let mut world = World::new(2, 1000);
    world.around.socket.timeout_us = 1_000_000;
    world.start_split(0);
    // More than both rings hold, but not more than may be parked behind one of them.
    world.receive(0, RING_ITEMS as u32 * 2 + 3000);
    assert!(world.count(Counter::InlinePkts) > 0);
    world.end_nic_poll();
    world.settle();
    world.assert_in_order(0);
    assert_eq!(world.count(Counter::OverflowBatches), 0);
}

/// The memory that waits for one CPU is bounded for all its sources together, and so is the memory that waits for all CPUs.
#[test]
fn too_much_memory_in_rings_loses_nothing() {
    for elsewhere in [0, MAX_RING_BYTES - MAX_CPU_RING_BYTES / 2] {
        let mut world = World::new(2, 16);
        world.around.packets.bytes = 128 << 10;
        world.start_split(0);
        world.around.ring_bytes.charge(3, elsewhere);
        for _ in 0..26 {
            world.receive(0, 16);
            world.end_nic_poll();
        }
        assert!(world.count(Counter::MemoryBatches) > 0);
        // Whole batches make up either bound.
        let bound = match elsewhere {
            0 => 2 * MAX_CPU_RING_BYTES,
            _ => MAX_RING_BYTES,
        };
        assert_eq!(world.around.ring_bytes.all(), bound);
        let of_cpus = [1, 2, 3].map(|cpu| world.around.ring_bytes.waiting_for(cpu));
        assert_eq!(of_cpus.iter().sum::<u64>(), bound);
        assert_eq!(of_cpus[2], elsewhere);
        if elsewhere == 0 {
            assert_eq!(of_cpus[..2], [MAX_CPU_RING_BYTES; 2]);
        }
        // The lanes have room again, and get what comes.
        world.around.ring_bytes.release(3, elsewhere);
        world.settle();
        let refused = world.count(Counter::MemoryBatches);
        world.receive(0, 64);
        world.settle();
        assert_eq!(world.count(Counter::MemoryBatches), refused);
        assert_eq!(world.around.ring_bytes.all(), 0);
        world.assert_in_order(0);
    }
}

#[test]
fn full_window_grows_an_inline_batch() {
    let mut world = World::new(2, 1);
    world.around.socket.timeout_us = 1_000_000;
    world.start_split(0);
    world.receive(0, WINDOW_BATCHES * 3);
    assert!(world.count(Counter::BatchesGrown) > 0);
    // One place stays free.
    assert_eq!(world.count(Counter::Batches), u64::from(WINDOW_BATCHES) - 1);
    world.end_nic_poll();
    world.settle();
    world.assert_in_order(0);
    // Once there is room again, lanes are used again.
    let before = world.count(Counter::LanePkts);
    world.receive(0, 10);
    assert!(world.count(Counter::LanePkts) > before);
}

/// Packets of an inline flow, which GRO may join, have one number.
#[test]
fn inline_batch_goes_on_while_no_lane_can_have_one() {
    let mut world = World::new(2, 4);
    world.start_split(0);
    world.receive(0, 4);
    world.settle();
    world.dispatcher.lanes.set_offline(0b11);
    let before = world.count(Counter::Batches);
    let mut tags = std::collections::BTreeSet::new();
    for _ in 0..10 {
        world.around.carried.clear();
        world.receive(0, 7);
        world.settle();
        tags.extend(world.around.carried.iter().map(|(_, tag)| tag.word()));
    }
    assert_eq!((tags.len(), world.count(Counter::Batches) - before), (1, 1));
    assert_eq!(world.count(Counter::InlinePkts), 70);
    world.assert_in_order(0);

    // It ends with the first lane that can have the next one.
    world.dispatcher.lanes.set_offline(0b01);
    world.receive(0, 2 + 4);
    assert_eq!(world.count(Counter::Batches) - before, 2);
    assert_eq!(world.count(Counter::InlinePkts), 72);
    world.settle();
    world.assert_in_order(0);
    world.finish();
    assert_eq!(world.count(Counter::LatePkts), 0);
}

/// Packets that other lanes carry while one has its turn come to the socket at once, and find room there.
#[test]
fn batches_are_no_larger_than_the_receivers_buffer_takes() {
    let batches_of = |lanes, receive_pkts| {
        let mut world = World::new(lanes, 64);
        world.start_split(0);
        world.around.slot(0).note_receive_pkts(receive_pkts);
        // The batch that is open ends.
        world.receive(0, 64);
        world.settle();
        let before = world.count(Counter::Batches);
        world.receive(0, 640);
        world.settle();
        world.assert_in_order(0);
        world.count(Counter::Batches) - before
    };
    assert_eq!(batches_of(4, 0), 10);
    assert_eq!(batches_of(4, 1_000), 10);
    // Of 96 packets half may come from the three other lanes: batches of 16.
    assert_eq!(batches_of(4, 96), 40);
    assert_eq!(batches_of(2, 64), 20);
    assert_eq!(batches_of(1, 64), 20);
    assert_eq!(batches_of(4, 1), 640);
}

/// Ends the flow, of which no packet comes any more.
fn end_silent_flow(world: &mut World) {
    for _ in 0..2 {
        world.around.wait(1_100 * MS);
        world.end_nic_poll();
        world.settle();
    }
    assert_eq!(world.around.slots.taken().count(), 0);
}

/// A packet is held until numbers have come round, so that its own is one that the flow has not come to. It is late; the flow
/// ends when it pauses.
#[test]
fn number_that_nobody_has_opened_is_late() {
    for kind in [TagKind::Fence, TagKind::Split, TagKind::Queued] {
        for ahead in [1, 2, WINDOW_BATCHES, 5_000, (1 << (BATCH_BITS - 1)) - 2] {
            let mut world = World::new(2, 1);
            world.start_split(0);
            world.receive(0, 10);
            world.settle();
            let mut held = world.around.packets.packet(0);
            // The flow's first batch was number 0, its fence.
            let opened = world.count(Counter::Batches) as u32;
            assert_eq!(world.around.slot(0).next(), opened);
            held.set_tag(Tag::new(kind, 0, opened + ahead));
            world.around.ordinary.push_back(held);
            let before = world.around.socket.delivered.len();
            world.around.run_ordinary(1);
            assert_eq!(world.around.socket.delivered.len(), before + 1);
            assert_eq!(world.count(Counter::LatePkts), 1);

            world.around.wait(1_100 * MS);
            assert_eq!(world.count(Counter::DeadlineBatches), 0);
            assert_eq!(world.around.slot(0).next(), opened);
            end_silent_flow(&mut world);
            assert_eq!(world.around.slot(0).next(), opened + 1);
            assert_eq!(world.around.packets.alive(), 0);
        }
    }
}

/// A lane is silent while more batches pass than there are numbers in a window, and then carries all that it has.
#[test]
fn lane_that_comes_back_after_several_windows_is_late() {
    let mut world = World::new(2, 1);
    world.start_split(0);
    // This core carries what the lane that is silent would have got.
    let orders = &world.around.orders;
    let helps = Order {
        helps: true,
        ..Order::NONE
    };
    orders.give(0, orders.generation(0), helps);
    for number in 0..3_000 {
        // A packet that comes alone would need no lane.
        world.receive(0, 2);
        world.end_nic_poll();
        world.around.wait(10);
        world.around.poll(1, 100);
        if !(500..2_000).contains(&number) {
            world.around.poll(0, 10_000);
        }
    }
    world.settle();
    let opened = world.count(Counter::Batches) as u32;
    assert!(opened > 4 * WINDOW_BATCHES);
    // What is missing of the open batch alone.
    assert_eq!(world.around.slot(0).next(), opened);
    assert_eq!(world.around.slot(0).parked_pkts(), 0);
    let sent = world.nr_sent()[0];
    let delivered = world.delivered(0);
    let split = world.count(Counter::LanePkts) + world.count(Counter::InlinePkts);
    // The fence is merged, too.
    assert_eq!(
        world.count(Counter::MergedPkts) + world.count(Counter::LatePkts),
        split + 1
    );
    assert!(world.count(Counter::LatePkts) > 0);
    assert!(nr_overtaken(&delivered) <= world.count(Counter::LatePkts));
    let mut sorted = delivered;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..sent));

    let given_up = world.count(Counter::DeadlineBatches);
    end_silent_flow(&mut world);
    assert_eq!(world.count(Counter::DeadlineBatches), given_up);
}

/// Wherever numbers begin, and across the wrap of those in tags and of all.
#[test]
fn numbers_may_begin_anywhere() {
    for first in [0, 1 << 31, (1 << BATCH_BITS) - 9, u32::MAX - 9] {
        let mut world = World::new(2, 4);
        world.around.slots.start(|| first);
        for _ in 0..2 {
            world.start_split(0);
            for _ in 0..40 {
                world.receive(0, 5);
                world.end_nic_poll();
                world.settle();
            }
            world.assert_in_order(0);
            world.finish();
        }
        assert_eq!(world.count(Counter::LatePkts), 0);
        assert_eq!(world.count(Counter::DeadlineBatches), 0);
        assert!(world.around.slot(0).next().wrapping_sub(first) > 80);
    }
}

/// A stopping flow whose lanes are stuck is looked at again and again: it must not run out of its window.
#[test]
fn reaping_keeps_within_the_window() {
    let mut world = World::new(2, 1);
    world.around.socket.timeout_us = 1_000_000_000;
    world.start_split(0);
    world.receive(0, WINDOW_BATCHES * 2);
    for _ in 0..5 {
        world.around.wait(1_200 * MS);
        world.end_nic_poll();
        world.receive(0, 3);
    }
    world.settle();
    world.assert_in_order(0);
    world.finish();
    assert_eq!(world.around.nr_active, 0);
}

#[test]
fn lost_probe_is_asked_again_later() {
    let mut world = World::new(2, 16);
    world.around.fate = |_| Fate::Drop;
    stream(&mut world, 0, 4, 1_100);
    assert_eq!(world.count(Counter::ProbesSent), 1);
    assert_eq!(world.around.nr_active, 0);
    stream(&mut world, 0, 4, 200);
    assert_eq!(world.count(Counter::ProbesSent), 2);
    world.around.fate = |_| Fate::Pass;
    stream(&mut world, 0, 4, 2_000);
    assert!(is_split(&mut world, 0));
}

#[test]
fn stopped_flow_returns_to_the_ordinary_path() {
    let mut world = World::new(2, 16);
    world.start_split(0);
    world.receive(0, 100);
    world.config.stopping = true;
    // Lanes have not delivered yet: the NIC's core carries what comes.
    world.receive(0, 10);
    assert_eq!(world.count(Counter::InlinePkts), 10);
    assert_eq!(world.around.nr_active, 1);
    world.settle();
    assert_eq!(world.around.kept_behind, 0);
    world.receive(0, 1);
    assert_eq!(world.around.kept_behind, 1);
    assert_eq!(world.around.ordinary.len(), 1);
    assert_eq!(kinds(&world), [TagKind::None]);
    assert_eq!(world.around.nr_active, 0);
    world.settle();
    world.assert_in_order(0);
    assert_eq!(world.count(Counter::FlowsStopped), 1);

    // And is not split again before it may be.
    stream(&mut world, 0, 10, 100);
    assert_eq!(world.count(Counter::FlowsSplit), 1);
    world.config.stopping = false;
    stream(&mut world, 0, 10, 100);
    assert_eq!(world.count(Counter::FlowsSplit), 2);
    world.assert_in_order(0);
}

/// A look at the inner flow reads the headers of a tunnel, and most flows that stop have no inner flow without a fence.
#[test]
fn stopping_looks_at_inner_flows_only_where_one_may_have_no_fence() {
    let mut world = World::new(2, 16);
    world.start_split(0);
    world.receive(0, 100);
    world.config.stopping = true;
    world.receive(0, 10);
    assert_eq!(world.count(Counter::InlinePkts), 10);
    assert_eq!(world.around.packets.inner_flow_looks(), 0);
}

/// Packets that a lane still has to carry are waited for, also where all packets before them have been delivered.
#[test]
fn stopping_waits_for_the_batch_whose_turn_it_is() {
    let mut world = World::new(2, 16);
    world.start_split(0);
    world.receive(0, 10);
    world.config.stopping = true;
    world.receive(0, 5);
    assert_eq!(world.count(Counter::InlinePkts), 5);
    world.settle();
    world.assert_in_order(0);
}

/// While packets wait behind the fence, the deadline decides when it is lost.
#[test]
fn stopping_does_not_give_up_a_fence_that_is_waited_for() {
    let mut world = World::new(2, 16);
    world.around.socket.timeout_us = 10_000_000;
    world.receive(0, 4);
    world.settle();
    world.receive(0, 20);
    world.around.poll(0, 100);
    world.around.poll(1, 100);
    world.config.stopping = true;
    world.receive(0, 1);
    world.around.wait(1_200 * MS);
    world.receive(0, 1);
    world.settle();
    world.assert_in_order(0);
}

#[test]
fn flow_that_slows_down_is_not_split_any_more() {
    let mut world = World::new(2, 16);
    world.config.min_window_pkts = 100;
    stream(&mut world, 0, 10, 500);
    assert!(is_split(&mut world, 0));
    // From half the rate on it stays as it is.
    for _ in 0..5 {
        world.receive(0, 50);
        world.settle();
        world.around.wait(u64::from(RATE_WINDOW_MS) * MS);
    }
    assert!(is_split(&mut world, 0));
    for _ in 0..5 {
        world.receive(0, 40);
        world.settle();
        world.around.wait(u64::from(RATE_WINDOW_MS) * MS);
    }
    assert!(!is_split(&mut world, 0));
    world.assert_in_order(0);
    assert_eq!(world.around.nr_active, 0);
}

#[test]
fn flow_that_ends_gives_its_slot_back() {
    let mut world = World::new(2, 16);
    world.start_split(0);
    world.receive(0, 21);
    world.settle();
    for _ in 0..4 {
        world.around.wait(1_200 * MS);
        world.end_nic_poll();
        world.settle();
    }
    assert_eq!(world.around.nr_active, 0);
    assert_eq!(world.around.slots.taken().count(), 0);
    world.assert_in_order(0);
}

#[test]
fn flow_whose_fence_is_lost_ends_as_well() {
    let mut world = World::new(2, 16);
    world.receive(0, 4);
    world.settle();
    world.receive(0, 1);
    assert_eq!(kinds(&world), [TagKind::Fence]);
    world.around.ordinary.clear();
    for _ in 0..4 {
        world.around.wait(1_200 * MS);
        world.end_nic_poll();
        world.settle();
    }
    assert_eq!(world.around.nr_active, 0);
    // The next start does not wait for it.
    stream(&mut world, 0, 10, 200);
    let delivered = world.delivered(0);
    assert_eq!(delivered[..5], [0, 1, 2, 3, 5]);
    assert!(delivered.is_sorted());
    assert_eq!(world.count(Counter::DeadlineBatches), 0);
}

/// The path ahead of the fence is longer than the deadline of a batch: what is split still waits for it.
#[test]
fn slow_ordinary_path_is_waited_for() {
    let mut world = World::new(2, 16);
    world.receive(0, 500);
    world.around.run_ordinary(4);
    world.receive(0, 200);
    assert!(world.count(Counter::LanePkts) > 100);
    for _ in 0..10 {
        world.around.poll(0, 30);
        world.around.poll(1, 30);
        world
            .around
            .wait(u64::from(world.around.socket.timeout_us) * 5);
        world.around.run_ordinary(40);
    }
    world.settle();
    world.assert_in_order(0);
    assert_eq!(world.count(Counter::DeadlineBatches), 0);
}

#[test]
fn lost_fence_is_given_up() {
    let mut world = World::new(2, 16);
    world.receive(0, 4);
    world.settle();
    world.receive(0, 50);
    world.around.ordinary.clear();
    world.settle();
    assert_eq!(world.delivered(0).len(), 4);
    world.around.wait(100 * MS);
    assert_eq!(world.delivered(0).len(), 4 + 49);
    assert_eq!(world.count(Counter::DeadlineBatches), 1);
}

#[test]
fn flow_that_no_longer_ends_here_is_left_alone() {
    let mut world = World::new(2, 16);
    world.start_split(0);
    world.around.fate = |_| Fate::Drop;
    stream(&mut world, 0, 10, 1_500);
    assert_eq!(world.count(Counter::PathsLost), 1);
    assert!(!is_split(&mut world, 0));
    let probes = world.count(Counter::ProbesSent);
    // For five seconds not even a probe is sent.
    stream(&mut world, 0, 10, 3_000);
    assert_eq!(world.count(Counter::ProbesSent), probes);
    stream(&mut world, 0, 10, 2_000);
    assert!(world.count(Counter::ProbesSent) > probes);
}

#[test]
fn flow_that_is_queued_behind_its_lanes_is_left_alone() {
    let mut world = World::new(2, 4);
    world.start_split(0);
    world.around.fate = |_| Fate::Detour;
    stream(&mut world, 0, 10, 500);
    assert_eq!(world.count(Counter::PathsAsync), 1);
    assert!(!is_split(&mut world, 0));
}

/// Half of a window's packets may come after their batch's turn.
#[test]
fn path_that_delays_some_packets_is_split_still() {
    for more in [0, 1] {
        let mut world = World::new(2, 4);
        world.start_split(0);
        world.around.fate = |_| Fate::Detour;
        world.receive(0, 100);
        world.around.poll(0, 100);
        world.around.poll(1, 100);
        let half = world.nr_sent()[0] as usize / 2;
        world.around.run_detours(half + more);
        assert_eq!(world.count(Counter::LatePkts) as usize, half + more);
        world.around.wait(u64::from(RATE_WINDOW_MS) * MS);
        world.receive(0, 1);
        assert_eq!(world.count(Counter::PathsAsync) as usize, more);
    }
}

/// Packets of batches that were given up are late, which says nothing about the path.
#[test]
fn late_packets_of_batches_given_up_are_no_fault_of_the_path() {
    // Both batches by the deadline; one of them because too much memory waits behind it.
    for (bytes, overflows) in [(2_304, 0), (12 << 20, 1)] {
        let mut world = World::new(3, 16);
        world.start_split(0);
        world.around.packets.bytes = bytes;
        world.receive(0, 48);
        // Lane 0 has got the last of three batches.
        world.around.poll(0, 100);
        world.around.wait(MS);
        assert_eq!(world.count(Counter::OverflowBatches), overflows);
        assert_eq!(world.count(Counter::DeadlineBatches), 2 - overflows);
        world.settle();
        assert_eq!(world.count(Counter::LatePkts), 32);
        world.around.wait(u64::from(RATE_WINDOW_MS) * MS);
        world.receive(0, 1);
        assert_eq!(world.count(Counter::PathsAsync), 0);
    }
}

#[test]
fn more_flows_than_slots() {
    let mut world = World::new(1, 16);
    let nr_flows = NR_SLOTS as u16 + 8;
    for flow in 0..nr_flows {
        world.receive(flow, 6);
        world.settle();
        world.receive(flow, 2);
        world.settle();
    }
    assert!(world.around.nr_active <= NR_SLOTS as i32);
    // What found no slot says so, once until it may ask again.
    let without = nr_flows as i32 - world.around.nr_active;
    let told = world.count(Counter::NoSlot) as i32;
    assert!((1..=without).contains(&told), "{told} of {without}");
    // Flows that share a set of the table with four others find no place either.
    assert!(world.around.nr_active >= NR_SLOTS as i32 / 2);
    assert_eq!(
        world.around.slots.taken().count() as i32,
        world.around.nr_active
    );
    for flow in 0..nr_flows {
        world.assert_in_order(flow);
    }
    world.finish();
    assert_eq!(world.around.nr_active, 0);
}

#[test]
fn no_lane_no_split() {
    let mut world = World::new(0, 16);
    stream(&mut world, 0, 10, 500);
    assert_eq!(world.count(Counter::ProbesSent), 0);
    world.assert_in_order(0);
}

#[test]
fn lanes_are_limited() {
    let mut world = World::new(MAX_LANES, 4);
    world.start_split(0);
    world.receive(0, 4 * 64);
    world.settle();
    world.assert_in_order(0);
    let (_ring, producer, _) = OwnedRing::new(zeroed());
    let id = MAX_LANES as u32 + 1;
    assert!(world.dispatcher.lanes.add(producer, id, id).is_err());
}

/// A packet that was dropped from a queue is waited for, but not without end, even if the flow has ended meanwhile.
#[test]
fn lost_queued_packet_does_not_keep_the_slot() {
    let mut world = World::new(1, 16);
    world.start_split(0);
    world.around.fate = |_| Fate::QueueAndDrop;
    world.receive(0, 20);
    world.around.poll(0, 100);
    // The flow is told to stop: one packet opens the batch of this core, behind the one that misses a packet.
    world.around.fate = |_| Fate::Drop;
    world.config.stopping = true;
    world.receive(0, 3);
    world.settle();
    for _ in 0..6 {
        world.around.wait(1_200 * MS);
        world.end_nic_poll();
        world.settle();
    }
    assert_eq!(world.around.nr_active, 0);
}

/// Something on the path queues packets on the lanes' cores: order is kept, and splitting is given up as useless.
#[test]
fn path_that_queues_is_left_alone() {
    let mut world = World::new(2, 4);
    world.start_split(0);
    world.around.fate = |_| Fate::Queue;
    for step in 0..50 {
        world.receive(0, 7);
        world.end_nic_poll();
        for lane in 0..2 {
            world.around.poll(lane, 5);
            world.around.run_queue(1 - lane, step % 7);
        }
        world.around.run_ordinary(5);
        world.around.wait(50);
    }
    world.settle();
    world.assert_in_order(0);
    assert_eq!(world.count(Counter::PathsAsync), 1);
    assert_eq!(world.count(Counter::LatePkts), 0);
    assert!(!is_split(&mut world, 0));
    assert_eq!(world.around.nr_active, 0);
}

/// The probe meets what does not suit: nothing is split, and it is tried ever more rarely.
#[test]
fn path_that_does_not_suit_is_found_before_anything_is_split() {
    for (fault, counter, first_hold_ms) in [
        (PathFault::Queues, Counter::PathsAsync, 5_000),
        (PathFault::Ordered, Counter::PathsOrdered, 60_000),
    ] {
        let mut world = World::new(2, 16);
        world.around.fate = |_| Fate::Queue;
        world.around.fault = fault;
        // How long each pause between two probes is, in tenths of a second.
        let mut pauses_ds = vec![0];
        while pauses_ds.len() < 4 {
            let probes = world.count(Counter::ProbesSent);
            for _ in 0..2 {
                world.receive(0, 5);
                world.settle();
            }
            world.around.wait(u64::from(RATE_WINDOW_MS) * MS);
            match world.count(Counter::ProbesSent) - probes {
                0 => *pauses_ds.last_mut().unwrap() += 1,
                _ => pauses_ds.push(0),
            }
        }
        for (place, &pause_ds) in pauses_ds[1..3].iter().enumerate() {
            let hold_ms = first_hold_ms << place;
            assert!(
                (hold_ms - 200..hold_ms + 500).contains(&(pause_ds * 100)),
                "{pauses_ds:?}"
            );
        }
        assert_eq!(world.count(counter), world.count(Counter::ProbesSent));
        assert_eq!(world.around.nr_active, 0);
        assert_eq!(world.count(Counter::FlowsSplit), 0);
        world.assert_in_order(0);
    }
}

/// A batch that misses a packet is not waited for, however many packets follow that never reach the merge point.
#[test]
fn stopping_ends_while_packets_come() {
    for loses_fence in [false, true] {
        let mut world = World::new(1, 16);
        if loses_fence {
            world.receive(0, 4);
            world.settle();
            world.receive(0, 1);
            assert_eq!(kinds(&world), [TagKind::Fence]);
            world.around.ordinary.clear();
        } else {
            world.start_split(0);
            world.around.fate = |_| Fate::QueueAndDrop;
            world.receive(0, 20);
            world.settle();
        }
        world.around.fate = |_| Fate::Drop;
        world.config.stopping = true;
        stream(&mut world, 0, 1, 2_500);
        assert_eq!(world.around.nr_active, 0);
    }
}

/// A slot forgets with one flow that its path queues packets.
#[test]
fn slot_of_a_flow_that_was_queued_serves_the_next_one() {
    let mut world = World::new(2, 4);
    world.start_split(0);
    world.around.fate = |_| Fate::Queue;
    stream(&mut world, 0, 10, 50);
    assert_eq!(world.count(Counter::PathsAsync), 1);
    assert_eq!(world.around.nr_active, 0);
    world.around.fate = |_| Fate::Pass;
    world.start_split(1);
    world.receive(1, 100);
    world.settle();
    assert_eq!(world.count(Counter::PathsAsync), 1);
    world.assert_in_order(1);
}

#[test]
fn flood_of_new_flows_leaves_the_fast_one_its_place() {
    let mut world = World::new(2, 16);
    world.config.min_window_pkts = 60;
    let mut new = 1;
    for _ in 0..300 {
        world.receive(0, 1);
        for _ in 0..100 {
            world.receive(new, 1);
            new += 1;
        }
        world.settle();
        world.around.wait(MS);
        world.end_nic_poll();
    }
    assert_eq!(world.count(Counter::FlowsSplit), 1);
    world.assert_in_order(0);
}

/// Returns how many of this many packets, which come now, lanes are to build.
fn requests(world: &mut World, pkts: u32) -> u64 {
    requests_of(world, 0, pkts)
}

fn requests_of(world: &mut World, flow: u16, pkts: u32) -> u64 {
    let before = world.count(Counter::RequestPkts);
    world.receive(flow, pkts);
    world.count(Counter::RequestPkts) - before
}

fn split_with_requests(batch_pkts: u32, build: Build) -> World {
    let mut world = World::new(1, batch_pkts);
    world.driver_asks = true;
    world.config.build = build;
    world.start_split(0);
    world
}

/// Makes lanes say that they have joined frames of all flows that are split, or none.
fn note_joining(world: &World, joined: bool) {
    let slots = &world.around.slots;
    for slot in slots.taken() {
        slots.slot(slot).note_joining(joined);
    }
}

/// The state of a flow changes only with a packet: the first of a batch, the first of a window, all while the flow stops.
#[test]
fn requests_only_continue_a_batch() {
    let mut world = split_with_requests(16, Build::Lane);
    assert_eq!(requests(&mut world, 1), 0);
    assert_eq!(requests(&mut world, 15), 15);
    assert_eq!(requests(&mut world, 16), 15);
    assert_eq!(requests(&mut world, 2), 1);
    world.settle();
    world.around.wait(u64::from(RATE_WINDOW_MS) * MS);
    assert_eq!(requests(&mut world, 1), 0);
    assert_eq!(requests(&mut world, 1), 1);
    world.config.stopping = true;
    assert_eq!(requests(&mut world, 20), 0);
    world.settle();
    world.assert_in_order(0);
}

/// Drivers need not ask but while a batch is open that its lane builds.
#[test]
fn requests_are_asked_for_while_a_batch_takes_some() {
    for (build, batch_pkts, takes) in [
        (Build::Lane, 4, true),
        (Build::Nic, 4, false),
        (Build::Lane, 1, false),
    ] {
        let mut world = split_with_requests(batch_pkts, build);
        for _ in 0..3 {
            world.receive(0, 1);
            assert_eq!(world.dispatcher.lanes.takes_requests(), takes);
            world.receive(0, 3);
            world.config.stopping = true;
            world.receive(0, 1);
            assert!(!world.dispatcher.lanes.takes_requests());
            world.config.stopping = false;
            world.settle();
            world.start_split(0);
        }
    }
}

#[test]
fn the_core_with_less_to_do_builds() {
    let mut world = split_with_requests(16, Build::Auto);
    note_joining(&world, false);
    // When any but the first begins, the lane has at least the one before it and its end to do: it is late for them.
    assert_eq!(requests(&mut world, 9 * 16), 9 * 15);
    assert_eq!(requests(&mut world, 9 * 16), 0);
    // Late for 17, and more than 16 are forgotten: with the eighth that it is in time for it has caught up.
    for batch in 1..=20 {
        world.settle();
        assert_eq!(requests(&mut world, 16), if batch < 8 { 0 } else { 15 });
    }
    // It begins again: the first is in time.
    world.settle();
    assert_eq!(requests(&mut world, 9 * 16), 9 * 15);
    world.config.build = Build::Nic;
    world.settle();
    assert_eq!(requests(&mut world, 16), 0);
    world.settle();
    world.assert_in_order(0);
}

/// As long as nobody knows whether frames of the flow join, lanes find out.
#[test]
fn lanes_build_until_they_have_tried_to_join() {
    let mut world = split_with_requests(16, Build::Auto);
    assert_eq!(requests(&mut world, 40 * 16), 40 * 15);
    note_joining(&world, false);
    assert!(requests(&mut world, 40 * 16) < 40 * 15);
    // Another flow knows nothing of that.
    world.finish();
    world.start_split(1);
    assert_eq!(requests_of(&mut world, 1, 40 * 16), 40 * 15);
    world.settle();
    world.assert_in_order(1);
}

/// To build a packet of a frame that would join costs both cores more: the lane gets the batch unbuilt, or the NIC's core carries it.
#[test]
fn frames_that_join_are_never_built_for_a_lane() {
    const BATCH_PKTS: u32 = RING_REQUESTS as u32 / 2;
    for build in [Build::Auto, Build::Lane] {
        let mut world = split_with_requests(BATCH_PKTS, build);
        note_joining(&world, true);
        let inline = |world: &World| world.count(Counter::InlinePkts);
        let before = inline(&world);
        assert_eq!(requests(&mut world, BATCH_PKTS), u64::from(BATCH_PKTS) - 1);
        assert_eq!(requests(&mut world, BATCH_PKTS), u64::from(BATCH_PKTS) - 1);
        assert_eq!(inline(&world), before);
        // All places but two are taken: those of the packets that began the batches.
        assert_eq!(requests(&mut world, BATCH_PKTS), 0);
        assert_eq!(inline(&world), before + u64::from(BATCH_PKTS));
        world.settle();
        assert_eq!(requests(&mut world, BATCH_PKTS), u64::from(BATCH_PKTS) - 1);
        // A batch of one packet, and one that is larger than all places, are built by the NIC's core as ever.
        for batch_pkts in [1, RING_REQUESTS as u32 + 1] {
            world.settle();
            world.config.batch_pkts = batch_pkts;
            let before = inline(&world);
            assert_eq!(requests(&mut world, 100), 0);
            assert_eq!(inline(&world), before, "{batch_pkts}");
        }
        world.settle();
        world.assert_in_order(0);
    }
}

/// A lane whose CPU is away for a moment builds its packets when it is back.
#[test]
fn a_lane_that_is_late_now_and_then_builds() {
    let mut world = split_with_requests(16, Build::Auto);
    for _ in 0..50 {
        assert_eq!(requests(&mut world, 2 * 16), 2 * 15);
        world.settle();
    }
    world.assert_in_order(0);
}

/// A flow that waits for one lane gains nothing if that lane alone is relieved.
#[test]
fn lanes_are_behind_together() {
    const BATCHES: u32 = 40;
    let mut world = World::new(2, 16);
    world.driver_asks = true;
    world.start_split(0);
    note_joining(&world, false);
    // The first lane does nothing, so it is late for every second batch.
    for _ in 0..BATCHES {
        assert_eq!(requests(&mut world, 16), 15);
        world.around.poll(1, usize::MAX);
    }
    // Now the other one does not keep up, either.
    assert_eq!(requests(&mut world, 12 * 16) / 15, 9);
    world.settle();
    world.assert_in_order(0);
}

/// A batch keeps its places until it ends, whatever other batches do, and then none but those that are filled.
#[test]
fn places_belong_to_a_batch_until_it_ends() {
    const BATCHES: u32 = 4;
    const BATCH_PKTS: u32 = RING_REQUESTS as u32 / BATCHES;
    const OF_BATCH: u64 = BATCH_PKTS as u64 - 1;
    let mut world = split_with_requests(BATCH_PKTS, Build::Lane);
    world.start_split(1);
    for _ in 0..2 {
        assert_eq!(requests_of(&mut world, 1, 1), 0);
        for _ in 1..BATCHES {
            assert_eq!(requests(&mut world, BATCH_PKTS), OF_BATCH);
        }
        assert_eq!(requests(&mut world, BATCH_PKTS), 0);
        assert_eq!(requests_of(&mut world, 1, BATCH_PKTS - 1), OF_BATCH);
        world.settle();
    }
    world.assert_in_order(0);
    world.assert_in_order(1);
}

/// A batch is built by its lane as a whole or not at all.
#[test]
fn the_nic_core_builds_where_places_are_missing() {
    const BATCH_PKTS: u32 = RING_REQUESTS as u32 / 2 + 1;
    let mut world = split_with_requests(BATCH_PKTS, Build::Lane);
    assert_eq!(requests(&mut world, BATCH_PKTS), u64::from(BATCH_PKTS) - 1);
    assert_eq!(requests(&mut world, BATCH_PKTS), 0);
    world.settle();
    assert_eq!(requests(&mut world, BATCH_PKTS), u64::from(BATCH_PKTS) - 1);
    world.settle();
    world.config.batch_pkts = RING_REQUESTS as u32 + 1;
    assert_eq!(requests(&mut world, 100), 0);
    world.settle();
    world.assert_in_order(0);
}
