// SPDX-License-Identifier: GPL-2.0

//! Causes that the module itself tells: why flows are whole, and what is late.

use std::collections::BTreeMap;

use crate::described::advice;
use crate::diagnose::finding::Finding;
use crate::diagnose::snapshot::{Module, Snapshot};
use crate::module::text::Why;
use crate::output::count;

/// Reasons that go away by themselves, or that are as they should be: nothing is to be done about them.
const HEALTHY: &[&str] = &[
    "new",
    "asked",
    "no_data",
    "other_starts",
    "hint_never",
    "slow",
    "silent",
    "switched_off",
];
const LATE: &[&str] = &["late_pkts", "deadline_batches", "overflow_batches"];

/// Finds fast flows that are whole, one finding for each reason.
pub fn whole_flows(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(loaded) = snapshot.loaded() else {
        return Vec::new();
    };
    let mut by_reason = BTreeMap::<&str, (&Why, u64, String)>::new();
    for flow in loaded
        .flows
        .flows
        .iter()
        .filter(|flow| flow.state == "whole")
    {
        if let Some(why) = &flow.why {
            let from = flow
                .from
                .map_or_else(|| "an unknown sender".to_owned(), |from| from.to_string());
            let (_, number, _) = by_reason.entry(&why.reason).or_insert((why, 0, from));
            *number += 1;
        }
    }
    let worth = by_reason
        .into_iter()
        .filter(|(reason, _)| !HEALTHY.contains(reason));
    let finding = |(reason, (why, number, from)): (&str, (&Why, u64, String))| {
        let flows = count(number, "fast flow");
        let words = &why.words;
        Finding::new(
            reason,
            format!(
                "Whole for the reason {reason}: {flows}, such as the one from {from}; {words}."
            ),
            advice(reason).unwrap_or_else(|| "see the manual, Why is a flow not split?".to_owned()),
        )
    };
    worth.map(finding).collect()
}

/// Finds why no flow at all is split though splitting is on.
pub fn none_split(snapshot: &Snapshot) -> Vec<Finding> {
    let why = snapshot
        .loaded()
        .and_then(|loaded| loaded.flows.none_split.as_ref());
    // A module that is off is as its operator wants it.
    let why = why.filter(|why| !matches!(why.reason.as_str(), "not_enabled" | "other_mode"));
    let finding = |Why { reason, words }: &Why| {
        let command = match reason.as_str() {
            "no_devices" => "mflow set devices +NIC".to_owned(),
            "no_lanes" => "mflow set cpus auto".to_owned(),
            _ => advice(reason).unwrap_or_default(),
        };
        Finding::new(reason, format!("No flow is split: {words}."), command)
    };
    why.map(finding).into_iter().collect()
}

/// Finds lanes that were silent for too long.
pub fn late(snapshot: &Snapshot) -> Vec<Finding> {
    let late = snapshot
        .loaded()
        .map_or(0, |loaded| loaded.counted.sum(LATE));
    if late == 0 {
        return Vec::new();
    }
    vec![Finding::new(
        "late",
        format!("A lane was silent for longer than merge_timeout_us: {late} packets and batches were late."),
        "keep other work off the CPUs of lanes (mflow set cpus auto), or: mflow set merge_timeout_us 1000",
    )]
}

/// Finds a module that is loaded and can't be asked.
pub fn unreadable(snapshot: &Snapshot) -> Vec<Finding> {
    match &snapshot.module {
        Module::Unreadable(why) => vec![Finding::new(
            "module_unreadable",
            "The module is loaded, but does not tell what it does.",
            why.clone(),
        )],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::sample::loaded;
    use crate::module::text::{FlowList, Stats, Way};

    fn host(flows: &str, stats: &str) -> Snapshot {
        let mut module = loaded(&["eth0"], Way::Stock);
        module.flows = FlowList::parse(flows).expect("flows");
        module.counted = Stats::parse(stats).expect("stats");
        Snapshot {
            seconds: 1.0,
            module: Module::Loaded(Box::new(module)),
            ..Snapshot::default()
        }
    }

    #[test]
    fn whole_flows_are_found_by_their_reasons() {
        let flow = |reason: &str, words: &str| {
            format!("device eth0 queue 0 proto udp from 192.0.2.1:50001 to 192.0.2.2:4789 cpu 1 pps 32780 state whole reason {reason} # {words}\n")
        };
        let text = [
            flow("path_queues", "it queues"),
            flow("path_queues", "it queues"),
            flow("asked", "it waits"),
        ]
        .concat();
        let found = whole_flows(&host(&text, ""));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].cause, "path_queues");
        assert!(
            found[0]
                .says
                .contains("2 fast flows, such as the one from 192.0.2.1:50001; it queues."),
            "{found:?}"
        );
        assert!(found[0].advice.contains("tc qdisc show"), "{found:?}");
    }

    #[test]
    fn all_reasons_are_known() {
        for reason in HEALTHY {
            assert!(advice(reason).is_some(), "{reason}");
        }
    }

    #[test]
    fn splitting_that_can_do_nothing_is_found() {
        let none = |reason| none_split(&host(&format!("none split reason {reason} # words\n"), ""));
        assert_eq!(none("no_lanes")[0].advice, "mflow set cpus auto");
        assert!(none("not_enabled").is_empty());
    }

    #[test]
    fn late_packets_are_found() {
        assert!(late(&host("", "late_pkts 0\nmerged_pkts 9\n")).is_empty());
        assert!(late(&host("", "late_pkts 1\ndeadline_batches 2\n"))[0]
            .says
            .contains(": 3 packets"));
        assert!(unreadable(&host("", "")).is_empty());
    }
}
