// SPDX-License-Identifier: GPL-2.0

//! Lanes give to GRO what it can join, and nothing else for long. What goes past it has been verified, as with it.

use std::net::Shutdown;
use std::thread;

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::machine::{command, proc_net, threads};
use crate::mflow::{self, Knobs, FASTER_THAN_ANY_PPS};
use crate::network::nft;
use crate::network::topology::{self, Family, CONTAINER};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::connection::{self, Pair};
use crate::traffic::streams::verifier::ReadProgress;
use crate::traffic::{Live as _, Load, Plan};

/// Enough for a batch that is tried to be a small part, on each of two lanes.
const DATAGRAMS: u64 = 6_000;
/// A stream beside datagrams, and how much of it is written at once.
const STREAM_BYTES: u64 = 4 << 20;
const STREAM_CHUNK_BYTES: usize = 16 << 10;
/// More than the kernel sums as soon as a datagram has come to UDP (`CHECKSUM_BREAK`).
const SUMMED_LATE_BYTES: usize = 256;

/// The number of packets that GRO lets through before it hands them on, and the kernel's default.
const NORMAL_BATCH: &str = "net/core/gro_normal_batch";
const USUAL_NORMAL_BATCH: &str = "8";

/// Connection tracking, which sums what nobody has verified; behind it a rule that no checksum of IPv6 makes up for.
pub(crate) const HEADER_RULE: &str = "
table inet mflow {
    chain before {
        type filter hook prerouting priority mangle;
        udp dport 5001 ct state new,established ip6 dscp set af11
    }
}
";

/// A rule that leaves a wrong checksum, as one does that changes data and does not know of checksums.
const CHECKSUM_RULE: &str = "
table inet mflow {
    chain before {
        type filter hook prerouting priority mangle;
        udp dport 5001 @th,48,16 set 0x1234
    }
}
";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "gro/datagrams",
            "lanes have GRO put datagrams into lists: in order, and none is late",
            Run::Always,
            datagrams,
        ),
        Case::of_module(
            "gro/alone",
            "with `join` 0 there are no lists, and datagrams go past GRO: in order, and none is late",
            Run::Plain,
            alone,
        ),
        Case::of_module(
            "gro/one-by-one",
            "where the kernel hands on each packet that GRO lets through at once (gro_normal_batch 1), datagrams keep their order, and none is late",
            Run::Plain,
            one_by_one,
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
        Case::of_module(
            "gro/beside",
            "beside a stream in the same tunnel datagrams keep their order, and lanes have GRO join them still when it has ended",
            Run::Always,
            beside,
        ),
        Case::of_module(
            "gro/header/whole",
            "a rule in the container writes class into headers of a flow that is too slow to be split: none is lost",
            Run::Always,
            whole,
        ),
        written(
            "header/v6",
            "class into headers that connection tracking has summed",
            Family::V6,
            Run::Always,
            HEADER_RULE,
        ),
        written(
            "checksum/v4",
            "a wrong checksum into datagrams",
            Family::V4,
            Run::Always,
            CHECKSUM_RULE,
        ),
        written(
            "checksum/v6",
            "a wrong checksum into datagrams of IPv6",
            Family::V6,
            Run::Plain,
            CHECKSUM_RULE,
        ),
    ]
}

/// Returns the case of what a rule writes.
fn written(name: &str, what: &str, inner: Family, run: Run, rule: &'static str) -> Case {
    Case::of_traffic(
        format!("gro/{name}"),
        format!("a rule in the container writes {what}: none is lost, with GRO and past it"),
        run,
        move |rig| {
            let (plan, knobs) = (verified_late(rig, inner), Knobs::default());
            rig.prepare(&plan, &knobs)?;
            // The rule goes with the container.
            nft::add(CONTAINER, rule)?;
            let outcome = Datagrams::measure(&plan, |_| Ok(()))?;
            outcome.judge(|outcome| rig.require_strict(&plan, &knobs, outcome))
        },
    )
    .about_splitting()
}

/// Measures a flow that is never split, and into which a rule writes.
fn whole(rig: &Rig) -> Result<Outcome> {
    let mut plan = verified_late(rig, Family::V6);
    plan.split = false;
    let knobs = Knobs {
        min_flow_pps: FASTER_THAN_ANY_PPS,
        ..Knobs::default()
    };
    rig.prepare(&plan, &knobs)?;
    nft::add(CONTAINER, HEADER_RULE)?;
    let outcome = Datagrams::measure(&plan, |_| Ok(()))?;
    outcome.judge(|outcome| rig.require_unnoticed::<Datagrams>(outcome))
}

/// Returns a plan of datagrams that UDP sums late.
pub(crate) fn verified_late(rig: &Rig, inner: Family) -> Plan<Datagrams> {
    let mut plan = rig.datagrams();
    plan.inner = inner;
    plan.load = plan.load.sized(SUMMED_LATE_BYTES);
    plan.load.send_at_least(DATAGRAMS);
    plan
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
    ensure!(past < all / 20, "{past} of {all} datagrams went past GRO");
    Ok(outcome)
}

/// Does the same without lists: GRO has nothing to join.
fn alone(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load.send_at_least(DATAGRAMS);
    rig.prepare(&plan, &Knobs::default())?;
    mflow::write("join", "0")?;
    let before = proc_net::device(CONTAINER, "eth0")?.rx_pkts;
    let outcome = Datagrams::measure(&plan, |_| Ok(()))?;
    let received = proc_net::device(CONTAINER, "eth0")?.rx_pkts - before;
    outcome.judge(|outcome| {
        rig.require_strict(&plan, &Knobs::default(), outcome)?;
        let (all, past) = carried(outcome)?;
        ensure!(
            past > all * 3 / 4 && received >= outcome.frames,
            "{past} of {all} datagrams went past GRO, and the container received {} frames as {received} packets",
            outcome.frames
        );
        Ok(())
    })
}

fn one_by_one(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load.send_at_least(DATAGRAMS);
    topology::sysctl(NORMAL_BATCH, "1")?;
    let outcome = rig.strict(&plan, &Knobs::default(), |_| Ok(()));
    // Also after a failure: it is the same for all cases that follow.
    topology::sysctl(NORMAL_BATCH, USUAL_NORMAL_BATCH)?;
    outcome
}

fn stream(rig: &Rig) -> Result<Outcome> {
    let outcome = rig.strict(&rig.streams(), &Knobs::default(), |_| Ok(()))?;
    let (all, past) = carried(&outcome)?;
    ensure!(past < all / 20, "{past} of {all} segments went past GRO");
    Ok(outcome)
}

/// Makes GRO join datagrams that end at no socket of the NIC's namespace, such as those for the container. The veth takes them,
/// and streams' segments, as they are; with `apart` they are taken apart before it.
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

/// Sends a stream beside the datagrams for a while, in the same outer flow and on one lane.
fn beside(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.one_outer = true;
    plan.load.send_at_least(DATAGRAMS);
    let joins = rig.splits();
    let knobs = Knobs::of(1, 64);
    rig.unnoticed(&plan, &knobs, |live| {
        send_stream(STREAM_BYTES)?;
        let received = || anyhow::Ok(proc_net::device(CONTAINER, "eth0")?.rx_pkts);
        let (arrived, before) = (live.arrivals(), received()?);
        live.send_more(DATAGRAMS / 2)?;
        let (arrived, pkts) = (live.arrivals() - arrived, received()? - before);
        ensure!(
            !joins || pkts < arrived * 3 / 4,
            "behind the stream, the container received {arrived} datagrams as {pkts} packets"
        );
        Ok(())
    })
}

fn send_stream(bytes: u64) -> Result<()> {
    let Pair { client, server } = connection::connect(Family::V4)?;
    let progress = ReadProgress::default();
    let (written, read) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let written = connection::write_while(&client, |written| {
                (written < bytes).then_some(STREAM_CHUNK_BYTES)
            });
            let _already_reset = client.shutdown(Shutdown::Write);
            written
        });
        let reader = scope.spawn(|| connection::read_to_end(&server, &progress));
        (
            threads::result(writer.join()),
            threads::result(reader.join()),
        )
    });
    let (written, read) = (written?, read?);
    ensure!(
        written == read,
        "{written:?} was written, and {read:?} read"
    );
    Ok(())
}
