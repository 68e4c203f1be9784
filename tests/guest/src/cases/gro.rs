// SPDX-License-Identifier: GPL-2.0

//! Lanes give to GRO what it can join, and nothing else for long.

use anyhow::{ensure, Result};

use super::{Case, Run};
use crate::mflow::{self, Knobs};
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::topology::CONTAINER;
use crate::traffic::{Load, Plan};
use crate::{command, proc_net};

/// Enough for a batch that is tried to be a small part, on each of two lanes.
const DATAGRAMS: u64 = 6_000;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "gro/datagrams",
            "datagrams go past GRO where it would not join them; without our patches lanes have it join them: in order, and none is late",
            Run::Always,
            datagrams,
        ),
        Case::of_module(
            "gro/stream",
            "a stream's segments are joined on the lanes",
            Run::Always,
            stream,
        ),
        Case::of_module(
            "gro/forwarding/socket",
            "datagrams that GRO joins as for forwarding are taken apart at the socket: in order, and none is late",
            Run::Always,
            |rig| joined(rig, &rig.datagrams(), false),
        ),
        Case::of_module(
            "gro/forwarding/veth",
            "datagrams that GRO has joined are taken apart before the container's veth: in order, and none is late",
            Run::Plain,
            |rig| joined(rig, &rig.datagrams(), true),
        ),
        Case::of_module(
            "tcp/gro/forwarding/veth",
            "segments that GRO has joined are taken apart before the container's veth: TCP does not notice",
            Run::Plain,
            |rig| joined(rig, &rig.streams(), true),
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
    let as_expected = if mflow::is_patched()? {
        past > all * 3 / 4
    } else {
        past < all / 20
    };
    ensure!(as_expected, "{past} of {all} datagrams went past GRO");
    Ok(outcome)
}

fn stream(rig: &Rig) -> Result<Outcome> {
    let outcome = rig.strict(&rig.streams(), &Knobs::default(), |_| Ok(()))?;
    let (all, past) = carried(&outcome)?;
    ensure!(past < all / 20, "{past} of {all} segments went past GRO");
    Ok(outcome)
}

/// Has GRO join datagrams that end at no socket of the NIC's namespace, as the container's; either the veth takes them, and
/// streams' segments, as they are, or they are taken apart before it.
fn joined<L: Load>(rig: &Rig, plan: &Plan<L>, apart: bool) -> Result<Outcome> {
    let mut plan = plan.clone();
    plan.load.send_at_least(DATAGRAMS);
    rig.prepare(&plan, &Knobs::default())?;
    if apart {
        command::run("ethtool -K veth0 tso off gso off tx-udp-segmentation off")?;
    }
    let switch = |word| command::run(&format!("ethtool -K eth0 rx-udp-gro-forwarding {word}"));
    switch("on")?;
    let before = proc_net::device(CONTAINER, "eth0")?.rx_pkts;
    let outcome = L::measure(&plan, |_| Ok(()));
    let received = proc_net::device(CONTAINER, "eth0")?.rx_pkts - before;
    // Also after a failure: the NIC stays for the cases that follow.
    switch("off")?;
    outcome?.judge(|outcome| {
        let frames = outcome.frames;
        ensure!(
            if apart {
                received >= frames
            } else {
                received < frames * 3 / 4
            },
            "the container received {frames} frames as {received} packets"
        );
        rig.require_strict(&plan, &Knobs::default(), outcome)
    })
}
