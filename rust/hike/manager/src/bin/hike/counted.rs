// SPDX-License-Identifier: GPL-2.0

//! Commands that print the counts once.

use anyhow::Result;
use mflow_hike::counters::reason::Fate;
use mflow_hike::{Direction, Rule};
use mflow_hike_manager::configuration::file::{inline, word};
use mflow_hike_manager::options::{Cli, Monitor};
use mflow_hike_manager::proto::word_of;
use mflow_hike_manager::v1;
use serde_json::json;

use crate::changes::configured;
use crate::client::{connect, said, there, Client};
use crate::output::{print, print_json, print_line, table, to_json};

const NS_PER_MS: f64 = 1e6;

pub(crate) async fn monitor(cli: &Cli, what: &Monitor) -> Result<()> {
    match what {
        Monitor::List => list(cli).await,
        Monitor::Results { names } => {
            let mut client = connect(&cli.socket).await?;
            let results = results(&mut client, names.clone()).await?;
            if cli.json {
                return print_json(&to_json(&results)?);
            }
            let rows = results.iter().flat_map(result_rows).collect();
            let head = ["monitor", "direction", "block", "packets", ""];
            print_line(table(&head, rows, &[2, 3]))
        }
    }
}

async fn list(cli: &Cli) -> Result<()> {
    let monitors = configured(cli).await?.monitors;
    if cli.json {
        return print_json(&to_json(&monitors)?);
    }
    let rows = monitors.into_iter().map(|(name, one)| {
        let flow = match (one.path, one.source) {
            (Some(path), _) => format!("path {path}"),
            (None, source) => {
                let sids = one.sids.into_iter().flatten().map(|sid| sid.to_string());
                let source = source.map_or(String::new(), |source| source.to_string());
                let id = one.flow_id.map(|id| format!(", FlowMonID {id}"));
                let sids = sids.collect::<Vec<_>>().join(", ");
                format!("{source} → {sids}{}", id.unwrap_or_default())
            }
        };
        let colour = one.dscp_bit.map(|bit| format!("DSCP bit {bit}"));
        vec![
            name,
            word(&one.direction),
            flow,
            format!("{} ms", one.period_ms),
            colour.unwrap_or("option".to_owned()),
        ]
    });
    let head = ["monitor", "direction", "flow", "block", "colour"];
    print_line(table(&head, rows.collect(), &[3]))
}

/// Asks for what was counted of flows.
pub(crate) async fn results(client: &mut Client, monitors: Vec<String>) -> Result<Vec<v1::Result>> {
    let answer = client.results(v1::ResultsRequest { monitors }).await;
    Ok(said(answer)?.results)
}

/// Asks for what was counted of reasons.
pub(crate) async fn reasons(client: &mut Client) -> Result<Vec<v1::Counter>> {
    let answer = client.counters(v1::CountersRequest {}).await;
    Ok(said(answer)?.counters)
}

fn result_rows(result: &v1::Result) -> Vec<Vec<String>> {
    let rows = result.blocks.iter().map(|block| {
        let so_far = if block.settled { "" } else { "so far" };
        vec![
            result.monitor.clone(),
            word_of::<Direction>(result.direction),
            block.number.to_string(),
            block.packets.to_string(),
            so_far.to_owned(),
        ]
    });
    rows.collect()
}

pub(crate) async fn counters(cli: &Cli, all: bool) -> Result<()> {
    let mut client = connect(&cli.socket).await?;
    let mut counters = reasons(&mut client).await?;
    counters.retain(|counter| all || counter.packets > 0);
    if cli.json {
        return print_json(&to_json(&counters)?);
    }
    let rows = counters.into_iter().map(|one| {
        let fate = word_of::<Fate>(one.fate);
        vec![fate, one.reason, one.packets.to_string(), one.meaning]
    });
    let head = ["fate", "reason", "packets", "what that means"];
    print_line(table(&head, rows.collect(), &[2]))
}

pub(crate) async fn rules(cli: &Cli) -> Result<()> {
    let answer = connect(&cli.socket).await?.rules(v1::RulesRequest {}).await;
    let counted = said(answer)?.rules;
    let rules = (1..).zip(counted).map(|(number, one): (usize, _)| {
        let rule = Rule::try_from(there(one.rule)?)?;
        Ok((number, rule, one.packets))
    });
    let rules = rules.collect::<Result<Vec<_>>>()?;
    if cli.json {
        let each = rules.iter().map(|(number, rule, packets)| {
            Ok(json!({ "number": number, "rule": to_json(rule)?, "packets": packets }))
        });
        return print_json(&each.collect::<Result<_>>()?);
    }
    let rows = rules
        .iter()
        .map(|(number, rule, packets)| vec![number.to_string(), packets.to_string(), inline(rule)]);
    let head = ["rule", "packets", ""];
    print_line(table(&head, rows.collect(), &[0, 1]))
}

pub(crate) async fn sids(cli: &Cli) -> Result<()> {
    let mut client = connect(&cli.socket).await?;
    let sids = said(client.local_sids(v1::LocalSidsRequest {}).await)?.sids;
    if cli.json {
        return print_json(&to_json(&sids)?);
    }
    let rows = sids.into_iter().map(|one| {
        let (packets, bytes) = (one.packets.to_string(), one.bytes.to_string());
        vec![one.destination, one.behaviour, packets, bytes]
    });
    let head = ["SID", "behaviour", "packets", "bytes"];
    print_line(table(&head, rows.collect(), &[2, 3]))
}

pub(crate) async fn sessions(cli: &Cli, names: &[String]) -> Result<()> {
    let mut client = connect(&cli.socket).await?;
    let request = v1::SessionsRequest {
        sessions: names.to_vec(),
    };
    let sessions = said(client.sessions(request).await)?.sessions;
    if cli.json {
        return print_json(&to_json(&sessions)?);
    }
    let rows = sessions.iter().flat_map(session_rows).collect();
    let head = [
        "session", "sent", "lost", "refused", "delay of", "min", "mean", "p50", "p90", "p99",
        "max", "",
    ];
    print_line(table(&head, rows, &[1, 2, 3, 5, 6, 7, 8, 9, 10]))
}

/// Returns a row for each delay, in milliseconds; for one whose one-way delays depend on clocks that nobody keeps, with a remark.
fn session_rows(session: &v1::SessionResult) -> Vec<Vec<String>> {
    let counts = session.counts.unwrap_or_default();
    let are_kept = session
        .clocks
        .is_some_and(|clocks| clocks.own_synchronized && clocks.reflector_synchronized);
    let error = session.clocks.and_then(|clocks| clocks.error_ns);
    let remark = match (are_kept, error) {
        // CAST: the precision of what is shown.
        (true, Some(error)) => format!("± {:.3} ms", error as f64 / NS_PER_MS),
        (true, None) => "clocks of unknown error".to_owned(),
        (false, _) => "clocks not synchronized".to_owned(),
    };
    let trouble = session.trouble.clone().unwrap_or_default();
    let mut rows = Vec::new();
    for (of, delay, remark) in [
        ("both ways", session.two_way, trouble.clone()),
        ("forward", session.forward, remark.clone()),
        ("backward", session.backward, remark),
    ] {
        let Some(delay) = delay else {
            continue;
        };
        let delays = [
            delay.min_ns,
            delay.mean_ns,
            delay.median_ns,
            delay.p90_ns,
            delay.p99_ns,
            delay.max_ns,
        ];
        // CAST: the precision of what is shown.
        let delays = delays.map(|ns| format!("{:.3} ms", ns as f64 / NS_PER_MS));
        let mut row = vec![
            session.session.clone(),
            counts.sent.to_string(),
            counts.lost.to_string(),
            counts.refused.to_string(),
            of.to_owned(),
        ];
        row.extend(delays);
        row.push(remark);
        rows.push(row);
    }
    if rows.is_empty() {
        let mut row = vec![
            session.session.clone(),
            counts.sent.to_string(),
            counts.lost.to_string(),
            counts.refused.to_string(),
            "none yet".to_owned(),
        ];
        row.resize(11, String::new());
        row.push(trouble);
        rows.push(row);
    }
    rows
}

pub(crate) async fn metrics(cli: &Cli) -> Result<()> {
    let answer = connect(&cli.socket)
        .await?
        .metrics(v1::MetricsRequest {})
        .await;
    let text = said(answer)?.text;
    match cli.json {
        true => print_json(&json!({ "text": text })),
        false => print(text),
    }
}
