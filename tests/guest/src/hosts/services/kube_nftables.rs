// SPDX-License-Identifier: GPL-2.0

//! The rules of kube-proxy's mode `nftables`.

use std::fmt::Write as _;

use anyhow::Result;

use super::cluster::{Port, AFFINITY_S, CLUSTER_IP, ENDPOINTS, NODE, PODS, PORTS};
use crate::nft;

/// The rules that are there without services. No service lacks endpoints, and no source is kept from one.
const BASE: &str = "
table ip kube-proxy {
    set cluster-ips { type ipv4_addr; }
    set nodeport-ips { type ipv4_addr; }
    map firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
    map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
    map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }
    map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
    map service-nodeports { type inet_proto . inet_service : verdict; }

    chain cluster-ips-check {
        ip daddr @cluster-ips reject comment \"Reject traffic to invalid ports of ClusterIPs\"
        ip daddr { 10.96.0.0/16 } drop comment \"Drop traffic to unallocated ClusterIPs\"
    }
    chain firewall-check {
        ip daddr . meta l4proto . th dport vmap @firewall-ips
    }
    chain service-endpoints-check {
        ip daddr . meta l4proto . th dport vmap @no-endpoint-services
    }
    chain nodeport-endpoints-check {
        ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
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
        ip daddr . meta l4proto . th dport vmap @service-ips
        ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
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

pub(super) fn set_up(has_affinity: bool) -> Result<()> {
    let mut rules = BASE.to_owned();
    writeln!(
        rules,
        "add element ip kube-proxy nodeport-ips {{ {NODE} }}\nadd element ip kube-proxy cluster-ips {{ {CLUSTER_IP} }}"
    )?;
    for port in PORTS {
        service(&mut rules, port, has_affinity)?;
    }
    nft::add(None, &rules)
}

/// Adds what there is for a port of a service; kube-proxy has hashes in the names of its chains, too.
fn service(rules: &mut String, port: Port, has_affinity: bool) -> Result<()> {
    let (protocol, cluster) = (port.protocol, port.cluster);
    let name = format!("cases/{}/{protocol}/", port.name);
    let (external, service) = (format!("external-{name}"), format!("service-{name}"));
    let names = ENDPOINTS.map(|address| format!("{name}__{address}/{}", port.target));
    for (of, address) in names.iter().zip(ENDPOINTS) {
        let endpoint = format!("endpoint-{of}");
        writeln!(
            rules,
            "add chain ip kube-proxy {endpoint}
add rule ip kube-proxy {endpoint} ip saddr {address} jump mark-for-masquerade"
        )?;
        if has_affinity {
            writeln!(
                rules,
                "add set ip kube-proxy affinity-{of} {{ type ipv4_addr ; flags dynamic,timeout ; timeout {AFFINITY_S}s ; }}
add rule ip kube-proxy {endpoint} update @affinity-{of} {{ ip saddr }}"
            )?;
        }
        writeln!(
            rules,
            "add rule ip kube-proxy {endpoint} meta l4proto {protocol} dnat to {address}:{}",
            port.target
        )?;
    }
    writeln!(
        rules,
        "add chain ip kube-proxy {service}
add chain ip kube-proxy {external}
add rule ip kube-proxy {external} jump mark-for-masquerade
add rule ip kube-proxy {external} goto {service}
add rule ip kube-proxy {service} ip daddr {CLUSTER_IP} ip saddr != {PODS} jump mark-for-masquerade"
    )?;
    if has_affinity {
        for of in &names {
            writeln!(
                rules,
                "add rule ip kube-proxy {service} ip saddr @affinity-{of} goto endpoint-{of}"
            )?;
        }
    }
    let [first, second] = names;
    writeln!(
        rules,
        "add rule ip kube-proxy {service} numgen random mod 2 vmap {{ 0 : goto endpoint-{first}, 1 : goto endpoint-{second} }}
add element ip kube-proxy service-ips {{ {CLUSTER_IP} . {protocol} . {cluster} : goto {service} }}
add element ip kube-proxy service-nodeports {{ {protocol} . {} : goto {external} }}",
        port.node
    )?;
    Ok(())
}
