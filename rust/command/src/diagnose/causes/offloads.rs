// SPDX-License-Identifier: GPL-2.0

//! Features of devices that are off. The names are the kernel's (`ethtool -k` shows some of them under other ones).

use super::cores;
use crate::diagnose::finding::Finding;
use crate::diagnose::snapshot::{Device, Snapshot};

const GRO: &str = "rx-gro";
const GRO_LIST: &str = "rx-gro-list";
const RX_CHECKSUM: &str = "rx-checksum";
const TX_CHECKSUM: &str = "tx-checksum-ip-generic";

/// Lists help where most of what comes are datagrams of flows inside, or of this host.
const LEAST_UDP_SHARE: f64 = 0.5;

/// Finds busy NICs that do not join packets before the stack sees them.
pub fn gro_off(snapshot: &Snapshot) -> Vec<Finding> {
    let does_it = |nic: &&Device| {
        let splitting = snapshot.splitting(&nic.name);
        splitting.is_some_and(|loaded| loaded.does_gro_itself())
    };
    let nics = snapshot.busy_nics().into_iter();
    let nics = nics.filter(|nic| nic.could_have(GRO) && !does_it(nic));
    let finding = |nic: &Device| {
        let name = &nic.name;
        Finding::new(
            "gro_off",
            format!("GRO is off at {name}, so the stack handles each segment of TCP by itself."),
            format!("ethtool -K {name} gro on"),
        )
    };
    nics.map(finding).collect()
}

/// Finds busy NICs whose packets are summed by cores.
pub fn checksums_off(snapshot: &Snapshot) -> Vec<Finding> {
    let nics = snapshot.busy_nics().into_iter();
    let nics = nics.filter(|nic| nic.could_have(RX_CHECKSUM));
    let finding = |nic: &Device| {
        let name = &nic.name;
        Finding::new(
            "rx_checksum_off",
            format!("{name} leaves the checksums of received packets to the core, which reads every byte for them."),
            format!("ethtool -K {name} rx on"),
        )
    };
    nics.map(finding).collect()
}

/// Finds ends of tunnels without checksum offload, which some network plugins switch off against bugs of drivers.
pub fn tunnel_checksums_off(snapshot: &Snapshot) -> Vec<Finding> {
    let ends = snapshot.devices.iter();
    let ends = ends.filter(|one| one.is_tunnel() && one.is_up && one.could_have(TX_CHECKSUM));
    let finding = |end: &Device| {
        let name = &end.name;
        Finding::new(
            "tunnel_checksum_off",
            format!("{name} sends without checksum offload, so senders on this host cut and sum each segment themselves."),
            format!("ethtool -K {name} tx-checksum-ip-generic on; if tunnelled packets are lost then, the NIC's driver is to blame, and it has to stay off"),
        )
    };
    ends.map(finding).collect()
}

/// Finds NICs whose core is the limit with datagrams, and that make no lists of them: the line that helps a Linux without the module.
pub fn lists_off(snapshot: &Snapshot) -> Vec<Finding> {
    // CAST: far below where f64 loses whole numbers.
    let datagrams = snapshot.counted(&["UdpInDatagrams", "Udp6InDatagrams"]) as f64;
    let finding = |nic: &Device| {
        let name = &nic.name;
        Finding::new(
            "gro_list_off",
            format!("Most packets of {name} are datagrams, which GRO does not join as rx-gro-list is off."),
            format!("ethtool -K {name} rx-gro-list on rx-udp-gro-forwarding on"),
        )
    };
    if cores::limit(snapshot).is_none() {
        return Vec::new();
    }
    let nics = snapshot.busy_nics().into_iter();
    let nics = nics.filter(|nic| {
        // Lanes make lists themselves.
        let is_split = snapshot.splitting(&nic.name).is_some();
        // CAST: see above.
        let is_udp = datagrams >= LEAST_UDP_SHARE * nic.rx_pkts as f64;
        nic.could_have(GRO_LIST) && !is_split && is_udp
    });
    nics.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cpus::Cpu;
    use crate::diagnose::sample::{loaded, nic, splitting};
    use crate::diagnose::snapshot::{Module, Network};
    use crate::module::text::Way;

    /// A host with one busy NIC that has these features.
    fn host(features: &[&str]) -> Snapshot {
        let mut nic = nic("eth0");
        nic.features = Some(features.iter().map(|&name| name.to_owned()).collect());
        nic.changeable_features = [GRO, GRO_LIST, RX_CHECKSUM, TX_CHECKSUM]
            .map(str::to_owned)
            .into();
        Snapshot {
            seconds: 1.0,
            devices: vec![nic],
            ..Snapshot::default()
        }
    }

    #[test]
    fn gro_is_missed_unless_lanes_do_it() {
        let mut off = host(&[RX_CHECKSUM]);
        assert_eq!(gro_off(&off)[0].advice, "ethtool -K eth0 gro on");
        assert!(gro_off(&host(&[GRO])).is_empty());
        off.module = splitting(&["eth0"], Way::Stock);
        assert!(gro_off(&off).is_empty());
        off.module = splitting(&["eth0"], Way::Patched);
        assert_eq!(gro_off(&off).len(), 1);
        off.module = splitting(&["eth1"], Way::Stock);
        assert_eq!(gro_off(&off).len(), 1);
        off.module = Module::NotLoaded;
        off.devices[0].rx_pkts = 10;
        assert!(gro_off(&off).is_empty());
    }

    #[test]
    fn features_that_are_unknown_or_fixed_are_not_missed() {
        let mut host = host(&[]);
        assert_eq!(checksums_off(&host).len(), 1);
        host.devices[0].changeable_features.remove(RX_CHECKSUM);
        assert!(checksums_off(&host).is_empty());
        host.devices[0]
            .changeable_features
            .insert(RX_CHECKSUM.to_owned());
        host.devices[0].features = None;
        assert!(checksums_off(&host).is_empty() && gro_off(&host).is_empty());
    }

    #[test]
    fn the_offload_of_tunnels_is_looked_at() {
        let mut host = host(&[]);
        host.devices[0].kind = "vxlan".to_owned();
        host.devices[0].is_nic = false;
        assert!(tunnel_checksums_off(&host)[0]
            .says
            .starts_with("eth0 sends"));
        host.devices[0].features = Some(BTreeSet::from([TX_CHECKSUM.to_owned()]));
        assert!(tunnel_checksums_off(&host).is_empty());
    }

    #[test]
    fn lists_help_with_datagrams_whose_core_is_the_limit() {
        let mut host = host(&[GRO]);
        host.networks.push(Network {
            counted: [("UdpInDatagrams".to_owned(), host.devices[0].rx_pkts)].into(),
            ..Network::default()
        });
        assert!(lists_off(&host).is_empty());
        host.cpus.push(Cpu {
            softirq_pct: 99.0,
            received_pkts: 100_000,
            ..Cpu::default()
        });
        assert_eq!(lists_off(&host).len(), 1);
        host.module = Module::Loaded(Box::new(loaded(&["eth0"], Way::Patched)));
        assert!(lists_off(&host).is_empty());
        host.module = Module::NotLoaded;
        host.networks.clear();
        assert!(lists_off(&host).is_empty());
    }
}
