// SPDX-License-Identifier: GPL-2.0

//! Tunnels other than VXLAN: Geneve, whose packets have ports, and GRE and IPIP, whose have none.

use anyhow::{ensure, Result};
use mflow_protocol::network::CONTAINER_MAC;

use super::gro;
use crate::cases::STAGES;
use crate::cases::{Case, Run};
use crate::mflow::{Knobs, Mode};
use crate::network::nft;
use crate::network::topology::{self, Family, CONTAINER};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Load, Plan};

/// A tunnel between the two hosts, beside VXLAN's.
struct Tunnel {
    name: &'static str,
    /// The arguments of `ip link add`, without the remote end.
    kind: &'static str,
    /// True if the tunnel carries Ethernet frames, so that its end can be a port of the bridge. If not, the host routes.
    is_ethernet: bool,
}

const TUNNELS: [Tunnel; 3] = [
    Tunnel {
        name: "geneve",
        kind: "geneve id 9",
        is_ethernet: true,
    },
    Tunnel {
        name: "gre",
        kind: "gretap",
        is_ethernet: true,
    },
    Tunnel {
        name: "ipip",
        kind: "ipip",
        is_ethernet: false,
    },
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![Case::of_traffic(
        "tunnel/geneve",
        "a flow in Geneve is split as one in VXLAN is, and keeps its order",
        Run::Plain,
        |rig| {
            let (plan, knobs) = (rig.datagrams(), Knobs::default());
            rig.prepare(&plan, &knobs)?;
            let outcome = through(&TUNNELS[0], &plan, |_| Ok(()))?;
            outcome.judge(|outcome| rig.require_strict(&plan, &knobs, outcome))
        },
    )];
    cases.push(Case::of_module(
        "tcp/tunnel/geneve",
        "a stream in Geneve is split as one in VXLAN is, and lanes build no packets of its segments: TCP does not notice",
        Run::Plain,
        stream,
    ));
    cases.push(
        Case::of_traffic(
            "tunnel/geneve-ip",
            "a flow of IPv6 in Geneve without Ethernet is split, and a rule in the container writes into its headers: none is lost",
            Run::Plain,
            without_ethernet,
        )
        .about_splitting(),
    );
    cases.extend(TUNNELS.iter().map(|tunnel| {
        Case::of_module(
            format!("mode/{}", tunnel.name),
            format!(
                "any tunnel that ends in GRO cells has its stages: a flow through {}",
                tunnel.name
            ),
            Run::Plain,
            move |rig| in_stages(rig, tunnel),
        )
    }));
    cases
}

fn stream(rig: &Rig) -> Result<Outcome> {
    let plan = rig.streams();
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(2, 64)
    };
    rig.prepare(&plan, &knobs)?;
    let outcome = through(&TUNNELS[0], &plan, |_| Ok(()))?;
    outcome.judge(|outcome| {
        rig.require_strict(&plan, &knobs, outcome)?;
        let (all, joined) = (
            outcome.counter("lane_pkts")?,
            outcome.counter("joined_pkts")?,
        );
        ensure!(
            joined > if rig.scale.brief { 0 } else { all / 4 },
            "{joined} of {all} packets were joined"
        );
        Ok(())
    })
}

/// The datagrams' checksums are where only the tunnel's own GRO looks for them.
fn without_ethernet(rig: &Rig) -> Result<Outcome> {
    let (plan, knobs) = (gro::verified_late(rig, Family::V6), Knobs::default());
    rig.prepare(&plan, &knobs)?;
    // The rule goes with the container.
    nft::add(CONTAINER, gro::HEADER_RULE)?;
    let outcome = ends_of_geneve_ip().and_then(|()| Datagrams::measure(&plan, |_| Ok(())));
    // Also after a failure; routes go with their device.
    topology::sysctl("net/ipv6/conf/all/forwarding", "0")?;
    topology::client_ip("link del tunnel1")?;
    topology::ip("link del tunnel1")?;
    outcome?.judge(|outcome| rig.require_strict(&plan, &knobs, outcome))
}

fn ends_of_geneve_ip() -> Result<()> {
    let add = |remote: &str| {
        format!(
            "link add tunnel1 type geneve id 9 remote {remote} innerprotoinherit
             link set tunnel1 up"
        )
    };
    let (client, container) = (Family::V6.client(), Family::V6.container());
    topology::ip(&add("192.168.50.1"))?;
    topology::client_ip(&add("192.168.50.2"))?;
    topology::client_ip(&format!(
        "route add {container}/128 dev tunnel1 src {client}"
    ))?;
    topology::sysctl("net/ipv6/conf/all/forwarding", "1")?;
    topology::ip(&format!(
        "route add {container}/128 dev br0
         neigh replace {container} lladdr {CONTAINER_MAC} dev br0"
    ))
}

fn in_stages(rig: &Rig, tunnel: &Tunnel) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.split = false;
    let knobs = Knobs {
        mode: Mode::FalconDev.name(),
        build: "auto",
        ..Knobs::of(STAGES.len(), 256)
    };
    rig.prepare(&plan, &knobs)?;
    let mut before = 0;
    let outcome = through(tunnel, &plan, |live| {
        // The NIC's queue has stages a moment after its first packet.
        live.wait_staged()?;
        before = live.arrivals();
        Ok(())
    })?;
    outcome.judge(|outcome| {
        rig.require_unnoticed::<Datagrams>(outcome)?;
        // What the wire has counted as the flow's frames is what is in VXLAN.
        let since = outcome.delivered.saturating_sub(before);
        ensure!(since > 0, "nothing came once there were stages");
        for name in STAGES {
            let count = outcome.counter(name)?;
            ensure!(
                count >= since * 9 / 10,
                "{name} grew by {count}, and {since} datagrams came through {} since there were stages",
                tunnel.name
            );
        }
        Ok(())
    })
}

/// Sends the client's flow through a tunnel; `during` happens meanwhile, after the mark.
fn through<L: Load>(
    tunnel: &Tunnel,
    plan: &Plan<L>,
    during: impl FnOnce(&mut L::Live) -> Result<()>,
) -> Result<Outcome> {
    let outcome = tunnel.set_up().and_then(|()| L::measure(plan, during));
    // Also after a failure; routes go with their device.
    topology::client_ip("link del tunnel1")?;
    topology::ip("link del tunnel1")?;
    if !tunnel.is_ethernet {
        topology::sysctl("net/ipv4/ip_forward", "0")?;
    }
    outcome
}

impl Tunnel {
    fn set_up(&self) -> Result<()> {
        let add = |local: &str, remote: &str| {
            // Geneve chooses its address by itself.
            let local = match self.name {
                "geneve" => String::new(),
                _ => format!("local {local}"),
            };
            format!(
                "link add tunnel1 type {} {local} remote {remote}\nlink set tunnel1 up",
                self.kind
            )
        };
        topology::ip(&add("192.168.50.2", "192.168.50.1"))?;
        topology::client_ip(&add("192.168.50.1", "192.168.50.2"))?;
        // TCP is as patient as in the usual tunnel.
        topology::client_ip("route add 10.0.1.2/32 dev tunnel1 src 10.0.1.1 rto_min 5s")?;
        if self.is_ethernet {
            topology::ip("link set tunnel1 master br0")?;
            return topology::client_ip(&format!(
                "neigh replace 10.0.1.2 lladdr {CONTAINER_MAC} dev tunnel1"
            ));
        }
        topology::sysctl("net/ipv4/ip_forward", "1")?;
        topology::ip(&format!(
            "route add 10.0.1.2/32 dev br0
             neigh replace 10.0.1.2 lladdr {CONTAINER_MAC} dev br0"
        ))
    }
}
