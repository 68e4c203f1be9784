// SPDX-License-Identifier: GPL-2.0

//! The form in which a cause is reported.

use schemars::JsonSchema;
use serde::Serialize;

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// The stable name of the cause, such as `gro_off`.
    pub cause: String,
    /// The sentence about it.
    pub says: String,
    /// The command, or the sentence, that helps.
    #[serde(rename = "try")]
    pub advice: String,
}

impl Finding {
    /// Returns a finding.
    pub fn new(cause: &str, says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            cause: cause.to_owned(),
            says: says.into(),
            advice: advice.into(),
        }
    }
}
