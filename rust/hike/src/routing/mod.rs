// SPDX-License-Identifier: GPL-2.0

//! The host's routing, as far as the programs cannot ask for it.
//!
//! `bpf_fib_lookup()` knows rules, routes and neighbours. It has no packet, and is not told of all that the kernel looks at before it
//! forwards one. User space reads the rest, and tells the programs which packets they leave to the kernel:
//!
//! | what there is | what becomes of it |
//! |---|---|
//! | a VLAN, a VRF, a bond (`devices`) | the kernel's rules are asked for that device, not for the one that XDP has the packet from |
//! | a bridge, a device that hides tags (`offloads`) | its packets are the kernel's |
//! | routes with several next hops (`routes`) | the programs choose as the kernel does while its policy is 0; otherwise they leave the family |
//! | routes with an MTU of their own | larger packets are the kernel's |
//! | rules for protocols and ports (`rules`) | the programs look behind extension headers |
//! | `rp_filter`, local routes of IPv4 that no device has made | the programs ask for the way back, too |
//! | IPsec (`ipsec`), IPv6 without forwarding | the family is the kernel's |
//!
//! [`Facts`] are read from the kernel, [`Routing`] is made of them, and a [`Follower`] tells when they have changed. If nobody follows,
//! what was read last counts.

mod devices;
mod facts;
mod follower;
mod host;
mod ipsec;
mod netlink;
mod offloads;
mod routes;
mod rules;
mod sysctl;
mod tables;

pub use self::facts::Facts;
pub use self::follower::Follower;
pub(crate) use self::host::runs_behind_functions;
pub use self::tables::{Family, Receiver, Routing, Sender, Tagged};
