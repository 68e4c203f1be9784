// SPDX-License-Identifier: GPL-2.0

//! Devices that a container or its plugin adds: a VLAN or a VRF inside, and disciplines at its veth that shape what it is sent, also
//! where such a device hides the veth.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{ensure, Context as _, Result};

use super::arrivals::seeing;
use super::elephant::{unspecified, Elephant, Fate, PORT};
use super::host::{Host, Rules};
use super::Case;
use crate::topology::{self, Family, CLIENT, CONTAINER};
use crate::{mflow, netns};

/// Where the container is behind a VLAN.
const IN_VLAN: &str = "10.0.100.2";
const SHAPED: Fate = Fate::Kept("path_queues");
/// As the plugin `bandwidth` has it for a limit that the flow does not come to.
const TBF: &str = "qdisc add dev veth0 root tbf rate 1gbit burst 1mb latency 25ms";

pub(super) fn cases() -> Vec<Case> {
    let case = |name, has, proves, to: &'static str, fate, set_up: fn() -> Result<()>| {
        Case::new(name, has, proves, move |host| {
            through(host, to, fate, set_up)
        })
        .with_fate(fate)
    };
    let shaped =
        "a flow to a container whose veth has a discipline stays whole, and flows says why";
    let hidden = "the same where a device in the container hides the veth";
    vec![
        case(
            "devices/vlan",
            "a VLAN device in the container",
            "a flow to a VLAN device in the container is split, and keeps its order",
            IN_VLAN,
            Fate::Split,
            vlan,
        ),
        case(
            "devices/vrf",
            "a VRF in the container",
            "a flow to a VRF in the container is split, and keeps its order",
            "10.0.1.2",
            Fate::Split,
            vrf,
        ),
        case(
            "devices/bandwidth",
            "shapers for both ways at the container's veth, as the plugin `bandwidth` has them",
            shaped,
            "10.0.1.2",
            SHAPED,
            bandwidth,
        ),
        case(
            "devices/fq",
            "`fq` at the container's veth",
            shaped,
            "10.0.1.2",
            SHAPED,
            || topology::tc("qdisc add dev veth0 root fq"),
        ),
        case(
            "devices/vlan-shaped",
            "a shaper at the veth of a container with a VLAN device",
            hidden,
            IN_VLAN,
            SHAPED,
            || vlan().and_then(|()| topology::tc(TBF)),
        ),
        case(
            "devices/vrf-shaped",
            "a shaper at the veth of a container with a VRF",
            hidden,
            "10.0.1.2",
            SHAPED,
            || vrf().and_then(|()| topology::tc(TBF)),
        ),
    ]
}

fn through(host: &Host, to: &'static str, fate: Fate, set_up: fn() -> Result<()>) -> Result<()> {
    let compared = host.compare(Family::V4, Rules::First, set_up, |host| {
        let bound = netns::within(CONTAINER, || {
            seeing(UdpSocket::bind((unspecified(Family::V4), PORT))?)
        })?;
        let from = if to == IN_VLAN {
            "10.0.100.1".parse()?
        } else {
            Family::V4.client()
        };
        let elephant = Elephant {
            from,
            to: vec![SocketAddr::new(to.parse()?, PORT)],
            sockets: vec![bound],
            pps: host.elephant_pps,
            fate,
        };
        Ok(elephant.run(host.datagrams, |_| Ok(()))?.0)
    })?;
    for (arrived, half) in [
        (&compared.off, "with enabled 0"),
        (&compared.on, "with enabled 1"),
    ] {
        match fate {
            // Any CPU that sends may empty a discipline, into a backlog of its own: the kernel keeps no order behind one.
            Fate::Kept(_) => arrived.require_all(),
            Fate::Split | Fate::Either => arrived.require_whole(),
        }
        .context(half)?;
    }
    compared.on.require_looks_of(&compared.off)?;
    match fate {
        Fate::Split => compared.on.require_split(),
        Fate::Kept(_) => {
            let split = mflow::flows_split()?;
            ensure!(
                split == 0,
                "{split} flows were split since the module was loaded"
            );
            compared.on.require_kept()
        }
        Fate::Either => Ok(()),
    }
}

fn vlan() -> Result<()> {
    for (namespace, lower, address) in [
        (CONTAINER, "eth0", "10.0.100.2"),
        (CLIENT, "vxlan0", "10.0.100.1"),
    ] {
        topology::ip(
            Some(namespace),
            &format!(
                "link add link {lower} name vlan100 type vlan id 100
                 link set vlan100 up
                 addr add {address}/24 dev vlan100"
            ),
        )?;
    }
    let mac = mflow_protocol::network::CONTAINER_MAC;
    topology::ip(
        Some(CLIENT),
        &format!("neigh replace {IN_VLAN} lladdr {mac} dev vlan100"),
    )
}

/// Puts the container's device into a VRF; sockets of no VRF take what comes there.
fn vrf() -> Result<()> {
    topology::ip(
        Some(CONTAINER),
        "link add vrf0 type vrf table 10
         link set vrf0 up
         link set eth0 master vrf0",
    )?;
    netns::within(CONTAINER, || {
        topology::sysctl("net/ipv4/udp_l3mdev_accept", "1")
    })?;
    topology::ip(
        Some(CONTAINER),
        "neigh replace 10.0.1.1 lladdr 02:00:00:00:01:01 dev eth0",
    )
}

/// What the plugin sets up for a container that is limited both ways.
fn bandwidth() -> Result<()> {
    topology::ip(None, "link add queue0 type ifb\nlink set queue0 up")?;
    topology::tc(&format!(
        "{TBF}
         qdisc add dev veth0 ingress
         filter add dev veth0 ingress matchall action mirred egress redirect dev queue0
         qdisc add dev queue0 root tbf rate 1gbit burst 1mb latency 25ms"
    ))
}
