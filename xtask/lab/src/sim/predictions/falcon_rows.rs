// SPDX-License-Identifier: GPL-2.0

//! The rows of FALCON's modes against the model: one calibrates, the others are predicted.

use super::check::{check, Check, Used, Verdict, TOLERANCE};
use crate::sim::costs::groups::Group;
use crate::sim::costs::rows::FALCON_DEV;
use crate::sim::costs::settings::Settings;
use crate::sim::costs::stages::{Placement, StageCosts};
use crate::sim::model::pipeline::simulate;
use xtask::results::row::Row;

/// Returns the row that shows what FALCON's stages cost, and the costs.
pub(crate) fn staged<'a>(group: &Group<'a>) -> Result<(&'a Row, StageCosts), String> {
    let row = group.rows.iter().find(|(row, _)| row.mode == FALCON_DEV);
    let (row, _) = row.ok_or(format!("there is no row `{FALCON_DEV}` to take costs from"))?;
    let costs = StageCosts::of(row)
        .map_err(|why| format!("no costs from the row `{FALCON_DEV}`: {why}"))?;
    Ok((row, costs))
}

/// Predicts a row of FALCON's modes: stages where its flows had them, and the costs of the row that calibrates.
pub(crate) fn predict_stages(
    group: &Group<'_>,
    row: &Row,
    staged: &Result<(&Row, StageCosts), String>,
    vanilla_rate: f64,
    settings: &Settings,
) -> Result<Check, String> {
    let (calibrates, costs) = staged.as_ref().map_err(String::clone)?;
    let placement = Placement::of(row)?;
    let scene = settings.stages(&costs.in_mode(&row.mode), &placement, group.least_app());
    let outcome = simulate(&scene);
    let used = if std::ptr::eq(*calibrates, row) {
        Used::Calibrates
    } else {
        Used::Predicted
    };
    let pkts_per_s = outcome.pkts_per_s();
    let ratio = pkts_per_s / vanilla_rate;
    let limit = outcome.limit(&scene);
    let mut check = check(row, group.vanilla, used, false, pkts_per_s, ratio, limit);
    let carried = placement.first_stage_insn / costs.first_stage_insn;
    if check.verdict == Verdict::Miss && carried > 1.0 + TOLERANCE {
        check.verdict = Verdict::Warning;
        check.reason = Some(format!(
            "of {:.0} packets that the first stage carried, {:.0} were dropped behind it, where emulated CPUs were away: that work is \
             in the cost",
            carried * 100.0,
            (carried - 1.0) * 100.0
        ));
    }
    Ok(check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::costs::fixture::{rows, settings, staged_row};
    use crate::sim::predictions::validate::validate;

    #[test]
    fn falcons_rows_are_predicted_from_one_with_stages_where_their_flows_were() {
        let staged =
            |mode, nic: f64, first: &[usize], stages| staged_row(mode, (nic, 0.0), first, stages);
        let mut rows = rows();
        rows.extend([
            // GRO is the first stage's, and it is a little cheaper there.
            staged(
                "falcon-func",
                1_600.0,
                &[1, 2, 0, 0],
                [3_800.0, 2_000.0, 2_000.0],
            ),
            // First and last stage on one CPU.
            staged(
                "falcon-dev-2",
                3_000.0,
                &[3, 0],
                [2_550.0, 2_000.0, 2_000.0],
            ),
            staged(
                "falcon-func-2",
                1_600.0,
                &[1, 2],
                [5_500.0, 2_000.0, 2_000.0],
            ),
        ]);
        let validation = validate(&rows, &settings());
        let [func, dev_2, func_2] = &validation.checks[6..] else {
            panic!("three rows more: {validation:?}");
        };
        for (check, insn, verdict) in [
            // 2/3 of (2500 + 1400), and 1/3 of 2000 behind the other flow's first stage.
            (func, 3_267.0, Verdict::Good),
            (dev_2, 4_500.0, Verdict::Good),
            // 2/3 of (3900 + 2000), and 1/3 of 2000; measured was more by far.
            (func_2, 4_600.0, Verdict::Miss),
        ] {
            assert_eq!((check.used, check.verdict), (Used::Predicted, verdict));
            let off = check.model_ratio / (8_000.0 / insn) - 1.0;
            assert!(off.abs() < 0.01, "{check:?}");
        }
    }

    #[test]
    fn what_was_dropped_behind_the_first_stage_only_warns() {
        let mut rows = rows();
        let mut lossy = staged_row(
            "falcon-dev-2",
            (3_000.0, 0.0),
            &[3, 0],
            [3_250.0, 2_000.0, 2_000.0],
        );
        assert_eq!(
            validate(&[&rows[..], &[lossy.clone()]].concat(), &settings()).checks[6].verdict,
            Verdict::Miss
        );
        let by_cpu = &mut lossy.insn_per_packet.as_mut().expect("measured").by_cpu;
        for function in by_cpu.iter_mut().flat_map(|core| &mut core.top) {
            if function.name == "vxlan_rcv" {
                function.insn_per_packet *= 1.3;
            }
        }
        rows.push(lossy);
        let validation = validate(&rows, &settings());
        let check = &validation.checks[6];
        assert_eq!(check.verdict, Verdict::Warning);
        let reason = check.reason.as_deref().unwrap_or_default();
        assert!(reason.contains("of 130 packets"), "{reason}");
    }

    #[test]
    fn stages_without_a_row_that_shows_their_costs_are_left_out() {
        let mut rows = rows();
        rows[6].mode = "falcon-func".to_owned();
        let validation = validate(&rows, &settings());
        assert_eq!((validation.checks.len(), validation.skipped.len()), (5, 1));
        assert!(validation.skipped[0].why.contains("no row `falcon-dev`"));
    }
}
