// SPDX-License-Identifier: GPL-2.0

//! Cases about byte streams over TCP: every byte in its place, and TCP does not notice that its segments came over several
//! cores.

mod churn;
mod closing;
mod nat;
mod path;
mod programs;
mod readers;
mod rehash;
mod request;
mod scaling;
mod shapes;
mod switches;

use anyhow::Result;

use super::{Case, Run};
use crate::mflow::Knobs;
use crate::outcome::Outcome;
use crate::rig::{self, Rig};
use crate::streams::run::Plan;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    [
        shapes::cases(),
        readers::cases(),
        request::cases(),
        churn::cases(),
        closing::cases(),
        path::cases(),
        nat::cases(),
        rehash::cases(),
        scaling::cases(),
        switches::cases(),
        programs::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns a case that sends one plan and demands everything.
fn strict(
    name: impl Into<String>,
    proves: impl Into<String>,
    when: Run,
    make: impl Fn(&Rig) -> (Plan, Knobs) + 'static,
) -> Case {
    Case::of_traffic(name, proves, when, move |rig| {
        let (plan, knobs) = make(rig);
        rig.strict_tcp(&plan, &knobs, |_| Ok(()))
    })
}

/// Demands that TCP has noticed nothing of what was switched while its stream ran.
fn unnoticed(outcome: Outcome) -> Result<Outcome> {
    outcome.judge(|outcome| {
        outcome.require_quiet_tcp()?;
        outcome.require_no_deadline()?;
        rig::settle()
    })
}
