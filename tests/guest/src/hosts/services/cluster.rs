// SPDX-License-Identifier: GPL-2.0

//! A node of a cluster: it routes between a pod of another node, which is the client, and two pods of its own, which are the endpoints
//! of services. Each service has an address of the cluster, and a port of the node.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anyhow::Result;

use crate::hosts::elephant::PORT;
use crate::hosts::host::{CONTAINER2, VETH2};
use crate::hosts::router;
use crate::network::topology::{self, Family, CONTAINER};

/// The endpoints' namespaces.
pub(super) const NAMESPACES: [&str; 2] = [CONTAINER, CONTAINER2];
/// The time for which a client of a service with affinity stays with an endpoint.
pub(super) const AFFINITY_S: u32 = 10_800;

/// The addresses of one family in a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    /// The pods'; what comes from elsewhere is masqueraded.
    pub(super) pods: &'static str,
    /// All that services may have.
    pub(super) services: &'static str,
    /// The services' address, and the node's in the overlay.
    pub(super) cluster: IpAddr,
    pub(super) node: IpAddr,
    pub(super) endpoints: [IpAddr; 2],
}

impl Addresses {
    pub(super) fn of(family: Family) -> Self {
        let v4 = |bytes: [u8; 4]| IpAddr::from(bytes);
        let v6 = |second, last| IpAddr::V6(Ipv6Addr::new(0xfd00, second, 0, 0, 0, 0, 0, last));
        match family {
            Family::V4 => Self {
                pods: "10.0.0.0/16",
                services: "10.96.0.0/16",
                cluster: v4([10, 96, 0, 10]),
                node: v4([10, 97, 0, 2]),
                endpoints: [v4([10, 0, 1, 2]), v4([10, 0, 7, 2])],
            },
            Family::V6 => Self {
                pods: "fd00::/28",
                services: "fd00:96::/112",
                cluster: v6(0x96, 0x10),
                node: v6(0x97, 2),
                endpoints: [v6(1, 2), v6(7, 2)],
            },
        }
    }
}

/// A port of a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    /// As chains of its rules are named.
    pub(super) name: &'static str,
    pub(super) protocol: &'static str,
    /// At the cluster's address, at the node's, and at the endpoints'.
    pub(super) cluster: u16,
    pub(super) node: u16,
    pub(super) target: u16,
}

pub(super) const WEB: Port = Port {
    name: "web",
    protocol: "tcp",
    cluster: 80,
    node: 30_080,
    target: 8_080,
};
pub(super) const DNS: Port = Port {
    name: "dns",
    protocol: "udp",
    cluster: 53,
    node: 30_053,
    target: 5_353,
};
/// The port that the elephant goes to.
pub(super) const LOGS: Port = Port {
    name: "logs",
    protocol: "udp",
    cluster: 514,
    node: 30_514,
    target: PORT,
};
pub(super) const PORTS: [Port; 3] = [WEB, DNS, LOGS];

/// The kind of address that the client takes for the services'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    ClusterIp,
    NodePort,
}

impl Front {
    pub(super) fn address(self, family: Family) -> IpAddr {
        let addresses = Addresses::of(family);
        match self {
            Self::ClusterIp => addresses.cluster,
            Self::NodePort => addresses.node,
        }
    }

    pub(super) fn port(self, port: Port) -> u16 {
        match self {
            Self::ClusterIp => port.cluster,
            Self::NodePort => port.node,
        }
    }

    pub(super) fn of(self, family: Family, port: Port) -> SocketAddr {
        (self.address(family), self.port(port)).into()
    }
}

/// Sets the node and its pods up, without rules.
pub(super) fn set_up() -> Result<()> {
    router::set_up_shared()?;
    router::answer_by_host(CONTAINER, "veth0")?;
    router::answer_by_host(CONTAINER2, VETH2)?;
    for family in [Family::V4, Family::V6] {
        reach_node(family)?;
        let cluster = Addresses::of(family).cluster;
        by_node(family, cluster)?;
    }
    Ok(())
}

/// Gives the node its address in the overlay, to which the client has a route.
pub(super) fn reach_node(family: Family) -> Result<()> {
    let node = Addresses::of(family).node;
    let flags = match family {
        Family::V4 => "",
        Family::V6 => "nodad",
    };
    topology::ip(&format!("addr add {node} dev vxlan0 {flags}"))?;
    by_node(family, node)
}

/// Makes the client send packets for this address to the node.
fn by_node(family: Family, address: IpAddr) -> Result<()> {
    let container = family.container();
    topology::client_ip(&format!(
        "route replace {address} via {container} dev vxlan0"
    ))
}
