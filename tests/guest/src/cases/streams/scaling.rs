// SPDX-License-Identifier: GPL-2.0

//! Streams that are split behind GRO, or on the overlay's device, and a change of that place under a running stream.

use std::time::Duration;

use anyhow::Result;

use super::{strict, unnoticed};
use crate::cases::scaling::PLACES;
use crate::cases::{Case, Run};
use crate::mflow::{self, Knobs};
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::streams::run;

const ROUNDS: usize = 5;
/// With the switch in either position.
const PAUSE: Duration = Duration::from_millis(150);

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = PLACES
        .iter()
        .map(|place| {
            let case = strict(
                format!("tcp/scaling/{}", place.name),
                format!("{}, and TCP does not notice", place.proves),
                place.when(),
                |rig| (rig.tcp_plan(), place.knobs()),
            );
            Case {
                vanilla: false,
                ..case
            }
        })
        .collect();
    cases.push(Case::of_module(
        "tcp/scaling/switch",
        "scaling changes between path and device under a running stream: TCP does not notice",
        Run::Always,
        |rig| switch(rig).map(Some),
    ));
    cases
}

fn switch(rig: &Rig) -> Result<Outcome> {
    let plan = rig.tcp_plan();
    rig.prepare_tcp(&plan, &Knobs::default())?;
    let outcome = run::measure(&plan, |live| {
        for scaling in ["device", "path"].into_iter().cycle().take(2 * ROUNDS) {
            live.flow_for(PAUSE)?;
            let before = mflow::flows_split()?;
            mflow::write("scaling", scaling)?;
            live.wait_split_since(before)?;
        }
        Ok(())
    })?;
    unnoticed(outcome)
}
