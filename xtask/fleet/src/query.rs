// SPDX-License-Identifier: GPL-2.0

//! Queries in PromQL: those of dashboards and of the instructions for canaries, and the names that they have in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context as _, Result};
use serde_json::{json, Value};

/// The folder of the files, below that of the project.
pub const FOLDER: &str = "xtask/fleet";
/// The dashboards.
pub const DASHBOARDS: &[&str] = &["grafana/hike.json", "grafana/mflow.json"];
/// The text whose blocks of code may be queries.
pub const INSTRUCTIONS: &str = "CANARY.md";
/// One sample of each metric that the commands export, with each of its labels. A test of this crate has it made of the commands' own
/// code.
pub const EXPORTED: &str = "prometheus/exported.prom";
/// The beginnings of these metrics' names.
pub const BEGINS: &[&str] = &["mflow_", "hike_"];
/// The node of the samples, as instructions call it.
const INSTANCE: &str = "canary";
/// The beginning of a block with a query.
const BLOCK: &str = "```promql";
/// Grafana's variables, and values that a checker takes in their place.
const VARIABLES: &[(&str, &str)] = &[("$__rate_interval", "5m"), ("$instance", ".*")];

/// A query, and the file that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The path of the file, below the folder.
    pub file: &'static str,
    /// The query, without variables.
    pub text: String,
}

/// Returns the queries of the files in this folder that are no rules. Fails if a file has none.
pub fn queries(folder: &Path) -> Result<Vec<Query>> {
    let mut all = Vec::new();
    for file in DASHBOARDS.iter().copied().chain([INSTRUCTIONS]) {
        let path = folder.join(file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut found = Vec::new();
        if file == INSTRUCTIONS {
            blocks(&text, &mut found);
        } else {
            let value = serde_json::from_str(&text).with_context(|| file.to_owned())?;
            expressions(&value, &mut found);
        }
        ensure!(!found.is_empty(), "{file} has no query");
        all.extend(found.into_iter().map(|text| Query {
            file,
            text: without_variables(text),
        }));
    }
    Ok(all)
}

/// Returns a file of rules, of which each has one of the queries: what the checker of rules takes. JSON is YAML, too.
pub fn as_rules(queries: &[Query]) -> Value {
    let rule = |(number, query): (usize, &Query)| json!({"record": format!("query:{number}"), "expr": query.text});
    let rules: Vec<Value> = queries.iter().enumerate().map(rule).collect();
    json!({"groups": [{"name": "queries", "rules": rules}]})
}

/// Returns two files for the checker: alerts that fire if a query has a result, and a test in which each has, of the samples. Queries
/// that ask for metrics of others alone are left out.
pub fn as_tests(queries: &[Query], exported: &str, rules_file: &str) -> (Value, Value) {
    let own = queries
        .iter()
        .filter(|query| !selectors(&query.text, BEGINS).is_empty());
    let (mut rules, mut tests) = (Vec::new(), Vec::new());
    for (number, query) in own.enumerate() {
        let name = format!("Query{number}");
        rules.push(json!({"alert": name, "expr": format!("count({}) > 0", query.text)}));
        tests.push(
            json!({"eval_time": "20m", "alertname": name, "exp_alerts": [{"exp_labels": {}}]}),
        );
    }
    let series: Vec<Value> = exported
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(sample, _)| {
            let instance = format!("instance=\"{INSTANCE}\"");
            let series = match sample.strip_suffix('}') {
                Some(labelled) => format!("{labelled},{instance}}}"),
                None => format!("{sample}{{{instance}}}"),
            };
            json!({"series": series, "values": "0+60x30"})
        })
        .collect();
    (
        json!({"groups": [{"name": "results", "rules": rules}]}),
        json!({
            "rule_files": [rules_file],
            "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": tests}]
        }),
    )
}

/// Adds the values of all keys `expr`.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(text) if key == "expr" => found.push(text.clone()),
                    value => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

/// Adds the queries of a document: each is a block of code.
fn blocks(text: &str, found: &mut Vec<String>) {
    let mut lines = text.lines();
    while lines.any(|line| line == BLOCK) {
        let block: Vec<&str> = lines
            .by_ref()
            .take_while(|line| !line.starts_with("```"))
            .collect();
        found.push(block.join("\n"));
    }
}

fn without_variables(text: String) -> String {
    let fill = |text: String, (name, value): &(&str, &str)| text.replace(name, value);
    VARIABLES.iter().fold(text, fill)
}

/// A metric as a query names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The name.
    pub metric: String,
    /// Labels, and the values that they are to have: with `=~` each of `a|b`. No values if the matcher is another one.
    pub matchers: Vec<(String, Vec<String>)>,
}

/// Returns the metrics in a text whose names begin with one of these words.
pub fn selectors(text: &str, begins: &[&str]) -> Vec<Selector> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_of_word) {
        let word = &rest[start..];
        let end = word.find(|c| !is_of_word(c)).unwrap_or(word.len());
        let (name, behind) = word.split_at(end);
        rest = behind;
        if !begins.iter().any(|begin| name.starts_with(begin)) {
            continue;
        }
        let inside = behind
            .strip_prefix('{')
            .and_then(|list| list.split_once('}'));
        all.push(Selector {
            metric: name.to_owned(),
            matchers: inside.map_or_else(Vec::new, |(list, _)| matchers(list)),
        });
        if let Some((_, behind)) = inside {
            rest = behind;
        }
    }
    all
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// Reads `fate="lost", reason=~"a|b"`. No value has a comma or a quotation mark in it.
fn matchers(list: &str) -> Vec<(String, Vec<String>)> {
    let matchers = list.split(',').map(str::trim).filter(|one| !one.is_empty());
    let read = |one: &str| {
        let (label, rest) = one.split_at(one.find(['=', '!']).unwrap_or(one.len()));
        let quoted = |text: &str| text.trim_matches('"').to_owned();
        let values = if let Some(value) = rest.strip_prefix("=~") {
            let value = quoted(value);
            let all: Vec<String> = value.split('|').map(str::to_owned).collect();
            // Another regular expression than a list of words is nothing to compare with.
            let is_list = all
                .iter()
                .all(|one| !one.contains(['*', '+', '[', '(', '?']));
            all.into_iter().filter(|_| is_list).collect()
        } else if let Some(value) = rest.strip_prefix('=') {
            vec![quoted(value)]
        } else {
            Vec::new()
        };
        (label.trim().to_owned(), values)
    };
    matchers.map(read).collect()
}

/// Returns the labels by which a query sums up, compares or divides.
pub fn grouping_labels(text: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    for word in ["by (", "without (", "ignoring (", "on (", "group_left ("] {
        for (place, _) in text.match_indices(word) {
            let list = text[place + word.len()..].split(')').next();
            let list = list.unwrap_or_default().split(',').map(str::trim);
            labels.extend(list.filter(|one| !one.is_empty()).map(str::to_owned));
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_with_what_they_are_to_match() {
        let text = "sum by (instance, reason) (rate(mflow_a_total{instance=~\".*\", reason=~\"x|y-z\", fate!=\"w\"}[5m])) > \
                    0.01 * node_b or ignoring (fate) hike_c{fate=\"lost\"}";
        let found = selectors(text, &["mflow_", "hike_"]);
        let names: Vec<&str> = found.iter().map(|one| &*one.metric).collect();
        assert_eq!(names, ["mflow_a_total", "hike_c"]);
        let matcher = |label: &str, values: &[&str]| {
            let values = values.iter().copied().map(str::to_owned);
            (label.to_owned(), values.collect::<Vec<_>>())
        };
        assert_eq!(
            found[0].matchers,
            [
                matcher("instance", &[]),
                matcher("reason", &["x", "y-z"]),
                matcher("fate", &[])
            ]
        );
        assert_eq!(found[1].matchers, [matcher("fate", &["lost"])]);
        let labels = ["fate", "instance", "reason"].map(str::to_owned);
        assert_eq!(grouping_labels(text), BTreeSet::from(labels));
    }

    #[test]
    fn queries_are_what_grafana_runs_and_what_instructions_show() {
        let mut found = Vec::new();
        let dashboard = json!({"panels": [{"targets": [{"expr": "a[$__rate_interval]", "refId": "A"}]}], "expr": 1});
        expressions(&dashboard, &mut found);
        blocks(
            "```sh\nmflow status\n```\n```promql\nb\n  > 0\n```\n```promql\nc\n```\n",
            &mut found,
        );
        let found: Vec<String> = found.into_iter().map(without_variables).collect();
        assert_eq!(found, ["a[5m]", "b\n  > 0", "c"]);
        let queries: Vec<Query> = found
            .into_iter()
            .map(|text| Query {
                file: INSTRUCTIONS,
                text,
            })
            .collect();
        let rules = as_rules(&queries);
        assert_eq!(rules["groups"][0]["rules"][2]["expr"], "c");
    }

    #[test]
    fn queries_are_tried_with_samples_of_all_metrics() {
        let query = |text: &str| Query {
            file: INSTRUCTIONS,
            text: text.to_owned(),
        };
        let queries = [query("rate(node_a[5m])"), query("sum(hike_b)")];
        let exported = "mflow_a 1\nhike_b{fate=\"lost\"} 1\n";
        let (rules, tests) = as_tests(&queries, exported, "r.yml");
        let rules = &rules["groups"][0]["rules"];
        assert_eq!(
            *rules,
            json!([{"alert": "Query0", "expr": "count(sum(hike_b)) > 0"}])
        );
        let series = &tests["tests"][0]["input_series"];
        assert_eq!(series[0]["series"], "mflow_a{instance=\"canary\"}");
        assert_eq!(
            series[1]["series"],
            "hike_b{fate=\"lost\",instance=\"canary\"}"
        );
    }
}
