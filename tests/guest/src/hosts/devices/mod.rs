// SPDX-License-Identifier: GPL-2.0

//! Devices that a container or its plugin adds: a VLAN, a VRF or a tunnel in the container, and disciplines at its veth that shape
//! the packets for it. In some cases such a device hides a veth with a discipline.

mod neighbour;

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{ensure, Result};
use mflow_protocol::network::{CLIENT_MAC, CONTAINER_MAC};

use super::elephant::receiver::seeing;
use super::elephant::{unspecified, Elephant, Fate, PORT};
use super::host::{Host, Rules};
use super::Case;
use crate::machine::command;
use crate::mflow;
use crate::network::netlink::Netlink;
use crate::network::netns;
use crate::network::topology::{self, Family, CLIENT, CONTAINER};

/// The client's and the container's address behind a VLAN or in a tunnel.
const IN_VLAN: [&str; 2] = ["10.0.100.1", "10.0.100.2"];
const IN_VLAN6: [&str; 2] = ["fd00:100::1", "fd00:100::2"];
const IN_TUNNEL: [&str; 2] = ["10.0.109.1", "10.0.109.2"];
/// The addresses of a tunnel's ends, if it carries Ethernet.
const TUNNEL_MACS: [&str; 2] = ["02:00:00:00:09:01", "02:00:00:00:09:02"];
/// The port of a tunnel in UDP.
const TUNNEL_PORT: u16 = 5_555;
/// The host's address at its bridge.
const HOST: &str = "10.0.1.3";
/// The lengths of the prefixes of addresses.
const BITS: u8 = 24;
const BITS6: u8 = 64;
const SHAPED: Fate = Fate::Kept("path_queues");
/// The discipline that the plugin `bandwidth` adds, with a limit that the flow does not reach.
const TBF: &str = "qdisc add dev veth0 root tbf rate 1gbit burst 1mb latency 25ms";

pub(super) fn cases() -> Vec<Case> {
    let case = |name, has, proves, to: To, fate, set_up: fn() -> Result<()>| {
        Case::new(name, has, proves, move |host| {
            through(host, to, fate, set_up)
        })
        .with_fate(fate)
    };
    let to = |inside| To {
        family: Family::V4,
        inside,
    };
    let [own, in_vlan, in_tunnel] = [Inside::Nothing, Inside::Vlan, Inside::Tunnel].map(to);
    let v6 = |to: To| To {
        family: Family::V6,
        ..to
    };
    let shaped =
        "a flow to a container whose veth has a discipline stays whole, and flows says why";
    let hidden = "the same where a device in the container hides the veth";
    let behind_tunnel = "the same where a tunnel in the container hides the veth";
    let mut cases = vec![
        case(
            "devices/vlan",
            "a VLAN device in the container",
            "a flow to a VLAN device in the container is split, and keeps its order",
            in_vlan,
            Fate::Split,
            vlan,
        ),
        case(
            "devices/vrf",
            "a VRF in the container",
            "a flow to a VRF in the container is split, and keeps its order",
            own,
            Fate::Split,
            vrf,
        ),
        case(
            "devices/bandwidth",
            "shapers for both ways at the container's veth, as the plugin `bandwidth` has them",
            shaped,
            own,
            SHAPED,
            bandwidth,
        ),
        case(
            "devices/fq",
            "`fq` at the container's veth",
            shaped,
            own,
            SHAPED,
            || topology::tc("qdisc add dev veth0 root fq"),
        ),
        case(
            "devices/fq-codel",
            "`fq_codel` at the container's veth",
            shaped,
            own,
            SHAPED,
            || topology::tc("qdisc add dev veth0 root fq_codel"),
        ),
        case(
            "devices/vlan-shaped",
            "a shaper at the veth of a container with a VLAN device",
            hidden,
            in_vlan,
            SHAPED,
            || vlan().and_then(|()| topology::tc(TBF)),
        ),
        case(
            "devices/vrf-shaped",
            "a shaper at the veth of a container with a VRF",
            hidden,
            own,
            SHAPED,
            || vrf().and_then(|()| topology::tc(TBF)),
        ),
        case(
            "devices/gre",
            "a tunnel of GRE in the container",
            "a flow through a tunnel in the container is split, and keeps its order",
            in_tunnel,
            Fate::Split,
            gre,
        ),
        case(
            "devices/fou",
            "a tunnel of IP in UDP in the container, as FOU or GUE",
            "a flow through a tunnel in the container whose packets are in UDP is split, and keeps its order",
            in_tunnel,
            Fate::Split,
            || in_udp("ipproto 4", "ipip", "fou"),
        ),
        case(
            "devices/gue",
            "a tunnel of IP in UDP in the container, as FOU or GUE",
            "the same with a header between UDP and IP",
            in_tunnel,
            Fate::Split,
            || in_udp("gue", "ipip", "gue"),
        ),
        case(
            "devices/gue/numbered",
            "a tunnel of GRE with sequence numbers in UDP, as GUE",
            "a flow through a tunnel in the container that wants its packets in order stays whole, also if these are in UDP",
            in_tunnel,
            Fate::Kept("path_ordered"),
            || in_udp("gue", "gre", "gue"),
        ),
        case(
            "devices/gue/numbered/routed",
            "a tunnel of GRE with sequence numbers in UDP, as GUE",
            "a flow through a tunnel at the host that wants its packets in order stays whole, though they go on",
            in_tunnel,
            Fate::Kept("path_ordered"),
            at_host,
        ),
        case(
            "devices/gre-shaped",
            "a shaper at the veth of a container with a tunnel of GRE",
            behind_tunnel,
            in_tunnel,
            SHAPED,
            || gre().and_then(|()| topology::tc(TBF)),
        ),
        case(
            "devices/geneve-shaped",
            "the same with a tunnel of Geneve",
            behind_tunnel,
            in_tunnel,
            SHAPED,
            || geneve().and_then(|()| topology::tc(TBF)),
        ),
        case(
            "devices/vlan/v6",
            "a VLAN device in the container",
            "the same over IPv6",
            v6(in_vlan),
            Fate::Split,
            vlan,
        ),
        case(
            "devices/vrf/v6",
            "a VRF in the container",
            "the same over IPv6",
            v6(own),
            Fate::Split,
            vrf,
        ),
        case(
            "devices/fq/v6",
            "`fq` at the container's veth",
            "the same over IPv6",
            v6(own),
            SHAPED,
            || topology::tc("qdisc add dev veth0 root fq"),
        ),
        case(
            "devices/vlan-shaped/v6",
            "a shaper at the veth of a container with a VLAN device",
            "the same over IPv6",
            v6(in_vlan),
            SHAPED,
            || vlan().and_then(|()| topology::tc(TBF)),
        ),
        case(
            "devices/vrf-shaped/v6",
            "a shaper at the veth of a container with a VRF",
            "the same over IPv6",
            v6(own),
            SHAPED,
            || vrf().and_then(|()| topology::tc(TBF)),
        ),
        case(
            "devices/bandwidth/v6",
            "shapers for both ways at the container's veth, as the plugin `bandwidth` has them",
            "the same over IPv6",
            v6(own),
            SHAPED,
            bandwidth,
        ),
    ];
    cases.extend(neighbour::cases());
    cases
}

/// Takes away what a case leaves behind on the host.
pub(super) fn clear() -> Result<()> {
    // Most cases have added no port.
    let _ = topology::ip(&format!("fou del port {TUNNEL_PORT}"));
    let host = Netlink::open(None)?;
    if host.exists("inner0") {
        host.delete("inner0")?;
    }
    Ok(())
}

/// The device in the container that a flow is for, behind the veth.
#[derive(Clone, Copy, Debug)]
enum Inside {
    Nothing,
    Vlan,
    Tunnel,
}

/// The container's address that a flow is for.
#[derive(Clone, Copy, Debug)]
struct To {
    family: Family,
    inside: Inside,
}

impl To {
    /// Returns the addresses of the client and the container.
    fn ends(self) -> Result<[IpAddr; 2]> {
        let [client, container] = match (self.inside, self.family) {
            (Inside::Nothing, family) => return Ok([family.client(), family.container()]),
            (Inside::Vlan, Family::V4) => IN_VLAN,
            (Inside::Vlan, Family::V6) => IN_VLAN6,
            (Inside::Tunnel, _) => IN_TUNNEL,
        };
        Ok([client.parse()?, container.parse()?])
    }
}

fn through(host: &Host, to: To, fate: Fate, set_up: fn() -> Result<()>) -> Result<()> {
    let [from, container] = to.ends()?;
    let compared = host.compare(to.family, Rules::First, set_up, |host| {
        let bound = netns::within(CONTAINER, || {
            seeing(UdpSocket::bind((unspecified(to.family), PORT))?)
        })?;
        let elephant = Elephant {
            from,
            to: vec![SocketAddr::new(container, PORT)],
            sockets: vec![bound],
            pps: host.elephant_pps,
            fate,
        };
        Ok(elephant.run(host.datagrams, |_| Ok(()))?.0)
    })?;
    compared.each(|arrived| match fate {
        // Any CPU that sends may empty a discipline into its own backlog, so the kernel keeps no order behind a discipline.
        Fate::Kept(_) => arrived.require_all(),
        Fate::Split | Fate::Either => arrived.require_whole(),
    })?;
    compared.on.require_looks_of(&compared.off)?;
    match fate {
        Fate::Split => compared.on.require_split(),
        Fate::Kept(_) => {
            let split = mflow::flows_split()?;
            ensure!(
                split == 0,
                "{split} flows were split since the module was loaded"
            );
            compared.on.require_kept()
        }
        Fate::Either => Ok(()),
    }
}

fn vlan() -> Result<()> {
    for (place, namespace, lower) in [(0, CLIENT, "vxlan0"), (1, CONTAINER, "eth0")] {
        let (v4, v6) = (IN_VLAN[place], IN_VLAN6[place]);
        topology::ip_in(
            namespace,
            &format!(
                "link add link {lower} name vlan100 type vlan id 100
                 link set vlan100 up
                 addr add {v4}/{BITS} dev vlan100
                 addr add {v6}/{BITS6} dev vlan100 nodad"
            ),
        )?;
    }
    for container in [IN_VLAN[1], IN_VLAN6[1]] {
        topology::client_ip(&format!(
            "neigh replace {container} lladdr {CONTAINER_MAC} dev vlan100"
        ))?;
    }
    Ok(())
}

/// Puts the container's device into a VRF, and lets sockets outside the VRF receive its packets.
fn vrf() -> Result<()> {
    topology::container_ip(
        "link add vrf0 type vrf table 10
         link set vrf0 up
         link set eth0 master vrf0",
    )?;
    netns::within(CONTAINER, || {
        topology::sysctl("net/ipv4/udp_l3mdev_accept", "1")
    })?;
    // A device loses its IPv6 addresses when it is put into a VRF.
    topology::container_ip(&format!(
        "addr replace fd00:1::2/64 dev eth0 nodad
         neigh replace 10.0.1.1 lladdr {CLIENT_MAC} dev eth0
         neigh replace fd00:1::1 lladdr {CLIENT_MAC} dev eth0"
    ))
}

/// Adds a tunnel's end to the client and to the container. `kind` returns an end's arguments for `ip`, from its own address and
/// that of the other end.
fn tunnel(kind: impl Fn(IpAddr, IpAddr) -> String) -> Result<()> {
    let family = Family::V4;
    let own = [family.client(), family.container()];
    topology::client_without("inner0")?;
    for (place, namespace) in [CLIENT, CONTAINER].into_iter().enumerate() {
        let other = 1 - place;
        topology::ip_in(
            namespace,
            &format!(
                "link add inner0 {}
                 link set inner0 addrgenmode none
                 link set inner0 up
                 addr add {}/{BITS} dev inner0",
                kind(own[place], own[other]),
                IN_TUNNEL[place]
            ),
        )?;
    }
    Ok(())
}

fn gre() -> Result<()> {
    tunnel(|own, other| format!("type gre local {own} remote {other}"))
}

/// Makes a tunnel whose packets are in UDP. `takes` says which packets the port takes, and `kind` is the kind of the device.
/// `encapsulation` (`fou` or `gue`) says what is between UDP and the tunnel's packets.
fn in_udp(takes: &str, kind: &str, encapsulation: &str) -> Result<()> {
    command::run("modprobe fou")?;
    topology::container_ip(&format!("fou add port {TUNNEL_PORT} {takes}"))?;
    let numbers = if kind == "gre" { " seq" } else { "" };
    tunnel(|own, other| {
        format!(
            "type {kind} local {own} remote {other}{numbers} encap {encapsulation} encap-sport auto encap-dport {TUNNEL_PORT}"
        )
    })
}

/// Makes a tunnel of numbered GRE in UDP that ends at the host. The host routes the inner packets to the container.
fn at_host() -> Result<()> {
    command::run("modprobe fou")?;
    let [client, container] = IN_TUNNEL;
    let from = Family::V4.client().to_string();
    let kind = |own: &str, other: &str| {
        format!(
            "link add inner0 type gre local {own} remote {other} seq encap gue encap-sport auto encap-dport {TUNNEL_PORT}
             link set inner0 up"
        )
    };
    topology::client_without("inner0")?;
    topology::client_ip(&format!(
        "{}
         addr add {client}/{BITS} dev inner0
         neigh replace {HOST} lladdr {} dev vxlan0",
        kind(&from, HOST),
        topology::mac("br0")?
    ))?;
    topology::ip(&format!(
        "addr add {HOST}/{BITS} dev br0
         neigh replace {from} lladdr {CLIENT_MAC} dev br0
         fou add port {TUNNEL_PORT} gue
         {}
         route add {container}/32 dev br0
         neigh replace {container} lladdr {CONTAINER_MAC} dev br0",
        kind(HOST, &from)
    ))?;
    topology::container_ip(&format!("addr add {container}/{BITS} dev eth0"))?;
    topology::sysctl("net/ipv4/ip_forward", "1")
}

fn geneve() -> Result<()> {
    let is_client = |own| own == Family::V4.client();
    tunnel(|own, other| {
        let mac = TUNNEL_MACS[usize::from(!is_client(own))];
        format!("address {mac} type geneve id 9 remote {other}")
    })?;
    for (place, namespace) in [CLIENT, CONTAINER].into_iter().enumerate() {
        let (address, mac) = (IN_TUNNEL[1 - place], TUNNEL_MACS[1 - place]);
        topology::ip_in(
            namespace,
            &format!("neigh replace {address} lladdr {mac} dev inner0"),
        )?;
    }
    Ok(())
}

/// Sets up what the plugin `bandwidth` sets up for a container that is limited both ways.
fn bandwidth() -> Result<()> {
    topology::ip("link add queue0 type ifb\nlink set queue0 up")?;
    topology::tc(&format!(
        "{TBF}
         qdisc add dev veth0 ingress
         filter add dev veth0 ingress matchall action mirred egress redirect dev queue0
         qdisc add dev queue0 root tbf rate 1gbit burst 1mb latency 25ms"
    ))
}
