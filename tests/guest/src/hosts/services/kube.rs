// SPDX-License-Identifier: GPL-2.0

//! kube-proxy in its three modes, with rules as kube-proxy itself writes them.

use anyhow::Result;

use super::balancer::{Balancer, Choice, IN_ORDER};
use super::cluster::{self, Addresses, Front, DNS, LOGS, NAMESPACES, PORTS, WEB};
use super::{ipvs, kube_iptables, kube_nftables};
use crate::hosts::elephant::Fate;
use crate::hosts::host::{Change, Host, Rules};
use crate::hosts::Case;
use crate::network::topology::Family;

const PROVES: &str =
    "kube-proxy's rules give each new connection and each flow beside a fast one to one endpoint, with the addresses and marks that \
     they have with enabled 0";

/// The mode of kube-proxy: the part of the kernel that translates addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Iptables,
    Nftables,
    Ipvs,
}

/// The services, as kube-proxy is told of them.
#[derive(Clone, Copy, Debug)]
struct Kube {
    family: Family,
    mode: Mode,
    front: Front,
    has_affinity: bool,
}

impl Kube {
    fn fate(self) -> Fate {
        match self.mode {
            Mode::Iptables | Mode::Nftables => Fate::Split,
            Mode::Ipvs => IN_ORDER,
        }
    }

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
    for (name, mode, family) in [
        ("iptables", Mode::Iptables, Family::V4),
        ("iptables", Mode::Iptables, Family::V6),
        ("nftables", Mode::Nftables, Family::V4),
        ("nftables", Mode::Nftables, Family::V6),
        ("ipvs", Mode::Ipvs, Family::V4),
        ("ipvs", Mode::Ipvs, Family::V6),
    ] {
        let of_family = match family {
            Family::V4 => "",
            Family::V6 => "/v6",
        };
        for (what, front, has_affinity) in [
            ("cluster-ip", Front::ClusterIp, false),
            ("node-port", Front::NodePort, false),
            ("affinity", Front::ClusterIp, true),
        ] {
            let kube = Kube {
                family,
                mode,
                front,
                has_affinity,
            };
            let name = format!("kube/{name}/{what}{of_family}");
            let case = Case::new(name, kube.host(), PROVES, move |host| balanced(host, kube));
            cases.push(case.with_fate(kube.fate()));
        }
    }
    for (name, family) in [
        ("kube/nftables/during", Family::V4),
        ("kube/nftables/during/v6", Family::V6),
    ] {
        cases.push(Case::new(
            name,
            "kube-proxy in mode `nftables`: services that come, go and come again while a flow to another one is split",
            "kube-proxy's rules for new services give each new connection and flow to one endpoint, and a flow that is split loses nothing \
             and stays in order, also as these services go and come again",
            move |host| served_during(host, family),
        ));
    }
    cases
}

fn balanced(host: &Host, kube: Kube) -> Result<()> {
    let set_up = || {
        cluster::set_up()?;
        match kube.mode {
            Mode::Iptables => kube_iptables::set_up(kube.family, kube.has_affinity),
            Mode::Nftables => kube_nftables::set_up(kube.family, &PORTS, kube.has_affinity),
            Mode::Ipvs => ipvs::set_up(kube.family, kube.has_affinity),
        }
    };
    balancer(kube).compare(host, set_up)
}

fn served_during(host: &Host, family: Family) -> Result<()> {
    let kube = Kube {
        family,
        mode: Mode::Nftables,
        front: Front::ClusterIp,
        has_affinity: false,
    };
    let change = Change {
        when: Rules::During,
        make: &|| kube_nftables::add(family, &[WEB, DNS]),
        undo: &|| kube_nftables::remove(family, &[WEB, DNS]),
    };
    let set_up = || {
        cluster::set_up()?;
        kube_nftables::set_up(family, &[LOGS], false)
    };
    balancer(kube).compare_changed(host, set_up, &change)
}

fn balancer(kube: Kube) -> Balancer {
    let choice = if kube.has_affinity {
        Choice::ByClient
    } else {
        Choice::Any
    };
    Balancer {
        address: kube.front.address(kube.family),
        front: kube.front,
        namespace: None,
        endpoints: NAMESPACES
            .into_iter()
            .zip(Addresses::of(kube.family).endpoints)
            .collect(),
        choice,
        is_masquerading: kube.front == Front::NodePort,
        fate: kube.fate(),
        ask: || Ok(0),
    }
}
