// SPDX-License-Identifier: GPL-2.0

//! Things disappear while packets are on their way through them: packets may be lost, nothing else may go wrong.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::cases::{Case, Run};
use crate::machine::command;
use crate::mflow::Knobs;
use crate::network::topology::{self, CONTAINER};
use crate::traffic::datagrams::run::LiveDatagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Live as _;

struct Loss {
    name: &'static str,
    what: &'static str,
    take_away: fn(&mut LiveDatagrams) -> Result<()>,
}

const LOSSES: &[Loss] = &[
    Loss {
        name: "vxlan",
        what: "the VXLAN device",
        take_away: |_| topology::ip("link del vxlan0"),
    },
    Loss {
        name: "bridge",
        what: "the bridge",
        take_away: |_| topology::ip("link del br0"),
    },
    Loss {
        name: "veth",
        what: "the veth pair",
        take_away: |_| topology::ip("link del veth0"),
    },
    Loss {
        name: "container",
        what: "the container's namespace, devices and all",
        take_away: |live| {
            live.close()?;
            topology::ip(&format!("link del veth0\nnetns del {CONTAINER}"))
        },
    },
    Loss {
        name: "nic-down",
        what: "the link of the NIC",
        take_away: |_| {
            topology::ip("link set eth0 down")?;
            // The wire has flow control: while the server takes no frames off it, the client stands still, too.
            thread::sleep(Duration::from_millis(300));
            topology::restore_nic()
        },
    },
];

pub(in crate::cases) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = LOSSES
        .iter()
        .map(|loss| {
            Case::of_traffic(
                format!("teardown/{}", loss.name),
                format!(
                    "{} goes away under load: the next flow is as good as new",
                    loss.what
                ),
                Run::always_if(matches!(loss.name, "vxlan" | "container")),
                move |rig| take_away(rig, loss),
            )
        })
        .collect();
    cases.push(Case::of_traffic(
        "teardown/socket",
        "the receiving socket is closed and opened again under load, many times",
        Run::Always,
        close_sockets,
    ));
    cases
}

fn take_away(rig: &Rig, loss: &Loss) -> Result<Outcome> {
    let (plan, knobs) = (rig.datagrams(), Knobs::default());
    let outcome = rig.measure(&plan, &knobs, |live| {
        live.flow_for(Duration::from_millis(200))?;
        (loss.take_away)(live)?;
        live.flow_for(Duration::from_millis(300))
    })?;
    outcome.judge(|outcome| judge(rig, outcome))?;
    // Everything is built again and must work as if nothing had happened.
    rig.strict(&plan, &knobs, |_| Ok(()))
}

fn close_sockets(rig: &Rig) -> Result<Outcome> {
    let outcome = rig.measure(&rig.datagrams(), &Knobs::default(), |live| {
        for round in 0..8 {
            live.flow_for(Duration::from_millis(60))?;
            live.close()?;
            // Every other time only after packets have found no socket.
            if round % 2 == 1 {
                live.flow_for(Duration::from_millis(60))?;
            }
            live.reopen()?;
        }
        let before = live.arrivals();
        command::wait_until("something arrives at the new socket", || {
            Ok(live.arrivals() > before)
        })
    })?;
    outcome.judge(|outcome| judge(rig, outcome))
}

fn judge(rig: &Rig, outcome: &Outcome) -> Result<()> {
    outcome.require_intact()?;
    outcome.require_order()?;
    rig.settle()
}
