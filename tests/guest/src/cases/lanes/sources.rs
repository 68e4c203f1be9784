// SPDX-License-Identifier: GPL-2.0

//! The cost of lanes: each source has some, and there are no more sources than queues that receive.

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::machine::memory;
use crate::mflow::{self, Knobs};
use crate::network::topology;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "sources/receiving",
        "queues that only send have no lanes, and lanes go with splitting",
        Run::Plain,
        receiving,
    )]
}

fn receiving(rig: &Rig) -> Result<Outcome> {
    // With programs that redirect, sources are of CPUs.
    let knobs = Knobs {
        build: "auto",
        ..Knobs::default()
    };
    let outcome = rig.unnoticed(&rig.datagrams(), &knobs, |_| Ok(()))?;
    outcome.judge(|_| {
        let split = memory::lanes()?;
        mflow::write("enabled", "0")?;
        let lanes = split.saturating_sub(memory::lanes()?);
        let most = knobs.lanes * topology::receive_queues(knobs.device)?;
        ensure!(
            (knobs.lanes..=most).contains(&lanes),
            "there were {lanes} lanes; one source has {}, and all queues that receive have {most}",
            knobs.lanes
        );
        Ok(())
    })
}
