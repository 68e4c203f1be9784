// SPDX-License-Identifier: GPL-2.0

//! Lengths of packets that do not fit together.

use crate::diagnose::finding::Finding;
use crate::diagnose::snapshot::Snapshot;

/// The bytes that a tunnel puts around an IP packet: Ethernet's header inside, VXLAN's or Geneve's without options, UDP's and IP's.
const AROUND_IPV4: u32 = 14 + 8 + 8 + 20;
const AROUND_IPV6: u32 = 14 + 8 + 8 + 40;
/// Fewer fragments per second are of no account.
const FRAGMENTS_PER_S: f64 = 100.0;

/// Finds tunnels whose packets do not fit into those of the device below.
pub fn tunnel_too_long(snapshot: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    for end in snapshot
        .devices
        .iter()
        .filter(|one| one.is_tunnel() && one.is_up)
    {
        let Some(below) = end.tunnel_over.and_then(|index| snapshot.device(index)) else {
            continue;
        };
        let around = if end.tunnel_is_ipv6 {
            AROUND_IPV6
        } else {
            AROUND_IPV4
        };
        let most = below.mtu.saturating_sub(around);
        if end.mtu > most {
            let (name, mtu, below_name, below_mtu) = (&end.name, end.mtu, &below.name, below.mtu);
            found.push(Finding::new(
                "mtu_of_tunnel",
                format!("{name} has MTU {mtu}, which is too long for {below_name} with {below_mtu}: full packets are sent in fragments, or are lost."),
                format!("ip link set {name} mtu {most}, and the same for the containers' devices"),
            ));
        }
    }
    found
}

/// Finds bridges with a tunnel whose other ports send longer packets than the tunnel takes.
pub fn ports_differ(snapshot: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    for end in snapshot
        .devices
        .iter()
        .filter(|one| one.is_tunnel() && one.is_up)
    {
        let Some(bridge) = end.controller else {
            continue;
        };
        let longer = snapshot.devices.iter().filter(|port| {
            let beside = port.controller == Some(bridge) && port.index != end.index;
            beside && port.is_up && port.mtu > end.mtu
        });
        let names: Vec<&str> = longer.map(|port| port.name.as_str()).collect();
        if let [first, ..] = names[..] {
            let (name, mtu) = (&end.name, end.mtu);
            found.push(Finding::new(
                "mtu_of_ports",
                format!("The bridge of {name} (MTU {mtu}) has ports with a greater MTU ({}): the bridge drops what is too long for {name}.", names.join(", ")),
                format!("ip link set {first} mtu {mtu}, and the same for its other end in the container"),
            ));
        }
    }
    found
}

/// Finds packets that arrive in fragments.
pub fn fragments(snapshot: &Snapshot) -> Vec<Finding> {
    let pieces = snapshot.counted(&["IpReasmReqds", "Ip6ReasmReqds"]);
    if snapshot.per_s(pieces) < FRAGMENTS_PER_S {
        return Vec::new();
    }
    vec![Finding::new(
        "fragments",
        format!("{pieces} fragments were put together: senders send packets that are too long for their way here."),
        "Lower the MTU of the overlay, or the size of datagrams, at the senders; ip route get ADDRESS shows the MTU of a way",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::sample::nic;
    use crate::diagnose::snapshot::{Device, Network};

    fn host(tunnel_mtu: u32, port_mtu: u32) -> Snapshot {
        let device = |name: &str, index, kind: &str, mtu| Device {
            name: name.to_owned(),
            index,
            kind: kind.to_owned(),
            is_nic: false,
            mtu,
            controller: Some(9),
            ..nic(name)
        };
        let mut below = nic("eth0");
        below.index = 1;
        let mut tunnel = device("vxlan0", 2, "vxlan", tunnel_mtu);
        tunnel.tunnel_over = Some(1);
        Snapshot {
            seconds: 1.0,
            devices: vec![below, tunnel, device("veth0", 3, "veth", port_mtu)],
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_tunnel_leaves_room_for_its_own_headers() {
        assert!(tunnel_too_long(&host(1450, 1450)).is_empty());
        let found = tunnel_too_long(&host(1451, 1450));
        assert_eq!(
            found[0].advice,
            "ip link set vxlan0 mtu 1450, and the same for the containers' devices"
        );
        let mut ipv6 = host(1450, 1450);
        ipv6.devices[1].tunnel_is_ipv6 = true;
        assert!(tunnel_too_long(&ipv6)[0].advice.contains("1430"));
        ipv6.devices[1].tunnel_over = None;
        assert!(tunnel_too_long(&ipv6).is_empty());
    }

    #[test]
    fn ports_of_a_tunnels_bridge_are_no_longer_than_the_tunnel() {
        assert!(ports_differ(&host(1450, 1450)).is_empty());
        assert!(ports_differ(&host(1450, 1400)).is_empty());
        let found = ports_differ(&host(1450, 1500));
        assert!(found[0].says.contains("(veth0)"), "{found:?}");
        let mut apart = host(1450, 1500);
        apart.devices[2].controller = Some(8);
        assert!(ports_differ(&apart).is_empty());
    }

    #[test]
    fn many_fragments_are_found_in_any_namespace() {
        let mut host = host(1450, 1450);
        assert!(fragments(&host).is_empty());
        host.networks.push(Network {
            counted: [("Ip6ReasmReqds".to_owned(), 100)].into(),
            ..Network::default()
        });
        assert_eq!(fragments(&host).len(), 1);
        host.seconds = 2.0;
        assert!(fragments(&host).is_empty());
    }
}
