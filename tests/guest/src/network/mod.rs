// SPDX-License-Identifier: GPL-2.0

//! The network of a test: the overlay with its two ends ([`topology`]), and the tools and sockets by which cases set up a host's network
//! and look into it.

pub(crate) mod bpf;
pub(crate) mod conntrack;
pub(crate) mod devlink;
pub(crate) mod ipsec;
pub(crate) mod iptables;
pub(crate) mod netlink;
pub(crate) mod netns;
pub(crate) mod nfqueue;
pub(crate) mod nft;
pub(crate) mod packet_socket;
pub(crate) mod tcpdump;
pub(crate) mod topology;
pub(crate) mod virtual_nic;
pub(crate) mod xdp_socket;
