// SPDX-License-Identifier: GPL-2.0

//! kube-proxy in its three modes, with rules as kube-proxy itself writes them.

use anyhow::Result;

use super::balancer::{Balancer, Choice};
use super::cluster::{self, Front, ENDPOINTS, NAMESPACES};
use super::{ipvs, kube_iptables, kube_nftables};
use crate::hosts::host::Host;
use crate::hosts::Case;

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
            cases.push(Case::new(
                format!("kube/{name}/{what}"),
                "kube-proxy's rules give each new connection and each flow beside a split one to one endpoint, with the addresses and \
                 marks that they have with enabled 0",
                move |host| balanced(host, kube),
            ));
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
