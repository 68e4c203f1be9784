// SPDX-License-Identifier: GPL-2.0

//! Dashboards are as Grafana draws them: panels beside each other, each with queries to the chosen source and a unit.

use std::collections::BTreeSet;

use mflow_fleet::query::DASHBOARDS;
use serde::Deserialize;
use serde_json::Value;

use super::support::text;

/// The columns of Grafana's grid.
const COLUMNS: u32 = 24;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dashboard {
    uid: String,
    schema_version: u32,
    templating: Templating,
    panels: Vec<Panel>,
}

#[derive(Debug, Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Panel {
    id: u32,
    title: String,
    description: String,
    datasource: Value,
    grid_pos: Place,
    field_config: Value,
    targets: Vec<Target>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Place {
    x: u32,
    y: u32,
    w: u32,
    h: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    ref_id: String,
    expr: String,
    legend_format: String,
}

impl Place {
    fn overlaps(self, other: Self) -> bool {
        let apart = |begin: u32, length: u32, other: u32, other_length: u32| {
            begin + length <= other || other + other_length <= begin
        };
        !apart(self.x, self.w, other.x, other.w) && !apart(self.y, self.h, other.y, other.h)
    }
}

#[test]
fn panels_are_beside_each_other_and_complete() {
    let mut uids = BTreeSet::new();
    for file in DASHBOARDS {
        let dashboard: Dashboard =
            serde_json::from_str(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(uids.insert(dashboard.uid), "{file}");
        assert!(dashboard.schema_version >= 30);
        let variables = dashboard.templating.list.iter().map(|one| &*one.name);
        let variables: Vec<&str> = variables.collect();
        assert_eq!(variables, ["datasource", "instance"]);
        let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
        for (number, panel) in dashboard.panels.iter().enumerate() {
            let title = &panel.title;
            assert!(ids.insert(panel.id) && titles.insert(title), "{title}");
            assert!(!panel.description.is_empty(), "{title}");
            assert_eq!(panel.datasource["uid"], "${datasource}", "{title}");
            assert!(
                panel.field_config["defaults"]["unit"].is_string(),
                "{title}"
            );
            let place = panel.grid_pos;
            assert!(place.w > 0 && place.h > 0 && place.x + place.w <= COLUMNS);
            for other in &dashboard.panels[..number] {
                assert!(!place.overlaps(other.grid_pos), "{title}, {}", other.title);
            }
            let mut names = BTreeSet::new();
            for target in &panel.targets {
                assert!(names.insert(&target.ref_id), "{title}");
                assert!(!target.expr.is_empty() && !target.legend_format.is_empty());
            }
            assert!(!names.is_empty(), "{title}");
        }
        assert!(dashboard.panels.len() >= 10, "{file}");
    }
}
