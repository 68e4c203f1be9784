// SPDX-License-Identifier: GPL-2.0

//! Services: what is sent to an address or a port that stands for containers is translated to theirs.

mod balancer;
mod cluster;
pub(super) mod conntrack_ports;
mod dialogue;
mod docker;
mod ipvs;
mod kube;
mod kube_iptables;
mod kube_nftables;
mod mesh;
mod mesh_rules;
pub(super) mod translation;

use anyhow::Result;

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = translation::cases();
    cases.extend(kube::cases());
    cases.extend(docker::cases());
    cases.extend(mesh::cases());
    cases
}

/// Takes away what rules and devices of services are not cleared with.
pub(super) fn clear() -> Result<()> {
    ipvs::clear()
}
