// SPDX-License-Identifier: GPL-2.0

//! The wire is made to misbehave. With datagrams the receiver must say so: a rig that cannot see it proves nothing. With
//! byte streams TCP repairs it as ever, and counts it.

use std::time::Duration;

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::machine::command;
use crate::mflow::{self, Knobs};
use crate::network::netns;
use crate::network::topology::{self, CLIENT};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::tcp_counters::Counters;
use crate::traffic::{Live as _, Load as _};

/// Something that a wire does to packets, and what must show it.
struct Misdeed<S> {
    name: &'static str,
    netem: &'static str,
    seen: S,
}

type Seen = fn(&Outcome) -> u64;

const WITH_DATAGRAMS: &[Misdeed<Seen>] = &[
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

/// Seen by a counter of TCP.
const WITH_STREAMS: &[Misdeed<&str>] = &[
    Misdeed {
        name: "loss",
        netem: "loss 1%",
        seen: "RetransSegs",
    },
    Misdeed {
        name: "reorder",
        netem: "delay 2ms reorder 90%",
        seen: "TCPOFOQueue",
    },
    Misdeed {
        name: "duplicate",
        netem: "duplicate 5%",
        seen: "TCPDSACKOldSent",
    },
];

/// Datagrams sent while the wire misbehaves: enough for the rarest misdeed.
const AT_WORK: u64 = 1_000;
/// The least time for which the wire misbehaves before a stream may end.
const TIME_AT_WORK: Duration = Duration::from_millis(300);
/// Enough for each lane to have its turn.
const LEAST_BYTES: u64 = 2 << 20;

pub(crate) fn datagrams() -> Vec<Case> {
    let case = |misdeed: &'static Misdeed<Seen>| {
        Case::of_traffic(
            format!("control/{}", misdeed.name),
            format!("{} on the wire is seen by the receiver", misdeed.name),
            Run::Plain,
            |rig| to_datagrams(rig, misdeed),
        )
    };
    WITH_DATAGRAMS.iter().map(case).collect()
}

pub(crate) fn streams() -> Vec<Case> {
    let case = |misdeed: &'static Misdeed<&str>| {
        Case::of_traffic(
            format!("tcp/wire/{}", misdeed.name),
            format!(
                "on a wire with netem {} TCP repairs the stream as ever",
                misdeed.netem
            ),
            Run::always_if(misdeed.name == "loss"),
            |rig| to_streams(rig, misdeed),
        )
    };
    WITH_STREAMS.iter().map(case).collect()
}

fn misbehave(netem: &str) -> Result<()> {
    topology::client_tc(&format!(
        "qdisc add dev vxlan0 root netem limit 100000 {netem}"
    ))
}

/// Without the module in any case: its counters are not the subject.
fn to_datagrams(rig: &Rig, misdeed: &Misdeed<Seen>) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.split = false;
    rig.prepare(&plan, &Knobs::default())?;
    mflow::unload()?;
    let outcome = Datagrams::measure(&plan, |live| {
        misbehave(misdeed.netem)?;
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

fn to_streams(rig: &Rig, misdeed: &Misdeed<&str>) -> Result<Outcome> {
    let mut plan = rig.streams();
    plan.load.bytes = (plan.load.bytes / 4).max(LEAST_BYTES);
    // Only a timeout finds what is lost at the end of the stream.
    plan.load.patient = false;
    rig.prepare(&plan, &Knobs::default())?;
    // Netem must see packets as on the wire, not large ones that the device below cuts.
    netns::run(CLIENT, "ethtool -K vxlan0 tso off gso off")?;
    let outcome = Streams::measure(&plan, |live| {
        let before = Counters::read()?;
        misbehave(misdeed.netem)?;
        live.flow_for(TIME_AT_WORK)?;
        // On a busy host so few packets may have passed that netem has not touched any.
        command::wait_until("TCP notices", || {
            Ok(Counters::read()?.since(&before).contains_key(misdeed.seen))
        })
    })?;
    outcome.judge(|outcome| {
        let seen = outcome.tcp.get(misdeed.seen).copied().unwrap_or(0);
        ensure!(
            seen > 0,
            "netem {} was at work and {} did not grow",
            misdeed.netem,
            misdeed.seen
        );
        if rig.mflow {
            outcome.require_no_deadline()?;
            outcome.require_split(&Knobs::default(), 1)?;
        }
        rig.settle()
    })
}
