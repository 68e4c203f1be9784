// SPDX-License-Identifier: GPL-2.0

//! A host without a bridge: it routes what came out of the tunnel to its containers, one or two of them.

use anyhow::Result;
use mflow_protocol::network::{CLIENT_MAC, CONTAINER_MAC};

use super::host::{CONTAINER2, VETH2};
use crate::network::netns;
use crate::network::topology::{self, Family, CONTAINER};

pub(super) const CONTAINER2_MAC: &str = "02:00:00:00:07:02";
/// An address that both containers have, and the route to it: by both.
pub(super) const SHARED: [&str; 2] = ["10.0.8.8", "fd00:8::8"];

/// Makes the host route between the client and the container, and not bridge.
pub(super) fn set_up() -> Result<()> {
    topology::ip("link set veth0 nomaster")?;
    set_up_before("veth0")
}

/// Does the same with the container behind this device.
pub(super) fn set_up_before(device: &str) -> Result<()> {
    // A bridge has the address of one of its ports.
    topology::ip("link set vxlan0 nomaster")?;
    let own = topology::mac(device)?;
    let vxlan = topology::mac("vxlan0")?;
    for family in [Family::V4, Family::V6] {
        let (client, container, bits) = (family.client(), family.container(), bits(family));
        topology::ip(&format!(
            "neigh replace {container} lladdr {CONTAINER_MAC} dev {device}
             route replace {container}/{bits} dev {device}
             neigh replace {client} lladdr {CLIENT_MAC} dev vxlan0
             route replace {client}/{bits} dev vxlan0"
        ))?;
        topology::container_ip(&format!("neigh replace {client} lladdr {own} dev eth0"))?;
        topology::client_ip(&format!(
            "neigh replace {container} lladdr {vxlan} dev vxlan0"
        ))?;
    }
    topology::sysctl("net/ipv4/ip_forward", "1")?;
    topology::sysctl("net/ipv6/conf/all/forwarding", "1")
}

/// Does the same with a second container, and with an address that both have.
pub(super) fn set_up_shared() -> Result<()> {
    set_up()?;
    netns::add(CONTAINER2)?;
    let [shared, shared6] = SHARED;
    topology::ip(&format!(
        "link add {VETH2} type veth peer name eth0 address {CONTAINER2_MAC} netns {CONTAINER2}
         link set {VETH2} up
         neigh replace 10.0.7.2 lladdr {CONTAINER2_MAC} dev {VETH2}
         neigh replace fd00:7::2 lladdr {CONTAINER2_MAC} dev {VETH2}
         route replace 10.0.7.2/32 dev {VETH2}
         route replace fd00:7::2/128 dev {VETH2}"
    ))?;
    topology::ip_in(
        CONTAINER2,
        "link set lo up
         link set eth0 up
         addr add 10.0.7.2/24 dev eth0
         addr add fd00:7::2/64 dev eth0 nodad",
    )?;
    for container in [CONTAINER, CONTAINER2] {
        topology::ip_in(
            container,
            &format!("addr add {shared}/32 dev lo\naddr add {shared6}/128 dev lo nodad"),
        )?;
    }
    // The gateways are what the routes above lead to.
    topology::ip(&format!(
        "route replace {shared}/32 nexthop via 10.0.1.2 dev veth0 onlink nexthop via 10.0.7.2 dev {VETH2} onlink
         route replace {shared6}/128 nexthop via fd00:1::2 dev veth0 onlink nexthop via fd00:7::2 dev {VETH2} onlink"
    ))?;
    topology::client_ip(&format!(
        "route replace {shared}/32 via 10.0.1.2 dev vxlan0
         route replace {shared6}/128 via fd00:1::2 dev vxlan0"
    ))
}

/// Makes a container send all to the host, as Calico does: what is masqueraded comes from addresses that it has no route to.
pub(super) fn answer_by_host(container: &str, device: &str) -> Result<()> {
    let mac = topology::mac(device)?;
    topology::ip_in(
        container,
        &format!(
            "neigh replace 169.254.1.1 lladdr {mac} dev eth0
             route add default via 169.254.1.1 dev eth0 onlink
             neigh replace fe80::1 lladdr {mac} dev eth0
             route add ::/0 via fe80::1 dev eth0"
        ),
    )
}

fn bits(family: Family) -> u8 {
    match family {
        Family::V4 => 32,
        Family::V6 => 128,
    }
}
