// SPDX-License-Identifier: GPL-2.0

//! Each property can be seen to be broken: faults are planted one after the other, and found by the property that each breaks.

use mflow_explorer::{find, Bounds, Broken, Incident, Scenario, FAULTS};

const PLAIN: Scenario = Scenario::PLAIN;

/// Finds a planted fault by the property that it breaks.
fn assert_found(fault: &str, broken: Broken, scenario: Scenario, pkts: u8, incidents: u8) {
    let bounds = Bounds {
        pkts,
        incidents,
        kinds: Incident::ALL,
        most_states: 300_000,
    };
    match find(fault, broken, scenario, bounds) {
        Ok(report) => panic!("{fault} is not found: {report}"),
        Err(sequence) => println!("{fault}: {sequence}"),
    }
}

macro_rules! faults {
    ($($name:ident: $broken:ident, $scenario:expr, $pkts:literal packets, $incidents:literal incidents;)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                assert_found(stringify!($name), Broken::$broken, $scenario, $pkts, $incidents);
            }
        )*
    };
}

faults! {
    future: Endless, Scenario { straggler: Some(40), ..PLAIN }, 5 packets, 0 incidents;
    rest: Lost, Scenario { merge_budget_pkts: 1, ..PLAIN }, 6 packets, 0 incidents;
    taken: Twice, PLAIN, 4 packets, 0 incidents;
    turn: Order, PLAIN, 6 packets, 0 incidents;
    fence: Order, PLAIN, 4 packets, 0 incidents;
    drained: Order, PLAIN, 6 packets, 1 incidents;
    inner: Order, Scenario { inner_flows: 2, ..PLAIN }, 5 packets, 0 incidents;
    queued: Order, PLAIN, 6 packets, 1 incidents;
    numbers: Order, PLAIN, 9 packets, 2 incidents;
    late: Stuck, Scenario { straggler: Some(40), ..PLAIN }, 1 packets, 0 incidents;
    timer: Stuck, PLAIN, 6 packets, 1 incidents;
    silent: Stuck, PLAIN, 4 packets, 1 incidents;
    share: Memory, PLAIN, 12 packets, 0 incidents;
    slot: Leak, PLAIN, 3 packets, 0 incidents;
}

#[test]
fn each_fault_is_planted() {
    let planted: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(planted, TESTED);
}
