// SPDX-License-Identifier: GPL-2.0

//! The rules of kube-proxy's mode `nftables`.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::Result;

use super::cluster::{Addresses, Port, AFFINITY_S};
use crate::network::nft;
use crate::network::topology::Family;

/// The rules that are there without services, with the words of a [`Dialect`]. No service lacks endpoints, and no source is kept from
/// one.
const BASE: &str = "
table $ip kube-proxy {
    set cluster-ips { type $type; }
    set nodeport-ips { type $type; }
    map firewall-ips { type $type . inet_proto . inet_service : verdict; }
    map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
    map no-endpoint-services { type $type . inet_proto . inet_service : verdict; }
    map service-ips { type $type . inet_proto . inet_service : verdict; }
    map service-nodeports { type inet_proto . inet_service : verdict; }

    chain cluster-ips-check {
        $ip daddr @cluster-ips reject comment \"Reject traffic to invalid ports of ClusterIPs\"
        $ip daddr { $services } drop comment \"Drop traffic to unallocated ClusterIPs\"
    }
    chain firewall-check {
        $ip daddr . meta l4proto . th dport vmap @firewall-ips
    }
    chain service-endpoints-check {
        $ip daddr . meta l4proto . th dport vmap @no-endpoint-services
    }
    chain nodeport-endpoints-check {
        $ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
    }
    chain mark-for-masquerade {
        mark set mark or 0x4000
    }
    chain masquerading {
        mark and 0x4000 == 0 return
        mark set mark xor 0x4000
        masquerade fully-random
    }
    chain services {
        $ip daddr . meta l4proto . th dport vmap @service-ips
        $ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }
    chain filter-prerouting-pre-dnat {
        type filter hook prerouting priority -110;
        ct state new jump firewall-check
    }
    chain filter-output-pre-dnat {
        type filter hook output priority -110;
        ct state new jump firewall-check
    }
    chain filter-forward {
        type filter hook forward priority 0;
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain filter-input {
        type filter hook input priority 0;
        ct state new jump nodeport-endpoints-check
        ct state new jump service-endpoints-check
    }
    chain filter-output {
        type filter hook output priority 0;
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain nat-prerouting {
        type nat hook prerouting priority -100;
        jump services
    }
    chain nat-output {
        type nat hook output priority -100;
        jump services
    }
    chain nat-postrouting {
        type nat hook postrouting priority 100;
        jump masquerading
    }
}
";

/// The words for one family, and its addresses.
struct Dialect {
    ip: &'static str,
    kind: &'static str,
    of: Addresses,
}

impl Dialect {
    fn of(family: Family) -> Self {
        let (ip, kind) = match family {
            Family::V4 => ("ip", "ipv4_addr"),
            Family::V6 => ("ip6", "ipv6_addr"),
        };
        Self {
            ip,
            kind,
            of: Addresses::of(family),
        }
    }

    fn base(&self) -> String {
        let words = [
            ("$ip", self.ip),
            ("$type", self.kind),
            ("$services", self.of.services),
        ];
        let text = BASE.to_owned();
        words
            .iter()
            .fold(text, |text, (word, meant)| text.replace(word, meant))
    }
}

/// Adds the rules that are there without services, and those for some ports of a service.
pub(super) fn set_up(family: Family, ports: &[Port], has_affinity: bool) -> Result<()> {
    let dialect = Dialect::of(family);
    let (ip, of) = (dialect.ip, dialect.of);
    let mut rules = dialect.base();
    writeln!(
        rules,
        "add element {ip} kube-proxy nodeport-ips {{ {} }}\nadd element {ip} kube-proxy cluster-ips {{ {} }}",
        of.node, of.cluster
    )?;
    for port in ports {
        service(&mut rules, &dialect, *port, has_affinity)?;
    }
    nft::add(None, &rules)
}

/// Adds the rules for more ports.
pub(super) fn add(family: Family, ports: &[Port]) -> Result<()> {
    let mut rules = String::new();
    for port in ports {
        service(&mut rules, &Dialect::of(family), *port, false)?;
    }
    nft::add(None, &rules)
}

/// Takes the rules for ports away, all at once.
pub(super) fn remove(family: Family, ports: &[Port]) -> Result<()> {
    let Dialect { ip, of, .. } = Dialect::of(family);
    let mut rules = String::new();
    for port in ports {
        let (protocol, name) = (port.protocol, port_name(*port));
        writeln!(
            rules,
            "delete element {ip} kube-proxy service-ips {{ {} . {protocol} . {} }}
delete element {ip} kube-proxy service-nodeports {{ {protocol} . {} }}",
            of.cluster, port.cluster, port.node
        )?;
        let own = ["external", "service"].map(|kind| format!("{kind}-{name}"));
        let endpoints = endpoint_names(&of, *port).map(|endpoint| format!("endpoint-{endpoint}"));
        for chain in own.iter().chain(&endpoints) {
            writeln!(
                rules,
                "flush chain {ip} kube-proxy {chain}\ndelete chain {ip} kube-proxy {chain}"
            )?;
        }
    }
    nft::add(None, &rules)
}

/// Returns how the chains of a port are named; kube-proxy has hashes in the names, too.
fn port_name(port: Port) -> String {
    format!("cases/{}/{}/", port.name, port.protocol)
}

/// Returns how endpoints are named. Names have no colons.
fn endpoint_names(of: &Addresses, port: Port) -> [String; 2] {
    let name = port_name(port);
    of.endpoints
        .map(|address| format!("{name}__{address}/{}", port.target).replace(':', "."))
}

/// Adds what there is for a port of a service.
fn service(rules: &mut String, dialect: &Dialect, port: Port, has_affinity: bool) -> Result<()> {
    let (ip, kind, of) = (dialect.ip, dialect.kind, dialect.of);
    let (protocol, cluster) = (port.protocol, port.cluster);
    let name = port_name(port);
    let (external, service) = (format!("external-{name}"), format!("service-{name}"));
    let names = endpoint_names(&of, port);
    for (place, address) in names.iter().zip(of.endpoints) {
        let endpoint = format!("endpoint-{place}");
        writeln!(
            rules,
            "add chain {ip} kube-proxy {endpoint}
add rule {ip} kube-proxy {endpoint} {ip} saddr {address} jump mark-for-masquerade"
        )?;
        if has_affinity {
            writeln!(
                rules,
                "add set {ip} kube-proxy affinity-{place} {{ type {kind} ; flags dynamic,timeout ; timeout {AFFINITY_S}s ; }}
add rule {ip} kube-proxy {endpoint} update @affinity-{place} {{ {ip} saddr }}"
            )?;
        }
        writeln!(
            rules,
            "add rule {ip} kube-proxy {endpoint} meta l4proto {protocol} dnat to {}",
            SocketAddr::new(address, port.target)
        )?;
    }
    writeln!(
        rules,
        "add chain {ip} kube-proxy {service}
add chain {ip} kube-proxy {external}
add rule {ip} kube-proxy {external} jump mark-for-masquerade
add rule {ip} kube-proxy {external} goto {service}
add rule {ip} kube-proxy {service} {ip} daddr {} {ip} saddr != {} jump mark-for-masquerade",
        of.cluster, of.pods
    )?;
    if has_affinity {
        for place in &names {
            writeln!(
                rules,
                "add rule {ip} kube-proxy {service} {ip} saddr @affinity-{place} goto endpoint-{place}"
            )?;
        }
    }
    let [first, second] = names;
    writeln!(
        rules,
        "add rule {ip} kube-proxy {service} numgen random mod 2 vmap {{ 0 : goto endpoint-{first}, 1 : goto endpoint-{second} }}
add element {ip} kube-proxy service-ips {{ {} . {protocol} . {cluster} : goto {service} }}
add element {ip} kube-proxy service-nodeports {{ {protocol} . {} : goto {external} }}",
        of.cluster, port.node
    )?;
    Ok(())
}
