// SPDX-License-Identifier: GPL-2.0

//! A second container at the bridge, whose veth has a shaper that the first one's has not. Flows to both share their lanes, or even an
//! outer flow: a look at the one's way must not stand for a look at the other's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use anyhow::{ensure, Result};

use super::SHAPED;
use crate::hosts::elephant::receiver::{seeing, Arrived};
use crate::hosts::elephant::{is_enabled, unspecified, wait_fate, Elephant, Fate, PORT};
use crate::hosts::host::{Host, Rules, CONTAINER2, VETH2};
use crate::hosts::Case;
use crate::network::netlink::{Behind, Netlink};
use crate::network::netns;
use crate::network::topology::{self, Family, CONTAINER};
use crate::{flows, mflow};

const FAMILY: Family = Family::V4;
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 3);
const MAC: &str = "02:00:00:00:07:04";

/// The outer flows of the flows to the two containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outer {
    Each,
    One,
}

pub(super) fn cases() -> Vec<Case> {
    let case =
        |name, has, proves, outer| Case::new(name, has, proves, move |host| beside(host, outer));
    vec![
        case(
            "devices/neighbour-shaped",
            "a shaper at the veth of one of two containers, each with an outer flow of its own",
            "a flow to a container without a shaper is split, and one to its shaped neighbour stays whole, on the same lanes",
            Outer::Each,
        )
        .with_fate(Fate::Either),
        case(
            "devices/neighbour-shaped/one-outer",
            "a shaper at the veth of one of two containers that share an outer flow",
            "an outer flow to a container without a shaper and to its shaped neighbour is not split, and flows says why",
            Outer::One,
        )
        .with_fate(SHAPED),
    ]
}

fn beside(host: &Host, outer: Outer) -> Result<()> {
    let set_up = || {
        neighbour(outer)?;
        shape()
    };
    let compared = host.compare(FAMILY, Rules::First, set_up, |host| sent(host, outer))?;
    // The kernel keeps no order behind the shaper.
    compared.each(|arrived| arrived.require_order_of(0))?;
    compared.on.require_looks_of(&compared.off)
}

/// Adds a container to the bridge, which the client reaches.
fn neighbour(outer: Outer) -> Result<()> {
    let mtu = FAMILY.overlay_mtu();
    netns::add(CONTAINER2)?;
    topology::ip(&format!(
        "link add {VETH2} mtu {mtu} type veth peer name eth0 mtu {mtu} address {MAC} netns {CONTAINER2}"
    ))?;
    let bridge = Netlink::open(None)?;
    bridge.enslave(VETH2, "br0")?;
    bridge.forward(MAC, Behind::Port(VETH2))?;
    topology::ip_in(
        CONTAINER2,
        &format!("link set lo up\nlink set eth0 up\naddr add {ADDRESS}/24 dev eth0"),
    )?;
    if outer != Outer::One {
        topology::many_outer_flows(FAMILY)?;
    }
    topology::client_ip(&format!("neigh replace {ADDRESS} lladdr {MAC} dev vxlan0"))
}

/// Gives the second container's veth a shaper, for a limit that the flow does not come to.
fn shape() -> Result<()> {
    topology::tc(&format!(
        "qdisc add dev {VETH2} root tbf rate 1gbit burst 1mb latency 25ms"
    ))
}

fn sent(host: &Host, outer: Outer) -> Result<Arrived> {
    let any = SocketAddr::from((unspecified(FAMILY), PORT));
    let read = |namespace| netns::within(namespace, || seeing(UdpSocket::bind(any)?));
    let to = [FAMILY.container(), IpAddr::from(ADDRESS)];
    let elephant = Elephant {
        from: FAMILY.client(),
        to: to.map(|to| (to, PORT).into()).into(),
        sockets: vec![read(CONTAINER)?, read(CONTAINER2)?],
        pps: host.elephant_pps,
        fate: match outer {
            Outer::Each => Fate::Split,
            // Its probe may have been a packet to the other container.
            Outer::One => SHAPED,
        },
    };
    let (arrived, ()) = elephant.run(0, |live| {
        let enabled = is_enabled()?;
        if enabled {
            wait_fate(0, Some(SHAPED))?;
        }
        live.send_more(host.datagrams)?;
        if enabled && outer != Outer::One {
            let still = flows::any(&[("state", "split")])?;
            ensure!(
                still && flows::any(&[("state", "whole"), ("reason", "path_queues")])?,
                "one flow has to be split, and one whole:\n{}",
                mflow::read("flows")?
            );
        }
        Ok(())
    })?;
    Ok(arrived)
}
