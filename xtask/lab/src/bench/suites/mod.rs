// SPDX-License-Identifier: GPL-2.0

//! The cases: ours, those of requests that are answered and of HIKE, and what the papers state about them.

mod answer_cases;
pub(crate) mod cases;
pub(crate) mod hike_cases;
pub(crate) mod kind;
pub(crate) mod paper;
pub(crate) mod published;

use cases::{Case, Suite};

/// Returns all cases of a suite.
pub(crate) fn all(suite: Suite) -> Vec<Case> {
    let mut cases = cases::all(suite);
    if suite == Suite::Paper {
        cases.extend(answer_cases::all());
        cases.extend(hike_cases::all());
    }
    cases
}
