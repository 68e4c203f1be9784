// SPDX-License-Identifier: GPL-2.0

//! Jumbo frames on a stream's way.

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::mflow::Knobs;
use crate::network::topology;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::Load as _;

/// Small, because there are fewer packets for the same bytes, and all lanes shall have their turn.
const BATCH_PKTS: u32 = 32;
/// More than any packet carries in an ordinary frame. Jumbo frames carry four times as much, but a slow sender does not fill all.
const LEAST_BYTES: u64 = 2_000;

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "tcp/mtu/9000",
        "order holds with jumbo frames",
        Run::Always,
        jumbo,
    )]
}

fn jumbo(rig: &Rig) -> Result<Outcome> {
    let plan = rig.streams();
    let knobs = Knobs {
        batch_pkts: BATCH_PKTS,
        ..Knobs::default()
    };
    rig.prepare(&plan, &knobs)?;
    let outcome = topology::jumbo(plan.outer).and_then(|()| Streams::measure(&plan, |_| Ok(())));
    // Also after a failure.
    topology::no_jumbo()?;
    outcome?.judge(|outcome| {
        rig.require_strict(&plan, &knobs, outcome)?;
        let bytes = plan.load.bytes;
        ensure!(
            outcome.frames < bytes / LEAST_BYTES,
            "{} packets carried {bytes} bytes: they were not jumbo frames",
            outcome.frames
        );
        Ok(())
    })
}
