// SPDX-License-Identifier: GPL-2.0

//! One row against the model.

use serde::Serialize;

use crate::sim::model::scene::Limit;
use xtask::results::row::Row;

/// The largest error of a predicted ratio.
pub(crate) const TOLERANCE: f64 = 0.10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Used {
    /// Its own costs are used: a match shows that the model adds up, not that it predicts.
    Itself,
    /// The costs of its mode are taken from it.
    Calibrates,
    Predicted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Good,
    /// Off, but the measurement was not saturated.
    Warning,
    Miss,
}

/// One row and what the model says about it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) case: String,
    /// The case with the vanilla row that it is compared with.
    pub(crate) vanilla_case: String,
    pub(crate) mode: String,
    pub(crate) split: Option<String>,
    pub(crate) lanes: u32,
    pub(crate) batch_pkts: u32,
    pub(crate) used: Used,
    /// True if the NIC core carried batches for full lanes in the model, as it may have in the measurement.
    pub(crate) nic_core_helps: bool,
    pub(crate) measured_ratio: f64,
    pub(crate) model_ratio: f64,
    /// The error of the model's ratio against the measured one.
    pub(crate) error: f64,
    pub(crate) verdict: Verdict,
    /// The reason for which a miss only warns, or the possible cause of a miss.
    pub(crate) reason: Option<String>,
    pub(crate) model_pkts_per_s: f64,
    pub(crate) limit: Limit,
    pub(crate) paper_ratio: Option<f64>,
}

/// Compares the ratio of a row to its vanilla row with the ratio in the model.
pub(crate) fn check(
    row: &Row,
    vanilla: &Row,
    used: Used,
    nic_core_helps: bool,
    model_pkts_per_s: f64,
    model_ratio: f64,
    limit: Limit,
) -> Check {
    let busiest = |row: &Row| row.busiest().unwrap_or(f64::NAN);
    let measured_ratio = busiest(vanilla) / busiest(row);
    let error = model_ratio / measured_ratio - 1.0;
    let unsaturated: Vec<&str> = [vanilla, row]
        .iter()
        .filter(|row| row.saturated != Some(true))
        .map(|row| row.mode.as_str())
        .collect();
    let is_off = error.is_nan() || error.abs() > TOLERANCE;
    let (verdict, reason) = if !is_off {
        (Verdict::Good, None)
    } else if unsaturated.is_empty() {
        (Verdict::Miss, None)
    } else {
        let modes = unsaturated.join(" and ");
        let mut reason = format!(
            "{modes} had a busiest core with time to spare: wake-ups and interrupts for a handful of packets are in the cost"
        );
        if row.lost as f64 > TOLERANCE * row.packets as f64 {
            reason += &format!(
                ", and work for {} packets that were lost beside {} delivered",
                row.lost, row.packets
            );
        }
        (Verdict::Warning, Some(reason))
    };
    Check {
        case: row.case.clone(),
        vanilla_case: vanilla.case.clone(),
        mode: row.mode.clone(),
        split: row.split.clone(),
        lanes: row.lanes,
        batch_pkts: row.batch_pkts,
        used,
        nic_core_helps,
        measured_ratio,
        model_ratio,
        error,
        verdict,
        reason,
        model_pkts_per_s,
        limit,
        paper_ratio: row.paper.as_ref().map(|paper| paper.speedup_vs_vanilla),
    }
}
