// SPDX-License-Identifier: GPL-2.0

//! Packets vanish between split and merge: the merger must not wait for them.

use anyhow::{ensure, Context as _, Result};
use serde_json::Value;

use crate::cases::{Case, Run};
use crate::machine::command;
use crate::mflow::{Knobs, STRICT_TIMEOUT_US};
use crate::network::topology;
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Load as _;

/// One packet in this many is dropped.
const ONE_IN: u64 = 100;
/// The same where a packet may be many datagrams, so that enough packets are.
const JOINED_ONE_IN: u64 = 10;
const LEAST_DATAGRAMS: u64 = 5_000;
/// Long enough to carry the time of sending.
pub(super) const BYTES: usize = 64;
/// A wait for one dropped packet until the deadline would be twice as long.
const LONGEST_WAIT_US: u64 = STRICT_TIMEOUT_US as u64 / 2;

pub(in crate::cases) fn cases() -> Vec<Case> {
    // A batch of one packet that is dropped is a batch of none.
    [
        (2, 256, Run::Always),
        (4, 16, Run::Plain),
        (4, 1, Run::Plain),
    ]
    .into_iter()
    .map(|(lanes, batch_pkts, when)| {
        let knobs = Knobs::of(lanes, batch_pkts);
        Case::of_traffic(
            format!("drops/lanes-{lanes}/batch-{batch_pkts}"),
            "one packet in a hundred dropped on the way: no wait for them, order of the others kept",
            when,
            move |rig| drop_some(rig, &knobs),
        )
    })
    .collect()
}

fn drop_some(rig: &Rig, knobs: &Knobs) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load = plan.load.sized(BYTES);
    plan.load.send_at_least(LEAST_DATAGRAMS);
    rig.prepare(&plan, knobs)?;
    // Before there is traffic: the first one in the system patches the kernel's code.
    topology::tc("qdisc add dev vxlan0 clsact")?;
    let one_in = if rig.most_joined() > 1 {
        JOINED_ONE_IN
    } else {
        ONE_IN
    };
    let outcome = Datagrams::measure(&plan, |live| {
        topology::tc(&format!(
            "filter add dev vxlan0 ingress protocol ip matchall action gact pass random netrand drop {one_in}"
        ))?;
        live.send_more(plan.load.count)
    })?;
    let dropped = dropped()?;
    let least = outcome.frames / (4 * one_in);
    outcome.judge(|outcome| judge(rig, knobs, outcome, dropped, least))
}

fn dropped() -> Result<u64> {
    let said = command::run("tc -s -j filter show dev vxlan0 ingress")?;
    let filters: Value = serde_json::from_str(&said).context("tc's report")?;
    let mut filters = filters.as_array().into_iter().flatten();
    filters
        .find_map(|filter| filter.pointer("/options/actions/0/stats/drops")?.as_u64())
        .with_context(|| format!("tc reports no drops: {said}"))
}

fn judge(rig: &Rig, knobs: &Knobs, outcome: &Outcome, dropped: u64, least: u64) -> Result<()> {
    outcome.require_intact()?;
    outcome.require_order()?;
    let most_joined = rig.most_joined();
    ensure!(
        (dropped..=dropped * most_joined).contains(&outcome.lost) && outcome.lost >= least,
        "{} of {} datagrams lost, and {dropped} were dropped on the way",
        outcome.lost,
        outcome.frames
    );
    require_no_wait(rig, knobs, outcome)
}

/// Fails if the merger has waited for a packet that was dropped, or if the flow was not split.
pub(super) fn require_no_wait(rig: &Rig, knobs: &Knobs, outcome: &Outcome) -> Result<()> {
    ensure!(
        outcome.longest_wait_us <= LONGEST_WAIT_US,
        "a datagram took {} us: the merger waited for a dropped one",
        outcome.longest_wait_us
    );
    if rig.mflow {
        outcome.require_no_deadline()?;
        outcome.require_split(knobs, 1)?;
    }
    rig.settle()
}
