// SPDX-License-Identifier: GPL-2.0

//! A discrete-event model of the receive path, which predicts other machines from measured instruction counts.
//!
//! The costs of a stage come from a few benchmark rows; the other rows show how far the model can be trusted. Read in this order:
//! [`costs`] and [`settings`] (from rows and options to a [`scene`]), [`machine`] and [`pipeline`] (the simulation, with [`mflow`]
//! as the module runs it, [`control`] what its load controller sees, and [`pipelined`] the stages of FALCON, as the module has them or
//! ([`paper_balance`]) the paper), [`validate`] with [`stages`] and [`falcon_rows`], [`paper_figures`], [`adaptive`], [`crowded`] and
//! [`predict`] (what is simulated), [`terminal`] and [`terminal_load`]; [`modelled`] is what a benchmark's report shows of it.

pub(crate) mod costs;
pub(crate) mod model;
pub(crate) mod predictions;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{bail, ensure, Context as _, Result};
use serde::Serialize;

use costs::groups::Skipped;
use costs::settings::Settings;
use predictions::adaptive::Adaptivity;
use predictions::check::{Check, Verdict, TOLERANCE};
use predictions::crowded::Crowded;
use predictions::paper_figures::{Disorder, Flows};
use predictions::predict::{Prediction, Question};
use predictions::validate::Validation;
use xtask::results::row::{self, Row};

/// Options of `sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measured rows: what `cargo xtask bench --json FILE` writes
    #[arg(long, value_name = "FILE")]
    rows: Option<PathBuf>,
    /// Only cases whose name contains this
    #[arg(long, value_name = "FILTER")]
    case: Option<String>,
    /// Also write everything to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    question: Question,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Serialize)]
struct Results<'a> {
    settings: &'a Settings,
    question: &'a Question,
    validation: &'a [Check],
    left_out: &'a [Skipped],
    /// The case whose costs Figs. 7 and 10 have.
    figures_case: Option<&'a str>,
    fig7: &'a [Disorder],
    fig10: &'a [Flows],
    /// Lanes by need against fixed ones.
    adaptivity: &'a [Adaptivity],
    /// FALCON's Figs. 14 to 16.
    crowded: Option<&'a Crowded>,
    predictions: &'a [Prediction],
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Some(path) = &options.rows else {
        bail!(
            "the model needs measured costs; try:\n  cargo xtask bench --json rows.json\n  cargo xtask sim --rows rows.json"
        );
    };
    let rows = read(path, options.case.as_deref())?;
    let (settings, question) = (&options.settings, &options.question);
    ensure!(
        settings.batch_pkts < settings.lane_ring_pkts,
        "--batch-pkts {} does not fit into a lane's ring: up to {} is allowed, or a larger --lane-ring-pkts",
        settings.batch_pkts,
        settings.lane_ring_pkts - 1
    );

    show(&predictions::terminal::assumptions(settings));
    let validation = predictions::validate::validate(&rows, settings);
    ensure!(
        !validation.cases.is_empty(),
        "{} has no measured row of mode `vanilla`, which all others are compared with",
        path.display()
    );
    show(&predictions::terminal::validation(&validation));
    show(&predictions::terminal::fig8(&validation));

    let like = predictions::paper_figures::like_the_paper(&validation.cases);
    let (mut fig7, mut fig10) = (Vec::new(), Vec::new());
    match like {
        Some((case, split)) => {
            fig7 = predictions::paper_figures::disorder(split, settings);
            show(&predictions::terminal::fig7(case, &fig7));
            fig10 = predictions::paper_figures::flows(case, split, settings);
            show(&predictions::terminal::fig10(case, &fig10));
        }
        None => {
            println!("\nwithout a measured row of mode `mflow` there is nothing to predict from")
        }
    }
    let adaptivity = adaptivity(&validation, settings);
    let like = predictions::crowded::like_the_paper(&validation.cases);
    let crowded =
        like.and_then(|(case, split)| predictions::crowded::crowded(case, split, settings));
    match &crowded {
        Some(crowded) => show(&predictions::terminal_load::crowded(crowded, settings)),
        None => println!(
            "\nwithout measured rows of modes `rps` and `mflow` of one case there are no stages to make of them"
        ),
    }
    let predictions = predictions(&validation, question, settings);
    println!("\n{}", predictions::terminal::NOTES);

    let results = Results {
        settings,
        question,
        validation: &validation.checks,
        left_out: &validation.skipped,
        figures_case: like.map(|(case, _)| case.name.as_str()),
        fig7: &fig7,
        fig10: &fig10,
        adaptivity: &adaptivity,
        crowded: crowded.as_ref(),
        predictions: &predictions,
    };
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&results)? + "\n";
        fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(verdict(&validation))
}

/// Compares lanes by need with fixed ones, and prints it, for each case.
fn adaptivity(validation: &Validation, settings: &Settings) -> Vec<Adaptivity> {
    let cases = validation.cases.iter().filter(|case| case.is_one_path);
    let splits = cases.filter_map(|case| Some((case, case.splits.first()?)));
    splits
        .map(|(case, split)| {
            let adaptivity = predictions::adaptive::adaptivity(case, split, settings);
            show(&predictions::terminal_load::adaptivity(&adaptivity));
            adaptivity
        })
        .collect()
}

/// Predicts and prints, once for all cases with the same messages.
fn predictions(
    validation: &Validation,
    question: &Question,
    settings: &Settings,
) -> Vec<Prediction> {
    let mut predictions: Vec<Prediction> = Vec::new();
    let mut done = BTreeSet::new();
    for case in validation.cases.iter().filter(|case| case.is_one_path) {
        for split in &case.splits {
            if done.insert((&case.proto, case.msg_bytes, &split.name)) {
                let prediction = predictions::predict::predict(case, split, question, settings);
                show(&predictions::terminal::prediction(&prediction, question));
                predictions.push(prediction);
            }
        }
    }
    predictions
}

fn show(text: &str) {
    for line in text.lines() {
        println!("{}", line.trim_end());
    }
}

fn read(path: &Path, filter: Option<&str>) -> Result<Vec<Row>> {
    let mut rows = row::read(path)?;
    if let Some(filter) = filter {
        rows.retain(|row| row.case.contains(filter));
        ensure!(
            !rows.is_empty(),
            "{} has no case whose name contains `{filter}`",
            path.display()
        );
    }
    Ok(rows)
}

fn verdict(validation: &Validation) -> ExitCode {
    let misses: Vec<String> = validation
        .with(Verdict::Miss)
        .map(predictions::terminal::name)
        .collect();
    if misses.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!(
        "\nFAILED: off by more than {:.0} %: {}",
        TOLERANCE * 100.0,
        misses.join("; ")
    );
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(rows: &Path, json: Option<PathBuf>) -> Options {
        Options {
            rows: Some(rows.to_owned()),
            case: None,
            json,
            question: Question {
                cores: vec![1, 4],
                link_gbps: vec![100.0],
                ..costs::fixture::question()
            },
            settings: costs::fixture::settings(),
        }
    }

    #[test]
    fn a_run_gives_the_same_file_every_time() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let rows = dir.path().join("rows.json");
        fs::write(&rows, serde_json::to_string(&costs::fixture::rows())?)?;
        let texts: Vec<String> = ["a", "b"]
            .iter()
            .map(|name| {
                let json = dir.path().join(name);
                let code = run(options(&rows, Some(json.clone())))?;
                assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
                Ok(fs::read_to_string(json)?)
            })
            .collect::<Result<_>>()?;
        assert_eq!(texts[0], texts[1]);
        let value: serde_json::Value = serde_json::from_str(&texts[0])?;
        let keys: Vec<&String> = value.as_object().expect("an object").keys().collect();
        assert_eq!(
            keys,
            [
                "adaptivity",
                "crowded",
                "fig10",
                "fig7",
                "figures_case",
                "left_out",
                "predictions",
                "question",
                "settings",
                "validation"
            ]
        );
        assert_eq!(value["validation"][3]["used"], "predicted");
        assert_eq!(value["predictions"][0]["cells"][0]["limit"], "core");
        Ok(())
    }

    #[test]
    fn a_miss_fails_the_command() {
        let mut rows = costs::fixture::rows();
        assert_eq!(
            format!(
                "{:?}",
                verdict(&predictions::validate::validate(
                    &rows,
                    &costs::fixture::settings()
                ))
            ),
            format!("{:?}", ExitCode::SUCCESS)
        );
        rows[4] = costs::fixture::row("mflow", 1_400.0, &[5_000.0, 5_000.0], 1_300.0);
        assert_eq!(
            format!(
                "{:?}",
                verdict(&predictions::validate::validate(
                    &rows,
                    &costs::fixture::settings()
                ))
            ),
            format!("{:?}", ExitCode::FAILURE)
        );
    }

    #[test]
    fn without_rows_it_says_how_to_get_some() {
        let error = |options| format!("{:#}", run(options).expect_err("no rows"));
        let mut none = options(Path::new("no/such/file"), None);
        assert!(error(none).contains("bench --json"));
        none = options(Path::new("no/such/file"), None);
        none.rows = None;
        assert!(error(none).contains("cargo xtask bench --json rows.json"));
    }
}
