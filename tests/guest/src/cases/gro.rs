// SPDX-License-Identifier: GPL-2.0

//! Lanes give to GRO what it can join, and nothing else for long.

use anyhow::{ensure, Result};

use super::{Case, Run};
use crate::mflow::Knobs;
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::traffic::Load as _;

/// Enough for a batch that is tried to be a small part, on each of two lanes.
const DATAGRAMS: u64 = 6_000;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "gro/datagrams",
            "datagrams that GRO would not join go past it, in order",
            Run::Always,
            datagrams,
        ),
        Case::of_module(
            "gro/stream",
            "a stream's segments are joined on the lanes",
            Run::Always,
            stream,
        ),
    ]
}

fn carried(outcome: &Outcome) -> Result<(u64, u64)> {
    Ok((
        outcome.counter("lane_pkts")?,
        outcome.counter("past_gro_pkts")?,
    ))
}

fn datagrams(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load.send_at_least(DATAGRAMS);
    let outcome = rig.strict(&plan, &Knobs::default(), |_| Ok(()))?;
    let (all, past) = carried(&outcome)?;
    ensure!(
        past > all * 3 / 4,
        "only {past} of {all} datagrams went past GRO"
    );
    Ok(outcome)
}

fn stream(rig: &Rig) -> Result<Outcome> {
    let outcome = rig.strict(&rig.streams(), &Knobs::default(), |_| Ok(()))?;
    let (all, past) = carried(&outcome)?;
    ensure!(past < all / 20, "{past} of {all} segments went past GRO");
    Ok(outcome)
}
