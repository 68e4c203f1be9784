// SPDX-License-Identifier: GPL-2.0

//! A ConnectX receives frames that have no sender: it makes them by itself, or receives captured ones again.

use std::fs;

use anyhow::{bail, ensure, Context as _, Result};
use mflow_protocol::bench::Frames;
use mflow_protocol::guest::Message;

use crate::cases::{Case, Run};
use crate::machine::command::{self, Program};
use crate::machine::cpu;
use crate::mflow::{self, Knobs, Stats};
use crate::network::topology;
use crate::traffic::datagrams::ledger::Ledger;
use crate::traffic::datagrams::receiver::Receiver;
use crate::traffic::datagrams::run::{self, Datagrams};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Load as _;
use crate::verdict;

/// Flows that the card makes by itself, and datagrams in a burst of all of them.
const SOURCE_FLOWS: u16 = 64;
const SOURCE_BURST: u64 = 3_200;
/// Datagrams that are captured at least, how often they are received again without a pause (a socket can hold all of it),
/// and with pauses.
const CAPTURED: u64 = 100;
const REPLAYS_AT_ONCE: u64 = 4;
const MOST_ROUNDS: usize = 100;
const CAPTURE_HEADER_BYTES: u64 = 24;
/// The filter for VXLAN around UDP in IPv4; devices of the overlay send other packets, too.
const INNER_UDP: &str = "udp dst port 4789 and udp[28:2]=0x0800 and udp[39]=17";
const CAPTURE: &str = "/tmp/capture.pcap";

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "connectx/source",
            "64 flows that nobody sends, made by the card itself: none is lost, order holds",
            Run::ConnectX,
            source,
        ),
        Case::of_module(
            "connectx/replay",
            "frames that were captured on the card are received again and again, and split: none is lost",
            Run::ConnectX,
            replay,
        ),
    ]
}

fn source(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.flows = SOURCE_FLOWS;
    plan.load.one_socket = true;
    let knobs = Knobs {
        min_flow_pps: 1,
        ..Knobs::default()
    };
    rig.prepare(&plan, &knobs)?;
    let receiver = plan.receive()?;
    let frames = Frames {
        nic_mac: topology::mac("eth0")?,
        overlay: true,
        flows: plan.flows,
        bytes: plan.load.bytes,
        // The receiver gives no credit here, so the card sends this many every second.
        credit: SOURCE_BURST,
    };
    let order = format!("0 send {}", serde_json::to_string(&frames)?);
    verdict::say(&Message::Card(order));
    let arrived = command::wait_until("frames arrive", || {
        Ok(receiver.arrivals() >= 4 * SOURCE_BURST && mflow::flows_split()? > 0)
    });
    // Also after a failure.
    verdict::say(&Message::Card("0 quiet".to_owned()));
    let outcome = outcome_of(receiver)?;
    arrived?;
    outcome.judge(|outcome| rig.require_unnoticed::<Datagrams>(outcome))
}

/// Waits for the last datagram, and returns what the receiver has seen.
fn outcome_of(receiver: Receiver) -> Result<Outcome> {
    run::wait_quiet(|| receiver.arrivals(), u64::MAX);
    let received = receiver.stop()?;
    Ok(Outcome {
        mflow: Stats::read()?.since(&Stats::default()),
        ..received.outcome(received.flows.iter().map(Ledger::end).sum())
    })
}

fn replay(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load.count = CAPTURED;
    plan.split = false;
    let knobs = Knobs {
        min_flow_pps: 1_000_000,
        ..Knobs::default()
    };
    rig.prepare(&plan, &knobs)?;
    // A try before this one may have left it.
    let _none = fs::remove_file(CAPTURE);
    let capture = Program::start(
        None,
        cpu::LANES[3],
        &format!(
            "tcpdump -Z root --immediate-mode -i eth0 -Q in -s 256 -U -w {CAPTURE} {INNER_UDP}"
        ),
    )?;
    command::wait_until("tcpdump has begun", || {
        Ok(fs::metadata(CAPTURE).is_ok_and(|file| file.len() >= CAPTURE_HEADER_BYTES))
    })?;
    let captured = Datagrams::measure(&plan, |_| Ok(()))?;
    captured.require_whole()?;
    let written = || fs::metadata(CAPTURE).map_or(0, |file| file.len());
    run::wait_quiet(written, u64::MAX);
    drop(capture);
    let count = command::run(&format!("tcpdump -Z root --count -r {CAPTURE}"))?;
    ensure!(
        count.starts_with(&format!("{} packets", captured.sent)),
        "{} datagrams were sent, tcpdump captured {count}",
        captured.sent
    );

    mflow::write("min_flow_pps", "1")?;
    let split_before = mflow::flows_split()?;
    let receiver = plan.receive()?;
    let replayed = replay_until_split(&receiver, captured.sent, split_before);
    // Also after a failure.
    let outcome = outcome_of(receiver)?;
    let replayed = replayed.with_context(|| format!("{outcome:?}"))?;
    outcome.judge(|outcome| {
        let arrived = outcome.delivered + outcome.duplicate;
        ensure!(
            outcome.corrupt == 0 && arrived == replayed,
            "{replayed} frames were replayed, {arrived} datagrams arrived, {} corrupt ones",
            outcome.corrupt
        );
        outcome.require_no_deadline()?;
        rig.settle()
    })
}

/// Makes the card receive the capture again and again until lanes have received all of it, each time after all frames have
/// arrived. Returns the number of frames.
fn replay_until_split(receiver: &Receiver, captured: u64, split_before: u64) -> Result<u64> {
    let capture = fs::read(CAPTURE).context(CAPTURE)?;
    let mut replayed = 0;
    for _ in 0..MOST_ROUNDS {
        verdict::say(&Message::Replay {
            card: 0,
            times: REPLAYS_AT_ONCE,
            capture: capture.clone(),
        });
        replayed += REPLAYS_AT_ONCE * captured;
        command::wait_until("what was captured arrives again", || {
            Ok(receiver.arrivals() >= replayed)
        })?;
        // The next rounds are received by lanes.
        let split = mflow::flows_split()? > split_before;
        if split && Stats::read()?.get("lane_pkts")? >= captured {
            return Ok(replayed);
        }
    }
    bail!("the flow was not split within {MOST_ROUNDS} rounds")
}
