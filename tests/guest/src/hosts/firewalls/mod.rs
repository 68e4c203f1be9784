// SPDX-License-Identifier: GPL-2.0

//! Rule sets of network plugins and firewalls as these programs write them.

mod calico;
mod firewalld;
mod flannel;
pub(super) mod iptables_counters;
mod stateful_firewall;
mod ufw;

use anyhow::Result;

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = calico::cases();
    cases.extend(flannel::cases());
    cases.extend(firewalld::cases());
    cases.extend(ufw::cases());
    cases
}

/// Takes away what firewalls leave behind beside their rules.
pub(super) fn clear() -> Result<()> {
    calico::clear()
}
