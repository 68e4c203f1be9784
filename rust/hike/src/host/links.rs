// SPDX-License-Identifier: GPL-2.0

//! The devices of a network namespace, and how they are stacked.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, BondPortState, InfoBondPort, InfoData, InfoKind, InfoPortData,
    InfoVrf, LinkAttribute, LinkExtentMask, LinkInfo, LinkLayerType, LinkMessage, LinkXdp,
};
use netlink_packet_route::RouteNetlinkMessage;

use super::netlink::Netlink;

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Its Ethernet address; `None`: its packets have no Ethernet headers.
    pub(crate) mac: Option<[u8; 6]>,
    /// The kind of a device that is made by software.
    pub(crate) kind: Option<InfoKind>,
    /// The bond, VRF or bridge that it belongs to.
    pub(crate) master: Option<u32>,
    /// True of a bond's slave that receives nothing for it (drivers/net/bonding/bond_main.c: bond_should_deliver_exact_match).
    pub(crate) is_backup: bool,
    /// The device that it is on top of, as a VLAN is.
    pub(crate) lower: Option<u32>,
    /// The table of a VRF.
    pub(crate) table: Option<u32>,
    /// True if segment routing headers that come to it have to be signed (seg6_require_hmac).
    pub(crate) requires_hmac: bool,
    /// The kernel's number of the XDP program in its driver.
    pub(crate) program: Option<u32>,
}

/// All devices, by their indices.
pub(crate) type Links = BTreeMap<u32, Link>;

/// Asks the kernel for them.
pub(super) fn read(netlink: &Netlink) -> Result<Links> {
    let mut question = LinkMessage::default();
    let unasked = vec![LinkExtentMask::SkipStats];
    question.attributes.push(LinkAttribute::ExtMask(unasked));
    let answers = netlink.ask(RouteNetlinkMessage::GetLink(question), NLM_F_DUMP);
    let answers = answers.context("cannot list the devices")?;
    let links = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(link) => Some(link_of(&link)),
        _ => None,
    });
    Ok(links.map(|link| (link.index, link)).collect())
}

/// Returns the devices that receive for one: the slaves of a bond, where its programs run, and itself.
pub(crate) fn receivers(links: &Links, index: u32) -> Vec<&Link> {
    let itself = links.get(&index);
    let is_bond = itself.is_some_and(|link| link.kind == Some(InfoKind::Bond));
    let slaves = links.values();
    let slaves = slaves.filter(|link| is_bond && link.master == Some(index));
    itself.into_iter().chain(slaves).collect()
}

/// Returns whether SRHs of some packets that a device receives have to be signed. The kernel asks the device that its stack sees a
/// packet come from (net/ipv6/seg6_hmac.c: seg6_hmac_validate_skb): the VRF, the bond, the bridge or the VLAN on top. Which one that is
/// depends on the packet, so one of them is enough.
pub(crate) fn requires_hmac(links: &Links, index: u32) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![index];
    while let Some(index) = open.pop() {
        let Some(link) = links.get(&index) else {
            continue;
        };
        if !seen.insert(index) {
            continue;
        }
        if link.requires_hmac {
            return true;
        }
        open.extend(link.master);
        let is_vlan = |one: &&Link| one.kind == Some(InfoKind::Vlan) && one.lower == Some(index);
        open.extend(links.values().filter(is_vlan).map(|vlan| vlan.index));
    }
    false
}

fn link_of(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        ..Link::default()
    };
    let is_ethernet = message.header.link_layer_type == LinkLayerType::Ether;
    let mut elsewhere = false;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(bytes) if is_ethernet => {
                link.mac = bytes.as_slice().try_into().ok();
            }
            LinkAttribute::Controller(index) => link.master = Some(*index),
            LinkAttribute::Link(index) => link.lower = Some(*index),
            LinkAttribute::LinkNetNsId(_) => elsewhere = true,
            LinkAttribute::LinkInfo(facts) => facts.iter().for_each(|fact| link.learn(fact)),
            LinkAttribute::Xdp(facts) => {
                link.program = facts.iter().find_map(|fact| match fact {
                    LinkXdp::DrvProgId(number) => Some(*number),
                    _ => None,
                });
            }
            LinkAttribute::AfSpecUnspec(families) => {
                link.requires_hmac = families.iter().any(is_strict);
            }
            _ => {}
        }
    }
    // In another namespace, the index is that of another device.
    link.lower = link.lower.filter(|_| !elsewhere);
    link
}

impl Link {
    fn learn(&mut self, fact: &LinkInfo) {
        match fact {
            LinkInfo::Kind(kind) => self.kind = Some(kind.clone()),
            LinkInfo::Data(InfoData::Vrf(facts)) => {
                self.table = facts.iter().find_map(|fact| match fact {
                    InfoVrf::TableId(table) => Some(*table),
                    _ => None,
                });
            }
            LinkInfo::PortData(InfoPortData::BondPort(facts)) => {
                let backup = InfoBondPort::BondPortState(BondPortState::Backup);
                self.is_backup = facts.contains(&backup);
            }
            _ => {}
        }
    }
}

fn is_strict(family: &AfSpecUnspec) -> bool {
    let AfSpecUnspec::Inet6(facts) = family else {
        return false;
    };
    facts.iter().any(|fact| match fact {
        AfSpecInet6::DevConf(knobs) => knobs.seg6_require_hmac > 0,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, kind: Option<InfoKind>) -> Link {
        Link {
            index,
            kind,
            ..Link::default()
        }
    }

    fn all(links: &[Link]) -> Links {
        let links = links.iter().cloned();
        links.map(|link| (link.index, link)).collect()
    }

    #[test]
    fn the_slaves_of_a_bond_receive_for_it() {
        let slave = |index, master| Link {
            master: Some(master),
            ..link(index, None)
        };
        let links = all(&[
            link(1, Some(InfoKind::Bond)),
            slave(2, 1),
            slave(3, 1),
            link(4, Some(InfoKind::Vrf)),
            slave(5, 4),
        ]);
        let of = |index| -> Vec<u32> {
            let receivers = receivers(&links, index);
            receivers.iter().map(|link| link.index).collect()
        };
        assert_eq!(of(1), [1, 2, 3]);
        assert_eq!(of(2), [2]);
        assert_eq!(of(4), [4]);
        assert_eq!(of(9), [0; 0]);
    }

    #[test]
    fn a_backup_of_a_bond_is_read() {
        let of = |state| {
            let mut link = link(2, None);
            let facts = vec![InfoBondPort::BondPortState(state)];
            link.learn(&LinkInfo::PortData(InfoPortData::BondPort(facts)));
            link.is_backup
        };
        assert!(of(BondPortState::Backup) && !of(BondPortState::Active));
    }

    #[test]
    fn signatures_are_required_by_what_is_on_top() {
        let strict = |link: Link| Link {
            requires_hmac: true,
            ..link
        };
        let vlan = Link {
            lower: Some(2),
            ..link(3, Some(InfoKind::Vlan))
        };
        let vlan = Link {
            master: Some(4),
            ..vlan
        };
        let vrf = strict(link(4, Some(InfoKind::Vrf)));
        let macvlan = Link {
            lower: Some(5),
            ..strict(link(6, Some(InfoKind::MacVlan)))
        };
        let links = all(&[link(2, None), vlan, vrf, link(5, None), macvlan]);
        let strict: Vec<bool> = (2..=6).map(|index| requires_hmac(&links, index)).collect();
        assert_eq!(strict, [true, true, true, false, true]);
    }
}
