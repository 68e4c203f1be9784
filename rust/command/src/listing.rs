// SPDX-License-Identifier: GPL-2.0

//! Fast flows and knobs, as tables.

use std::collections::BTreeMap;
use std::fmt::Display;

use mflow_algo::algo::knobs::{Knobs, KNOBS};
use schemars::JsonSchema;
use serde::Serialize;

use crate::module::text::{Flow, FlowList, Why};
use crate::module::{Module, Unreachable, DEVICES};
use crate::output::{count, table};

const HEAD: &[&str] = &[
    "device",
    "queue",
    "proto",
    "from",
    "to",
    "cpu",
    "pps",
    "state",
    "lanes",
    "batch",
    "gain",
    "parked",
    "late",
    "given up",
    "hint",
    "reason",
    "again in ms",
];
const NUMBERS: &[&str] = &[
    "queue",
    "cpu",
    "pps",
    "batch",
    "gain",
    "parked",
    "late",
    "given up",
    "again in ms",
];

/// Returns flows as a table, without columns that nothing stands in, and below it what reasons mean.
pub fn flows(list: &FlowList) -> String {
    let mut parts = vec![none(list).unwrap_or_else(|| table_of(list))];
    parts.extend(reasons(&list.flows));
    parts.extend(more(list));
    parts.join("\n")
}

/// Returns a line for each reason why one of these flows is whole.
pub fn reasons<'a>(flows: impl IntoIterator<Item = &'a Flow>) -> Vec<String> {
    let whys = flows.into_iter().filter_map(|flow| flow.why.as_ref());
    let whys: BTreeMap<&str, &str> = whys.map(|why| (&*why.reason, &*why.words)).collect();
    let line = |(reason, words)| format!("{reason}: {words}");
    whys.into_iter().map(line).collect()
}

/// Returns why there are no flows in the list, if there are none.
pub fn none(list: &FlowList) -> Option<String> {
    if let Some(Why { reason, words }) = &list.none_split {
        return Some(format!("no flow is split: {words} ({reason})"));
    }
    let is_empty = list.flows.is_empty();
    is_empty.then(|| "no flow is as fast as min_flow_pps (mflow get min_flow_pps)".to_owned())
}

/// Returns the lines about flows that are not in the list.
pub fn more(list: &FlowList) -> Vec<String> {
    let counts = [
        (list.left_out, "for which there is no room"),
        (list.changing, "which changed just now"),
    ];
    let counts = counts.iter().filter(|(number, _)| *number > 0);
    let line = |(number, why): &(u32, &str)| {
        let more = count(u64::from(*number), "more flow");
        format!("{more}, {why}")
    };
    counts.map(line).collect()
}

fn table_of(list: &FlowList) -> String {
    let rows: Vec<Vec<String>> = list
        .flows
        .iter()
        .map(|flow| {
            vec![
                flow.device.clone(),
                text(flow.queue),
                text(flow.proto.as_ref()),
                text(flow.from),
                text(flow.to),
                flow.cpu.to_string(),
                text(flow.pps),
                flow.state.clone(),
                text(flow.lanes.as_ref()),
                text(flow.batch_pkts),
                text(flow.gain.map(|gain| format!("{gain:.2}"))),
                text(flow.parked_pkts),
                text(flow.late_pkts),
                text(flow.given_up_batches),
                text(flow.hint.as_ref()),
                text(flow.reason()),
                text(flow.again_in_ms),
            ]
        })
        .collect();
    let used = |column: &usize| rows.iter().any(|row| row[*column] != NONE);
    let columns: Vec<usize> = (0..HEAD.len()).filter(used).collect();
    let head: Vec<&str> = columns.iter().map(|&column| HEAD[column]).collect();
    let rows = rows.iter().map(|row| {
        let cells = columns.iter().map(|&column| row[column].clone());
        cells.collect()
    });
    table(&head, rows.collect(), NUMBERS)
}

/// The sign for nothing.
pub const NONE: &str = "-";

/// Returns a value, or a dash for none.
pub fn text(value: Option<impl Display>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

/// A knob, or the devices, with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Value {
    /// Its name.
    pub name: String,
    /// Its value, as it is written; an empty text is none.
    pub value: String,
    /// The values that it can have.
    pub allowed: String,
    /// The value of a freshly loaded module.
    pub default: String,
}

/// Returns the knobs and the devices, or the one of this name.
pub fn values(module: &dyn Module, only: Option<&str>) -> Result<Vec<Value>, Unreachable> {
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let mut values = Vec::new();
    for spec in KNOBS.iter().filter(|spec| wanted(spec.name())) {
        values.push(Value {
            name: spec.name().to_owned(),
            value: module.knob(spec.knob)?,
            allowed: spec.limits.to_string(),
            default: Knobs::DEFAULT.get(spec.knob).to_string(),
        });
    }
    if wanted(DEVICES) {
        values.push(Value {
            name: DEVICES.to_owned(),
            value: module.devices()?.join(","),
            allowed: "+NAME, -NAME, or names with commas between them".to_owned(),
            default: String::new(),
        });
    }
    Ok(values)
}

/// Returns values as a table.
pub fn values_table(values: &[Value]) -> String {
    let shown = |value: &str| match value {
        "" => NONE.to_owned(),
        value => value.to_owned(),
    };
    let rows = values.iter().map(|one| {
        let value = shown(&one.value);
        vec![
            one.name.clone(),
            value,
            shown(&one.default),
            one.allowed.clone(),
        ]
    });
    table(
        &["knob", "value", "default", "allowed"],
        rows.collect(),
        &[],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_without_anything_are_left_out() {
        let text = "device eth0 queue - proto udp from 192.0.2.1:50001 to 192.0.2.2:4789 cpu 1 pps 20000 state split slot 0 lanes 2-5 batch_pkts 256 gain 2.50 parked_pkts 0 late_pkts 0 given_up_batches 0\n\
                    device eth0 queue - proto udp from 192.0.2.1:50002 to 192.0.2.2:4789 cpu 1 pps - state whole reason path_queues again_in_ms 12 # it queues\n\
                    # 1 more, for which there is no room\n";
        let shown = flows(&FlowList::parse(text).expect("flows"));
        let lines: Vec<&str> = shown.lines().collect();
        let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(0),
            "device proto from to cpu pps state lanes batch gain parked late given up reason again in ms"
        );
        assert_eq!(
            words(1),
            "eth0 udp 192.0.2.1:50001 192.0.2.2:4789 1 20000 split 2-5 256 2.50 0 0 0 - -"
        );
        assert_eq!(
            words(2),
            "eth0 udp 192.0.2.1:50002 192.0.2.2:4789 1 - whole - - - - - - path_queues 12"
        );
        assert_eq!(
            lines[3..],
            [
                "path_queues: it queues",
                "1 more flow, for which there is no room"
            ]
        );
    }

    #[test]
    fn without_flows_there_is_the_reason() {
        let list = FlowList::parse("none split reason not_enabled # enabled is 0\n");
        assert_eq!(
            flows(&list.expect("one")),
            "no flow is split: enabled is 0 (not_enabled)"
        );
        assert_eq!(
            flows(&FlowList::default()),
            "no flow is as fast as min_flow_pps (mflow get min_flow_pps)"
        );
    }
}
