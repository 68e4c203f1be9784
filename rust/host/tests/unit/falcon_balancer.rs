// SPDX-License-Identifier: GPL-2.0

//! FALCON's balancer: two choices, and when none is made.

use mflow_algo::falcon::balancer::{choose, choose_static, LoadThreshold};
use proptest::prelude::*;

const NR_CPUS: usize = 6;
const USUAL: LoadThreshold = LoadThreshold { pct: 85 };

#[test]
fn the_first_choice_is_the_hash_of_flow_and_device() {
    for flow in 0..1_000 {
        for device in 1..5 {
            let choice = choose(flow, device, &[100; NR_CPUS], USUAL);
            assert_eq!(choice, choose_static(flow, device, NR_CPUS));
            assert!(choice.is_some_and(|cpu| cpu < NR_CPUS));
        }
    }
}

/// Neither devices of one flow nor flows of one device meet on few cores.
#[test]
fn choices_are_spread() {
    let mut by_flow = [0; NR_CPUS];
    let mut by_device = [0; NR_CPUS];
    for n in 0..6_000u32 {
        by_flow[choose_static(n.wrapping_mul(0x0100_0193), 3, NR_CPUS).unwrap()] += 1;
        by_device[choose_static(0xdead_beef, n, NR_CPUS).unwrap()] += 1;
    }
    for count in by_flow.into_iter().chain(by_device) {
        assert!((800..1_200).contains(&count), "{by_flow:?} {by_device:?}");
    }
}

#[test]
fn a_loaded_first_choice_leads_to_the_second_which_is_final() {
    for flow in 0..200 {
        let first = choose_static(flow, 1, NR_CPUS).unwrap();
        let mut busy = [100; NR_CPUS];
        busy[first] = 849;
        assert_eq!(choose(flow, 1, &busy, USUAL), Some(first));
        busy[first] = 850;
        let second = choose(flow, 1, &busy, USUAL).unwrap();
        // However loaded that one is.
        busy[second] = 1_000;
        assert_eq!(choose(flow, 1, &busy, USUAL), Some(second));
    }
    let moved = (0..200).filter(|flow| {
        let first = choose_static(*flow, 1, NR_CPUS).unwrap();
        let mut busy = [100; NR_CPUS];
        busy[first] = 900;
        choose(*flow, 1, &busy, USUAL) != Some(first)
    });
    assert!(
        moved.count() > 140,
        "one in six second choices is the first again"
    );
}

#[test]
fn while_cores_are_loaded_on_average_no_choice_is_made() {
    for (average, chosen) in [(849, true), (850, false), (1_000, false)] {
        let choice = choose(7, 1, &[average; NR_CPUS], USUAL);
        assert_eq!(choice.is_some(), chosen);
    }
    // One loaded core does not make an average.
    assert!(choose(7, 1, &[1_000, 1_000, 1_000, 0, 0, 0], USUAL).is_some());
    let always = LoadThreshold { pct: 101 };
    assert!(choose(7, 1, &[1_000; NR_CPUS], always).is_some());
    assert_eq!(choose(7, 1, &[], USUAL), None);
    assert_eq!(choose_static(7, 1, 0), None);
}

proptest! {
    #[test]
    fn a_choice_is_a_cpu(flow in any::<u32>(), device in any::<u32>(), nr in 1..17usize, load in 0..1_000u32) {
        let choice = choose(flow, device, &vec![load; nr], USUAL);
        prop_assert_eq!(choice.is_none(), load >= 850);
        prop_assert!(choice.is_none_or(|cpu| cpu < nr));
    }
}
