// SPDX-License-Identifier: GPL-2.0

//! The devices of this network namespace: what rtnetlink, ethtool's netlink family and sysfs say of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ethtool::{EthtoolAttr, EthtoolFeatureAttr, EthtoolFeatureBit, EthtoolHandle};
use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{
    InfoData, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::Handle;

/// A device, with its counts since it was made.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) kind: String,
    pub(super) is_up: bool,
    pub(super) mtu: u32,
    pub(super) controller: Option<u32>,
    pub(super) tunnel_over: Option<u32>,
    pub(super) tunnel_is_ipv6: bool,
    pub(super) features: Option<BTreeSet<String>>,
    pub(super) changeable_features: BTreeSet<String>,
    pub(super) rx_pkts: u64,
    pub(super) rx_missed: u64,
}

/// Asks the kernel for all devices.
pub(super) fn read() -> Result<Vec<Link>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(ask())
}

async fn ask() -> Result<Vec<Link>> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    tokio::spawn(connection);
    let addresses = addresses(&handle).await?;
    let messages = handle.link().get().execute();
    let messages: Vec<LinkMessage> = messages
        .try_collect()
        .await
        .context("cannot list the devices")?;
    let mut links: Vec<Link> = messages
        .iter()
        .map(|message| link(message, &addresses))
        .collect();
    // A kernel without that family tells no features.
    if let Ok((connection, mut ethtool, _)) = ethtool::new_connection() {
        tokio::spawn(connection);
        for link in &mut links {
            let _unknown = ask_features(&mut ethtool, link).await;
        }
    }
    Ok(links)
}

/// Returns the devices by the addresses that they have.
async fn addresses(handle: &Handle) -> Result<BTreeMap<IpAddr, u32>> {
    let messages = handle.address().get().execute();
    let messages: Vec<_> = messages
        .try_collect()
        .await
        .context("cannot list the addresses")?;
    let mut found = BTreeMap::new();
    for message in messages {
        for attribute in message.attributes {
            if let AddressAttribute::Address(address) | AddressAttribute::Local(address) = attribute
            {
                found.insert(address, message.header.index);
            }
        }
    }
    Ok(found)
}

fn link(message: &LinkMessage, addresses: &BTreeMap<IpAddr, u32>) -> Link {
    let mut link = Link {
        index: message.header.index,
        is_up: message.header.flags.contains(LinkFlags::Up),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Controller(index) => link.controller = Some(*index),
            LinkAttribute::Stats64(stats) => {
                link.rx_pkts = stats.rx_packets;
                link.rx_missed = stats.rx_missed_errors.wrapping_add(stats.rx_fifo_errors);
            }
            LinkAttribute::LinkInfo(infos) => infos.iter().for_each(|info| match info {
                LinkInfo::Kind(kind) => link.kind = kind.to_string(),
                LinkInfo::Data(InfoData::Vxlan(vxlan)) => {
                    look_at_vxlan(&mut link, vxlan, addresses)
                }
                _ => {}
            }),
            _ => {}
        }
    }
    link
}

/// Finds out over which device a tunnel goes: the one that it names, or the one that has its address.
fn look_at_vxlan(link: &mut Link, infos: &[InfoVxlan], addresses: &BTreeMap<IpAddr, u32>) {
    let mut named = None;
    let mut local = None;
    for info in infos {
        match info {
            // 0 stands for none.
            InfoVxlan::Link(index) => named = Some(*index).filter(|index| *index != 0),
            InfoVxlan::Local(address) => local = Some(IpAddr::from(*address)),
            InfoVxlan::Local6(address) => local = Some(IpAddr::from(*address)),
            InfoVxlan::Group6(_) => link.tunnel_is_ipv6 = true,
            _ => {}
        }
    }
    link.tunnel_is_ipv6 |= local.is_some_and(|address| address.is_ipv6());
    let by_address = local.and_then(|address| addresses.get(&address).copied());
    link.tunnel_over = named.or(by_address);
}

async fn ask_features(ethtool: &mut EthtoolHandle, link: &mut Link) -> Result<()> {
    let answer = ethtool.feature().get(Some(&link.name)).execute().await;
    futures_util::pin_mut!(answer);
    let (mut active, mut changeable, mut fixed) = (None, BTreeSet::new(), BTreeSet::new());
    while let Some(message) = answer.try_next().await? {
        for attribute in message.payload.nlas {
            match attribute {
                EthtoolAttr::Feature(EthtoolFeatureAttr::Active(bits)) => active = Some(set(bits)),
                EthtoolAttr::Feature(EthtoolFeatureAttr::Hw(bits)) => changeable = set(bits),
                EthtoolAttr::Feature(EthtoolFeatureAttr::NoChange(bits)) => fixed = set(bits),
                _ => {}
            }
        }
    }
    link.features = active;
    link.changeable_features = changeable.difference(&fixed).cloned().collect();
    Ok(())
}

fn set(bits: Vec<EthtoolFeatureBit>) -> BTreeSet<String> {
    let set = bits.into_iter().filter(|bit| bit.value);
    set.map(|bit| bit.name).collect()
}

fn folder(root: &Path, device: &str) -> PathBuf {
    root.join("sys/class/net").join(device)
}

/// Returns whether a driver has the device.
pub(super) fn is_nic(root: &Path, device: &str) -> bool {
    folder(root, device).join("device").exists()
}

/// Returns whether threads poll the device.
pub(super) fn is_threaded(root: &Path, device: &str) -> bool {
    let text = fs::read_to_string(folder(root, device).join("threaded"));
    text.is_ok_and(|text| text.trim() == "1")
}

fn rx_folders(root: &Path, device: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder(root, device).join("queues"));
    let entries = entries.into_iter().flatten().flatten();
    let is_rx = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"rx-");
    entries.filter(is_rx).map(|entry| entry.path())
}

/// Returns the number of receive queues.
pub(super) fn rx_queues(root: &Path, device: &str) -> u32 {
    u32::try_from(rx_folders(root, device).count()).unwrap_or(u32::MAX)
}

/// Returns the CPUs of RPS, of all queues.
pub(super) fn rps_cpus(root: &Path, device: &str) -> BTreeSet<u32> {
    let masks = rx_folders(root, device).map(|queue| fs::read_to_string(queue.join("rps_cpus")));
    masks
        .flatten()
        .flat_map(|mask| cpus_of_mask(&mask))
        .collect()
}

/// Reads a mask such as `f` or `00000001,00000000`, whose last digit has the first CPUs.
fn cpus_of_mask(mask: &str) -> BTreeSet<u32> {
    let digits = mask
        .trim()
        .chars()
        .rev()
        .filter_map(|digit| digit.to_digit(16));
    let cpus = digits.zip(0..).flat_map(|(digit, place): (u32, u32)| {
        (0..4)
            .filter(move |bit| digit >> bit & 1 == 1)
            .map(move |bit| place * 4 + bit)
    });
    cpus.collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn masks_have_the_first_cpus_last() {
        assert_eq!(cpus_of_mask("3c\n"), [2, 3, 4, 5].into());
        assert_eq!(cpus_of_mask("00000001,00000000\n"), [32].into());
        assert!(cpus_of_mask("0\n").is_empty());
    }

    #[test]
    fn a_tunnel_goes_over_the_device_that_it_names_or_that_has_its_address() {
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let addresses = BTreeMap::from([(IpAddr::from(address), 7)]);
        let over = |infos: &[InfoVxlan]| {
            let mut link = Link::default();
            look_at_vxlan(&mut link, infos, &addresses);
            (link.tunnel_over, link.tunnel_is_ipv6)
        };
        assert_eq!(
            over(&[InfoVxlan::Link(3), InfoVxlan::Local(address)]),
            (Some(3), false)
        );
        assert_eq!(
            over(&[InfoVxlan::Link(0), InfoVxlan::Local(address)]),
            (Some(7), false)
        );
        assert_eq!(
            over(&[InfoVxlan::Local6(std::net::Ipv6Addr::LOCALHOST)]),
            (None, true)
        );
    }

    #[test]
    fn the_kernel_lists_the_loopback_device_with_its_features() {
        let links = read().expect("a list");
        let lo = links
            .iter()
            .find(|link| link.name == "lo")
            .expect("there is one");
        assert!(lo.mtu > 0 && !is_nic(Path::new("/"), "lo"));
        // A kernel of a sandbox may have no ethtool.
        if let Some(features) = &lo.features {
            assert!(features.contains("rx-gro"), "{features:?}");
            assert!(lo.changeable_features.contains("rx-gro"));
        }
    }
}
