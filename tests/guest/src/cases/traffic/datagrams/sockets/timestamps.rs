// SPDX-License-Identifier: GPL-2.0

//! Time stamps of arrival: lanes stamp packets as they come to them. A reader may rely on stamps that do not go backwards, and that follow
//! the clock when that does.

use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::cases::{Case, Run};
use crate::machine::clock;
use crate::mflow::Knobs;
use crate::network::netns;
use crate::network::topology::CONTAINER;
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::{Datagrams, LiveDatagrams};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Live as _;

/// The longest time until the kernel stamps packets that come in: it patches its own code for that.
const BEGIN: Duration = Duration::from_millis(200);
/// The time by which the clock is set back: less than a second, which is more than lanes run apart.
const SET_BACK: Duration = Duration::from_millis(900);
/// The share of the datagrams sent in that time that may be under way when the clock is set back, and wait while an emulated CPU
/// is away.
const MOST_AHEAD: f64 = 1.0 / 3.0;

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![
        Case::of_traffic(
            "timestamps",
            "the time stamps of a split flow do not go backwards",
            Run::Plain,
            in_order,
        ),
        Case::of_traffic(
            "timestamps/set-back",
            "when the clock is set back by less than a second, the time stamps of a split flow follow it",
            Run::Plain,
            set_back,
        ),
    ]
}

fn in_order(rig: &Rig) -> Result<Outcome> {
    stamped(rig, |_| Ok(()))?.judge(|outcome| {
        ensure!(
            outcome.stamps_back == 0,
            "{} of {} datagrams have a time stamp before that of one ahead of them",
            outcome.stamps_back,
            outcome.delivered
        );
        Ok(())
    })
}

fn set_back(rig: &Rig) -> Result<Outcome> {
    let back = TimeSpec::from_duration(SET_BACK);
    let outcome = stamped(rig, |live| {
        live.flow_for(BEGIN)?;
        clock::move_by(-back)?;
        // Until the clock has been there again.
        live.flow_for(SET_BACK + BEGIN)
    });
    // Also after a failure.
    clock::move_by(back)?;
    outcome?.judge(|outcome| {
        // CAST: small numbers.
        let sent = outcome.offered_per_s as f64 * SET_BACK.as_secs_f64();
        ensure!(
            outcome.stamps_ahead as f64 <= sent * MOST_AHEAD,
            "of {sent:.0} datagrams behind the change of the clock {} have a time stamp that is later than the clock",
            outcome.stamps_ahead
        );
        Ok(())
    })
}

/// Measures a flow whose socket wants time stamps.
fn stamped(rig: &Rig, during: impl FnOnce(&mut LiveDatagrams) -> Result<()>) -> Result<Outcome> {
    let knobs = Knobs::of(2, 16);
    let mut plan = rig.datagrams();
    plan.load.count = rig.scale.main / 2;
    rig.prepare(&plan, &knobs)?;
    let to = plan.addresses();
    let socket = netns::within(CONTAINER, || receiver::bind(&to[0]))?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true).context("SO_TIMESTAMPNS")?;
    thread::sleep(BEGIN);
    let receiver = Receiver::of(vec![socket], plan.flows, plan.load.bytes);
    Datagrams::measure_at(&plan, to, receiver, during)?
        .judge(|outcome| rig.require_strict(&plan, &knobs, outcome))
}
