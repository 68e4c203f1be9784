// SPDX-License-Identifier: GPL-2.0

//! Tests of properties that any pipeline must have.

use super::arrivals::Load;
use super::calendar::PS_PER_S;
use super::pipeline::simulate;
use super::scene::{Count, Limit, Outcome, Place, Scene, Stall, WhenFull};
use crate::sim::costs::fixture::scene;

/// Costs in picoseconds: NIC, lane, application.
const COSTS: (f64, f64, f64) = (500_000.0, 2_000_000.0, 450_000.0);

fn lanes(load: Load, lanes: usize) -> Scene {
    scene(load, COSTS.0, COSTS.1, lanes, COSTS.2)
}

/// Runs a stream that ends, so that nothing is under way any more.
fn drained(mut scene: Scene, stream_pkts: u64) -> Outcome {
    scene.stream_pkts = stream_pkts;
    scene.warm_up_pkts = 0;
    scene.count_pkts = u64::MAX;
    let outcome = simulate(&scene);
    assert_eq!((outcome.arrived, outcome.inside), (stream_pkts, 0));
    outcome
}

fn conserved(outcome: &Outcome) {
    let ended = outcome.all.get(Count::Delivered) + outcome.all.lost() + outcome.inside;
    assert_eq!(outcome.arrived, ended, "{outcome:?}");
}

fn near(outcome: &Outcome, expected_ps: f64, tolerance: f64) {
    let found_ps = PS_PER_S / outcome.pkts_per_s();
    let off = (found_ps / expected_ps - 1.0).abs();
    assert!(off < tolerance, "{found_ps} instead of {expected_ps}");
}

#[test]
fn every_packet_is_delivered_once_or_lost_for_a_reason() {
    let fast = Load::BackToBack { packet_ps: 100_000 };
    for when_full in [WhenFull::Inline, WhenFull::Lose] {
        for count in [0, 1, 3, 8] {
            let mut scene = lanes(fast.clone(), count);
            scene.knobs.when_full = when_full;
            conserved(&drained(scene.clone(), 50_000));
            // In the middle, too.
            conserved(&simulate(&scene));
        }
    }
    let mut hops = lanes(fast, 0);
    hops.streams[0].hops = vec![Place {
        core: 0,
        packet_ps: 900_000.0,
    }];
    let outcome = drained(hops, 50_000);
    conserved(&outcome);
    assert!(outcome.all.lost() > 0);
    let mut reader = lanes(Load::BackToBack { packet_ps: 700_000 }, 4);
    reader.streams[0].app.packet_ps = 900_000.0;
    let outcome = drained(reader, 50_000);
    conserved(&outcome);
    assert!(outcome.all.get(Count::SocketFull) > 0);
    let slow = Load::BackToBack {
        packet_ps: 3_000_000,
    };
    let outcome = drained(lanes(slow, 2), 50_000);
    assert_eq!(outcome.all.get(Count::Delivered), 50_000);
}

#[test]
fn the_merge_keeps_the_order() {
    for batch_pkts in [1, 3, 64, 256] {
        for when_full in [WhenFull::Inline, WhenFull::Lose] {
            let mut scene = lanes(Load::BackToBack { packet_ps: 300_000 }, 4);
            scene.knobs.batch_pkts = batch_pkts;
            scene.knobs.when_full = when_full;
            scene.knobs.cost_spread = 0.9;
            let outcome = drained(scene, 40_000);
            assert!(
                outcome.all.get(Count::EarlyRuns) > 0,
                "no disorder to put right"
            );
            assert_eq!(outcome.all.get(Count::Reordered), 0);
            assert_eq!(outcome.all.get(Count::LatePkts), 0);
        }
    }
}

#[test]
fn the_slowest_stage_sets_the_throughput() {
    let cases = [
        (
            (700_000.0, 1_000_000.0, 4, 300_000.0),
            700_000.0,
            Limit::Nic,
        ),
        (
            (300_000.0, 2_000_000.0, 2, 400_000.0),
            1_000_000.0,
            Limit::Lanes,
        ),
        (
            (300_000.0, 1_000_000.0, 4, 800_000.0),
            800_000.0,
            Limit::Copy,
        ),
        ((900_000.0, 0.0, 0, 100_000.0), 900_000.0, Limit::Nic),
    ];
    for ((nic, lane, count, app), slowest_ps, limit) in cases {
        let scene = scene(Load::Endless, nic, lane, count, app);
        let outcome = simulate(&scene);
        near(&outcome, slowest_ps, 0.02);
        assert_eq!(outcome.limit(&scene), limit);
    }
}

#[test]
fn one_core_does_everything() {
    let mut scene = lanes(Load::Endless, 0);
    scene.cores = 1;
    scene.streams[0].app.core = 0;
    let outcome = simulate(&scene);
    near(&outcome, COSTS.0 + COSTS.2, 0.02);
    assert_eq!(outcome.limit(&scene), Limit::Core);
}

#[test]
fn a_slow_link_is_the_limit() {
    let scene = lanes(
        Load::BackToBack {
            packet_ps: 1_000_000,
        },
        4,
    );
    let outcome = simulate(&scene);
    near(&outcome, 1_000_000.0, 0.02);
    assert_eq!(outcome.limit(&scene), Limit::Link);
}

#[test]
fn the_nic_core_helps_lanes_that_are_full() {
    let mut scene = lanes(Load::Endless, 2);
    scene.knobs.when_full = WhenFull::Inline;
    // n + f l = (1 - f) l / 2, solved for the time per packet.
    near(&simulate(&scene), (COSTS.0 + COSTS.1) / 3.0, 0.02);
}

#[test]
fn more_lanes_are_never_slower() {
    for when_full in [WhenFull::Inline, WhenFull::Lose] {
        let mut last = 0.0;
        for count in 1..=16 {
            let mut scene = lanes(Load::Endless, count);
            scene.knobs.when_full = when_full;
            let rate = simulate(&scene).pkts_per_s();
            // Half a per cent is where the counting begins and ends.
            assert!(rate > last * 0.995, "{count} lanes: {rate} after {last}");
            last = rate;
        }
    }
}

#[test]
fn the_deadline_gives_a_stalled_lane_up() {
    let slow = Load::BackToBack {
        packet_ps: 2_000_000,
    };
    let mut scene = lanes(slow, 2);
    let calm = drained(scene.clone(), 20_000);
    assert_eq!(calm.all.get(Count::DeadlineBatches), 0);

    scene.stall = Some(Stall {
        core: 2,
        from_ps: 5_000_000_000,
        to_ps: 6_000_000_000,
    });
    let stalled = drained(scene.clone(), 20_000);
    assert!(stalled.all.get(Count::DeadlineBatches) > 0);
    assert!(stalled.all.get(Count::LatePkts) > 0);
    // Late, but delivered.
    assert_eq!(stalled.all.get(Count::Delivered), 20_000);
    conserved(&stalled);

    scene.knobs.merge_timeout_us = 10_000;
    let patient = drained(scene, 20_000);
    assert_eq!(patient.all.get(Count::DeadlineBatches), 0);
    assert_eq!(patient.all.get(Count::Reordered), 0);
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let load = Load::Messages {
        packets: 3,
        packet_ps: 10_000,
        gap_ps: 4_000_000.0,
        random: true,
    };
    let scene = lanes(load, 3);
    assert_eq!(simulate(&scene), simulate(&scene));
    let mut other = scene.clone();
    other.knobs.seed = 2;
    assert_ne!(simulate(&scene), simulate(&other));
}

#[test]
fn an_interrupt_and_a_wake_up_take_their_time() {
    let rare = Load::BackToBack {
        packet_ps: 50_000_000,
    };
    let mut scene = lanes(rare, 2);
    scene.knobs.cost_spread = 0.0;
    let fast = simulate(&scene).latency_us(0.5);
    assert!((fast - (COSTS.0 + COSTS.1 + COSTS.2) / 1e6).abs() < 1e-9);
    scene.knobs.ipi_ps = 3_000_000;
    scene.knobs.wake_up_ps = 4_000_000;
    let slow = simulate(&scene).latency_us(0.5);
    assert!((slow - fast - 7.0).abs() < 1e-9, "{slow} after {fast}");
}

#[test]
fn a_window_keeps_everything_busy_and_loses_nothing() {
    let load = Load::Window {
        packets: 1_000,
        packet_ps: 10_000,
    };
    let scene = scene(load, 300_000.0, 1_000_000.0, 2, 400_000.0);
    let outcome = simulate(&scene);
    near(&outcome, 500_000.0, 0.05);
    assert_eq!(outcome.all.lost(), 0);
    conserved(&outcome);
}
