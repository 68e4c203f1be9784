// SPDX-License-Identifier: GPL-2.0

//! The cases: ours, those of requests that are answered, of who builds packets and of HIKE, and what the papers state about them.

mod answer_cases;
mod builder_cases;
pub(crate) mod cases;
pub(crate) mod hike_cases;
pub(crate) mod kind;
pub(crate) mod paper;
pub(crate) mod published;

use cases::{Case, Suite};

/// Returns all cases of a suite.
pub(crate) fn all(suite: Suite) -> Vec<Case> {
    let mut cases = cases::all(suite);
    match suite {
        Suite::Quick => {}
        Suite::Paper => {
            cases.extend(answer_cases::all());
            cases.extend(hike_cases::all());
        }
        Suite::Builders => cases.extend(builder_cases::all()),
    }
    cases
}
