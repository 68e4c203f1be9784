// SPDX-License-Identifier: GPL-2.0

//! Checksums of frames that a ConnectX has summed as a whole. Sockets and connection tracking verify with that sum, which is not that
//! of what lanes have joined.

use std::net::SocketAddr;

use anyhow::{ensure, Result};

use crate::cases::forwarding::routed::{self, Through};
use crate::cases::{Case, Run};
use crate::machine::proc_net;
use crate::mflow::Knobs;
use crate::network::nft;
use crate::network::topology::{self, CONTAINER};
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Load as _, Plan};

const OWN_PORT: u16 = 5_001;

const TRACKED: &str = "
table inet mflow {
    counter invalid { }
    counter tracked { }
    chain before {
        type filter hook prerouting priority 0;
        udp dport 5001 ct state invalid counter name invalid
        udp dport 5001 ct state new,established counter name tracked
    }
}
";

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "sums/own",
            "small datagrams to the address of the tunnel's own end, whose frames the card has summed: no checksum is found wrong",
            Run::ConnectX,
            own,
        ),
        Case::of_module(
            "sums/routed",
            "the same to a container behind a route, with connection tracking on the host and in the container: none is invalid",
            Run::ConnectX,
            tracked,
        ),
    ]
}

fn own(rig: &Rig) -> Result<Outcome> {
    let (plan, knobs) = (rig.datagrams(), Knobs::default());
    rig.prepare(&plan, &knobs)?;
    let own = topology::end_of_tunnel()?;
    summed(rig, &plan, &knobs, || {
        let address = SocketAddr::from((own, OWN_PORT));
        let receiver = Receiver::of(vec![receiver::bind(&address)?], 1, plan.load.bytes);
        Datagrams::measure_at(&plan, vec![address], receiver, |_| Ok(()))
    })
}

fn tracked(rig: &Rig) -> Result<Outcome> {
    let (plan, knobs) = (rig.datagrams(), Knobs::default());
    rig.prepare(&plan, &knobs)?;
    let outcome = routed::routes(Through::Tunnel).and_then(|()| {
        nft::add(None, TRACKED)?;
        nft::add(CONTAINER, TRACKED)?;
        summed(rig, &plan, &knobs, || {
            let outcome = Datagrams::measure(&plan, |_| Ok(()))?;
            for namespace in [None, Some(CONTAINER)] {
                let invalid = nft::counted(namespace, "invalid")?.pkts;
                let tracked = nft::counted(namespace, "tracked")?.pkts;
                ensure!(
                    invalid == 0 && tracked > 0,
                    "connection tracking in the namespace {namespace:?} takes {invalid} packets for invalid, and not {tracked}"
                );
            }
            Ok(outcome)
        })
    });
    // Also after a failure; the devices go with the network.
    nft::flush(None)?;
    topology::sysctl("net/ipv4/ip_forward", "0")?;
    outcome
}

/// Demands that all arrives in order through lanes, and that no socket finds a checksum wrong.
fn summed(
    rig: &Rig,
    plan: &Plan<Datagrams>,
    knobs: &Knobs,
    measure: impl FnOnce() -> Result<Outcome>,
) -> Result<Outcome> {
    let wrong = || -> Result<u64> {
        Ok(proc_net::counter(None, "Udp", "InCsumErrors")?
            + proc_net::counter(Some(CONTAINER), "Udp", "InCsumErrors")?)
    };
    let before = wrong()?;
    let outcome = measure()?;
    let wrong = wrong()? - before;
    outcome.judge(|outcome| {
        ensure!(
            wrong == 0,
            "sockets found {wrong} datagrams with a wrong checksum"
        );
        rig.require_strict(plan, knobs, outcome)
    })
}
