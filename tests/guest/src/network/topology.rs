// SPDX-License-Identifier: GPL-2.0

//! The network under test: a container overlay as Docker builds it, and a client on another machine.
//!
//! ```text
//!   one guest kernel
//!  ┌───────────────────────────────────────────────────────┐      ┌──────────────────────────────────────┐
//!  │ first namespace: the server                           │      │ namespace "client"                   │
//!  │                                                       │      │                                      │
//!  │  ┌ namespace "container" ┐                            │      │   10.0.1.1  fd00:1::1                │
//!  │  │ 10.0.1.2  fd00:1::2   │                            │      │   vxlan0 (VNI 42)                    │
//!  │  │ eth0                  │                            │      │     │                                │
//!  │  └───┬───────────────────┘                            │      │     │                                │
//!  │    veth0 ──── br0 ──── vxlan0 (VNI 42)                │      │     │                                │
//!  │                          │ over IPv4 or IPv6          │      │     │                                │
//!  │  192.168.50.2           eth0  (virtio-net)            │      │    eth1 (virtio-net)  192.168.50.1   │
//!  │  fd00:50::2              │                            │      │     │                 fd00:50::1     │
//!  └──────────────────────────┼────────────────────────────┘      └─────┼────────────────────────────────┘
//!                             └────────────── one wire ─────────────────┘
//! ```
//!
//! Every frame crosses the wire, at most 1500 bytes long: neither NIC has an offload that would let larger ones pass.
//! Neighbours and forwarding entries are static, so nothing is ever flooded or learned. Queueing disciplines are what the
//! kernel chooses, as with Docker: none on vxlan0, br0 and veth0.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{bail, ensure, Context as _, Result};
use mflow_protocol::guest::CHANNELS;
use mflow_protocol::network::{
    CLIENT_HOST, CLIENT_HOST_MAC, CLIENT_MAC, CONTAINER_MAC, SERVER_HOST, VNI, VXLAN_PORT, WIRE_MTU,
};
use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoKind, InfoVeth, InfoVxlan, LinkAttribute,
};
use nix::net::if_::if_indextoname;
use serde::Serialize;
use serde_json::Value;

use crate::machine::{command, cpu, interrupts};
use crate::network::netlink::{self, Behind, Netlink};
use crate::network::netns;

pub(crate) const CLIENT: &str = "client";
pub(crate) const CONTAINER: &str = "container";
/// The NIC that frames from outside the guest come in on.
pub(crate) const FEED: &str = "eth2";

/// The queueing disciplines that kernels give a NIC when nobody has chosen one.
const USUAL_DISCIPLINES: [&str; 3] = ["mq", "pfifo_fast", "fq_codel"];
/// The device that the server's NIC may be put below.
const ABOVE_NIC: &str = "above0";
const JUMBO_MTU: usize = 9000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Family {
    #[default]
    V4,
    V6,
}

impl Family {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    pub(crate) fn client(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 0, 1, 1).into(),
            Self::V6 => Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1).into(),
        }
    }

    pub(crate) fn container(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 0, 1, 2).into(),
            Self::V6 => Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2).into(),
        }
    }

    /// Returns the addresses of the server's and the client's machine.
    pub(crate) fn ends(self) -> (IpAddr, IpAddr) {
        match self {
            Self::V4 => (SERVER_HOST.into(), CLIENT_HOST.into()),
            Self::V6 => {
                let end = |last| Ipv6Addr::new(0xfd00, 0x50, 0, 0, 0, 0, 0, last).into();
                (end(2), end(1))
            }
        }
    }

    fn prefix_len(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }

    /// Returns the MTU inside an overlay whose outer packets are of this family: 1500 less IP, UDP, VXLAN and Ethernet.
    pub(crate) fn overlay_mtu(self) -> usize {
        WIRE_MTU
            - match self {
                Self::V4 => 50,
                Self::V6 => 70,
            }
    }

    /// Returns how many frames a datagram of `bytes` becomes in an overlay of this inner family with this MTU.
    pub(crate) fn frames(self, bytes: usize, mtu: usize) -> usize {
        let (head, fragment_head) = match self {
            Self::V4 => (20, 20),
            Self::V6 => (40, 48),
        };
        let udp = bytes + 8;
        if udp + head <= mtu {
            1
        } else {
            // Every fragment but the last carries a multiple of 8 bytes.
            let most = mtu - fragment_head;
            1 + (udp - most).div_ceil(most / 8 * 8)
        }
    }
}

/// Options of `topology`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Address family of the outer packets.
    #[arg(long, value_enum, default_value_t)]
    outer: Family,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    up(options.outer)?;
    println!(
        "container: ip netns exec {CONTAINER} COMMAND   ({}, {})",
        Family::V4.container(),
        Family::V6.container()
    );
    println!(
        "client:    ip netns exec {CLIENT} COMMAND      ({}, {})",
        Family::V4.client(),
        Family::V6.client()
    );
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn up(outer: Family) -> Result<()> {
    // Only the rig waits for shorter grace periods; what a case takes away has the usual ones.
    let expedite = |value| {
        let path = "/sys/kernel/rcu_expedited";
        fs::write(path, value).with_context(|| format!("cannot write {value} to {path}"))
    };
    expedite("1")?;
    let built = underlay_up()
        .and_then(|()| require_usual_discipline())
        .and_then(|()| overlay_down())
        .and_then(|()| overlay_up(outer));
    // Also after a failure.
    expedite("0").and(built)
}

/// Removes what is left of the network when the NICs are gone; [`up`] builds all of it again.
pub(crate) fn nics_are_gone() -> Result<()> {
    overlay_down()?;
    ip(&format!("netns del {CLIENT}"))
}

/// Sends the interrupts of the server's NIC where they belong, after it has got new ones. A ConnectX has those of its channels but
/// the first only while it is up; until then the kernel chooses where they will be.
pub(crate) fn pin_server_nic() -> Result<()> {
    interrupts::pin("eth0", cpu::NIC)
}

/// The same of both NICs. The client's has got no new ones if it is not a ConnectX.
pub(crate) fn pin_nics() -> Result<()> {
    pin_server_nic()?;
    let about = netns::run(CLIENT, "ethtool -i eth1")?;
    let mut lines = about.lines();
    let address = lines.find_map(|line| line.strip_prefix("bus-info: "));
    let address = address.context("eth1 has no address on its bus")?;
    interrupts::pin_where(cpu::CLIENT_NIC, |line| {
        line.ends_with(&format!("@pci:{address}"))
    })
    .map(drop)
}

/// Sends the interrupts of the server's NIC to another CPU, as irqbalance does; each moves when it comes next.
pub(crate) fn move_server_nic(cpu: usize) -> Result<()> {
    interrupts::pin("eth0", cpu)
}

/// Builds what stays for the life of the guest: the two NICs and the client's namespace.
fn underlay_up() -> Result<()> {
    if netns::exists(CLIENT) {
        return Ok(());
    }
    if cpu::online() < cpu::NEEDED {
        bail!(
            "the network under test needs {} CPUs and this guest has {}; use --cpus {}",
            cpu::NEEDED,
            cpu::online(),
            cpu::NEEDED
        );
    }
    for (name, value) in [
        // A CPU that is away for some milliseconds, as virtual ones are, must not lose what a real one would keep.
        ("net/core/netdev_max_backlog", "20000"),
        ("net/core/rmem_max", "67108864"),
        ("net/core/rmem_default", "8388608"),
    ] {
        sysctl(name, value)?;
    }
    load_driver()?;
    interrupts::pin("eth1", cpu::CLIENT_NIC)?;
    quiet_ipv6()?;
    let eth0 = mac("eth0")?;
    ip(&format!("netns add {CLIENT}\nlink set eth1 netns {CLIENT}"))?;
    server_nic_up()?;
    netns::within(CLIENT, quiet_ipv6)?;
    client_ip(&format!(
        "link set lo up
         link set eth1 up mtu {WIRE_MTU}
         addr add 192.168.50.1/24 dev eth1
         addr add fd00:50::1/64 dev eth1 nodad
         neigh replace 192.168.50.2 lladdr {eth0} dev eth1
         neigh replace fd00:50::2 lladdr {eth0} dev eth1"
    ))
}

/// Fails if an earlier case has left a discipline on the client's NIC: it may drop what a sender sends in a burst.
fn require_usual_discipline() -> Result<()> {
    let kind = Netlink::open(Some(CLIENT))?.discipline("eth1")?;
    ensure!(
        USUAL_DISCIPLINES.contains(&kind.as_str()),
        "an earlier case has left the queueing discipline {kind} on the client's NIC"
    );
    Ok(())
}

/// Gives the server's NIC its part of the network; the client's is in its namespace.
fn server_nic_up() -> Result<()> {
    interrupts::pin("eth0", cpu::NIC)?;
    ip(&format!("link set eth0 mtu {WIRE_MTU}"))?;
    server_part("eth0")
}

/// Brings up the device that has the server's part of the network.
fn server_part(device: &str) -> Result<()> {
    ip(&format!(
        "link set {device} up\naddr replace 192.168.50.2/24 dev {device}"
    ))?;
    restore_links(device)
}

/// Puts the server's NIC below another device, which gets its part of the network: below a bridge as one of its ports, or below a
/// bond as its only slave.
pub(crate) fn nic_below(kind: &str, options: &str) -> Result<()> {
    // A bond takes only devices that are down; addresses go with the link.
    ip(&format!(
        "link add {ABOVE_NIC} mtu {WIRE_MTU} type {kind} {options}
         link set eth0 down
         addr flush dev eth0
         link set eth0 master {ABOVE_NIC}
         link set eth0 up"
    ))?;
    server_part(ABOVE_NIC)?;
    // A ConnectX has got new ones.
    pin_server_nic()?;
    // Until its only part has a carrier, the device takes nothing.
    let path = format!("/sys/class/net/{ABOVE_NIC}/operstate");
    command::wait_until("the device above the NIC is up", || {
        Ok(fs::read_to_string(&path)?.trim() == "up")
    })
}

/// The NIC stands for itself again.
pub(crate) fn nic_alone() -> Result<()> {
    ip(&format!("link del {ABOVE_NIC}"))?;
    server_nic_up()
}

/// Brings up the NIC that frames from outside the guest come in on, and returns its address. It carries nothing else: the
/// frames are for the addresses of the server's other NIC.
pub(crate) fn feed_up() -> Result<String> {
    interrupts::pin(FEED, cpu::NIC)?;
    ip(&format!("link set {FEED} up mtu {WIRE_MTU}"))?;
    mac(FEED)
}

/// Does some work while the client's machine is outside the guest: what is sent there, in the overlay or without it, leaves
/// on the NIC that frames from outside come in on.
pub(crate) fn with_client_outside<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    ip(&format!(
        "neigh replace {CLIENT_HOST} lladdr {CLIENT_HOST_MAC} dev {FEED}
         route replace {CLIENT_HOST}/32 dev {FEED}"
    ))?;
    let done = work();
    // Also after a failure.
    let undone = ip(&format!("route del {CLIENT_HOST}/32 dev {FEED}"));
    let done = done?;
    undone.map(|()| done)
}

/// Brings the server's NIC up again; what went with its link comes back.
pub(crate) fn restore_nic() -> Result<()> {
    restore_links("eth0")
}

fn restore_links(device: &str) -> Result<()> {
    let table = command::run(&format!("ip -n {CLIENT} -brief link show eth1"))?;
    let client_mac = table.split_whitespace().nth(2);
    let client_mac = client_mac.context("eth1 has no address")?;
    ip(&format!(
        "link set {device} up
         addr replace fd00:50::2/64 dev {device} nodad
         neigh replace 192.168.50.1 lladdr {client_mac} dev {device}
         neigh replace fd00:50::1 lladdr {client_mac} dev {device}"
    ))
}

fn overlay_up(outer: Family) -> Result<()> {
    let mtu = outer.overlay_mtu();
    let host = Netlink::open(None)?;
    let bridge = vec![
        InfoBridge::StpState(BridgeStpState::Disabled),
        InfoBridge::MulticastSnooping(false),
        InfoBridge::ForwardDelay(0),
    ];
    host.add("br0", mtu, InfoKind::Bridge, InfoData::Bridge(bridge), None)?;
    let (server, client) = outer.ends();
    add_vxlan(&host, mtu, "eth0", [server, client], None, None)?;
    host.enslave("vxlan0", "br0")?;
    host.up("br0")?;
    host.forward(CLIENT_MAC, Behind::Port("vxlan0"))?;
    host.forward(CLIENT_MAC, Behind::Machine("vxlan0", client))?;
    add_container(&host, mtu)?;
    client_overlay_up(outer, None)
}

/// Makes the container, and joins it to the bridge.
fn add_container(host: &Netlink, mtu: usize) -> Result<()> {
    netns::add(CONTAINER)?;
    netns::within(CONTAINER, quiet_ipv6)?;
    let (_open, namespace) = netlink::namespace(CONTAINER)?;
    let mut peer = netlink::device("eth0", mtu)?;
    let mac = LinkAttribute::Address(netlink::ethernet(CONTAINER_MAC)?);
    peer.attributes.extend([mac, namespace]);
    let veth = InfoData::Veth(InfoVeth::Peer(peer));
    host.add("veth0", mtu, InfoKind::Veth, veth, None)?;
    host.enslave("veth0", "br0")?;
    host.forward(CONTAINER_MAC, Behind::Port("veth0"))?;
    container_up()
}

/// Takes the container away, and makes it again as it was.
pub(crate) fn restart_container(outer: Family) -> Result<()> {
    let host = Netlink::open(None)?;
    host.delete("veth0")?;
    netns::delete(CONTAINER)?;
    add_container(&host, outer.overlay_mtu())
}

/// Adds one end of the overlay on a NIC; what it sends goes from the first address to the second.
fn add_vxlan(
    host: &Netlink,
    mtu: usize,
    nic: &str,
    ends: [IpAddr; 2],
    mac: Option<LinkAttribute>,
    ports: Option<InfoVxlan>,
) -> Result<()> {
    let (local, remote) = match ends {
        [IpAddr::V4(local), IpAddr::V4(remote)] => {
            (InfoVxlan::Local(local), InfoVxlan::Group(remote))
        }
        [IpAddr::V6(local), IpAddr::V6(remote)] => {
            (InfoVxlan::Local6(local), InfoVxlan::Group6(remote))
        }
        _ => bail!("{ends:?} are not of one family"),
    };
    let mut options = vec![
        InfoVxlan::Id(VNI),
        InfoVxlan::Link(host.index(nic)?),
        local,
        remote,
        InfoVxlan::Port(VXLAN_PORT),
        InfoVxlan::Learning(false),
    ];
    options.extend(ports);
    let options = InfoData::Vxlan(options);
    host.add("vxlan0", mtu, InfoKind::Vxlan, options, mac)
}

/// Gives the container its part of the network, or what went with its link.
pub(crate) fn container_up() -> Result<()> {
    let container = Netlink::open(Some(CONTAINER))?;
    container.up("lo")?;
    container.up("eth0")?;
    for family in [Family::V4, Family::V6] {
        container.address("eth0", family.container(), family.prefix_len())?;
        container.neighbour("eth0", family.client(), CLIENT_MAC)?;
    }
    Ok(())
}

/// Gives the client its part of the overlay; the outer packets come from these ports, or from any.
fn client_overlay_up(outer: Family, ports: Option<InfoVxlan>) -> Result<()> {
    let (server, client) = outer.ends();
    let host = Netlink::open(Some(CLIENT))?;
    let mac = LinkAttribute::Address(netlink::ethernet(CLIENT_MAC)?);
    let (mtu, ends) = (outer.overlay_mtu(), [client, server]);
    add_vxlan(&host, mtu, "eth1", ends, Some(mac), ports)?;
    host.up("vxlan0")?;
    for family in [Family::V4, Family::V6] {
        host.address("vxlan0", family.client(), family.prefix_len())?;
        host.neighbour("vxlan0", family.container(), CONTAINER_MAC)?;
    }
    Ok(())
}

/// Lets all that the client sends into the overlay have the same outer ports: one outer flow, whatever is inside.
pub(crate) fn one_outer_flow(outer: Family) -> Result<()> {
    Netlink::open(Some(CLIENT))?.delete("vxlan0")?;
    // The upper end is not in the range up to Linux 6.12. With 7.3 it is, and there are two outer flows.
    client_overlay_up(outer, Some(InfoVxlan::PortRange((50_000, 50_001))))
}

/// Lets each flow that the client sends into the overlay have an outer flow of its own again.
pub(crate) fn many_outer_flows(outer: Family) -> Result<()> {
    Netlink::open(Some(CLIENT))?.delete("vxlan0")?;
    client_overlay_up(outer, None)
}

/// Removes a device of the client's that no other one takes with it, if it is there.
pub(crate) fn client_without(device: &str) -> Result<()> {
    let client = Netlink::open(Some(CLIENT))?;
    if client.exists(device) {
        client.delete(device)?;
    }
    Ok(())
}

/// Ends the tunnel at the host itself, without the bridge; returns the host's address there.
pub(crate) fn end_of_tunnel() -> Result<IpAddr> {
    let own = IpAddr::V4(Ipv4Addr::new(10, 0, 9, 2));
    let (client, vxlan) = (Family::V4.client(), mac("vxlan0")?);
    ip(&format!(
        "link set vxlan0 nomaster
         addr add {own}/32 dev vxlan0
         neigh replace {client} lladdr {CLIENT_MAC} dev vxlan0
         route replace {client}/32 dev vxlan0"
    ))?;
    client_ip(&format!(
        "neigh replace {own} lladdr {vxlan} dev vxlan0
         route replace {own}/32 dev vxlan0 src {client}"
    ))?;
    Ok(own)
}

/// Makes all devices take jumbo frames; the overlay's end where the outer headers begin.
pub(crate) fn jumbo(outer: Family) -> Result<()> {
    let mtu = JUMBO_MTU - (WIRE_MTU - outer.overlay_mtu());
    ip(&format!(
        "link set eth0 mtu {JUMBO_MTU}
         link set vxlan0 mtu {mtu}
         link set br0 mtu {mtu}
         link set veth0 mtu {mtu}"
    ))?;
    container_ip(&format!("link set eth0 mtu {mtu}"))?;
    client_ip(&format!(
        "link set eth1 mtu {JUMBO_MTU}\nlink set vxlan0 mtu {mtu}"
    ))
}

/// The usual frames again; the overlay is built again for each case.
pub(crate) fn no_jumbo() -> Result<()> {
    overlay_down()?;
    ip(&format!("link set eth0 mtu {WIRE_MTU}"))?;
    client_ip(&format!("link set eth1 mtu {WIRE_MTU}"))
}

/// Removes what [`up`] builds again each time.
pub(crate) fn overlay_down() -> Result<()> {
    let host = Netlink::open(None)?;
    for device in ["vxlan0", "veth0", "br0", "queue0"] {
        if host.exists(device) {
            host.delete(device)?;
        }
    }
    if netns::exists(CONTAINER) {
        netns::delete(CONTAINER)?;
    }
    let client = Netlink::open(Some(CLIENT))?;
    if client.exists("vxlan0") {
        client.delete("vxlan0")?;
    }
    Ok(())
}

/// Keeps both ends' TCP from sending anything again only because it has waited for long: a virtual CPU that is away for
/// a while is no loss. What an answer says to be missing is still sent again at once.
pub(crate) fn patient_tcp() -> Result<()> {
    for (namespace, device, address) in [
        (CLIENT, "vxlan0", "10.0.1.1"),
        (CONTAINER, "eth0", "10.0.1.2"),
    ] {
        netns::within(namespace, || sysctl("net/ipv4/tcp_early_retrans", "0"))?;
        ip_in(
            namespace,
            &format!(
                "route change 10.0.1.0/24 dev {device} proto kernel scope link src {address} rto_min 5s
                 route change fd00:1::/64 dev {device} proto kernel metric 256 rto_min 5s"
            ),
        )?;
    }
    Ok(())
}

/// Runs lines of `ip` commands in the first namespace.
pub(crate) fn ip(lines: &str) -> Result<()> {
    ip_in(None, lines)
}

/// Runs lines of `ip` commands in the client's namespace.
pub(crate) fn client_ip(lines: &str) -> Result<()> {
    ip_in(CLIENT, lines)
}

/// Runs lines of `ip` commands in the container's namespace.
pub(crate) fn container_ip(lines: &str) -> Result<()> {
    ip_in(CONTAINER, lines)
}

/// Runs lines of `ip` commands in the namespace of this name; in the first one if there is no name.
pub(crate) fn ip_in<'a>(namespace: impl Into<Option<&'a str>>, lines: &str) -> Result<()> {
    let program = match namespace.into() {
        Some(name) => format!("ip -n {name} -batch -"),
        None => "ip -batch -".to_owned(),
    };
    batch(&program, lines)
}

/// Runs lines of `tc` commands in the first namespace.
pub(crate) fn tc(lines: &str) -> Result<()> {
    batch("tc -batch -", lines)
}

/// Runs lines of `tc` commands in the client's namespace.
pub(crate) fn client_tc(lines: &str) -> Result<()> {
    batch(&format!("tc -n {CLIENT} -batch -"), lines)
}

/// The packets that wait in a queueing discipline, and their bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    pub(crate) pkts: u64,
    pub(crate) bytes: u64,
}

/// Returns what waits in the discipline of this kind at a device of the host.
pub(crate) fn queued(device: &str, kind: &str) -> Result<Queued> {
    let said = command::run(&format!("tc -s -j qdisc show dev {device}"))?;
    let disciplines: Value = serde_json::from_str(&said).context("tc's report")?;
    let mut disciplines = disciplines.as_array().into_iter().flatten();
    disciplines
        .find(|one| one.get("kind").is_some_and(|of| of == kind))
        .and_then(|one| {
            Some(Queued {
                pkts: one.get("qlen")?.as_u64()?,
                bytes: one.get("backlog")?.as_u64()?,
            })
        })
        .with_context(|| format!("tc reports no {kind}: {said}"))
}

fn batch(program: &str, lines: &str) -> Result<()> {
    let lines: Vec<&str> = lines.lines().map(str::trim).collect();
    command::run_with_input(program, &(lines.join("\n") + "\n")).map(drop)
}

/// Writes a value below /proc/sys, in the namespace of the calling thread.
pub(crate) fn sysctl(name: &str, value: &str) -> Result<()> {
    let path = format!("/proc/sys/{name}");
    fs::write(&path, value).with_context(|| format!("cannot write {value} to {path}"))
}

/// Keeps devices that are yet to come from sending anything of their own accord.
fn quiet_ipv6() -> Result<()> {
    for scope in ["all", "default"] {
        sysctl(&format!("net/ipv6/conf/{scope}/accept_dad"), "0")?;
        sysctl(&format!("net/ipv6/conf/{scope}/autoconf"), "0")?;
        sysctl(&format!("net/ipv6/conf/{scope}/router_solicitations"), "0")?;
    }
    Ok(())
}

/// Returns how many queues a device of this thread's namespace receives through.
pub(crate) fn receive_queues(device: &str) -> Result<usize> {
    let path = format!("/sys/class/net/{device}/queues");
    let queues = fs::read_dir(&path).with_context(|| path.clone())?;
    let is_receiving =
        |queue: &fs::DirEntry| queue.file_name().to_string_lossy().starts_with("rx-");
    let queues = queues.collect::<std::io::Result<Vec<_>>>()?;
    Ok(queues.iter().filter(|queue| is_receiving(queue)).count())
}

/// Lets RPS choose among these CPUs, a mask in hexadecimal, for what a device of this thread's namespace receives.
pub(crate) fn rps(device: &str, cpus: &str) -> Result<()> {
    let path = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
    fs::write(&path, cpus).with_context(|| format!("cannot write {cpus} to {path}"))
}

pub(crate) fn mac(device: &str) -> Result<String> {
    let path = format!("/sys/class/net/{device}/address");
    Ok(fs::read_to_string(&path).context(path)?.trim().to_owned())
}

/// Returns the name of the device of the caller's namespace that has this number.
pub(crate) fn device_name(index: usize) -> Result<String> {
    let index = u32::try_from(index)?;
    let name = if_indextoname(index).with_context(|| format!("no device has number {index}"))?;
    Ok(name.into_string()?)
}

/// Returns how many packets a device of the first namespace has received.
pub(crate) fn received_pkts(device: &str) -> Result<u64> {
    statistic(device, "rx_packets")
}

pub(crate) fn sent_pkts(device: &str) -> Result<u64> {
    statistic(device, "tx_packets")
}

pub(crate) fn sent_bytes(device: &str) -> Result<u64> {
    statistic(device, "tx_bytes")
}

fn statistic(device: &str, name: &str) -> Result<u64> {
    let path = format!("/sys/class/net/{device}/statistics/{name}");
    let text = fs::read_to_string(&path).context(path.clone())?;
    text.trim().parse().context(path)
}

/// Loads the driver of a ConnectX, which is a module, if that is the NIC of this guest.
pub(crate) fn load_driver() -> Result<()> {
    if !Path::new("/sys/class/net/eth0").exists() {
        command::run("modprobe mlx5_core")?;
        set_channels(&["eth0", "eth1", FEED])?;
    }
    Ok(())
}

/// Takes the server's NIC away from its driver, and gives it back, which makes another interface of it.
pub(crate) fn probe_again(meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
    let link = fs::read_link("/sys/class/net/eth0/device").context("no NIC eth0")?;
    let name = link.file_name().context("no device")?.to_string_lossy();
    let tell = |file: &str| {
        let path = format!("/sys/bus/pci/drivers/mlx5_core/{file}");
        fs::write(&path, name.as_bytes()).with_context(|| format!("cannot write {name} to {path}"))
    };
    tell("unbind")?;
    // Also after a failure.
    let result = meanwhile();
    tell("bind")?;
    server_nic_again()?;
    result
}

/// Gives the server's NIC its part of the network when it is another interface than before.
pub(crate) fn server_nic_again() -> Result<()> {
    set_channels(&["eth0"])?;
    server_nic_up()
}

fn set_channels(devices: &[&str]) -> Result<()> {
    let Ok(channels) = std::env::var(CHANNELS) else {
        return Ok(());
    };
    for device in devices {
        if Path::new("/sys/class/net").join(device).exists() {
            command::run(&format!("ethtool -L {device} combined {channels}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_datagram() {
        let mtu = Family::V4.overlay_mtu();
        assert_eq!(mtu, 1450);
        assert_eq!(Family::V4.frames(16, mtu), 1);
        assert_eq!(Family::V4.frames(1422, mtu), 1);
        assert_eq!(Family::V4.frames(1423, mtu), 2);
        assert_eq!(Family::V4.frames(65_507, mtu), 47);
        assert_eq!(Family::V6.frames(1402, mtu), 1);
        assert_eq!(Family::V6.frames(1403, mtu), 2);
    }
}
