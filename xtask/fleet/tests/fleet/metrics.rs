// SPDX-License-Identifier: GPL-2.0

//! Rules, dashboards and instructions name metrics that there are, with labels and values that these have: what `mflow metrics` and
//! `hike metrics` write is made here by their own code, with one of each.

use std::collections::{BTreeMap, BTreeSet};

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::report::reason::Reason;
use mflow_command::metrics::{open_metrics, to_prometheus, Measured, COUNTERS, GAUGES};
use mflow_command::module::text::{FlowList, OfCpus, Stats, Version};
use mflow_fleet::query::{grouping_labels, queries, selectors, Query, BEGINS, EXPORTED};
use mflow_hike::counters::reason;
use mflow_hike::Action;
use mflow_hike_manager::metrics::Counted;
use mflow_hike_manager::v1;

use super::support::{files, path, text};

/// The variable with which the file of all metrics is written.
const WRITE: &str = "WRITE_EXPORTED";
/// Labels that Prometheus adds.
const ADDED: &[&str] = &["instance", "job"];
/// Labels whose values an operator chooses.
const CHOSEN: &[&str] = &["instance", "monitor", "session"];
/// Words that begin like metrics, and are none.
const OTHERS: &[&str] = &[
    // Names of variables of the role.
    "mflow_canary",
    "mflow_knobs",
    "mflow_packages",
];

/// Metrics, and for each the values of its labels.
type Exported = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Returns what `mflow metrics --file` writes of a module that has one of each.
fn mflow() -> String {
    let counters = Counter::ALL.iter().map(|counter| counter.name());
    let others = GAUGES.iter().chain(COUNTERS).map(|(name, _)| *name);
    let of_cpus = [
        "lane_cpu2_pkts",
        "lane_cpu2_ring_bytes",
        "stage_cpu2_loaded",
    ];
    for names in OfCpus::ALL {
        assert!(
            of_cpus.iter().any(|name| names.cpu_in(name) == Some(2)),
            "{names:?}"
        );
    }
    let lines = counters.chain(others).chain(of_cpus);
    let stats: String = lines.map(|name| format!("{name} 1\n")).collect();
    let measured = Measured {
        version: &Version::parse("0.2.0 abi 7 stock\n").expect("a version"),
        kernel: "6.12.48+deb13-amd64",
        enabled: true,
        stats: &Stats::parse(&stats).expect("stats"),
        flows: &FlowList::parse("").expect("no flow"),
    };
    to_prometheus(&open_metrics(Some(&measured)).expect("a text"))
}

/// Returns what `hike metrics` writes of an instance that has one of each.
fn hike() -> String {
    let reasons: Vec<_> = reason::reasons().iter().map(|reason| (reason, 1)).collect();
    let result = |direction: v1::Direction| v1::Result {
        monitor: "one".to_owned(),
        direction: direction.into(),
        ..v1::Result::default()
    };
    let session = v1::SessionResult {
        session: "one".to_owned(),
        two_way: Some(v1::Delay::default()),
        forward: Some(v1::Delay::default()),
        backward: Some(v1::Delay::default()),
        ..v1::SessionResult::default()
    };
    let text = mflow_hike_manager::metrics::text(&Counted {
        revision: 1,
        reasons: &reasons,
        rules: &[(Action::Allow, 1), (Action::Deny, 1)],
        monitors: &[result(v1::Direction::In), result(v1::Direction::Out)],
        sids: &[v1::LocalSid {
            destination: "fc00::1".to_owned(),
            behaviour: "exit".to_owned(),
            ..v1::LocalSid::default()
        }],
        sessions: &[session],
    });
    text.expect("a text")
}

/// Returns the samples of both. Those of a family come in any order, and are sorted here.
fn samples() -> String {
    let text = mflow() + &hike();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let samples: BTreeSet<&str> = samples.collect();
    samples.iter().map(|line| format!("{line}\n")).collect()
}

/// Reads the samples.
fn exported() -> Exported {
    let mut all = Exported::new();
    for line in samples().lines() {
        let (sample, _) = line.rsplit_once(' ').expect("a value");
        let read = selectors(sample, BEGINS);
        let [one] = &read[..] else {
            panic!("{line} has {} names", read.len());
        };
        let labels = all.entry(one.metric.clone()).or_default();
        for (label, values) in &one.matchers {
            labels
                .entry(label.clone())
                .or_default()
                .extend(values.iter().cloned());
        }
    }
    all
}

/// Returns what is wrong with the metrics that a text names.
fn problems(exported: &Exported, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut known: BTreeSet<&str> = ADDED.iter().copied().collect();
    for one in selectors(text, BEGINS) {
        let name = &one.metric;
        let Some(labels) = exported.get(name) else {
            problems.push(format!("there is no metric {name}"));
            continue;
        };
        known.extend(labels.keys().map(String::as_str));
        for (label, values) in &one.matchers {
            let Some(has) = labels.get(label) else {
                if !ADDED.contains(&&**label) {
                    problems.push(format!("{name} has no label {label}"));
                }
                continue;
            };
            let chosen = CHOSEN.contains(&&**label);
            for value in values
                .iter()
                .filter(|value| !chosen && !has.contains(*value))
            {
                problems.push(format!("{name} has no {label} {value}, but {has:?}"));
            }
        }
    }
    for label in grouping_labels(text) {
        if !known.contains(&*label) {
            problems.push(format!("no metric of the query has the label {label}"));
        }
    }
    problems
}

/// Prometheus' checker tries queries with this file.
#[test]
fn the_file_with_all_metrics_is_up_to_date() {
    let samples = samples();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path(EXPORTED), &samples).expect("written");
    }
    assert!(
        text(EXPORTED) == samples,
        "{EXPORTED} is stale; write it: {WRITE}=1 cargo test --package mflow-fleet --test fleet"
    );
}

#[test]
fn queries_of_dashboards_and_instructions_name_what_is_exported() {
    let exported = exported();
    for Query { file, text } in queries(&path("")).expect("queries") {
        let problems = problems(&exported, &text);
        assert!(problems.is_empty(), "{file}: {text}: {problems:?}");
    }
}

#[test]
fn rules_and_their_tests_name_what_is_exported() {
    let exported = exported();
    let rules = files("prometheus", ".yml");
    assert_eq!(rules.len(), 4);
    for file in rules {
        let text = text(&file);
        assert!(selectors(&text, BEGINS).len() >= 5, "{file}");
        let problems = problems(&exported, &text);
        assert!(problems.is_empty(), "{file}: {problems:?}");
    }
}

/// All that texts say of metrics: words in the documents, and the variables of dashboards.
#[test]
fn other_texts_name_what_is_exported() {
    let exported = exported();
    let mut texts = files("", ".md");
    texts.extend(files("grafana", ".json"));
    for file in texts {
        for one in selectors(&text(&file), BEGINS) {
            let name = &*one.metric;
            assert!(
                exported.contains_key(name) || OTHERS.contains(&name),
                "{file}: there is no metric {name}"
            );
        }
    }
}

#[test]
fn each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() {
    for what in ["mflow", "hike"] {
        let rules = text(&format!("prometheus/{what}.rules.yml"));
        let names: Vec<&str> = rules
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- alert: "))
            .collect();
        assert_eq!(names.len(), 3, "{what}");
        let tests = text(&format!("prometheus/{what}.test.yml"));
        let cases: Vec<&str> = tests.split("- eval_time: ").skip(1).collect();
        for name in names {
            let of_it = cases
                .iter()
                .filter(|case| case.contains(&format!("alertname: {name}\n")));
            let (fires, silent): (Vec<&&str>, Vec<&&str>) =
                of_it.partition(|case| case.contains("exp_alerts:"));
            assert!(!fires.is_empty() && !silent.is_empty(), "{name}");
        }
    }
}

/// Reasons that pass, or for which there is nothing to do, raise no alert.
#[test]
fn the_alert_for_whole_flows_has_reasons_that_an_operator_can_do_something_about() {
    let rules = text("prometheus/mflow.rules.yml");
    let found = selectors(&rules, &["mflow_flows_now_whole"]);
    let [one] = &found[..] else {
        panic!("one metric is expected");
    };
    let [(label, reasons)] = &one.matchers[..] else {
        panic!("one matcher is expected");
    };
    assert_eq!(label, "reason");
    for reason in Reason::ALL {
        let advice = reason.comment().join(" ");
        let is_listed = reasons.iter().any(|name| name == reason.name());
        if is_listed {
            let passes = advice.contains("Wait a moment") || advice.contains("Nothing:");
            assert!(!passes, "{}: {advice}", reason.name());
        }
    }
}

#[test]
fn what_is_wrong_is_found() {
    let exported = exported();
    for (text, problem) in [
        ("rate(mflow_lates_total[5m])", "there is no metric"),
        ("mflow_loaded{cpu=\"1\"}", "has no label cpu"),
        (
            "hike_packets_total{reason=\"port-drop\"}",
            "has no reason port-drop",
        ),
        ("sum by (path) (hike_revision)", "has the label path"),
    ] {
        let found = problems(&exported, text);
        assert!(
            found.len() == 1 && found[0].contains(problem),
            "{text}: {found:?}"
        );
    }
    let text = "sum by (instance, cpu) (mflow_lane_cpu_pkts_total{cpu=\"2\"})";
    assert!(problems(&exported, text).is_empty());
}
