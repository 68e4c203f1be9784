// SPDX-License-Identifier: GPL-2.0

//! No sequence of events breaks a property.

use std::env;
use std::io::{self, Write as _};

use mflow_explorer::{explore, Bounds, Happened, Incident, Report, Scenario};

/// One flow, and all that can happen to it.
const PLAIN: Scenario = Scenario::PLAIN;

const INNER_FLOWS: Scenario = Scenario {
    name: "inner flows",
    inner_flows: 2,
    ..PLAIN
};

const TWO_QUEUES: Scenario = Scenario {
    name: "two queues",
    sources: 2,
    ..PLAIN
};

const REQUESTS: Scenario = Scenario {
    name: "requests",
    driver_asks: true,
    ..PLAIN
};

const OWN_LANE: Scenario = Scenario {
    name: "own lane",
    has_own_lane: true,
    ..PLAIN
};

/// Each call of the merge delivers a single packet.
const SMALL_BUDGET: Scenario = Scenario {
    name: "small budget",
    merge_budget_pkts: 1,
    ..PLAIN
};

/// A packet of a module that was there before is under way, a little ahead.
const STRAGGLER_AHEAD: Scenario = Scenario {
    name: "straggler ahead",
    straggler: Some(40),
    ..PLAIN
};

/// The same, as far ahead as a tag can be.
const STRAGGLER_FAR_AHEAD: Scenario = Scenario {
    name: "straggler far ahead",
    straggler: Some((1 << 22) - 1),
    ..PLAIN
};

const ALL: [Scenario; 8] = [
    PLAIN,
    INNER_FLOWS,
    TWO_QUEUES,
    REQUESTS,
    OWN_LANE,
    SMALL_BUDGET,
    STRAGGLER_AHEAD,
    STRAGGLER_FAR_AHEAD,
];

/// The states of a search that ends by itself are fewer.
const MOST_STATES: usize = 1_000_000;

fn explore_right(scenario: Scenario, pkts: u8, incidents: u8, most_states: usize) -> Report {
    let bounds = Bounds {
        pkts,
        incidents,
        kinds: Incident::ALL,
        most_states,
    };
    let report = match explore(scenario, bounds) {
        Ok(report) => report,
        Err(sequence) => panic!("{sequence}"),
    };
    println!("{report}");
    report
}

/// Returns whether all has happened that these reports are to show: nothing passes because nothing happened.
fn happened(reports: &[Report]) -> Happened {
    let mut all = Happened::default();
    for report in reports {
        all |= report.happened;
    }
    all
}

#[test]
fn each_single_incident_is_survived() {
    let reports = [
        explore_right(PLAIN, 8, 1, MOST_STATES),
        explore_right(INNER_FLOWS, 5, 1, MOST_STATES),
        explore_right(TWO_QUEUES, 4, 1, MOST_STATES),
        explore_right(REQUESTS, 8, 1, MOST_STATES),
        explore_right(OWN_LANE, 7, 1, MOST_STATES),
        explore_right(SMALL_BUDGET, 7, 1, MOST_STATES),
        explore_right(STRAGGLER_AHEAD, 7, 1, MOST_STATES),
        explore_right(STRAGGLER_FAR_AHEAD, 7, 1, MOST_STATES),
    ];
    assert!(reports.iter().all(|report| report.is_complete));
    assert_eq!(happened(&reports), Happened::ALL);
}

/// Explores with other bounds: `MFLOW_EXPLORE=9,1,plain` has 9 packets of each source and one incident, in a scenario.
#[test]
#[ignore = "takes many minutes"]
fn pairs_of_incidents_are_survived() {
    let wanted = env::var("MFLOW_EXPLORE").unwrap_or_else(|_| "10,2,".to_owned());
    let mut wanted = wanted.splitn(3, ',');
    let mut number = || wanted.next().unwrap().parse().unwrap();
    let (pkts, incidents) = (number(), number());
    let name = wanted.next().unwrap_or_default();
    for scenario in ALL.iter().filter(|one| one.name.contains(name)) {
        let report = explore_right(*scenario, pkts, incidents, usize::MAX);
        writeln!(io::stderr(), "{report} {:?}", report.happened).unwrap();
    }
}
