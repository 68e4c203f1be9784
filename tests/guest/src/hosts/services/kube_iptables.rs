// SPDX-License-Identifier: GPL-2.0

//! The rules of kube-proxy's mode `iptables`.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::Result;

use super::cluster::{Addresses, Port, AFFINITY_S, PORTS};
use crate::network::iptables;
use crate::network::topology::Family;

/// Rules that are there without services. The load balancer's chains and those of external addresses are empty.
const FILTER: &str = "\
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
";

/// The rule that there is over IPv4 alone.
const LOCALNET: &str = "\
*filter
-A KUBE-FIREWALL -m comment --comment \"block incoming localnet connections\" -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack \
! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
COMMIT
";

/// The chains that mark what is to be masqueraded, and masquerade it.
pub(super) const MASQUERADE: &str = "\
*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully
COMMIT
";

/// The ways to the chain of services.
pub(super) const SERVICES: &str = "\
*nat
:KUBE-SERVICES - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
COMMIT
";

pub(super) fn set_up(family: Family, has_affinity: bool) -> Result<()> {
    iptables::restore(None, family, FILTER)?;
    if family == Family::V4 {
        iptables::restore(None, family, LOCALNET)?;
    }
    iptables::restore(None, family, MASQUERADE)?;
    iptables::restore(None, family, SERVICES)?;
    iptables::restore(None, family, &services(family, has_affinity)?)
}

/// Returns the name of a chain of this kind; kube-proxy has a hash of as many letters there.
fn chain(kind: &str, port: Port, endpoint: Option<usize>) -> String {
    let of = endpoint.map_or(String::new(), |place| place.to_string());
    format!("KUBE-{kind}-{:X<16}", port.name.to_uppercase() + &of)
}

fn services(family: Family, has_affinity: bool) -> Result<String> {
    let mut rules = "*nat\n:KUBE-NODEPORTS - [0:0]\n".to_owned();
    for port in PORTS {
        service(&mut rules, Addresses::of(family), port, has_affinity)?;
    }
    // Ports of the node at its loopback address are for IPv4 alone.
    let but = match family {
        Family::V4 => "",
        Family::V6 => " ! -d ::1/128",
    };
    writeln!(
        rules,
        "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" \
         -m addrtype --dst-type LOCAL{but} -j KUBE-NODEPORTS\nCOMMIT"
    )?;
    Ok(rules)
}

fn service(rules: &mut String, of: Addresses, port: Port, has_affinity: bool) -> Result<()> {
    let (protocol, name) = (port.protocol, port.name);
    let [external, service] = ["EXT", "SVC"].map(|kind| chain(kind, port, None));
    let matches = format!("-m {protocol} -p {protocol}");
    let to_cluster = format!("{matches} -d {} --dport {}", of.cluster, port.cluster);
    writeln!(
        rules,
        ":{external} - [0:0]
:{service} - [0:0]
-A KUBE-NODEPORTS -m comment --comment cases/{name} {matches} --dport {} -j {external}
-A KUBE-SERVICES -m comment --comment \"cases/{name} cluster IP\" {to_cluster} -j {service}
-A {external} -m comment --comment \"masquerade traffic for cases/{name} external destinations\" -j KUBE-MARK-MASQ
-A {external} -j {service}
-A {service} -m comment --comment \"cases/{name} cluster IP\" {to_cluster} ! -s {} -j KUBE-MARK-MASQ",
        port.node, of.pods
    )?;
    let [first, second] = [0, 1].map(|place| chain("SEP", port, Some(place)));
    if has_affinity {
        for endpoint in [&first, &second] {
            writeln!(
                rules,
                ":{endpoint} - [0:0]
-A {service} -m comment --comment cases/{name} -m recent --name {endpoint} --rcheck --seconds {AFFINITY_S} --reap -j {endpoint}"
            )?;
        }
    }
    writeln!(
        rules,
        ":{first} - [0:0]
:{second} - [0:0]
-A {service} -m comment --comment cases/{name} -m statistic --mode random --probability 0.5000000000 -j {first}
-A {service} -m comment --comment cases/{name} -j {second}"
    )?;
    for (endpoint, address) in [first, second].iter().zip(of.endpoints) {
        let recent = if has_affinity {
            format!("-m recent --name {endpoint} --set ")
        } else {
            String::new()
        };
        writeln!(
            rules,
            "-A {endpoint} -m comment --comment cases/{name} -s {address} -j KUBE-MARK-MASQ
-A {endpoint} -m comment --comment cases/{name} {recent}{matches} -j DNAT --to-destination {}",
            SocketAddr::new(address, port.target)
        )?;
    }
    Ok(())
}
