// SPDX-License-Identifier: GPL-2.0

//! A table that is drawn again and again: flows with their last block, and what becomes of packets.

use std::collections::BTreeMap;
use std::io::{stdout, IsTerminal as _};
use std::time::{Duration, Instant};

use anyhow::Result;
use mflow_hike::counters::reason::Fate;
use mflow_hike::Direction;
use mflow_hike_manager::options::{Cli, Top};
use mflow_hike_manager::proto::word_of;
use mflow_hike_manager::v1;
use serde_json::json;

use crate::client::connect;
use crate::counted::{reasons, results};
use crate::output::{print_json, print_line, table};

/// Takes the cursor to the upper left corner, and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(crate) async fn run(cli: &Cli, options: Top) -> Result<()> {
    let mut client = connect(&cli.socket).await?;
    let mut before: Option<(Instant, BTreeMap<String, u64>)> = None;
    let mut timer = tokio::time::interval(Duration::from_secs_f64(options.interval));
    for number in 1.. {
        timer.tick().await;
        let flows = results(&mut client, Vec::new()).await?;
        let counters = reasons(&mut client).await?;
        let now = Instant::now();
        if cli.json {
            print_json(&json!({ "flows": flows, "counters": counters }))?;
        } else {
            let rates = before.as_ref().map(|(then, counts)| Rates {
                elapsed: now.duration_since(*then),
                counts,
            });
            let clear = if stdout().is_terminal() { CLEAR } else { "" };
            let screen = screen(&flows, &counters, rates.as_ref());
            print_line(format_args!("{clear}{screen}"))?;
        }
        let counts = counters.into_iter().map(|one| (one.reason, one.packets));
        before = Some((now, counts.collect()));
        if Some(number) == options.count {
            break;
        }
    }
    Ok(())
}

/// The counts when the last table was drawn, and the time since then.
struct Rates<'a> {
    elapsed: Duration,
    counts: &'a BTreeMap<String, u64>,
}

impl Rates<'_> {
    /// Returns packets per second.
    fn of(&self, reason: &str, packets: u64) -> String {
        let before = self.counts.get(reason).copied().unwrap_or(0);
        // Counters begin again where an upgrade has other reasons.
        let grown = packets.saturating_sub(before);
        // CAST: a number for people.
        format!("{:.0}", grown as f64 / self.elapsed.as_secs_f64().max(1e-3))
    }
}

fn screen(flows: &[v1::Result], counters: &[v1::Counter], rates: Option<&Rates<'_>>) -> String {
    let rows = flows.iter().map(|flow| {
        let pkts = last_settled_pkts(flow);
        // CAST: a number for people.
        let per_s = pkts as f64 * 1e9 / flow.period_ns.max(1) as f64;
        vec![
            flow.monitor.clone(),
            word_of::<Direction>(flow.direction),
            flow.last_settled.to_string(),
            pkts.to_string(),
            format!("{per_s:.0}"),
            lost(flow, flows).map_or(String::new(), |lost| lost.to_string()),
        ]
    });
    let head = [
        "monitor",
        "direction",
        "block",
        "packets",
        "packets/s",
        "lost",
    ];
    let flows = table(&head, rows.collect(), &[2, 3, 4, 5]);
    let rows = counters.iter().filter(|one| one.packets > 0).map(|one| {
        let rate = rates.map_or(String::new(), |rates| rates.of(&one.reason, one.packets));
        vec![
            word_of::<Fate>(one.fate),
            one.reason.clone(),
            one.packets.to_string(),
            rate,
        ]
    });
    let head = ["fate", "reason", "packets", "packets/s"];
    let counters = table(&head, rows.collect(), &[2, 3]);
    format!("{flows}\n\n{counters}")
}

fn last_settled_pkts(flow: &v1::Result) -> u64 {
    let mut blocks = flow.blocks.iter();
    let block = blocks.find(|block| block.number == flow.last_settled);
    block.map_or(0, |block| block.packets)
}

/// Returns how many packets of its last block have got lost, if both ends of a flow are on this host.
fn lost(flow: &v1::Result, flows: &[v1::Result]) -> Option<i128> {
    let is_out = |one: &v1::Result| one.direction == i32::from(v1::Direction::Out);
    if !is_out(flow) {
        return None;
    }
    let entered = flows.iter().find(|one| {
        !is_out(one) && one.flow == flow.flow && one.last_settled == flow.last_settled
    })?;
    // What has left without having entered is worth a look, too.
    Some(i128::from(last_settled_pkts(entered)) - i128::from(last_settled_pkts(flow)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(direction: v1::Direction, packets: u64) -> v1::Result {
        v1::Result {
            monitor: "berlin".to_owned(),
            direction: direction.into(),
            flow: Some(v1::Flow::default()),
            period_ns: 500_000_000,
            blocks: vec![v1::Block {
                number: 9,
                packets,
                settled: true,
            }],
            last_settled: 9,
            total_packets: 1_000,
        }
    }

    #[test]
    fn what_is_lost_stands_where_a_flow_leaves() {
        let flows = [flow(v1::Direction::In, 50), flow(v1::Direction::Out, 47)];
        assert_eq!(lost(&flows[0], &flows), None);
        assert_eq!(lost(&flows[1], &flows), Some(3));
        assert_eq!(lost(&flows[1], &flows[1..]), None);
    }

    #[test]
    fn a_screen_has_flows_and_the_counters_that_have_counted() {
        let counter = |reason: &str, packets| v1::Counter {
            reason: reason.to_owned(),
            fate: v1::Fate::Passed.into(),
            meaning: String::new(),
            packets,
        };
        let counts = BTreeMap::from([("no-class".to_owned(), 10)]);
        let rates = Rates {
            elapsed: Duration::from_secs(2),
            counts: &counts,
        };
        let counters = [counter("no-class", 30), counter("not-ip", 0)];
        let text = screen(&[flow(v1::Direction::Out, 47)], &counters, Some(&rates));
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let lines: Vec<Vec<String>> = text.lines().map(words).collect();
        assert_eq!(lines[1], ["berlin", "out", "9", "47", "94"]);
        assert_eq!(lines[4..], [["passed", "no-class", "30", "10"]]);
    }
}
