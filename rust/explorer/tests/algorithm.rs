// SPDX-License-Identifier: GPL-2.0

//! No sequence of events breaks a property.

use std::env;
use std::io::{self, Write as _};
use std::thread;

use mflow_explorer::{explore, unseen, Bounds, Incident, Report, Scenario};

/// One flow at one queue of the NIC.
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

/// A packet of a module that was there before is under way, with a number a little ahead.
const STRAGGLER_AHEAD: Scenario = Scenario {
    name: "straggler ahead",
    straggler: Some(40),
    ..PLAIN
};

/// The same, as far ahead as a number in a tag can be.
const STRAGGLER_FAR_AHEAD: Scenario = Scenario {
    name: "straggler far ahead",
    straggler: Some((1 << 22) - 1),
    ..PLAIN
};

/// A scenario, packets of each source, incidents, and the kinds of these.
type Row = (Scenario, u8, u8, &'static [Incident]);

const ALL: &[Incident] = Incident::ALL;

/// The bounds of each run.
const EACH_RUN: &[Row] = &[
    (PLAIN, 12, 0, ALL),
    (PLAIN, 6, 1, ALL),
    (INNER_FLOWS, 4, 1, ALL),
    (TWO_QUEUES, 3, 1, ALL),
    (REQUESTS, 6, 1, ALL),
    (OWN_LANE, 6, 1, ALL),
    (SMALL_BUDGET, 5, 1, ALL),
    (STRAGGLER_AHEAD, 6, 1, ALL),
    (STRAGGLER_FAR_AHEAD, 6, 1, ALL),
];

/// The whole bounds: four batches of two packets with the probe and the fence before them; pairs of incidents; and longer sequences with
/// pairs that have to do with each other.
const WHOLE: &[Row] = &[
    (PLAIN, 10, 1, ALL),
    (PLAIN, 7, 2, ALL),
    (PLAIN, 8, 2, &[Incident::Hold, Incident::Stop]),
    (PLAIN, 8, 2, &[Incident::Hold, Incident::Reload]),
    (PLAIN, 8, 2, &[Incident::Drop, Incident::Wait]),
    (PLAIN, 8, 2, &[Incident::Lane, Incident::Wait]),
    (PLAIN, 8, 2, &[Incident::Queue, Incident::Wait]),
    (INNER_FLOWS, 6, 1, ALL),
    (TWO_QUEUES, 4, 1, ALL),
    (REQUESTS, 8, 1, ALL),
    (OWN_LANE, 8, 1, ALL),
    (SMALL_BUDGET, 7, 1, ALL),
    (STRAGGLER_AHEAD, 8, 1, ALL),
    (STRAGGLER_FAR_AHEAD, 8, 1, ALL),
];

/// Explores all that a row has. No state is left out.
fn explore_row((scenario, pkts, incidents, kinds): Row) -> Report {
    let bounds = Bounds {
        pkts,
        incidents,
        kinds,
        most_states: usize::MAX,
    };
    let report = match explore(scenario, bounds) {
        Ok(report) => report,
        Err(sequence) => panic!("{sequence}"),
    };
    // Also where the output of tests that pass is not shown.
    writeln!(io::stderr(), "{report}").unwrap();
    assert!(report.cut_short_by.is_none(), "{report}");
    report
}

#[test]
fn each_incident_is_survived() {
    let reports = thread::scope(|scope| {
        let running: Vec<_> = EACH_RUN
            .iter()
            .map(|row| scope.spawn(|| explore_row(*row)))
            .collect();
        let reports = running.into_iter().map(|one| one.join().unwrap());
        reports.collect::<Vec<_>>()
    });
    // Nothing passes because nothing happened.
    assert!(unseen(&reports).is_empty(), "{:?}", unseen(&reports));
    assert!(reports.iter().any(|report| report.has_split_again));
    // States are known again by what tells how they go on.
    assert!(reports.iter().map(|report| report.compared).sum::<usize>() > 100);
}

/// Prints what it has explored. `MFLOW_EXPLORE=9,1,plain` explores other bounds: 9 packets and one incident, in scenarios with this in
/// their names.
#[test]
#[ignore = "takes half an hour, and some gigabytes"]
fn whole_bounds_are_survived() {
    let rows = match env::var("MFLOW_EXPLORE") {
        Ok(wanted) => rows_of(&wanted),
        Err(_) => WHOLE.to_vec(),
    };
    for row in rows {
        explore_row(row);
    }
}

fn rows_of(wanted: &str) -> Vec<Row> {
    let [pkts, incidents, name] = *wanted.splitn(3, ',').collect::<Vec<_>>() else {
        panic!("MFLOW_EXPLORE is PACKETS,INCIDENTS,SCENARIO");
    };
    let (pkts, incidents) = (pkts.parse().unwrap(), incidents.parse().unwrap());
    let rows = EACH_RUN[1..].iter();
    rows.filter(|(scenario, ..)| scenario.name.contains(name))
        .map(|(scenario, ..)| (*scenario, pkts, incidents, ALL))
        .collect()
}
