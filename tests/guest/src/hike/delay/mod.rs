// SPDX-License-Identifier: GPL-2.0

//! Test packets that measure delay (STAMP): reflectors in chains, and the sessions of `hiked`.
//!
//! All namespaces of a guest have one clock, so the times of both ends can be compared without an error of clocks.

pub(crate) mod asker;
pub(crate) mod path;
pub(crate) mod reflector;
pub(crate) mod sessions;

use anyhow::Result;

use crate::hike::network::RIGHT;
use crate::network::bpf::{Xdp, XdpMode};
use crate::network::netns;

/// Lets a node get what the other end of its right link sends back, until the end of the scope. Unlike a NIC, a veth sends nothing back
/// unless its other end has a program (drivers/net/veth.c: veth_xdp_flush).
fn answers_come(node: &str) -> Result<Xdp> {
    netns::within(node, || Xdp::attach(RIGHT, XdpMode::Native))
}
