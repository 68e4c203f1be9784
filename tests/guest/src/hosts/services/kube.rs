// SPDX-License-Identifier: GPL-2.0

//! kube-proxy in its three modes, with rules as kube-proxy itself writes them.

use anyhow::Result;

use super::balancer::{Balancer, Choice};
use super::cluster::{self, Front, ENDPOINTS, NAMESPACES};
use super::{ipvs, kube_iptables, kube_nftables};
use crate::hosts::host::Host;
use crate::hosts::Case;

/// What IPVS does with datagrams of a flow that it does not know yet. No case has such flows: they are rare, and the rules of other
/// modes do that with nothing split, too.
const TWO_ENDPOINTS: &str =
    "a new flow whose first datagrams meet IPVS on two cores at the same time can get two endpoints";

/// Who translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Iptables,
    Nftables,
    Ipvs,
}

/// What kube-proxy is told of the services.
#[derive(Clone, Copy, Debug)]
struct Kube {
    mode: Mode,
    front: Front,
    has_affinity: bool,
}

impl Kube {
    fn host(self) -> &'static str {
        match self.mode {
            Mode::Iptables => "kube-proxy in mode `iptables`: services by address and by a port of the node, with and without affinity",
            Mode::Nftables => "the same in mode `nftables`",
            Mode::Ipvs => "the same in mode `ipvs`",
        }
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, mode) in [
        ("iptables", Mode::Iptables),
        ("nftables", Mode::Nftables),
        ("ipvs", Mode::Ipvs),
    ] {
        for (what, front, has_affinity) in [
            ("cluster-ip", Front::ClusterIp, false),
            ("node-port", Front::NodePort, false),
            ("affinity", Front::ClusterIp, true),
        ] {
            let kube = Kube {
                mode,
                front,
                has_affinity,
            };
            let case = Case::new(
                format!("kube/{name}/{what}"),
                kube.host(),
                "kube-proxy's rules give each new connection and each flow beside a split one to one endpoint, with the addresses and \
                 marks that they have with enabled 0",
                move |host| balanced(host, kube),
            );
            cases.push(if mode == Mode::Ipvs {
                case.but(TWO_ENDPOINTS)
            } else {
                case
            });
        }
    }
    cases
}

fn balanced(host: &Host, kube: Kube) -> Result<()> {
    let set_up = || {
        cluster::set_up()?;
        match kube.mode {
            Mode::Iptables => kube_iptables::set_up(kube.has_affinity),
            Mode::Nftables => kube_nftables::set_up(kube.has_affinity),
            Mode::Ipvs => ipvs::set_up(kube.has_affinity),
        }
    };
    let choice = if kube.has_affinity {
        Choice::ByClient
    } else {
        Choice::Any
    };
    let balancer = Balancer {
        address: kube.front.address(),
        front: kube.front,
        namespace: None,
        endpoints: NAMESPACES.into_iter().zip(ENDPOINTS).collect(),
        choice,
        is_masquerading: kube.front == Front::NodePort,
        ask: || Ok(0),
    };
    balancer.compare(host, set_up)
}
