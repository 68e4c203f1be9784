// SPDX-License-Identifier: GPL-2.0

//! A node of a cluster: it routes between a pod of another node, which is the client, and two pods of its own, which are the endpoints
//! of services. Each service has an address of the cluster, and a port of the node.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;

use crate::hosts::elephant::PORT;
use crate::hosts::host::{CONTAINER2, VETH2};
use crate::hosts::router;
use crate::topology::{self, CLIENT, CONTAINER};

/// The addresses of pods; what comes from elsewhere is masqueraded.
pub(super) const PODS: &str = "10.0.0.0/16";
/// The services' address, and the node's in the overlay.
pub(super) const CLUSTER_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
pub(super) const NODE: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 2);
/// Endpoints, and their namespaces.
pub(super) const ENDPOINTS: [Ipv4Addr; 2] =
    [Ipv4Addr::new(10, 0, 1, 2), Ipv4Addr::new(10, 0, 7, 2)];
pub(super) const NAMESPACES: [&str; 2] = [CONTAINER, CONTAINER2];
/// The time for which a client of a service with affinity stays with an endpoint.
pub(super) const AFFINITY_S: u32 = 10_800;

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
    pub(super) fn address(self) -> Ipv4Addr {
        match self {
            Self::ClusterIp => CLUSTER_IP,
            Self::NodePort => NODE,
        }
    }

    pub(super) fn port(self, port: Port) -> u16 {
        match self {
            Self::ClusterIp => port.cluster,
            Self::NodePort => port.node,
        }
    }

    pub(super) fn of(self, port: Port) -> SocketAddr {
        (self.address(), self.port(port)).into()
    }
}

/// Sets the node and its pods up, without rules.
pub(super) fn set_up() -> Result<()> {
    router::set_up_shared()?;
    router::answer_by_host(CONTAINER, "veth0")?;
    router::answer_by_host(CONTAINER2, VETH2)?;
    topology::ip(None, &format!("addr add {NODE}/32 dev vxlan0"))?;
    topology::ip(
        Some(CLIENT),
        &format!(
            "route replace {CLUSTER_IP}/32 via 10.0.1.2 dev vxlan0
             route replace {NODE}/32 via 10.0.1.2 dev vxlan0"
        ),
    )
}
