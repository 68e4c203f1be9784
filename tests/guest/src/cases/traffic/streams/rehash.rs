// SPDX-License-Identifier: GPL-2.0

//! A sender that times out looks for another path: it changes its hash, and so the overlay's outer source port
//! (`sk_rethink_txhash()`). For mflow that is another flow, in the middle of the stream.

use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use crate::cases::{Case, Run};
use crate::machine::command;
use crate::mflow::{self, Knobs};
use crate::network::topology::{self, CLIENT};
use crate::network::{netns, nft};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::tcp_counters::Counters;
use crate::traffic::{Live as _, Load as _};

const ROUNDS: u64 = 3;
/// The time for which the wire works as it should between two outages.
const PAUSE: Duration = Duration::from_millis(150);
/// Segments that a recovering sender sends out of order by itself: with the vanilla stack up to five, in one run of three.
/// The module's own counters must be exact here.
const SENDERS_OWN: u64 = 16;
/// TCP's counter of hashes changed because of a timeout.
const REHASHES: &str = "TcpTimeoutRehash";

/// The client notes the source ports of what it sends in the overlay.
const OUTER_PORTS: &str = "
table ip mflow {
    set ports { type inet_service; size 1024; flags dynamic; }
    chain out { type filter hook output priority 0; udp dport 4789 add @ports { udp sport }; }
}
";

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "tcp/rehash",
        "a stream whose outer port changes on the way is split again, and nothing of it is late",
        Run::Always,
        rehash,
    )]
}

fn rehash(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.streams();
    plan.load.patient = false;
    let knobs = Knobs {
        // So small that the lanes' shares can be told from what one batch more of each flow makes.
        batch_pkts: 64,
        ..Knobs::default()
    };
    // A sender that times out would try new data, out of order.
    rig.prepare(&plan, &knobs)?;
    netns::within(CLIENT, || topology::sysctl("net/ipv4/tcp_frto", "0"))?;
    nft::add(CLIENT, OUTER_PORTS)?;
    let outcome = Streams::measure(&plan, |live| {
        for _ in 0..ROUNDS {
            live.flow_for(PAUSE)?;
            let (before, split) = (Counters::read()?, mflow::flows_split()?);
            topology::client_tc("qdisc add dev vxlan0 root netem limit 100000 loss 100%")?;
            let timed_out = command::wait_until("the sender changes its hash", || {
                Ok(Counters::read()?.since(&before).contains_key(REHASHES))
            });
            topology::client_tc("qdisc del dev vxlan0 root")?;
            timed_out?;
            live.wait_split_since(split)?;
        }
        Ok(())
    });
    let ports = outer_ports();
    // Also after a failure.
    nft::flush(CLIENT)?;
    let ports = ports?;
    outcome?.judge(|outcome| {
        ensure!(
            ports > ROUNDS,
            "the stream had {ports} outer port(s) in all, which does not show a change of port"
        );
        ensure!(
            outcome.reordered <= SENDERS_OWN,
            "TCPOFOQueue grew by {}, and of what a sender sends again at most {SENDERS_OWN} segments come before their turn",
            outcome.reordered
        );
        if rig.mflow {
            outcome.require_no_deadline()?;
            outcome.require_split(&knobs, 1)?;
        }
        rig.settle()
    })
}

fn outer_ports() -> Result<u64> {
    let listing = netns::run(CLIENT, "nft list set ip mflow ports")?;
    let (_, elements) = listing
        .split_once("elements = {")
        .with_context(|| format!("no outer port was noted: {listing}"))?;
    // CAST: at most 1024.
    Ok(elements.split(',').count() as u64)
}
