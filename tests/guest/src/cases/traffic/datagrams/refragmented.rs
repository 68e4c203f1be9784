// SPDX-License-Identifier: GPL-2.0

//! A bridge that tracks connections: datagrams are put together on the bridge and sent on in pieces, each of which belongs
//! where the datagram does.

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::machine::{command, proc_net};
use crate::mflow::Knobs;
use crate::network::topology;
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Load as _;

/// Three frames of the overlay.
const BYTES: usize = 4_000;
/// The part of the usual rate that is sent: the bridge has more work than usual.
const SHARE: f64 = 0.5;

/// Tracks connections, which takes whole datagrams.
const RULES: &str = "
table ip mflow {
    chain state { type filter hook forward priority 0; ct state invalid counter; }
}
";

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "refragmented",
        "datagrams that the bridge puts together and sends on in pieces arrive whole and in order",
        Run::Plain,
        refragmented,
    )]
}

fn refragmented(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::of(2, 16);
    let mut plan = rig.datagrams();
    plan.load = plan.load.sized(BYTES);
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * SHARE);
    rig.prepare(&plan, &knobs)?;
    command::run("modprobe br_netfilter")?;
    let outcome = track().and_then(|()| {
        let before = pieces()?;
        let outcome = Datagrams::measure(&plan, |_| Ok(()))?;
        Ok((outcome, pieces()? - before))
    });
    // Also after a failure.
    command::run("nft flush ruleset")?;
    command::run("rmmod br_netfilter")?;
    let (outcome, pieces) = outcome?;
    outcome.judge(|outcome| {
        ensure!(
            pieces >= outcome.delivered,
            "the bridge has sent only {pieces} of {} datagrams in pieces",
            outcome.delivered
        );
        rig.require_strict(&plan, &knobs, outcome)
    })
}

fn track() -> Result<()> {
    topology::sysctl("net/bridge/bridge-nf-call-iptables", "1")?;
    command::run_with_input("nft -f -", RULES).map(drop)
}

/// Returns how many datagrams the first namespace has sent on in pieces.
fn pieces() -> Result<u64> {
    proc_net::counter(None, "Ip", "FragOKs")
}
