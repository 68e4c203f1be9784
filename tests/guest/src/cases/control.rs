// SPDX-License-Identifier: GPL-2.0

//! Controls: the wire is made to misbehave, and the receiver must say so. A rig that cannot see it proves nothing.

use anyhow::{ensure, Result};

use super::{Case, Run};
use crate::datagrams::run;
use crate::mflow::{self, Knobs};
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::topology;

/// What the client's end of the overlay does to datagrams, and what the books must show.
struct Misdeed {
    name: &'static str,
    netem: &'static str,
    seen: fn(&Outcome) -> u64,
}

const MISDEEDS: &[Misdeed] = &[
    Misdeed {
        name: "loss",
        netem: "loss 2%",
        seen: |outcome| outcome.lost,
    },
    Misdeed {
        name: "reordering",
        netem: "delay 5ms reorder 98%",
        seen: |outcome| outcome.reordered,
    },
    Misdeed {
        name: "duplication",
        netem: "duplicate 2%",
        seen: |outcome| outcome.duplicate,
    },
];

/// Datagrams sent while something goes wrong: enough for the rarest of it.
const AT_WORK: u64 = 1_000;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let misdeed = |misdeed: &'static Misdeed| {
        Case::of_traffic(
            format!("control/{}", misdeed.name),
            format!("{} on the wire is seen by the receiver", misdeed.name),
            Run::Plain,
            move |rig| misbehave(rig, misdeed),
        )
    };
    MISDEEDS.iter().map(misdeed).collect()
}

/// Without the module in any case: its counters are not the subject.
fn misbehave(rig: &Rig, misdeed: &Misdeed) -> Result<Outcome> {
    let mut plan = rig.plan();
    plan.split = false;
    rig.prepare(&plan, &Knobs::default())?;
    mflow::unload()?;
    let outcome = run::measure(&plan, |live| {
        topology::client_tc(&format!(
            "qdisc add dev vxlan0 root netem limit 100000 {}",
            misdeed.netem
        ))?;
        live.send_more(AT_WORK)?;
        topology::client_tc("qdisc del dev vxlan0 root")
    })?;
    let seen = (misdeed.seen)(&outcome);
    ensure!(
        seen > 0,
        "netem {} was at work on {} datagrams and the receiver saw nothing",
        misdeed.netem,
        outcome.sent
    );
    Ok(outcome)
}
