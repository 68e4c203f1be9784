// SPDX-License-Identifier: GPL-2.0

//! The model against the measurements: every ratio to the vanilla stack.

use super::check::{check, Check, Used, Verdict};
use super::falcon_rows::{predict_stages, staged};
use crate::sim::costs::groups::{groups, Group, Skipped};
use crate::sim::costs::rows::{calibrating, Costs, Measured, NicCore, MFLOW, RPS, VANILLA};
use crate::sim::costs::settings::Settings;
use crate::sim::costs::stages::{has_stages, StageCosts};
use crate::sim::model::arrivals::Load;
use crate::sim::model::pipeline::simulate;
use crate::sim::model::scene::{Limit, WhenFull};
use xtask::results::row::Row;

/// The module's default batch, which benchmarks use unless the batch is their subject.
const USUAL_BATCH_PKTS: u32 = 256;
/// Rows in which the core builds packets that has time to.
const AUTO: &str = "auto";

/// A way in which mflow splits a case's flow, and its costs.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub(crate) name: String,
    pub(crate) costs: Costs,
    /// Lanes of the row that calibrates.
    pub(crate) from_lanes: u32,
    /// Lanes of the row that shows the least work of the NIC's core, where lanes may do a part of that work.
    pub(crate) least_nic_lanes: Option<u32>,
    /// True if its costs could be read off.
    pub(crate) is_direct: bool,
    pub(crate) is_saturated: bool,
}

/// A case with the costs that other scenes are made of.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) proto: String,
    pub(crate) msg_bytes: u32,
    /// True if all its packets go through one NIC core and one application core.
    pub(crate) is_one_path: bool,
    pub(crate) vanilla: Costs,
    pub(crate) vanilla_pkts_per_s: f64,
    /// The costs of the cores with RPS, and those of FALCON's stages, if they were measured.
    pub(crate) rps: Option<Costs>,
    pub(crate) falcon: Option<StageCosts>,
    pub(crate) splits: Vec<Split>,
}

impl Case {
    /// Returns whether GRO joins its packets on lanes, as it does TCP's.
    pub(crate) fn gro_joins(&self) -> bool {
        self.proto == "tcp"
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Validation {
    pub(crate) cases: Vec<Case>,
    pub(crate) checks: Vec<Check>,
    pub(crate) skipped: Vec<Skipped>,
}

impl Check {
    /// Names, for a miss, the defect of the row that calibrates, if it has one.
    fn suspect(&mut self, calibrates: &Row, split: &Split) {
        if self.verdict != Verdict::Miss || (split.is_direct && split.is_saturated) {
            return;
        }
        let fault = if split.is_direct {
            "was not saturated"
        } else {
            "cannot be read off cleanly"
        };
        let reason = format!(
            "the row that calibrates, {} lanes, {fault}",
            calibrates.lanes
        );
        self.reason = Some(reason);
    }
}

impl Validation {
    pub(crate) fn with(&self, verdict: Verdict) -> impl Iterator<Item = &Check> {
        self.checks
            .iter()
            .filter(move |check| check.verdict == verdict)
    }
}

pub(crate) fn validate(rows: &[Row], settings: &Settings) -> Validation {
    let mut validation = Validation::default();
    for group in groups(rows, &mut validation.skipped) {
        let vanilla = group.measured.costs(VANILLA);
        let vanilla_rate = rate(settings, &vanilla, 0, 1, WhenFull::Lose).0;
        let splits = splits(&group);
        let staged = staged(&group);
        for (row, measured) in &group.rows {
            if has_stages(&row.mode) {
                match predict_stages(&group, row, &staged, vanilla_rate, settings) {
                    Ok(check) => validation.checks.push(check),
                    Err(why) => validation.skipped.push(Skipped::of(row, why)),
                }
                continue;
            }
            let split = splits
                .iter()
                .find(|(_, split)| split_name(row) == split.name)
                .filter(|_| row.mode == MFLOW);
            let (used, costs) = match split {
                Some((calibrates, split))
                    if std::ptr::eq(*calibrates, *row)
                        || split.least_nic_lanes == Some(row.lanes) =>
                {
                    (Used::Calibrates, split.costs.clone())
                }
                Some((_, split)) => (Used::Predicted, split.costs.clone()),
                None => (Used::Itself, measured.costs(&row.mode)),
            };
            // A row that calibrates has the help in its costs already.
            let helps = row.mode == MFLOW
                && match measured.nic_core() {
                    NicCore::ToSpare => false,
                    NicCore::AsBusy => used == Used::Predicted,
                    NicCore::Busier => true,
                };
            let when_full = if helps {
                WhenFull::Inline
            } else {
                WhenFull::Lose
            };
            let lanes = measured.lanes.len();
            let (pkts_per_s, limit) = rate(settings, &costs, lanes, row.batch_pkts, when_full);
            let mut check = check(
                row,
                group.vanilla,
                used,
                helps,
                pkts_per_s,
                pkts_per_s / vanilla_rate,
                limit,
            );
            if let Some((calibrates, split)) = split {
                check.suspect(calibrates, split);
            }
            validation.checks.push(check);
        }
        let rps = group.rows.iter().find(|(row, _)| row.mode == RPS);
        validation.cases.push(Case {
            name: group.vanilla.case.clone(),
            proto: group.vanilla.proto.clone(),
            msg_bytes: group.vanilla.msg_bytes,
            is_one_path: group.measured.is_one_path,
            vanilla,
            vanilla_pkts_per_s: vanilla_rate,
            rps: rps.map(|(_, measured)| measured.costs(RPS)),
            falcon: staged.ok().map(|(_, costs)| costs),
            splits: splits.into_iter().map(|(_, split)| split).collect(),
        });
    }
    validation
}

fn split_name(row: &Row) -> &str {
    row.split.as_deref().unwrap_or("flow")
}

fn splits<'a>(group: &Group<'a>) -> Vec<(&'a Row, Split)> {
    let mut splits: Vec<(&Row, Split)> = Vec::new();
    for (row, _) in group.rows.iter().filter(|(row, _)| row.mode == MFLOW) {
        let name = split_name(row);
        if splits.iter().any(|(_, split)| split.name == name) {
            continue;
        }
        let candidates: Vec<_> = group
            .rows
            .iter()
            .filter(|(row, _)| row.mode == MFLOW && split_name(row) == name)
            .cloned()
            .collect();
        if let Some((row, measured)) = calibrating(&candidates, USUAL_BATCH_PKTS) {
            let least = least_nic(name, measured, &candidates);
            splits.push((
                row,
                Split {
                    name: name.to_owned(),
                    costs: Costs {
                        app: group.least_app(),
                        movable: least.map_or(0.0, |(_, nic)| measured.nic - nic),
                        ..measured.costs(MFLOW)
                    },
                    from_lanes: row.lanes,
                    least_nic_lanes: least.map(|(lanes, _)| lanes),
                    is_direct: measured.is_direct(),
                    is_saturated: row.saturated == Some(true),
                },
            ));
        }
    }
    splits
}

/// Returns the row in which the NIC's core did least, if lanes may do a part of its work: its lanes, and that core's cost.
fn least_nic(
    name: &str,
    calibrates: &Measured,
    candidates: &[(&Row, Measured)],
) -> Option<(u32, f64)> {
    let others = candidates
        .iter()
        .filter(|(row, _)| name == AUTO && row.batch_pkts == USUAL_BATCH_PKTS);
    others
        .map(|(row, measured)| (row.lanes, measured.nic))
        .filter(|(_, nic)| *nic < calibrates.nic)
        .min_by(|one, other| one.1.total_cmp(&other.1))
}

fn rate(
    settings: &Settings,
    costs: &Costs,
    lanes: usize,
    batch_pkts: u32,
    when_full: WhenFull,
) -> (f64, Limit) {
    let settings = Settings {
        batch_pkts: batch_pkts.max(1),
        ..settings.clone()
    };
    let scene = settings.scene(costs, lanes, Load::Endless, when_full);
    let outcome = simulate(&scene);
    (outcome.pkts_per_s(), outcome.limit(&scene))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::costs::fixture::{row, rows, settings};
    use crate::sim::costs::rows::NATIVE;

    fn verdicts(rows: &[Row]) -> Vec<(Used, Verdict)> {
        let validation = validate(rows, &settings());
        let checks = validation.checks.iter();
        checks.map(|check| (check.used, check.verdict)).collect()
    }

    #[test]
    fn lanes_are_predicted_from_one_row() {
        let validation = validate(&rows(), &settings());
        let used: Vec<Used> = validation.checks.iter().map(|check| check.used).collect();
        let (itself, predicted) = (Used::Itself, Used::Predicted);
        assert_eq!(
            used,
            [
                itself,
                itself,
                Used::Calibrates,
                predicted,
                predicted,
                Used::Calibrates
            ]
        );
        assert_eq!(validation.with(Verdict::Good).count(), 6);
        let ratio = validation.checks[3].model_ratio;
        // 8000 / (6000 / 2): from one lane's cost, not from the 3050 that were measured.
        assert!((ratio / (8.0 / 3.0) - 1.0).abs() < 0.01, "{ratio}");
        assert_eq!(validation.cases[0].splits[0].from_lanes, 1);
    }

    #[test]
    fn where_either_core_builds_two_rows_say_what_the_others_do() {
        let mut rows: Vec<Row> = rows().into_iter().filter(|row| row.mode != MFLOW).collect();
        let of_lanes = [
            row(MFLOW, 1_500.0, &[4_500.0], 500.0),
            // 6000 on three cores would be 2000 each, but the NIC's core has no more to do.
            row(MFLOW, 1_500.0, &[2_250.0; 2], 500.0),
            // 6000 on five cores.
            row(MFLOW, 1_200.0, &[1_200.0; 4], 500.0),
            row(MFLOW, 800.0, &[650.0; 8], 500.0),
        ];
        rows.extend(of_lanes.map(|row| Row {
            split: Some(AUTO.to_owned()),
            ..row
        }));
        let validation = validate(&rows, &settings());
        let checks: Vec<&Check> = validation
            .checks
            .iter()
            .filter(|check| check.mode == MFLOW)
            .collect();
        let used: Vec<Used> = checks.iter().map(|check| check.used).collect();
        let (calibrates, predicted) = (Used::Calibrates, Used::Predicted);
        assert_eq!(used, [calibrates, predicted, predicted, calibrates]);
        for check in checks {
            assert!(check.error.abs() < 0.02, "{check:?}");
        }
    }

    #[test]
    fn a_wrong_prediction_is_a_miss() {
        let mut rows = rows();
        rows[4] = row(MFLOW, 1_400.0, &[4_000.0, 4_000.0], 1_300.0);
        assert_eq!(verdicts(&rows)[3], (Used::Predicted, Verdict::Miss));
        rows[4].saturated = Some(false);
        assert_eq!(verdicts(&rows)[3], (Used::Predicted, Verdict::Warning));
    }

    #[test]
    fn a_miss_names_a_doubtful_calibration() {
        let mut rows = rows();
        rows.remove(5);
        // No row with lanes can be read off: the application is the busiest, or the NIC core is as busy as the lane.
        rows[3] = row(MFLOW, 3_700.0, &[3_700.0], 1_300.0);
        rows[4] = row(MFLOW, 1_400.0, &[1_100.0, 1_100.0], 6_000.0);
        let validation = validate(&rows, &settings());
        let misses: Vec<&Check> = validation.with(Verdict::Miss).collect();
        assert_eq!(misses.len(), 1);
        let reason = misses[0].reason.as_deref().unwrap_or_default();
        assert!(reason.contains("cannot be read off"), "{reason}");
    }

    #[test]
    fn an_application_answers_through_the_overlay() {
        let mut rows = rows();
        let native = rows.iter_mut().find(|row| row.mode == NATIVE);
        let native = native.expect("in the fixture");
        *native = row(NATIVE, 3_000.0, &[], 10.0);
        let validation = validate(&rows, &settings());
        let app = validation.cases[0].splits[0].costs.app;
        assert!(app > 1_000.0, "{app}");
    }

    #[test]
    fn a_nic_core_as_busy_as_its_lanes_is_taken_to_help() {
        let mut rows = rows();
        // (1400 + 6000) / 3: what two lanes and the NIC core make together of the one-lane costs.
        rows[4] = row(MFLOW, 2_467.0, &[2_467.0, 2_467.0], 1_300.0);
        let validation = validate(&rows, &settings());
        let check = &validation.checks[3];
        assert!(check.nic_core_helps);
        assert!(check.error.abs() < 0.03, "{}", check.error);
    }

    #[test]
    fn rows_without_a_case_of_their_own_find_the_same_work() {
        let mut rows = rows();
        rows[5].case = "order-batch-256".to_owned();
        let mut lonely = rows[5].clone();
        lonely.msg_bytes = 4_096;
        let mut overhead = rows[5].clone();
        overhead.case = "overhead-udp-16".to_owned();
        rows.extend([lonely, overhead]);
        let validation = validate(&rows, &settings());
        assert_eq!(validation.checks.len(), 6);
        assert_eq!(validation.skipped.len(), 2);
        assert!(validation.skipped[0].why.contains("vanilla"));
    }
}
