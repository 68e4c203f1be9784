// SPDX-License-Identifier: GPL-2.0

//! The model's part of a benchmark's report: figures that need more cores than an emulated machine has.

use super::crowded::{self, Crowd, Crowded, ALWAYS_ON};
use super::{terminal_load, validate};
use crate::sim::costs::settings::Settings;
use xtask::results::row::Row;

/// The paper's gain of two choices over static hashing with UDP (FALCON section 6.1, Fig. 16).
const PAPER_TWO_CHOICES: f64 = 1.18;

/// FALCON's Figs. 14 to 16.
#[derive(Debug)]
pub(crate) struct Modelled {
    /// All of it in words and numbers.
    pub(crate) text: String,
    pub(crate) charts: Vec<Chart>,
}

/// Lines over a few places, which have names.
#[derive(Debug)]
pub(crate) struct Chart {
    /// For a file name.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) below: &'static str,
    pub(crate) beside: &'static str,
    pub(crate) places: Vec<String>,
    /// A value for each place.
    pub(crate) series: Vec<(String, Vec<f64>)>,
}

/// Models what can be with the costs in `rows`, on the machine that is modelled by default.
pub(crate) fn modelled(rows: &[Row]) -> Option<Modelled> {
    on(&Settings::default(), rows)
}

fn on(settings: &Settings, rows: &[Row]) -> Option<Modelled> {
    let validation = validate::validate(rows, settings);
    let (case, split) = crowded::like_the_paper(&validation.cases)?;
    let crowded = crowded::crowded(case, split, settings)?;
    Some(Modelled {
        text: terminal_load::crowded(&crowded, settings),
        charts: vec![fig14(&crowded), fig15(&crowded), fig16(&crowded)],
    })
}

fn fig14(crowded: &Crowded) -> Chart {
    let places = &crowded.fig14;
    let series = |name: &str, rate: fn(&crowded::Containers) -> f64| {
        let rates = places.iter().map(|place| rate(place) / 1e6).collect();
        (name.to_owned(), rates)
    };
    Chart {
        name: "falcon-14",
        title: "Containers on six cores (FALCON Fig. 14)",
        below: "containers",
        beside: "million packets per second, modelled",
        places: places
            .iter()
            .map(|place| place.containers.to_string())
            .collect(),
        series: vec![
            series("vanilla", |place| place.vanilla.pkts_per_s),
            series("rps", |place| place.rps.pkts_per_s),
            series("falcon, the paper's", |place| place.falcon.pkts_per_s),
            series("falcon-dev", |place| place.falcon_dev.pkts_per_s),
            series("mflow", |place| place.mflow.pkts_per_s),
        ],
    }
}

fn fig15(crowded: &Crowded) -> Chart {
    let name = |pct| match pct {
        ALWAYS_ON => "always on".to_owned(),
        pct => format!("{pct} %"),
    };
    let thresholds = &crowded.fig15;
    let series = crowded
        .swept
        .iter()
        .enumerate()
        .flat_map(|(at, containers)| {
            ["the paper's", "falcon-dev"].map(|name| {
                let rates = thresholds.iter().filter_map(|threshold| {
                    let rates = match name {
                        "falcon-dev" => &threshold.dev_pkts_per_s,
                        _ => &threshold.pkts_per_s,
                    };
                    Some(rates.get(at)? / 1e6)
                });
                (format!("{containers} containers, {name}"), rates.collect())
            })
        });
    Chart {
        name: "falcon-15",
        title: "Thresholds of the load (FALCON Fig. 15)",
        below: "threshold",
        beside: "million packets per second, modelled",
        places: thresholds
            .iter()
            .map(|threshold| name(threshold.pct))
            .collect(),
        series: series.collect(),
    }
}

fn fig16(crowded: &Crowded) -> Chart {
    let spots = &crowded.fig16;
    let gain = |crowd: &Crowd| crowd.pkts_per_s / spots.fixed.pkts_per_s;
    Chart {
        name: "falcon-16",
        title: "One flow suddenly three times as intense (FALCON Fig. 16)",
        below: "",
        beside: "times static hashing",
        places: ["static", "two choices", "falcon-dev", "by load", "mflow"]
            .map(str::to_owned)
            .into(),
        series: vec![
            (
                "modelled".to_owned(),
                vec![
                    1.0,
                    gain(&spots.dynamic),
                    gain(&spots.dev_fixed),
                    gain(&spots.dev_dynamic),
                    gain(&spots.mflow),
                ],
            ),
            ("paper, UDP".to_owned(), vec![1.0, PAPER_TWO_CHOICES]),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::costs::fixture;
    use crate::sim::predictions::crowded::{CALM_LOAD, HOT_LOAD};

    #[test]
    fn rows_of_one_case_are_enough() {
        // What is modelled by default takes a debug build half a minute.
        let settings = Settings {
            placements: 1,
            ..Settings::default()
        };
        let modelled = on(&settings, &fixture::rows()).expect("rows of rps and mflow");
        assert!(modelled.text.contains("FALCON Fig. 14"));
        for chart in &modelled.charts {
            for (name, values) in &chart.series {
                assert!(values.len() <= chart.places.len(), "{} {name}", chart.name);
                assert!(values.iter().all(|value| value.is_finite() && *value > 0.0));
            }
        }
    }

    #[test]
    fn without_rows_nothing_is_modelled() {
        assert!(modelled(&[]).is_none());
    }

    #[test]
    fn the_title_says_how_hot_the_spot_is() {
        assert!((HOT_LOAD / CALM_LOAD - 3.0).abs() < 1e-9);
    }
}
