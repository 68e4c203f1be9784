// SPDX-License-Identifier: GPL-2.0

//! Time stamps of arrival: lanes stamp packets as they come to them, and a reader may rely on stamps that do not go backwards.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};

use crate::cases::{Case, Run};
use crate::datagrams::receiver::{self, Receiver};
use crate::datagrams::run::Datagrams;
use crate::mflow::Knobs;
use crate::netns;
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::topology::CONTAINER;

/// How long the kernel takes at most until it stamps what comes in: it patches its own code for that.
const BEGIN: Duration = Duration::from_millis(200);

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "timestamps",
        "the time stamps of a split flow do not go backwards",
        Run::Plain,
        stamped,
    )]
}

fn stamped(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::of(2, 16);
    let mut plan = rig.datagrams();
    plan.load.count = rig.scale.main / 2;
    rig.prepare(&plan, &knobs)?;
    let to = plan.addresses();
    let socket = netns::within(CONTAINER, || receiver::bind(&to[0]))?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true).context("SO_TIMESTAMPNS")?;
    thread::sleep(BEGIN);
    let receiver = Receiver::of(vec![socket], plan.flows, plan.load.bytes);
    Datagrams::measure_at(&plan, to, receiver, |_| Ok(()))?
        .judge(|outcome| rig.require_strict(&plan, &knobs, outcome))
}
