// SPDX-License-Identifier: GPL-2.0

//! `fw-fib` beside the kernel's own forwarding of the same packets: rules, routes, VLANs, VRFs and several next hops. Each packet leaves as
//! from the kernel, or the kernel gets it.

pub(crate) mod bed;
pub(crate) mod changes;
pub(crate) mod multipath;
pub(crate) mod oracle;
pub(crate) mod packet;
pub(crate) mod vlan;
pub(crate) mod vrf;
