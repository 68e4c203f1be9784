// SPDX-License-Identifier: GPL-2.0

//! Each property can be seen to be broken: faults are planted one after the other, and found by the property that each breaks.

use mflow_explorer::{find, Bounds, Broken, Incident, Scenario, FAULTS};

const PLAIN: Scenario = Scenario::PLAIN;

/// Finds a planted fault by the property that it breaks. Returns the sequence, to be read.
fn find_planted(
    fault: &str,
    broken: Broken,
    scenario: Scenario,
    pkts: u8,
    kinds: &'static [Incident],
) -> String {
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
        Err(sequence) => sequence.to_string(),
    }
}

macro_rules! faults {
    ($($name:ident: $broken:ident, $scenario:expr, $pkts:literal packets, [$($kind:ident)*];)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                let kinds = &[$(Incident::$kind),*];
                let sequence = find_planted(stringify!($name), Broken::$broken, $scenario, $pkts, kinds);
                println!("{sequence}");
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

/// An old tag is taken for that of a batch to come: the first fault that the search was made for.
#[test]
fn a_sequence_can_be_read() {
    let scenario = Scenario {
        straggler: Some(40),
        ..PLAIN
    };
    let sequence = find_planted("future", Broken::Endless, scenario, 5, &[]);
    assert_eq!(
        sequence,
        "\
Endless in scenario plain:
  1. queue 0 receives a packet of inner flow 0
       packet 1 takes the ordinary path as a probe
  2. the ordinary path of queue 0, inner flow 0, carries a packet
       packet 1 of queue 0 is delivered, not split
  3. queue 0 receives a packet of inner flow 0
       packet 2 takes the ordinary path as a fence
  4. the ordinary path of queue 0, inner flow 0, carries a packet
       1 packets of batch 0 are parked
       packet 2 of queue 0 is delivered
       batch 0, a fence, is complete
  5. packet 0 of those kept back arrives
       1 packets of batch 40 are parked
  -  nothing happens any more but what must
       batch 1 is given up
       batch 2 is given up
       batch 3 is given up
       packet 0 of queue 0 is delivered, late
"
    );
}
