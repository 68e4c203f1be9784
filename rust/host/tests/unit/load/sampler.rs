// SPDX-License-Identifier: GPL-2.0

//! The CPU times that the controller is given, and the CPUs that they are of.

use mflow_algo::algo::limits::{MAX_LANES, MAX_NICS, MAX_SLOTS};
use mflow_algo::algo::load::core_load::CpuTimes;
use mflow_algo::algo::load::flow_orders::Orders;
use mflow_algo::algo::load::sampler::{CpuClocks, Sampler, SplitFlow, SAMPLE_PERIOD_MS};

const PERIOD_US: u64 = SAMPLE_PERIOD_MS as u64 * 1_000;
const KNOBS: (u32, u32) = (85, 256);

fn flow(slot: usize, sample: u64, cpu: u32, orders: &Orders) -> SplitFlow {
    SplitFlow {
        slot,
        generation: orders.generation(slot),
        arrived_pkts: sample as u32 * 1_000,
        gro_joins: false,
        cpu,
    }
}

/// Returns the clocks of a CPU that has been in softirqs and in tasks for these thousandths of its time.
fn clocks(now_us: u64, softirq: u64, task: u64) -> CpuClocks {
    CpuClocks {
        at_us: now_us,
        idle_us: Some(now_us * (1_000 - softirq - task) / 1_000),
        // Ticks have met none.
        softirq_us: 0,
        task_us: now_us * task / 1_000,
        ..CpuClocks::default()
    }
}

fn since_boot(clocks: CpuClocks) -> [u64; 4] {
    let mut times = CpuTimes::default();
    let boot = CpuClocks {
        idle_us: Some(0),
        ..CpuClocks::default()
    };
    clocks.add_since(&boot, &mut times);
    assert_eq!(times.lanes_us, times.softirq_us);
    [
        times.softirq_us,
        times.interrupt_us,
        times.guest_us,
        times.task_us,
    ]
}

#[test]
fn softirqs_are_what_is_neither_idle_nor_known() {
    let known = CpuClocks {
        at_us: 1_000,
        idle_us: Some(300),
        softirq_us: 40,
        interrupt_us: 50,
        guest_us: 60,
        task_us: 70,
    };
    assert_eq!(since_boot(known), [1_000 - 300 - 50 - 60 - 70, 50, 60, 70]);
    let without_idle = CpuClocks {
        idle_us: None,
        ..known
    };
    assert_eq!(since_boot(without_idle), [40, 50, 60, 70]);
    // Clocks that do not agree.
    let ahead = CpuClocks {
        idle_us: Some(2_000),
        ..known
    };
    assert_eq!(since_boot(ahead)[0], 0);
}

#[test]
fn where_no_time_is_idle_all_kinds_of_work_share_what_ticks_have_missed() {
    let full = CpuClocks {
        at_us: 1_000,
        idle_us: Some(0),
        softirq_us: 100,
        task_us: 300,
        ..CpuClocks::default()
    };
    assert_eq!(since_boot(full), [250, 0, 0, 750]);
    let unseen = CpuClocks {
        softirq_us: 0,
        task_us: 0,
        ..full
    };
    assert_eq!(since_boot(unseen), [1_000, 0, 0, 0]);
}

#[test]
fn a_lane_whose_core_a_task_has_is_left_within_two_samples() {
    let orders = Orders::new();
    let mut sampler = Sampler::new();
    sampler.restart([2, 3].into_iter(), 0);
    let mut task_us = 0;
    let mut lanes_at = |sample: u64, has_task: bool| {
        let now_us = sample * PERIOD_US;
        task_us += if has_task { PERIOD_US * 7 / 10 } else { 0 };
        let flows = [flow(0, sample, 1, &orders)];
        sampler.sample(
            KNOBS,
            now_us,
            flows.into_iter(),
            |cpu| {
                // Both lanes are needed.
                let calm = clocks(now_us, 600, 0);
                if cpu == 2 {
                    CpuClocks {
                        idle_us: Some((now_us * 4 / 10).saturating_sub(task_us)),
                        task_us,
                        ..calm
                    }
                } else {
                    calm
                }
            },
            &orders,
        );
        orders.order(0).lanes & 0b11
    };
    for sample in 1..=8 {
        assert_eq!(lanes_at(sample, false), 0b11, "sample {sample}");
    }
    let left = (9..=10).find(|sample| lanes_at(*sample, true) == 0b10);
    assert!(left.is_some(), "the lane is not left");
}

#[test]
fn dispatching_cpus_keep_their_places_and_more_than_there_is_room_for_do_no_harm() {
    let orders = Orders::new();
    let mut sampler = Sampler::new();
    sampler.restart(0..MAX_LANES as u32, 0);
    for sample in 1..=8u64 {
        let now_us = sample * PERIOD_US;
        // Other CPUs each time, and more of them than there are places.
        let flows = (0..MAX_SLOTS).map(|slot| {
            let cpu = 100 * sample as u32 + slot as u32;
            flow(slot, sample, cpu, &orders)
        });
        let mut asked = Vec::new();
        sampler.sample(
            KNOBS,
            now_us,
            flows,
            |cpu| {
                asked.push(cpu);
                clocks(now_us, 500, 0)
            },
            &orders,
        );
        let lanes: Vec<u32> = (0..MAX_LANES as u32).collect();
        assert_eq!(asked[..MAX_LANES], lanes);
        let expected: Vec<u32> = (0..MAX_NICS as u32)
            .map(|slot| 100 * sample as u32 + slot)
            .collect();
        assert_eq!(asked[MAX_LANES..], expected);
    }
    // Fewer lanes: the places of the others are forgotten.
    sampler.restart([1].into_iter(), 9 * PERIOD_US);
    let mut asked = Vec::new();
    sampler.sample(
        KNOBS,
        10 * PERIOD_US,
        [flow(5, 10, 1, &orders), flow(6, 10, 7, &orders)].into_iter(),
        |cpu| {
            asked.push(cpu);
            clocks(10 * PERIOD_US, 500, 0)
        },
        &orders,
    );
    assert_eq!(asked, [1, 7]);
}
