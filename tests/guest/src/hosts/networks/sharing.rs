// SPDX-License-Identifier: GPL-2.0

//! Containers that share a device of the host's: macvlan and ipvlan. What is for one of them goes on at once; what is for a group that
//! several have joined waits in a queue of the shared device, which a kernel thread empties on any CPU.

use std::fs;
use std::iter;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use anyhow::{Context as _, Result};
use mflow_protocol::network::{CLIENT_MAC, CONTAINER_MAC};

use super::require_unnoticed;
use crate::hosts::elephant::receiver::{seeing, Arrived, Receiver};
use crate::hosts::elephant::{Elephant, Fate, PORT};
use crate::hosts::host::{Host, Rules, CONTAINER2};
use crate::hosts::Case;
use crate::machine::cpu;
use crate::network::netns;
use crate::network::topology::{self, Family, CONTAINER};
use crate::traffic::datagrams::run::wait_quiet;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const CONTAINER2_MAC: &str = "02:00:00:00:07:03";
/// The containers that join, and their addresses.
type Member = (&'static str, Ipv4Addr);
const MEMBERS: [Member; 2] = [
    (CONTAINER, Ipv4Addr::new(10, 0, 1, 2)),
    (CONTAINER2, Ipv4Addr::new(10, 0, 1, 3)),
];
/// The CPUs of the kernel's threads that are bound to none.
const THREADS: &str = "/sys/devices/virtual/workqueue/cpumask";
/// The part of the usual rate at which a group is sent to: each datagram becomes two.
const SHARE: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Macvlan,
    /// With this mode.
    Ipvlan(&'static str),
}

pub(super) fn cases() -> Vec<Case> {
    let unicast = |name, has, kind| {
        Case::new(
            name,
            has,
            "a flow to a container that shares the tunnel's device is split, whole and in order, and connections beside it come about",
            move |host| require_unnoticed(host, move || set_up(kind)),
        )
    };
    let group = |name, has, kind, members| {
        Case::new(
            name,
            has,
            "a flow to a group stays whole, as a kernel thread copies it for containers, on the NIC's CPU, too, and flows says why",
            move |host| to_group(host, kind, members),
        )
        .with_fate(Fate::Kept("path_queues"))
    };
    vec![
        unicast(
            "networks/macvlan",
            "containers with macvlan devices over the tunnel's",
            Kind::Macvlan,
        ),
        unicast(
            "networks/ipvlan/l3",
            "containers with ipvlan devices over the tunnel's, in mode `l3`",
            Kind::Ipvlan("l3"),
        ),
        unicast(
            "networks/ipvlan/l3s",
            "such containers in mode `l3s`",
            Kind::Ipvlan("l3s"),
        ),
        group(
            "networks/macvlan/group",
            "two containers with macvlan devices that have joined a group",
            Kind::Macvlan,
            &MEMBERS,
        ),
        group(
            "networks/ipvlan/group",
            "a container with an ipvlan device that has joined a group",
            Kind::Ipvlan("l2"),
            &MEMBERS[..1],
        ),
    ]
}

/// Gives a container a device of this kind in place of its veth.
fn set_up(kind: Kind) -> Result<()> {
    topology::ip(
        "link set vxlan0 nomaster
         link del veth0",
    )?;
    let vxlan = topology::mac("vxlan0")?;
    let client = Family::V4.client();
    let (add, mac) = match kind {
        Kind::Macvlan => (
            format!("type macvlan mode bridge\nlink set eth0 address {CONTAINER_MAC}"),
            CONTAINER_MAC,
        ),
        Kind::Ipvlan(mode) => (format!("type ipvlan mode {mode}"), vxlan.as_str()),
    };
    share(CONTAINER, &add, &[Family::V4.container().to_string()])?;
    topology::container_ip(&format!(
        "neigh replace {client} lladdr {CLIENT_MAC} dev eth0
         route replace {client}/32 dev eth0"
    ))?;
    // In the modes of layer 3 the host routes what containers send.
    topology::ip(&format!(
        "neigh replace {client} lladdr {CLIENT_MAC} dev vxlan0
         route replace {client}/32 dev vxlan0"
    ))?;
    topology::client_ip(&format!(
        "neigh replace {} lladdr {mac} dev vxlan0",
        Family::V4.container()
    ))
}

/// Adds a device over the tunnel's to a namespace, and gives it addresses.
fn share(namespace: &str, add: &str, addresses: &[String]) -> Result<()> {
    // What follows the first line is for the namespace, where the name is free.
    let (add, more) = add.split_once('\n').unwrap_or((add, ""));
    topology::ip(&format!(
        "link add link vxlan0 name shared netns {namespace} {add}"
    ))?;
    let addresses = addresses.iter();
    let addresses: String = addresses
        .map(|address| format!("addr add {address}/24 dev eth0\n"))
        .collect();
    topology::ip_in(
        namespace,
        &format!(
            "link set shared name eth0\n{more}\nlink set lo up\nlink set eth0 up\n{addresses}"
        ),
    )
}

fn to_group(host: &Host, kind: Kind, members: &'static [Member]) -> Result<()> {
    let set_up = || {
        set_up(kind)?;
        netns::add(CONTAINER2)?;
        let add = match kind {
            Kind::Macvlan => {
                format!("type macvlan mode bridge\nlink set eth0 address {CONTAINER2_MAC}")
            }
            Kind::Ipvlan(mode) => format!("type ipvlan mode {mode}"),
        };
        share(CONTAINER2, &add, &["10.0.1.3".to_owned()])
    };
    let usual = fs::read_to_string(THREADS)?;
    // As on hosts that keep such threads to some CPUs: the probe, too, arrives where it came.
    fs::write(THREADS, format!("{:x}", 1 << cpu::NIC))?;
    let compared = host.compare(Family::V4, Rules::First, set_up, |host| {
        at_members(host, members)
    });
    // Also after a failure.
    fs::write(THREADS, usual.trim())?;
    let compared = compared?;
    for (enabled, members) in [&compared.off, &compared.on].into_iter().enumerate() {
        for (place, arrived) in members.iter().enumerate() {
            let about = || format!("with enabled {enabled}, at member {place}");
            arrived.require_whole().with_context(about)?;
        }
    }
    compared.on[0].require_kept()
}

/// Returns what has come to each member of a group.
fn at_members(host: &Host, members: &[Member]) -> Result<Vec<Arrived>> {
    let join = |(namespace, own): Member| {
        netns::within(namespace, || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
            socket.join_multicast_v4(&GROUP, &own)?;
            seeing(socket)
        })
    };
    let others = members[1..].iter();
    let others = others
        .map(|&member| Ok(Receiver::start(vec![join(member)?], 1)))
        .collect::<Result<Vec<_>>>()?;
    let elephant = Elephant {
        from: Family::V4.client(),
        to: vec![SocketAddr::from((GROUP, PORT))],
        sockets: vec![join(members[0])?],
        pps: host.elephant_pps * SHARE,
        fate: Fate::Kept("path_queues"),
    };
    let ran = elephant.run(host.datagrams, |_| Ok(()));
    // Also after a failure.
    let others = others.into_iter().map(|other| {
        if let Ok((first, ())) = &ran {
            wait_quiet(|| other.arrivals(), first.sent);
        }
        other.stop()
    });
    let others = others.collect::<Result<Vec<_>>>()?;
    let (first, ()) = ran?;
    let sent = first.sent;
    let others = others.into_iter().map(|mut other| {
        other.sent = sent;
        other
    });
    Ok(iter::once(first).chain(others).collect())
}
