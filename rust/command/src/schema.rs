// SPDX-License-Identifier: GPL-2.0

//! The schema of what `--json` prints, made of the types that are printed.

use anyhow::Result;
use schemars::generate::SchemaSettings;
use schemars::JsonSchema;
use serde::Serialize;

use crate::diagnose::Diagnosis;
use crate::listing::Value;
use crate::module::text::FlowList;
use crate::status::Status;
use crate::top::sample::Sample;
use crate::trace::event::Event;

/// The outputs, each under the name of its command.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "the schema is made of it")]
pub struct Outputs {
    /// The output of `mflow status`.
    status: Status,
    /// The output of `mflow get`.
    get: Vec<Value>,
    /// The output of `mflow set` and of `mflow confirm`.
    set: Changed,
    /// The output of `mflow apply`.
    apply: Applied,
    /// The output of `mflow flows`.
    flows: FlowList,
    /// The output of `mflow top`, in each interval.
    top: Sample,
    /// The output of `mflow trace`, for each event.
    trace: Event,
    /// The output of `mflow metrics`.
    metrics: Metrics,
    /// The output of `mflow diagnose`.
    diagnose: Diagnosis,
    /// The output of all commands on standard error, if they end with 2 or 3.
    error: Failure,
}

/// A change that was made.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Changed {
    /// The settings that were written, in this order.
    pub settings: Vec<Written>,
    /// The module's remarks on them.
    pub remarks: Vec<String>,
    /// The seconds until all is set back unless it is confirmed; null if it stays.
    pub confirm_within_s: Option<u64>,
}

/// The settings of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Applied {
    /// The settings that were written, in this order: none that were so already.
    pub settings: Vec<Written>,
    /// The module's remarks on them.
    pub remarks: Vec<String>,
    /// The devices of the file that are not here, and are opted in when they come.
    pub expected_devices: Vec<String>,
}

/// A setting that was written.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Written {
    /// The name of a knob, or `devices`.
    pub name: String,
    /// The value that was written.
    pub value: String,
}

/// The metrics, or the file that has them now.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Metrics {
    /// The text of the metrics; null if it is in a file.
    pub text: Option<String>,
    /// The path of the file.
    pub file: Option<String>,
}

/// A failure.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Failure {
    /// The sentence that says what could not be done.
    pub error: String,
}

/// Returns the schema.
pub fn schema() -> Result<String> {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let schema = generator.into_root_schema_for::<Outputs>();
    Ok(format!("{}\n", serde_json::to_string_pretty(&schema)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_schema_is_that_of_the_types() {
        let written = include_str!("../schema.json");
        let how =
            "write it: cargo run --package mflow-command -- schema > rust/command/schema.json";
        assert!(
            schema().expect("a schema") == written,
            "schema.json is stale; {how}"
        );
    }
}
