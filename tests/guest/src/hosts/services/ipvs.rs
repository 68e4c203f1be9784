// SPDX-License-Identifier: GPL-2.0

//! The services and rules of kube-proxy's mode `ipvs`.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::Result;

use super::cluster::{Addresses, Front, AFFINITY_S, PORTS};
use super::kube_iptables::{MASQUERADE, SERVICES};
use crate::machine::command;
use crate::network::iptables;
use crate::network::netlink::Netlink;
use crate::network::topology::{self, Family};

/// The device that has the services' addresses.
const DEVICE: &str = "kube-ipvs0";
const SYSCTLS: [(&str, &str); 4] = [
    ("net/ipv4/vs/conntrack", "1"),
    ("net/ipv4/vs/conn_reuse_mode", "0"),
    ("net/ipv4/vs/expire_nodest_conn", "1"),
    ("net/ipv4/vs/expire_quiescent_template", "1"),
];

pub(super) fn set_up(family: Family, has_affinity: bool) -> Result<()> {
    command::run("modprobe ip_vs")?;
    for (name, value) in SYSCTLS {
        topology::sysctl(name, value)?;
    }
    let cluster = Addresses::of(family).cluster;
    topology::ip(&format!(
        "link add {DEVICE} type dummy\naddr add {cluster} dev {DEVICE}"
    ))?;
    command::wait_until("the services' address is the node's own", || {
        is_local(cluster)
    })?;
    command::run_with_input("ipset restore", &sets(family)?)?;
    for rules in [MASQUERADE, SERVICES, &rules(family)] {
        iptables::restore(None, family, rules)?;
    }
    command::run_with_input("ipvsadm --restore", &services(family, has_affinity)?).map(drop)
}

/// Returns whether the node takes what is for an address. The device with the address is down. An address of IPv6 is then local
/// only once the kernel has come to see that nobody else can have it.
fn is_local(address: IpAddr) -> Result<bool> {
    let route = command::run(&format!("ip route get {address}"))?;
    Ok(route.starts_with("local "))
}

/// Returns how kube-proxy's sets of a family are named.
fn prefix(family: Family) -> &'static str {
    match family {
        Family::V4 => "KUBE",
        Family::V6 => "KUBE-6",
    }
}

fn sets(family: Family) -> Result<String> {
    let of = Addresses::of(family);
    let (prefix, kind) = match family {
        Family::V4 => (prefix(family), "inet"),
        Family::V6 => (prefix(family), "inet6"),
    };
    let mut sets = format!(
        "\
create {prefix}-CLUSTER-IP hash:ip,port family {kind} hashsize 1024 maxelem 65536
create {prefix}-LOOP-BACK hash:ip,port,ip family {kind} hashsize 1024 maxelem 65536
create {prefix}-NODE-PORT-TCP bitmap:port range 0-65535
create {prefix}-NODE-PORT-UDP bitmap:port range 0-65535
"
    );
    for port in PORTS {
        let (protocol, cluster, target) = (port.protocol, port.cluster, port.target);
        writeln!(
            sets,
            "add {prefix}-CLUSTER-IP {},{protocol}:{cluster}
add {prefix}-NODE-PORT-{} {}",
            of.cluster,
            protocol.to_uppercase(),
            port.node
        )?;
        for endpoint in of.endpoints {
            writeln!(
                sets,
                "add {prefix}-LOOP-BACK {endpoint},{protocol}:{target},{endpoint}"
            )?;
        }
    }
    Ok(sets)
}

fn rules(family: Family) -> String {
    let (prefix, pods) = (prefix(family), Addresses::of(family).pods);
    let loopback = match family {
        Family::V4 => "127.0.0.0/8",
        Family::V6 => "::1/128",
    };
    format!(
        "\
*nat
:KUBE-NODE-PORT - [0:0]
-A KUBE-SERVICES -s {loopback} -j RETURN
-A KUBE-SERVICES -m comment --comment \"Kubernetes service cluster ip + port for masquerade purpose\" -m set \
--match-set {prefix}-CLUSTER-IP dst,dst ! -s {pods} -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-SERVICES -m set --match-set {prefix}-CLUSTER-IP dst,dst -j ACCEPT
-A KUBE-NODE-PORT -p tcp -m comment --comment \"Kubernetes nodeport TCP port for masquerade purpose\" -m set \
--match-set {prefix}-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
-A KUBE-NODE-PORT -p udp -m comment --comment \"Kubernetes nodeport UDP port for masquerade purpose\" -m set \
--match-set {prefix}-NODE-PORT-UDP dst -j KUBE-MARK-MASQ
-I KUBE-POSTROUTING -m comment --comment \"Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose\" -m set \
--match-set {prefix}-LOOP-BACK dst,dst,src -j MASQUERADE
COMMIT
*filter
:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
"
    )
}

fn services(family: Family, has_affinity: bool) -> Result<String> {
    let mut services = String::new();
    let persistent = if has_affinity {
        format!(" -p {AFFINITY_S}")
    } else {
        String::new()
    };
    for port in PORTS {
        for front in [Front::ClusterIp, Front::NodePort] {
            let option = if port.protocol == "tcp" { "-t" } else { "-u" };
            let at = format!("{option} {}", front.of(family, port));
            writeln!(services, "-A {at} -s rr{persistent}")?;
            for endpoint in Addresses::of(family).endpoints {
                let endpoint = SocketAddr::new(endpoint, port.target);
                writeln!(services, "-a {at} -r {endpoint} -m -w 1")?;
            }
        }
    }
    Ok(services)
}

/// Takes away what is there of it, rules and sets excepted.
pub(super) fn clear() -> Result<()> {
    if Path::new("/proc/net/ip_vs").exists() {
        command::run("ipvsadm --clear")?;
    }
    let host = Netlink::open(None)?;
    if host.exists(DEVICE) {
        host.delete(DEVICE)?;
    }
    Ok(())
}
