// SPDX-License-Identifier: GPL-2.0

//! The host has no bridge. It routes the container's packets to its veth. They come from the tunnel or straight from the NIC.

use std::time::Duration;

use anyhow::{ensure, Result};
use mflow_protocol::network::{CLIENT_HOST, CLIENT_MAC, CONTAINER_MAC, SERVER_HOST};

use crate::cases::{Case, Run};
use crate::mflow::{self, Knobs};
use crate::network::topology::{self, Family};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Live as _, Load, Plan};

/// Room for the packets that wait for an address.
const WAITING_BYTES: &str = "67108864";
/// Traffic before and behind an event.
const PAUSE: Duration = Duration::from_millis(400);

/// The way by which packets reach the host.
#[derive(Clone, Copy)]
pub(crate) enum Through {
    /// The tunnel ends at the host, which routes what was in it.
    Tunnel,
    /// The client's machine has a route to the container by way of the host.
    Host,
}

pub(crate) fn datagrams() -> Vec<Case> {
    let mut cases = cases::<Datagrams>("no loss, no reordering");
    cases.push(Case::of_traffic(
        "routed/neighbour",
        "the host forgets the container's Ethernet address under load, and asks for it: what waits for the answer is noticed, and comes in order",
        Run::Plain,
        forgotten,
    ));
    cases
}

pub(crate) fn streams() -> Vec<Case> {
    cases::<Streams>("TCP does not notice")
}

fn cases<L: Load>(proves: &str) -> Vec<Case> {
    let case = |(name, way, through): (&str, &str, Through)| {
        Case::of_traffic(
            format!("{}routed/{name}", L::GROUP),
            format!("the host routes to the container {way}: flows are split, {proves}"),
            Run::Plain,
            move |rig| routed::<L>(rig, through),
        )
    };
    [
        ("tunnel", "what came out of the tunnel", Through::Tunnel),
        ("host", "what came without a tunnel", Through::Host),
    ]
    .map(case)
    .into()
}

fn routed<L: Load>(rig: &Rig, through: Through) -> Result<Outcome> {
    let (plan, knobs) = (rig.plan::<L>(), Knobs::default());
    rig.prepare(&plan, &knobs)?;
    let outcome = routes(through).and_then(|()| L::measure(&plan, |_| Ok(())));
    // Forwarding goes off after a failure, too. The devices vanish with the network.
    topology::sysctl("net/ipv4/ip_forward", "0")?;
    outcome?.judge(|outcome| rig.require_strict(&plan, &knobs, outcome))
}

/// Without our hooks nobody says that packets wait for an address.
fn forgotten(rig: &Rig) -> Result<Outcome> {
    let (plan, knobs) = (rig.datagrams(), Knobs::default());
    rig.prepare(&plan, &knobs)?;
    let outcome = routes(Through::Tunnel).and_then(|()| forget(&plan));
    // Forwarding goes off after a failure, too. The devices vanish with the network.
    topology::sysctl("net/ipv4/ip_forward", "0")?;
    outcome?.judge(|outcome| {
        rig.require_unnoticed::<Datagrams>(outcome)?;
        if rig.splits() && mflow::is_patched()? {
            let queued = outcome.counter("paths_async")?;
            ensure!(queued >= 1, "no packet was seen to wait");
        }
        Ok(())
    })
}

fn forget(plan: &Plan<Datagrams>) -> Result<Outcome> {
    let container = Family::V4.container();
    // An emulated CPU can be away for long.
    topology::sysctl("net/ipv4/neigh/veth0/unres_qlen_bytes", WAITING_BYTES)?;
    Datagrams::measure(plan, |live| {
        live.flow_for(PAUSE)?;
        topology::ip(&format!("neigh del {container} dev veth0"))?;
        live.flow_for(PAUSE)
    })
}

/// Takes the veth from the bridge, and has both machines route between client and container.
pub(crate) fn routes(through: Through) -> Result<()> {
    let (client, container) = (Family::V4.client(), Family::V4.container());
    let veth = topology::mac("veth0")?;
    topology::ip(&format!(
        "link set veth0 nomaster
         link set vxlan0 nomaster
         neigh replace {container} lladdr {CONTAINER_MAC} dev veth0
         route replace {container}/32 dev veth0"
    ))?;
    topology::container_ip(&format!("neigh replace {client} lladdr {veth} dev eth0"))?;
    topology::sysctl("net/ipv4/ip_forward", "1")?;
    match through {
        Through::Tunnel => {
            let vxlan = topology::mac("vxlan0")?;
            topology::ip(&format!(
                "neigh replace {client} lladdr {CLIENT_MAC} dev vxlan0
                 route replace {client}/32 dev vxlan0"
            ))?;
            topology::client_ip(&format!(
                "neigh replace {container} lladdr {vxlan} dev vxlan0"
            ))
        }
        Through::Host => {
            topology::ip(&format!(
                "route replace {client}/32 via {CLIENT_HOST} dev eth0"
            ))?;
            topology::client_ip(&format!(
                "route replace {container}/32 via {SERVER_HOST} dev eth1 src {client} rto_min 5s"
            ))
        }
    }
}
