// SPDX-License-Identifier: GPL-2.0

//! Two bridges of Open vSwitch, as OpenStack has them on a host: one for tunnels, one for containers, joined by a veth. Both are in one
//! datapath of the kernel, whose flows are written here as `ovs-vswitchd` writes them: each bridge has connection tracking look at a
//! packet three times, and looks its flow up again each time.

use std::path::Path;

use anyhow::Result;
use mflow_protocol::network::{CLIENT_HOST, SERVER_HOST, VNI, VXLAN_PORT};

use super::require_unnoticed;
use crate::hosts::Case;
use crate::machine::command;
use crate::network::{conntrack, topology};

const DATAPATH: &str = "ovs-system";
const TUNNEL: &str = "vxlan_sys";
/// The ends of the veth that joins the bridges.
const TUNNEL_END: &str = "patch-tun";
const CONTAINER_END: &str = "patch-int";
const ROUNDS: u16 = 3;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(
        "networks/openvswitch",
        "two bridges of Open vSwitch, joined by a veth, each with connection tracking in three zones",
        "a flow through two bridges of Open vSwitch is split, whole and in order, and connections beside it come about",
        |host| require_unnoticed(host, set_up),
    )]
}

fn set_up() -> Result<()> {
    command::run("modprobe openvswitch")?;
    topology::ip(&format!(
        "link del vxlan0
         link del br0
         link add {TUNNEL} mtu 1450 type vxlan external dstport {VXLAN_PORT}
         link add {CONTAINER_END} mtu 1450 type veth peer name {TUNNEL_END} mtu 1450
         link set {TUNNEL} up
         link set {CONTAINER_END} up
         link set {TUNNEL_END} up"
    ))?;
    command::run(&format!("ovs-dpctl add-dp {DATAPATH}"))?;
    command::run(&format!(
        "ovs-dpctl add-if {DATAPATH} {TUNNEL},port_no=1 {TUNNEL_END},port_no=2 {CONTAINER_END},port_no=3 veth0,port_no=4"
    ))?;
    let outside = format!(
        "set(tunnel(tun_id={VNI},src={SERVER_HOST},dst={CLIENT_HOST},ttl=64,tp_dst={VXLAN_PORT},flags(df|key))),1"
    );
    // Ports that packets come in by and leave by, and the first zone of what tracks them in between.
    for (from, to, zone) in [
        (1, "2", 1),
        (3, "4", 1 + ROUNDS),
        (4, "3", 1 + ROUNDS),
        (2, &outside, 1),
    ] {
        tracked(from, to, zone)?;
    }
    // Flows of the other half may have had the same ports.
    conntrack::forget()
}

/// Makes connection tracking look at packets from a port in one zone after the other; then they leave.
fn tracked(from: u16, to: &str, first_zone: u16) -> Result<()> {
    // Numbers of a look-up that goes on, from 1; each port has its own.
    let number = |round: u16| from * 10 + round;
    for round in 0..=ROUNDS {
        let key = match round {
            0 => "recirc_id(0)".to_owned(),
            _ => format!("recirc_id({}),ct_state(+trk)", number(round)),
        };
        let actions = match round {
            ROUNDS => to.to_owned(),
            _ => format!(
                "ct(commit,zone={}),recirc({})",
                first_zone + round,
                number(round + 1)
            ),
        };
        command::run(&format!(
            "ovs-dpctl add-flow {DATAPATH} {key},in_port({from}),eth(),eth_type(0x0800),ipv4(frag=no) {actions}"
        ))?;
    }
    Ok(())
}

/// Takes away what the case has made, if it is there.
pub(super) fn clear() {
    if !Path::new("/sys/class/net").join(DATAPATH).exists() {
        return;
    }
    let _ = command::run(&format!("ovs-dpctl del-dp {DATAPATH}"));
    for device in [TUNNEL, TUNNEL_END] {
        let _ = topology::ip(&format!("link del {device}"));
    }
}
