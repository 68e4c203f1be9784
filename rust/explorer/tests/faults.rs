// SPDX-License-Identifier: GPL-2.0

//! Each property can be seen to be broken: faults are planted one after the other, and found by the property that each breaks.

use mflow_explorer::{find, Bounds, Broken, Incident, Scenario, FAULTS};

const PLAIN: Scenario = Scenario::PLAIN;

/// Finds a planted fault by the property that it breaks.
fn assert_found(
    fault: &str,
    broken: Broken,
    scenario: Scenario,
    pkts: u8,
    kinds: &'static [Incident],
) {
    let bounds = Bounds {
        pkts,
        // CAST: a small number.
        incidents: kinds.len() as u8,
        kinds,
        most_states: 300_000,
        most_bytes: 1 << 28,
    };
    match find(fault, broken, scenario, bounds) {
        Ok(report) => panic!("{fault} is not found: {report}"),
        Err(sequence) => println!("{fault}: {sequence}"),
    }
}

macro_rules! faults {
    ($($name:ident: $broken:ident, $scenario:expr, $pkts:literal packets, [$($kind:ident)*];)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                assert_found(stringify!($name), Broken::$broken, $scenario, $pkts, &[$(Incident::$kind),*]);
            }
        )*
    };
}

faults! {
    future: Endless, Scenario { straggler: Some(40), ..PLAIN }, 5 packets, [];
    rest: Lost, Scenario { merge_budget_pkts: 1, ..PLAIN }, 6 packets, [];
    taken: Twice, PLAIN, 4 packets, [];
    turn: Order, PLAIN, 6 packets, [];
    fence: Order, PLAIN, 4 packets, [];
    drained: Order, PLAIN, 6 packets, [Stop];
    inner: Order, Scenario { inner_flows: 2, ..PLAIN }, 5 packets, [];
    queued: Order, PLAIN, 6 packets, [Copy];
    numbers: Order, PLAIN, 9 packets, [Hold Reload];
    late: Stuck, Scenario { straggler: Some(40), ..PLAIN }, 1 packets, [];
    timer: Stuck, PLAIN, 6 packets, [Wait];
    silent: Stuck, PLAIN, 4 packets, [Drop];
    share: Memory, PLAIN, 12 packets, [];
    slot: Leak, PLAIN, 3 packets, [];
    completed: Order, PLAIN, 4 packets, [Standstill];
    token: Stuck, PLAIN, 5 packets, [Amid];

    passed: Stuck, PLAIN, 5 packets, [Hold Amid];
}

#[test]
fn each_fault_is_planted() {
    let planted: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(planted, TESTED);
}
