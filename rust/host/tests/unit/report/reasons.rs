// SPDX-License-Identifier: GPL-2.0

//! The reports on flows: each reason where it comes from, and the gain from splitting.

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::knobs::{Knob, Knobs};
use mflow_algo::algo::limits::FLOW_PLACES;
use mflow_algo::algo::limits::RATE_WINDOW_MS;
use mflow_algo::algo::load::flow_orders::Order;
use mflow_algo::algo::merge::slot::PathFault;
use mflow_algo::algo::merge::slot_pool::NR_SLOTS;
use mflow_algo::algo::report::flow_report::{FlowReport, Standing};
use mflow_algo::algo::report::reason::Reason;

use crate::support::packet::name_of_flow;
use crate::world::{Fate, World, NIC_CPU};

const MS: u64 = 1000;
const BATCH_PKTS: u32 = 16;

fn new() -> World {
    World::new(2, BATCH_PKTS)
}

/// Lets a flow have packets for so long, each carried to its end at once.
fn stream(world: &mut World, flow: u16, pkts_per_ms: u32, ms: u64) {
    for _ in 0..ms {
        world.receive(flow, pkts_per_ms);
        world.settle();
        world.around.wait(MS);
        world.end_nic_poll();
    }
}

/// Ends the window of a flow.
fn end_window(world: &mut World, flow: u16) {
    world.around.wait(u64::from(RATE_WINDOW_MS) * MS);
    world.receive(flow, 1);
    world.settle();
}

fn report(world: &mut World, flow: u16) -> FlowReport {
    world.report(flow).expect("the flow is listed")
}

/// Returns for how long the flow is held still.
fn held_ms(world: &World, report: &FlowReport) -> u32 {
    let now_ms = (world.around.socket.now_us / 1000) as u32;
    report.now.held_until_ms.map_or(0, |until| until - now_ms)
}

/// Checks what is said of flow 0, which nothing else has kept from being split so far.
fn assert_why(world: &mut World, standing: Standing, reason: Reason, hold_ms: u32) {
    let report = report(world, 0);
    assert_eq!((report.now.standing, report.now.reason), (standing, reason));
    let held_ms = held_ms(world, &report);
    assert!(
        (hold_ms.saturating_sub(RATE_WINDOW_MS)..=hold_ms).contains(&held_ms),
        "held for {held_ms} ms"
    );
    for counter in Reason::ALL.iter().filter_map(|reason| reason.counter()) {
        let expected = u64::from(reason.counter() == Some(counter));
        assert_eq!(world.count(counter), expected, "{}", counter.name());
    }
}

#[test]
fn slow_flows_are_not_listed() {
    let mut world = new();
    for _ in 0..5 {
        world.receive(0, world.config.min_window_pkts - 1);
        world.around.wait(u64::from(RATE_WINDOW_MS) * MS);
    }
    assert_eq!(world.report(0), None);
}

#[test]
fn a_probe_that_is_on_its_way() {
    let mut world = new();
    world.receive(0, 4);
    assert_why(&mut world, Standing::Probing, Reason::Asked, 0);
    // It has no rate before its window has ended.
    let asked = report(&mut world, 0);
    assert_eq!(asked.rate.pps, None);
    assert_eq!(asked.now.cpu, NIC_CPU);
    world.around.wait(125 * MS);
    world.receive(0, 1);
    assert_eq!(report(&mut world, 0).rate.pps, Some(4 * 8));
}

#[test]
fn a_probe_that_is_not_seen() {
    let mut world = new();
    world.around.fate = |_| Fate::Drop;
    stream(&mut world, 0, 4, 201);
    assert_why(&mut world, Standing::Whole, Reason::ProbeUnseen, 1_000);
    // The time that is left is told with each window, and does not begin again.
    stream(&mut world, 0, 4, 500);
    let after = report(&mut world, 0);
    assert!((400..600).contains(&held_ms(&world, &after)));
    assert_eq!(after.rate.pps, Some(4_000));
}

#[test]
fn a_path_that_does_not_suit() {
    for (fault, reason, hold_ms) in [
        (PathFault::Queues, Reason::PathQueues, 5_000),
        (PathFault::Ordered, Reason::PathOrdered, 60_000),
    ] {
        for is_split in [false, true] {
            let mut world = new();
            if is_split {
                world.start_split(0);
            }
            world.around.fault = fault;
            world.around.fate = |_| Fate::Queue;
            stream(&mut world, 0, 20, 5);
            assert_why(&mut world, Standing::Whole, reason, hold_ms);
            // Each further time it is held for twice as long.
            world.around.wait(u64::from(hold_ms) * MS);
            stream(&mut world, 0, 20, 5);
            let again = report(&mut world, 0);
            assert_eq!(again.now.reason, reason);
            assert!(held_ms(&world, &again) > 2 * hold_ms - RATE_WINDOW_MS);
        }
    }
}

/// While what was split is under way still, the flow has its slot, and the reason stands.
#[test]
fn a_path_that_does_not_suit_any_more() {
    let mut world = new();
    world.start_split(0);
    world.receive(0, 40);
    let slot = report(&mut world, 0).now.slot;
    world
        .around
        .slots
        .slot(usize::from(slot))
        .note_path_fault(PathFault::Queues);
    world.receive(0, BATCH_PKTS);
    assert_why(&mut world, Standing::Stopping, Reason::PathQueues, 5_000);
    assert_eq!(report(&mut world, 0).now.slot, slot);
    world.settle();
    world.receive(0, 1);
    assert_why(&mut world, Standing::Whole, Reason::PathQueues, 5_000);
}

#[test]
fn a_packet_that_the_ordinary_path_has_queued_is_waited_for() {
    let mut world = new();
    world.start_split(0);
    world.config.stopping = true;
    // The last batch, which this core carries, has one packet, and that is queued.
    world.around.fate = |_| Fate::Queue;
    world.receive(0, 1);
    assert_why(&mut world, Standing::Stopping, Reason::SwitchedOff, 0);
    world.receive(0, 1);
    assert_why(&mut world, Standing::Draining, Reason::SwitchedOff, 0);
    world.settle();
    world.receive(0, 1);
    assert_why(&mut world, Standing::Whole, Reason::SwitchedOff, 0);
}

#[test]
fn a_path_that_is_lost() {
    let mut world = new();
    world.start_split(0);
    world.around.fate = |_| Fate::Drop;
    while world.count(Counter::FlowsStopped) == 0 {
        stream(&mut world, 0, 10, 10);
    }
    assert_why(&mut world, Standing::Whole, Reason::PathLost, 5_000);
}

#[test]
fn no_slot() {
    let mut world = new();
    while world.around.slots.claim().is_some() {}
    world.receive(0, 4);
    assert_why(&mut world, Standing::Whole, Reason::NoSlot, 1_000);
    assert_eq!(report(&mut world, 0).rate.pps, None);
}

#[test]
fn busy_cores() {
    let mut world = new();
    world.around.orders.refuse(true);
    world.receive(0, 4);
    assert_why(&mut world, Standing::Whole, Reason::CpusBusy, 1_000);

    let mut world = new();
    world.start_split(0);
    let slot = usize::from(report(&mut world, 0).now.slot);
    let order = Order {
        stops: true,
        ..Order::NONE
    };
    let generation = world.around.orders.generation(slot);
    world.around.orders.give(slot, generation, order);
    world.receive(0, 1);
    assert_why(&mut world, Standing::Stopping, Reason::CpusBusy, 1_000);
}

/// Most polls pass unseen, and what is said of flows is as good as before.
#[test]
fn busy_cores_let_packets_pass_unseen() {
    let mut world = new();
    world.around.orders.refuse(true);
    for _ in 0..300 {
        stream(&mut world, 0, 10, 1);
        stream(&mut world, 1, 1, 1);
    }
    for (flow, pps) in [(0, 5_000), (1, 500)] {
        let report = report(&mut world, flow);
        assert_eq!(report.now.reason, Reason::CpusBusy);
        let seen = report.rate.pps.expect("a window has ended");
        assert!(seen.abs_diff(pps) <= pps / 5, "{seen} packets a second");
    }
    // Flows are welcome again. Some packets that are looked at wake the source, and flow 0 is split.
    world.around.orders.refuse(false);
    world.end_nic_poll();
    world.around.wait(1_100 * MS);
    stream(&mut world, 0, 10, 20);
    assert_eq!(report(&mut world, 0).now.standing, Standing::Split);
    let seen = world.count(Counter::LanePkts) + world.count(Counter::InlinePkts);
    assert!(seen >= 80, "{seen} packets were split");
}

#[test]
fn packets_without_data() {
    let mut world = new();
    world.around.packets.strays = true;
    world.receive(0, 6);
    // Most such flows have one with data soon: it is said when the window ends.
    assert_eq!(world.report(0), None);
    end_window(&mut world, 0);
    assert_why(&mut world, Standing::Whole, Reason::NoData, 0);
}

#[test]
fn a_fence_of_another_source() {
    let mut world = new();
    let slots = &world.around.slots;
    let others = slots.claim().unwrap();
    let fence = slots.slot(others).next();
    slots.slot(others).open_fence(fence);
    world.receive(0, 8);
    end_window(&mut world, 0);
    assert_why(&mut world, Standing::Whole, Reason::OtherStarts, 0);
}

#[test]
fn flows_begin_one_after_the_other_where_probes_wait() {
    let mut world = new();
    world.around.is_clear = false;
    world.receive(0, 8);
    end_window(&mut world, 0);
    assert_why(&mut world, Standing::Whole, Reason::OtherStarts, 0);
    assert_eq!(world.count(Counter::ProbesSent), 0);
    world.around.is_clear = true;
    world.receive(0, 4);
    assert_why(&mut world, Standing::Probing, Reason::Asked, 0);
    // Its fence waits, too.
    world.settle();
    world.around.is_clear = false;
    world.receive(0, 4);
    world.settle();
    assert_why(&mut world, Standing::Probing, Reason::Asked, 0);
    world.around.is_clear = true;
    world.receive(0, 1);
    assert_eq!(report(&mut world, 0).now.standing, Standing::Split);
}

#[test]
fn another_source_that_has_begun() {
    let mut world = new();
    world.receive(0, 4);
    world.around.slots.note_source();
    world.receive(0, 1);
    assert_why(&mut world, Standing::Whole, Reason::New, 0);
}

#[test]
fn no_lanes() {
    let mut world = World::new(0, BATCH_PKTS);
    world.receive(0, 8);
    end_window(&mut world, 0);
    assert_why(&mut world, Standing::Whole, Reason::NoLanes, 0);
}

#[test]
fn a_flow_that_slows_down() {
    let mut world = new();
    world.config.min_window_pkts = 100;
    stream(&mut world, 0, 10, 300);
    assert_eq!(report(&mut world, 0).now.standing, Standing::Split);
    world.receive(0, 10);
    end_window(&mut world, 0);
    world.receive(0, 10);
    end_window(&mut world, 0);
    assert_why(&mut world, Standing::Whole, Reason::Slow, 0);
    // It is fast no more, so it is of no interest a second later.
    world.around.wait(1_000 * MS);
    assert_eq!(world.report(0), None);
}

#[test]
fn a_flow_that_ends() {
    let mut world = new();
    world.start_split(0);
    world.receive(0, 40);
    world.around.wait(1_200 * MS);
    world.end_nic_poll();
    // Lanes are not done with it.
    assert_why(&mut world, Standing::Stopping, Reason::Silent, 0);
    world.settle();
    world.around.wait(1_200 * MS);
    world.end_nic_poll();
    assert_eq!(world.report(0), None);

    // The same before its probe has been seen.
    let mut world = new();
    world.receive(0, 4);
    world.around.wait(1_200 * MS);
    world.end_nic_poll();
    assert_eq!(world.report(0), None);
}

#[test]
fn splitting_that_is_switched_off() {
    let mut world = new();
    world.start_split(0);
    world.receive(0, 40);
    world.config.stopping = true;
    world.receive(0, 1);
    assert_why(&mut world, Standing::Stopping, Reason::SwitchedOff, 0);
    // A flow that becomes fast now, and one that has been asked already.
    let mut world = new();
    world.receive(0, 4);
    world.config.stopping = true;
    world.receive(0, 1);
    assert_why(&mut world, Standing::Whole, Reason::SwitchedOff, 0);
    world.receive(1, 8);
    end_window(&mut world, 1);
    assert_eq!(report(&mut world, 1).now.reason, Reason::SwitchedOff);
}

/// Two lanes take turns, so each carries half of it.
#[test]
fn gain_of_a_split_flow() {
    let mut world = new();
    world.start_split(0);
    let begun = report(&mut world, 0);
    assert_eq!(begun.now.standing, Standing::Split);
    assert_eq!((begun.now.lanes, begun.now.batch_pkts), (0b11, 16));
    assert_eq!(begun.work.gain_pct(), None);
    // Shown from the first window on, and once a second then.
    stream(&mut world, 0, 16, 101);
    let gain_pct = |world: &mut World| report(world, 0).work.gain_pct().unwrap();
    assert!((190..=200).contains(&gain_pct(&mut world)));
    stream(&mut world, 0, 16, 1_000);
    let before = report(&mut world, 0).work;
    assert!((195..=200).contains(&gain_pct(&mut world)));
    assert!((15_000..18_000).contains(&before.all_pkts), "{before:?}");

    // One lane is left, so one core carries all that follows. The knob holds as well.
    world.dispatcher.lanes.set_offline(0b01);
    world.config.batch_pkts = 4;
    stream(&mut world, 0, 16, 200);
    let now = report(&mut world, 0);
    assert_eq!((now.now.lanes, now.now.batch_pkts), (0b10, 4));
    assert_eq!(now.work, before);
    stream(&mut world, 0, 16, 2_000);
    assert_eq!(gain_pct(&mut world), 100);
    assert_eq!(report(&mut world, 0).rate.pps, Some(16_000));
}

/// The packets that the core that dispatches carries are its work, also where a lane is on that core.
#[test]
fn gain_counts_cores_and_not_lanes() {
    // Lanes are on CPUs 1 to 7, and the last of these is the NIC's.
    for (nr_lanes, most) in [(2, 2), (NIC_CPU as usize, 1)] {
        let mut world = World::new(nr_lanes, BATCH_PKTS);
        world.around.socket.timeout_us = 10_000_000;
        world.start_split(0);
        end_window(&mut world, 0);
        world.receive(0, BATCH_PKTS * 2 * nr_lanes as u32);
        // And as much by this core.
        world.dispatcher.lanes.set_offline((1 << nr_lanes) - 1);
        world.receive(0, BATCH_PKTS * 4);
        world.dispatcher.lanes.set_offline(0);
        end_window(&mut world, 0);
        let work = report(&mut world, 0).work;
        let batches = |pkts: u32| pkts / BATCH_PKTS;
        let inline = 4;
        assert!(batches(work.all_pkts) >= 2 * nr_lanes as u32 + inline);
        let own_lane = if nr_lanes == NIC_CPU as usize { 2 } else { 0 };
        assert!(
            batches(work.busiest_pkts) >= inline + own_lane,
            "{work:?} {most}"
        );
    }
}

/// Late packets and batches that were given up are those of the period, not all that the slot has ever seen.
#[test]
fn work_says_what_came_too_late() {
    let mut world = World::new(3, BATCH_PKTS);
    world.start_split(0);
    world.receive(0, 48);
    world.around.poll(0, 100);
    world.around.wait(MS);
    world.settle();
    end_window(&mut world, 0);
    let work = report(&mut world, 0).work;
    assert_eq!((work.late_pkts, work.given_up_batches), (32, 2));
    for _ in 0..25 {
        world.receive(0, 20);
        world.settle();
        end_window(&mut world, 0);
    }
    let work = report(&mut world, 0).work;
    assert_eq!((work.late_pkts, work.given_up_batches), (0, 0));
}

/// A flow that is split for the second time shows nothing of the first.
#[test]
fn gain_begins_anew() {
    let mut world = new();
    world.start_split(0);
    stream(&mut world, 0, 16, 300);
    assert!(report(&mut world, 0).work.all_pkts > 0);
    world.config.stopping = true;
    stream(&mut world, 0, 16, 10);
    world.config.stopping = false;
    world.start_split(0);
    assert_eq!(report(&mut world, 0).work.gain_pct(), None);
}

/// Each flow has its own line, and what takes a place that another has left has nothing of that one's.
#[test]
fn flows_have_places_of_their_own() {
    let mut world = new();
    world.around.fate = |_| Fate::Drop;
    let nr_flows = 2 * FLOW_PLACES as u16;
    for flow in 0..nr_flows {
        world.receive(flow, 10);
        world.settle();
    }
    let listed = (0..nr_flows)
        .filter(|&flow| world.report(flow).is_some())
        .count();
    assert!(listed > NR_SLOTS, "{listed}");
    // Some seconds later others come.
    world.around.wait(3_000 * MS);
    world.end_nic_poll();
    world.around.fate = |_| Fate::Pass;
    for flow in nr_flows..nr_flows + 8 {
        world.start_split(flow);
        let report = report(&mut world, flow);
        assert_eq!(report.name, name_of_flow(flow));
        assert_eq!(report.rate.pps, None);
        assert_eq!(report.work.gain_pct(), None);
    }
}

#[test]
fn reasons_have_names_and_words_of_their_own() {
    let texts = |text: fn(Reason) -> &'static str| {
        let texts: std::collections::BTreeSet<_> =
            Reason::ALL.iter().map(|reason| text(*reason)).collect();
        assert_eq!(texts.len(), Reason::ALL.len());
        assert!(texts.iter().all(|text| !text.is_empty()));
    };
    texts(Reason::name);
    texts(Reason::words);
}

#[test]
fn why_no_flow_is_split_at_all() {
    let mut knobs = Knobs::DEFAULT;
    let mut set = |knob, text: &[u8], has_devices, expected| {
        knobs.set(knob, text).unwrap();
        assert_eq!(Reason::of_all(&knobs, has_devices), expected);
    };
    set(Knob::Enabled, b"0", true, Some(Reason::NotEnabled));
    set(Knob::Enabled, b"1", true, Some(Reason::NoLanes));
    set(Knob::Cpus, b"2-3", true, None);
    set(Knob::Cpus, b"2-3", false, Some(Reason::NoDevices));
    set(Knob::Mode, b"falcon-dev", true, Some(Reason::OtherMode));
}

/// Every counter of a reason counts what the flow's line says.
#[test]
fn counters_of_reasons_are_different() {
    let counters: Vec<Counter> = Reason::ALL
        .iter()
        .filter_map(|reason| reason.counter())
        .collect();
    assert_eq!(
        counters,
        [
            Counter::PathsAsync,
            Counter::PathsOrdered,
            Counter::PathsLost,
            Counter::NoSlot,
            Counter::CpusBusy
        ]
    );
}
