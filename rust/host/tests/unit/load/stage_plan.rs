// SPDX-License-Identifier: GPL-2.0

//! The effects of loads on the stages of FALCON's modes: one rule after the other, and all of them against what was sampled.

use mflow_algo::algo::load::core_load::CpuTimes;
use mflow_algo::algo::load::sampler::{CpuClocks, Sampler};
use mflow_algo::algo::load::stage_plan::{StageOrders, StagePlan};
use proptest::prelude::*;

use crate::common::cases;

const PERIOD_US: u64 = 50_000;
const THRESHOLD: u32 = 850;
/// The limits of the plan, and a time in samples.
const CALM: u32 = 650;
const SECOND: usize = 20;
/// Longer than anything that a plan waits for at first.
const LONG: usize = 4 * SECOND;

/// A plan with CPUs of which each does as much as it is told: the stages' first, then the NIC's.
struct Machine {
    plan: StagePlan,
    times: Vec<CpuTimes>,
    nr_lanes: usize,
    /// Each sample's orders.
    orders: Vec<StageOrders>,
}

impl Machine {
    fn new(nr_lanes: usize) -> Self {
        let times = (0..=nr_lanes as u32).map(|cpu| CpuTimes {
            cpu,
            ..CpuTimes::default()
        });
        Self {
            plan: StagePlan::new(),
            times: times.collect(),
            nr_lanes,
            orders: Vec::new(),
        }
    }

    /// Loads are those of the stages' CPUs and of the NIC's.
    fn sample_at(&mut self, threshold: u32, loads: &[u32]) -> StageOrders {
        for (times, load) in self.times.iter_mut().zip(loads) {
            // Part of it is a task's: whose work it is makes no difference.
            let task = load / 4;
            times.task_us += PERIOD_US * u64::from(task) / 1_000;
            times.softirq_us += PERIOD_US * u64::from(load - task) / 1_000;
            times.lanes_us = times.softirq_us;
        }
        let nics = 1 << self.nr_lanes;
        let orders = self
            .plan
            .step(threshold, PERIOD_US, &self.times, self.nr_lanes, nics);
        self.orders.push(orders);
        orders
    }

    fn sample(&mut self, loads: &[u32]) -> StageOrders {
        self.sample_at(THRESHOLD, loads)
    }

    /// Returns the orders after this many samples.
    fn run(&mut self, samples: usize, loads: &[u32]) -> StageOrders {
        (0..samples)
            .map(|_| self.sample(loads))
            .last()
            .expect("a sample")
    }

    /// Returns how many samples it takes until that holds.
    fn until(&mut self, loads: &[u32], holds: impl Fn(StageOrders) -> bool) -> usize {
        (1..10_000)
            .find(|_| holds(self.sample(loads)))
            .expect("it never holds")
    }

    fn changes(&self) -> Vec<usize> {
        let first = [StageOrders::CALM];
        let before = first.iter().chain(&self.orders);
        let pairs = before.zip(&self.orders).enumerate();
        pairs
            .filter(|(_, (before, now))| before != now)
            .map(|(sample, _)| sample)
            .collect()
    }
}

#[test]
fn orders_are_one_word_and_zero_is_without_a_controller() {
    assert_eq!(StageOrders::FORCED.word(), 0);
    for loaded in [0, 1, 0x8000, u16::MAX] {
        for (gro_on_nic, onward) in [(false, false), (false, true), (true, false), (true, true)] {
            let orders = StageOrders {
                loaded,
                gro_on_nic,
                onward,
            };
            assert_eq!(StageOrders::of_word(orders.word()), orders);
        }
    }
}

#[test]
fn calm_cpus_change_nothing() {
    let mut machine = Machine::new(4);
    assert_eq!(
        machine.run(LONG, &[849, 600, 0, 500, 849]),
        StageOrders::CALM
    );
}

#[test]
fn a_loaded_cpu_is_no_first_choice_until_it_is_calm_for_long() {
    let mut machine = Machine::new(4);
    machine.run(4, &[400; 5]);
    let after = machine.until(&[400, 400, 1_000, 400, 400], |orders| {
        orders.loaded == 0b100
    });
    // A load is the mean of two samples.
    assert!((3..=4).contains(&after), "{after}");
    // Neither about the threshold nor a little below does it come back.
    let loads = [400, 400, CALM + 1, 400, 400];
    assert_eq!(machine.run(LONG, &loads).loaded, 0b100);
    let after = machine.until(&[400, 400, CALM, 400, 400], |orders| orders.loaded == 0);
    assert!((8..=9).contains(&after), "{after}");
}

#[test]
fn one_sample_makes_no_cpu_loaded() {
    let mut machine = Machine::new(2);
    machine.run(4, &[400; 3]);
    assert_eq!(machine.sample(&[1_000, 400, 1_000]), StageOrders::CALM);
    assert_eq!(machine.run(LONG, &[400; 3]), StageOrders::CALM);
}

#[test]
fn each_return_to_a_cpu_takes_twice_as_long() {
    let mut machine = Machine::new(4);
    machine.run(4, &[400; 5]);
    let mut waits = Vec::new();
    for _ in 0..4 {
        machine.until(&[1_000, 400, 400, 400, 400], |orders| orders.loaded == 1);
        waits.push(machine.until(&[100, 400, 400, 400, 400], |orders| orders.loaded == 0));
    }
    assert_eq!(waits, [1, 2, 4, 8].map(|times| times * SECOND));
}

#[test]
fn gro_leaves_a_loaded_core_of_the_nic_and_comes_back() {
    let mut machine = Machine::new(4);
    machine.run(4, &[400; 5]);
    let nic = |load| [400, 400, 400, 400, load];
    let after = machine.until(&nic(1_000), |orders| !orders.gro_on_nic);
    assert!((3..=4).contains(&after), "{after}");
    assert_eq!(machine.run(LONG, &nic(CALM + 1)).loaded, 0);
    assert!(!machine.run(1, &nic(CALM + 1)).gro_on_nic);
    machine.until(&nic(CALM), |orders| orders.gro_on_nic);
}

#[test]
fn stages_end_while_all_cpus_are_loaded_and_begin_again() {
    let mut machine = Machine::new(3);
    machine.run(4, &[400; 4]);
    // Two of three do not make a mean; they are no first choice.
    let busy = machine.run(LONG, &[1_000, 1_000, 400, 400]);
    assert_eq!((busy.loaded, busy.onward), (0b011, true));
    let ended = machine.run(LONG, &[1_000, 1_000, 600, 1_000]);
    // The rest stays as it is: nobody sees it.
    assert_eq!(
        ended,
        StageOrders {
            onward: false,
            ..busy
        }
    );
    // Again with less than 80 % of the threshold, and then with what loads say.
    assert!(!machine.run(LONG, &[900, 690, 460, 900]).onward);
    let again = machine.run(8 * LONG, &[400, 900, 400, 400]);
    assert_eq!((again.loaded, again.onward), (0b010, true));
}

#[test]
fn changes_are_a_second_apart_and_more_where_they_undo_each_other() {
    let mut machine = Machine::new(6);
    machine.run(4, &[300; 7]);
    // One CPU after the other gets loaded, each a little later.
    let mut loads = [300; 7];
    for cpu in 0..3 {
        loads[cpu] = 1_000;
        machine.run(5, &loads);
    }
    machine.run(LONG, &loads);
    let changes = machine.changes();
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!(changes[1] - changes[0], SECOND, "{changes:?}");

    let mut machine = Machine::new(6);
    machine.run(4, &[300; 7]);
    // A CPU comes and goes all the time.
    for _ in 0..400 {
        machine.run(12, &[1_000, 300, 300, 300, 300, 300, 300]);
        machine.run(12, &[100; 7]);
    }
    let changes = machine.changes();
    let gaps: Vec<usize> = changes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap >= SECOND), "{gaps:?}");
    // Without the backoff there would be one a second.
    assert!(changes.len() < 100, "{} changes", changes.len());
}

#[test]
fn any_threshold_has_a_limit_below_it() {
    for threshold in [10, 100, 300, 1_000] {
        let mut machine = Machine::new(4);
        let hot = [threshold, 0, 0, 0, 0];
        for _ in 0..LONG {
            machine.sample_at(threshold, &hot);
        }
        assert_eq!(machine.orders.last().expect("a sample").loaded, 1);
        for _ in 0..LONG {
            machine.sample_at(threshold, &[0; 5]);
        }
        assert_eq!(machine.orders.last().expect("a sample").loaded, 0);
    }
}

#[test]
fn the_sampler_shows_the_plan_the_stages_cpus_and_the_nics() {
    let mut sampler = Sampler::new();
    sampler.restart([4, 7].into_iter(), 0);
    // One NIC's core is a stage's, too.
    let mut loads = [(4, 100), (7, 100), (1, 1_000)];
    let mut busy_us = [0u64; 3];
    let mut samples = |sampler: &mut Sampler, from: u64, loads: &[(u32, u64); 3]| {
        let mut orders = StageOrders::FORCED;
        for sample in from..from + 40 {
            for (busy_us, (_, load)) in busy_us.iter_mut().zip(loads) {
                *busy_us += PERIOD_US * load / 1_000;
            }
            let now_us = sample * PERIOD_US;
            orders = sampler.sample_stages(85, now_us, [7, 1].into_iter(), |cpu| {
                let place = loads.iter().position(|(of, _)| *of == cpu);
                let busy_us = busy_us[place.expect("another CPU is looked at")];
                CpuClocks {
                    at_us: now_us,
                    idle_us: Some(now_us - busy_us),
                    ..CpuClocks::default()
                }
            });
        }
        orders
    };
    let orders = samples(&mut sampler, 1, &loads);
    assert_eq!((orders.loaded, orders.gro_on_nic), (0, false));
    loads[1].1 = 1_000;
    loads[2].1 = 0;
    let orders = samples(&mut sampler, 41, &loads);
    assert_eq!((orders.loaded, orders.gro_on_nic), (0b10, false));
    // Of other CPUs nothing is known.
    sampler.restart([4, 7].into_iter(), 81 * PERIOD_US);
    let calm = [(4, 100), (7, 100), (1, 0)];
    assert_eq!(samples(&mut sampler, 81, &calm), StageOrders::CALM);
}

/// Checks a plan's orders against all that was sampled.
fn check(machine: &Machine, history: &[Vec<u32>]) -> Result<(), TestCaseError> {
    // As the plan sees them: means of two samples, and nothing in the first one.
    let seen = |sample: usize, cpu: usize| match sample {
        0 => 0,
        1 => history[1][cpu],
        _ => (history[sample][cpu] + history[sample - 1][cpu]) / 2,
    };
    let lanes = machine.nr_lanes;
    let ever = |sample: usize, cpu: usize, test: &dyn Fn(u32) -> bool| {
        (0..=sample).any(|at| test(seen(at, cpu)))
    };
    let mean = |sample: usize| {
        let sum: u32 = (0..lanes).map(|cpu| seen(sample, cpu)).sum();
        sum / lanes as u32
    };
    let mut before = StageOrders::CALM;
    let mut changed = None;
    for (sample, now) in machine.orders.iter().enumerate() {
        if *now == before {
            continue;
        }
        if let Some(changed) = changed.replace(sample) {
            prop_assert!(sample - changed >= SECOND, "{sample} after {changed}");
        }
        for cpu in 0..lanes {
            let (was, is) = (before.loaded >> cpu & 1, now.loaded >> cpu & 1);
            if (was, is) == (0, 1) {
                prop_assert!(ever(sample, cpu, &|load| load >= THRESHOLD));
            }
            if (was, is) == (1, 0) {
                // Since it was last loaded there were eight calm samples in a row.
                let calm = (0..=sample).rev().scan(0, |row, at| {
                    *row = if seen(at, cpu) <= CALM { *row + 1 } else { 0 };
                    Some(*row)
                });
                prop_assert!(calm.max().unwrap_or(0) >= 8);
            }
        }
        if before.gro_on_nic && !now.gro_on_nic {
            prop_assert!(ever(sample, lanes, &|load| load >= THRESHOLD));
        }
        if before.onward && !now.onward {
            prop_assert!((0..=sample).any(|at| mean(at) >= THRESHOLD));
            prop_assert_eq!(now.loaded, before.loaded);
        }
        prop_assert!(now.loaded < 1 << lanes);
        before = *now;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(256))]

    /// Each change has a reason, and comes no sooner than a second after the one before; once loads stay the same, orders
    /// follow them, and then stay.
    #[test]
    fn orders_follow_loads(
        nr_lanes in 1..6usize,
        phases in prop::collection::vec((1..40usize, prop::collection::vec(0..=1_000u32, 6)), 1..12),
        last in prop::collection::vec(prop_oneof![0..=CALM * 8 / 10, THRESHOLD..=1_000], 6),
    ) {
        let mut machine = Machine::new(nr_lanes);
        let mut history = Vec::new();
        let phases = phases.into_iter().chain([(4_000, last.clone())]);
        for (samples, loads) in phases {
            let loads = &loads[..=nr_lanes];
            for _ in 0..samples {
                machine.sample(loads);
                history.push(loads.to_vec());
            }
        }
        check(&machine, &history)?;
        let orders = *machine.orders.last().expect("a sample");
        let mean = last[..nr_lanes].iter().sum::<u32>() / nr_lanes as u32;
        let is_settled = mean >= THRESHOLD || mean <= THRESHOLD * 8 / 10;
        if is_settled {
            prop_assert_eq!(orders.onward, mean < THRESHOLD);
        }
        if orders.onward {
            for (cpu, load) in last[..nr_lanes].iter().enumerate() {
                prop_assert_eq!(orders.loaded >> cpu & 1 == 1, *load >= THRESHOLD);
            }
            prop_assert_eq!(orders.gro_on_nic, last[nr_lanes] < THRESHOLD);
        }
    }
}
