// SPDX-License-Identifier: GPL-2.0

//! The load controller, rule by rule, with cores that do as much as they can of what flows offer.

use mflow_algo::algo::limits::{MAX_LANES, MAX_SAMPLED, MAX_SLOTS};
use mflow_algo::algo::load::controller::Controller;
use mflow_algo::algo::load::core_load::CpuTimes;
use mflow_algo::algo::load::flow_orders::{Order, Orders};
use mflow_algo::algo::load::flow_plan::{FlowCount, Targets};
use mflow_algo::algo::load::FULL;
use proptest::prelude::*;

const PERIOD_US: u64 = 10_000;
const BATCH_PKTS: u32 = 256;
const THRESHOLD: u32 = 850;

/// A flow: what its lanes would have to do in all, in thousandths of a core, and which core dispatches it.
#[derive(Clone, Copy)]
struct Flow {
    slot: usize,
    work: u32,
    nic: Option<u8>,
    gro_joins: bool,
}

/// A machine: lanes first, then a core that dispatches.
struct Machine {
    controller: Box<Controller>,
    orders: Box<Orders>,
    nr_lanes: usize,
    times: Vec<CpuTimes>,
    /// The load of other work on each core.
    tasks: Vec<u32>,
    /// The load of dispatching on the last core.
    nic_load: u32,
    flows: Vec<Flow>,
    arrived: u32,
    /// The largest error of a sample, either way.
    noise: u32,
    random: u64,
    runnable_tasks: u32,
}

impl Machine {
    fn new(nr_lanes: usize, works: &[u32]) -> Self {
        let times = (0..=nr_lanes as u32).map(|cpu| CpuTimes {
            cpu,
            ..CpuTimes::default()
        });
        let flows = works.iter().enumerate().map(|(slot, work)| Flow {
            slot,
            work: *work,
            nic: Some(nr_lanes as u8),
            gro_joins: false,
        });
        Self {
            controller: Box::default(),
            orders: Box::default(),
            nr_lanes,
            times: times.collect(),
            tasks: vec![0; nr_lanes + 1],
            nic_load: 300,
            flows: flows.collect(),
            arrived: 0,
            noise: 0,
            random: 1,
            runnable_tasks: 1,
        }
    }

    fn lanes(&self, slot: usize) -> u16 {
        self.orders.order(slot).lanes & ((1u32 << self.nr_lanes) - 1) as u16
    }

    fn nr_lanes(&self, slot: usize) -> u32 {
        self.lanes(slot).count_ones()
    }

    fn off(&mut self) -> i64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) as i64 % (2 * i64::from(self.noise) + 1) - i64::from(self.noise)
    }

    /// Returns how busy each core is, with lanes' work.
    fn own(&self) -> Vec<u32> {
        let mut own = vec![0; self.nr_lanes];
        for flow in &self.flows {
            let lanes = self.lanes(flow.slot);
            for (lane, own) in own.iter_mut().enumerate() {
                if lanes >> lane & 1 == 1 {
                    *own += flow.work / lanes.count_ones();
                }
            }
        }
        own
    }

    fn busiest(&self) -> u32 {
        let own = self.own();
        own.iter()
            .zip(&self.tasks)
            .map(|(own, tasks)| own + tasks)
            .max()
            .unwrap()
    }

    fn sample(&mut self) {
        let own = self.own();
        for core in 0..=self.nr_lanes {
            let noise = self.off();
            let us = |load: u32| u64::from(load) * PERIOD_US / u64::from(FULL);
            let tasks = self.tasks[core];
            let softirq = match own.get(core) {
                Some(own) => *own,
                None => self.nic_load,
            };
            let softirq = (i64::from(softirq) + noise).clamp(0, i64::from(FULL)) as u32;
            let times = &mut self.times[core];
            // Softirqs come first.
            times.softirq_us += us(softirq);
            times.task_us += us(tasks.min(FULL - softirq));
            if core < self.nr_lanes {
                times.lanes_us += us(softirq);
            }
            times.runnable_tasks = if tasks > 0 { self.runnable_tasks } else { 0 };
        }
        self.arrived = self.arrived.wrapping_add(10_000);
        let counts: Vec<FlowCount> = self
            .flows
            .iter()
            .map(|flow| FlowCount {
                slot: flow.slot,
                generation: self.orders.generation(flow.slot),
                arrived_pkts: self.arrived,
                gro_joins: flow.gro_joins,
                nic: flow.nic,
            })
            .collect();
        let targets = Targets {
            load_threshold_pct: THRESHOLD / 10,
            batch_pkts: BATCH_PKTS,
            elapsed_us: PERIOD_US,
        };
        let counts = counts.into_iter();
        self.controller
            .step(targets, &self.times, self.nr_lanes, counts, &self.orders);
        // A flow that was sent back is not split any more, and does its work where it was before.
        for flow in &self.flows {
            if self.orders.order(flow.slot).stops {
                self.nic_load += flow.work;
            }
        }
        self.flows
            .retain(|flow| !self.orders.order(flow.slot).stops);
    }

    fn samples(&mut self, samples: u32) {
        for _ in 0..samples {
            self.sample();
        }
    }
}

#[test]
fn without_a_sample_there_are_no_orders() {
    let orders = Orders::new();
    assert_eq!(orders.order(3), Order::NONE);
    assert!(!orders.refuses());
}

#[test]
fn a_flow_has_as_many_lanes_as_it_needs() {
    for (work, needed) in [
        (100, 1),
        (700, 1),
        (800, 2),
        (1_400, 2),
        (1_700, 3),
        (5_000, 7),
    ] {
        let mut machine = Machine::new(8, &[work]);
        machine.samples(100);
        assert_eq!(machine.nr_lanes(0), needed, "{work}");
    }
}

#[test]
fn more_work_brings_one_lane_after_the_other() {
    let mut machine = Machine::new(8, &[600]);
    machine.samples(50);
    machine.flows[0].work = 3_000;
    let mut last = machine.nr_lanes(0);
    for _ in 0..20 {
        machine.sample();
        assert!((last..=last + 1).contains(&machine.nr_lanes(0)));
        last = machine.nr_lanes(0);
    }
    assert!(machine.busiest() < THRESHOLD);
    assert_eq!(last, 4);
}

/// Whatever the work is, also where it is just about what some number of lanes can do.
#[test]
fn noise_does_not_make_lanes_come_and_go() {
    for work in (200..4_000).step_by(50) {
        let mut machine = Machine::new(8, &[work]);
        machine.noise = 80;
        machine.samples(200);
        let mut changes = 0;
        let mut last = machine.lanes(0);
        for _ in 0..1_000 {
            machine.sample();
            changes += u32::from(machine.lanes(0) != last);
            last = machine.lanes(0);
        }
        assert!(changes <= 12, "{work}: {changes} changes");
        assert!(machine.busiest() < THRESHOLD + 50, "{work}");
    }
}

#[test]
fn a_lane_whose_core_is_busy_with_something_else_is_left_within_two_samples() {
    let mut machine = Machine::new(4, &[1_400]);
    machine.samples(50);
    let lane = machine.lanes(0).trailing_zeros() as usize;
    machine.tasks[lane] = 900;
    machine.samples(2);
    assert_eq!(machine.lanes(0) >> lane & 1, 0);
    assert!(machine.nr_lanes(0) >= 2, "another has come for it");
    machine.samples(20);
    assert_eq!(machine.nr_lanes(0), 2);
    // A flow that comes now does not go there, either.
    assert_eq!(machine.orders.order(40).lanes >> lane & 1, 0);
    // It is used again, but not at once.
    machine.tasks[lane] = 0;
    machine.samples(7);
    assert_eq!(machine.orders.order(40).lanes >> lane & 1, 0);
    machine.samples(50);
    assert_eq!(machine.orders.order(40).lanes >> lane & 1, 1);
}

#[test]
fn one_busy_sample_is_not_enough_to_leave_a_lane() {
    let mut machine = Machine::new(2, &[1_000]);
    machine.samples(50);
    let lanes = machine.lanes(0);
    machine.tasks[0] = 450;
    machine.sample();
    machine.tasks[0] = 0;
    machine.samples(5);
    assert_eq!(machine.lanes(0), lanes);
}

/// A task gets no more than the lane leaves, so that it takes little does not say that it wants little.
#[test]
fn a_lane_that_crowds_a_task_out_is_left() {
    for (runnable_tasks, left) in [(1, 0), (0, 1)] {
        let mut machine = Machine::new(4, &[1_640]);
        machine.samples(50);
        assert_eq!(machine.nr_lanes(0), 3);
        machine.flows[0].work = 2_400;
        machine.tasks[0] = 900;
        machine.runnable_tasks = runnable_tasks;
        machine.samples(2);
        if machine.lanes(0) & 1 == left {
            continue;
        }
        panic!("{runnable_tasks}: {:b}", machine.lanes(0));
    }
}

#[test]
fn where_others_have_all_cores_flows_go_back_and_none_begins() {
    let mut machine = Machine::new(3, &[800, 500]);
    machine.samples(50);
    assert!(!machine.orders.refuses());
    machine.tasks = vec![700, 700, 700, 0];
    machine.samples(2);
    assert!(machine.flows.is_empty());
    assert!(machine.orders.refuses());
    machine.tasks = vec![0; 4];
    machine.samples(60);
    assert!(!machine.orders.refuses());
}

/// As many flows as cores: none can have more than one core's work, however it is split.
#[test]
fn flows_go_back_when_all_cores_are_busy() {
    let mut machine = Machine::new(4, &[900; 5]);
    for (flow, nic) in machine.flows.iter_mut().zip([0, 1, 2, 3, 0]) {
        // The cores that dispatch are the lanes' own, as where all cores receive.
        flow.nic = Some(nic);
    }
    machine.samples(3);
    assert!(machine.orders.refuses());
    let mut last = machine.flows.len();
    for n in 0..10 {
        machine.sample();
        // What has gone back does not come again, though there are fewer flows than lanes now.
        assert!(machine.orders.refuses() || n >= 6);
        // Not all at once: the next sample shows what it has brought.
        assert!(last - machine.flows.len() <= 2);
        last = machine.flows.len();
    }
    // Two would be too much for their core: they go on.
    assert_eq!(last, 2);
}

/// One flow that alone keeps all lanes busy would lose by going back.
#[test]
fn a_flow_with_more_than_a_cores_work_stays_split() {
    let mut machine = Machine::new(4, &[6_000]);
    machine.samples(100);
    assert_eq!((machine.flows.len(), machine.nr_lanes(0)), (1, 4));
    assert!(!machine.orders.refuses());
    // Nor does one whose own core has no room for it.
    let mut machine = Machine::new(2, &[950, 950]);
    machine.nic_load = 800;
    machine.samples(100);
    assert_eq!(machine.flows.len(), 2);
    assert!(machine.orders.refuses(), "as many flows as lanes");
}

/// Splitting costs more in all, so cores that are just below the threshold again do not make flows begin again.
#[test]
fn refusal_ends_late_and_later_each_time() {
    let mut machine = Machine::new(2, &[850, 850]);
    machine.nic_load = 900;
    machine.samples(4);
    assert!(machine.orders.refuses());
    for flow in &mut machine.flows {
        flow.work = 750;
    }
    machine.samples(200);
    assert!(machine.orders.refuses());
    let mut waits = Vec::new();
    for _ in 0..3 {
        for flow in &mut machine.flows {
            flow.work = 500;
        }
        let refusals = (0..200).filter(|_| {
            machine.sample();
            machine.orders.refuses()
        });
        waits.push(refusals.count());
        for flow in &mut machine.flows {
            flow.work = 950;
        }
        machine.samples(4);
        assert!(machine.orders.refuses());
    }
    assert!(waits.is_sorted_by(|a, b| a < b), "{waits:?}");
}

#[test]
fn batches_follow_the_load_of_the_core_that_dispatches() {
    let mut machine = Machine::new(4, &[2_000]);
    machine.samples(50);
    // 2000 thousandths of 10 ms for 10,000 packets are 2 us each.
    assert_eq!(machine.orders.order(0).batch_pkts, 1);
    machine.nic_load = 970;
    let mut last = 1;
    for _ in 0..12 {
        machine.sample();
        let batch_pkts = machine.orders.order(0).batch_pkts;
        assert!(batch_pkts == last || batch_pkts == 2 * last);
        last = batch_pkts;
    }
    assert_eq!(u32::from(last), BATCH_PKTS);
    // In between they stay as they are.
    machine.nic_load = 880;
    machine.samples(50);
    assert_eq!(u32::from(machine.orders.order(0).batch_pkts), BATCH_PKTS);
    machine.nic_load = 500;
    machine.samples(12);
    assert_eq!(machine.orders.order(0).batch_pkts, 1);
}

#[test]
fn single_packets_come_in_pairs_now_and_then() {
    let mut machine = Machine::new(4, &[2_000]);
    machine.samples(50);
    let sizes: Vec<u16> = (0..64)
        .map(|_| {
            machine.sample();
            machine.orders.order(0).batch_pkts
        })
        .collect();
    let pairs = sizes.iter().filter(|size| **size == 2).count();
    let singles = sizes.iter().filter(|size| **size == 1).count();
    assert_eq!((pairs, singles), (4, 60));
}

#[test]
fn gro_is_given_enough_where_it_joins_packets() {
    let mut machine = Machine::new(4, &[200]);
    machine.flows[0].gro_joins = true;
    machine.samples(50);
    assert_eq!(machine.orders.order(0).batch_pkts, 32);
    // A flow may change its nature, there and back.
    machine.flows[0].gro_joins = false;
    machine.samples(50);
    assert_eq!(machine.orders.order(0).batch_pkts, 10);
    machine.flows[0].gro_joins = true;
    machine.samples(50);
    assert_eq!(machine.orders.order(0).batch_pkts, 32);
}

#[test]
fn batches_are_as_short_as_their_packets_are_dear() {
    let mut machine = Machine::new(4, &[200]);
    machine.samples(50);
    // 0.2 us a packet: ten take two.
    assert_eq!(machine.orders.order(0).batch_pkts, 10);
}

/// Halving batches costs so much that there is no time left: that is tried ever more rarely.
#[test]
fn batches_do_not_swing() {
    let mut machine = Machine::new(4, &[2_000]);
    let mut halvings = [0; 2];
    let mut last = BATCH_PKTS as u16;
    for (half, halvings) in halvings.iter_mut().enumerate() {
        for _ in 0..400 {
            machine.nic_load = if last >= 64 { 700 } else { 990 };
            machine.sample();
            let batch_pkts = machine.orders.order(0).batch_pkts;
            *halvings += u32::from(batch_pkts < last);
            last = batch_pkts;
        }
        assert!(*halvings < 100, "half {half}: {halvings}");
    }
    assert!(halvings[1] < 30, "{halvings:?}");
}

/// No count of samples runs over: an hour of them is more than 16 bits hold.
#[test]
fn a_flow_may_be_calm_for_hours() {
    let mut machine = Machine::new(2, &[200]);
    machine.samples(u32::from(u16::MAX) + 10);
    assert_eq!(machine.nr_lanes(0), 1);
    assert_eq!(machine.orders.order(0).batch_pkts, 10);
}

#[test]
fn another_cpu_in_the_same_place_is_unknown() {
    let mut machine = Machine::new(2, &[1_000]);
    machine.tasks[1] = 900;
    machine.samples(10);
    let core = |machine: &Machine| *machine.controller.core(1).unwrap();
    assert!(core(&machine).is_taken());
    machine.times[1] = CpuTimes {
        cpu: 77,
        task_us: 1 << 60,
        ..CpuTimes::default()
    };
    machine.sample();
    assert!(!core(&machine).is_known() && !core(&machine).is_taken());
    assert_eq!(core(&machine).last(), 0);
}

#[test]
fn a_clock_that_steps_back_counts_as_nothing() {
    let mut machine = Machine::new(2, &[1_000]);
    machine.tasks[0] = 100;
    machine.samples(5);
    machine.times[0].task_us -= 5_000;
    machine.sample();
    assert!(machine.controller.core(0).unwrap().last() <= FULL);
    machine.samples(3);
    assert!(!machine.controller.core(0).unwrap().is_taken());
}

fn times() -> impl Strategy<Value = CpuTimes> {
    let us = || prop_oneof![Just(0), 0..2 * PERIOD_US, any::<u64>()];
    (0..3u32, us(), us(), us(), us(), us(), any::<u32>()).prop_map(
        |(cpu, softirq_us, lanes_us, interrupt_us, guest_us, task_us, runnable_tasks)| CpuTimes {
            cpu,
            softirq_us,
            lanes_us,
            interrupt_us,
            guest_us,
            task_us,
            runnable_tasks,
        },
    )
}

fn count() -> impl Strategy<Value = FlowCount> {
    let nic = any::<Option<u8>>();
    (0..MAX_SLOTS + 2, 0..3u16, any::<u32>(), any::<bool>(), nic).prop_map(
        |(slot, generation, arrived_pkts, gro_joins, nic)| FlowCount {
            slot,
            generation,
            arrived_pkts,
            gro_joins,
            nic,
        },
    )
}

proptest! {
    /// Whatever is sampled, each flow has a lane that it may use or goes back, and a batch within the limits.
    #[test]
    fn orders_can_be_followed(
        nr_lanes in 0..MAX_LANES + 2,
        pct in 0..200u32,
        batch_pkts in any::<u32>(),
        samples in prop::collection::vec(
            (
                prop::collection::vec(times(), 0..MAX_SAMPLED + 2),
                prop::collection::vec(count(), 0..MAX_SLOTS),
                prop_oneof![Just(0), Just(PERIOD_US), any::<u64>()],
            ),
            1..12,
        ),
    ) {
        let mut controller = Controller::new();
        let orders = Orders::new();
        for (cpus, counts, elapsed_us) in samples {
            let targets = Targets { load_threshold_pct: pct, batch_pkts, elapsed_us };
            // What has no slot has no order of its own.
            let slots = counts.iter().map(|count| count.slot).filter(|slot| *slot < MAX_SLOTS);
            let slots: Vec<usize> = slots.collect();
            controller.step(targets, &cpus, nr_lanes, counts.into_iter(), &orders);
            let nr_lanes = nr_lanes.min(cpus.len()).min(MAX_LANES);
            for slot in slots {
                let order = orders.order(slot);
                let usable = u32::from(order.lanes) & ((1 << nr_lanes) - 1);
                prop_assert!(order.stops || order == Order::NONE || usable != 0 || nr_lanes == 0 || orders.refuses());
                prop_assert!(order.batch_pkts > 0);
            }
        }
    }
}
