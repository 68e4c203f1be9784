// SPDX-License-Identifier: GPL-2.0

//! Connection tracking and address translation on a stream's way through the container.

use std::fs;

use anyhow::{ensure, Context as _, Result};

use crate::cases::{Case, Run};
use crate::mflow::Knobs;
use crate::network::topology::{CLIENT, CONTAINER};
use crate::network::{netns, nft};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::Load as _;

/// The number that the client adds to the port of the server, and the container takes off again.
const PORT_SHIFT: u16 = 1_000;

/// The container translates both addresses of what comes in, and drops what does not fit the state of its connection.
const CONTAINER_RULES: &str = "
table ip mflow {
    chain before { type nat hook prerouting priority -100; tcp dport 6101 dnat to 10.0.1.2:5101; }
    chain behind { type nat hook input priority 100; tcp dport 5101 snat to 10.0.1.77; }
    chain state { type filter hook input priority 0; ct state invalid counter drop; }
}
";

/// The client is behind a translation of its own.
const CLIENT_RULES: &str = "
table ip mflow {
    chain out { type nat hook postrouting priority 100; tcp dport 6101 masquerade to :20000-29999; }
}
";

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "tcp/nat",
        "order holds through connection tracking and address translation in the container",
        Run::Always,
        translated,
    )]
}

fn translated(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::default();
    let mut plan = rig.streams();
    plan.load.port_shift = PORT_SHIFT;
    rig.prepare(&plan, &knobs)?;
    nft::add(CONTAINER, CONTAINER_RULES)?;
    nft::add(CLIENT, CLIENT_RULES)?;
    let outcome = Streams::measure(&plan, |_| require_tracked());
    // Also after a failure; those of the container go with it.
    nft::flush(CLIENT)?;
    outcome?.judge(|outcome| rig.require_strict(&plan, &knobs, outcome))
}

/// Fails unless the container tracks connections. That addresses are translated is clear from the stream: the port that the
/// client connects to has no listener.
fn require_tracked() -> Result<()> {
    netns::within(CONTAINER, || {
        let path = "/proc/sys/net/netfilter/nf_conntrack_count";
        let count = fs::read_to_string(path).context(path)?;
        ensure!(
            count.trim() != "0",
            "no connection is tracked in the container"
        );
        Ok(())
    })
}
