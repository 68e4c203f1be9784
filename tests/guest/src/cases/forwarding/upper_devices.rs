// SPDX-License-Identifier: GPL-2.0

//! The NIC is a part of another device: what lanes carry goes through that, too.

use anyhow::Result;

use crate::cases::{Case, Run};
use crate::mflow::Knobs;
use crate::network::topology;
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::Load;

/// The kinds of devices that the NIC is below, each with its options, and the NIC's part there.
const ABOVE: &[(&str, &str, &str)] = &[
    (
        "bridge",
        "stp_state 0 forward_delay 0",
        "a port of a bridge",
    ),
    ("bond", "mode active-backup", "the slave of a bond"),
];

pub(crate) fn datagrams() -> Vec<Case> {
    cases::<Datagrams>("no loss, no reordering")
}

pub(crate) fn streams() -> Vec<Case> {
    cases::<Streams>("TCP does not notice")
}

fn cases<L: Load>(proves: &str) -> Vec<Case> {
    let case = |(kind, options, part): &'static (&str, &str, &str)| {
        Case::of_traffic(
            format!("{}below/{kind}", L::GROUP),
            format!("the NIC is {part}: its flows are split, {proves}"),
            Run::Plain,
            move |rig| below::<L>(rig, kind, options),
        )
    };
    ABOVE.iter().map(case).collect()
}

fn below<L: Load>(rig: &Rig, kind: &str, options: &str) -> Result<Outcome> {
    let (plan, knobs) = (rig.plan::<L>(), Knobs::default());
    rig.prepare(&plan, &knobs)?;
    let outcome = topology::nic_below(kind, options).and_then(|()| L::measure(&plan, |_| Ok(())));
    // Also after a failure: the next case needs the NIC.
    topology::nic_alone()?;
    outcome?.judge(|outcome| rig.require_strict(&plan, &knobs, outcome))
}
