// SPDX-License-Identifier: GPL-2.0

//! A flow stops in the middle of a batch: its last packet must not wait for packets that never come.

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::mflow::{Knobs, STRICT_TIMEOUT_US};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Load as _;

/// Far less than the deadline of one second, and more than a busy host keeps a virtual CPU waiting.
const PROMPT_US: u64 = 400_000;
/// No multiple of any batch size: each round stops at another place within a batch.
const COUNTS: [u64; 6] = [1_001, 1_277, 1_531, 1_789, 2_049, 2_303];

pub(in crate::cases) fn cases() -> Vec<Case> {
    [(2, 1024, Run::Always), (4, 256, Run::Plain)]
        .into_iter()
        .map(|(lanes, batch_pkts, when)| {
            let knobs = Knobs::of(lanes, batch_pkts);
            Case::of_traffic(
                format!("tail/lanes-{lanes}/batch-{batch_pkts}"),
                "a flow that stops within a batch is delivered to its last packet at once",
                when,
                move |rig| stop_within_a_batch(rig, &knobs),
            )
        })
        .collect()
}

fn stop_within_a_batch(rig: &Rig, knobs: &Knobs) -> Result<Outcome> {
    const { assert!(PROMPT_US < STRICT_TIMEOUT_US as u64) };
    let mut worst = Outcome::default();
    let mut plan = rig.datagrams();
    rig.prepare(&plan, knobs)?;
    for count in COUNTS {
        plan.load.count = count;
        let outcome = Datagrams::measure(&plan, |_| Ok(()))?.judge(|outcome| {
            rig.require_unnoticed::<Datagrams>(outcome)?;
            ensure!(
                outcome.tail_wait_us <= PROMPT_US,
                "the last of {count} datagrams arrived {} us after it was sent, allowed are {PROMPT_US}",
                outcome.tail_wait_us
            );
            Ok(())
        })?;
        if outcome.tail_wait_us >= worst.tail_wait_us {
            worst = outcome;
        }
    }
    Ok(worst)
}
