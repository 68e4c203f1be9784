// SPDX-License-Identifier: GPL-2.0

//! A program that looks at all that comes to a socket: several datagrams that are merged at once are as many to it.

use std::thread;
use std::time::Duration;

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::mflow::{self, Knobs};
use crate::network::bpf::{self, Sockmap, SockmapPrograms};
use crate::network::netns;
use crate::network::topology::CONTAINER;
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::wait_quiet;
use crate::traffic::datagrams::sender::{SendOrder, Sender};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Mark;

/// The time for which datagrams come after their flow has been split.
const TIME: Duration = Duration::from_millis(700);
/// The most datagrams per second: the socket keeps all of them, as nobody reads meanwhile.
const MOST_PER_S: f64 = 8_000.0;

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "sockmap",
        "every datagram of a split flow passes the program of its socket's map, once and in order",
        Run::Plain,
        |rig| {
            bpf::count_runs(true)?;
            let outcome = all_pass(rig);
            // Also after a failure.
            bpf::count_runs(false)?;
            outcome
        },
    )]
}

fn all_pass(rig: &Rig) -> Result<Outcome> {
    let plan = rig.datagrams();
    rig.prepare(&plan, &Knobs::of(2, 16))?;
    let to = plan.addresses();
    let socket = netns::within(CONTAINER, || receiver::bind(&to[0]))?;
    let map = Sockmap::with(&socket, SockmapPrograms::Verdict)?;
    let (mark, split_before) = (Mark::set()?, mflow::flows_split()?);
    let sender = Sender::start(SendOrder {
        from: plan.inner.client(),
        to,
        bytes: plan.load.bytes,
        rate: plan.load.frames_per_s.map(|rate| rate.min(MOST_PER_S)),
    });
    let split = if rig.mflow {
        mflow::wait_split_since(split_before, 1)
    } else {
        Ok(())
    };
    thread::sleep(TIME);
    // Also after a failure.
    sender.stop_at(0);
    let sent: u64 = sender.join()?.iter().sum();
    split?;
    // Read when all have passed: beside the program, a reader of this kernel gets hold of datagrams ahead of it and spoils
    // the socket's memory accounts (a warning when it is closed), also without us.
    wait_quiet(|| map.runs().unwrap_or(0), sent);
    let receiver = Receiver::of(vec![socket], plan.flows, plan.load.bytes);
    wait_quiet(|| receiver.arrivals(), sent);
    let outcome = Outcome {
        mflow: mark.outcome()?.mflow,
        ..receiver.stop()?.outcome(sent)
    };
    outcome.judge(|outcome| {
        outcome.require_whole()?;
        outcome.require_order()?;
        let runs = map.runs()?;
        ensure!(
            runs == sent,
            "the program has seen {runs} of {sent} datagrams"
        );
        if rig.mflow {
            outcome.require_no_deadline()?;
        }
        rig.settle()
    })
}
