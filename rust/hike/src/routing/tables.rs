// SPDX-License-Identifier: GPL-2.0

//! The tables by which programs know the host's routing: what is to be in them, and how it gets there.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use aya::maps::{Array, HashMap, Map, MapData, MapError};
use aya::Pod;

use crate::layout;
use crate::limits::{RECEIVERS, SENDERS};
use crate::maps::{is_not_there, open};
use crate::tables::epoch::{Behind, Epoch};

/// A frame's device and VLAN tags without their priorities, from the outermost on; 0: there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tagged {
    /// The device that XDP has the frame from.
    pub device: u32,
    /// As they stand in the frame: kind and number.
    pub tags: [[u8; 4]; 2],
}

/// The device for which the kernel takes such frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// The device.
    pub device: u32,
    /// The device that rules and tables are asked for: its VRF, if it is in one.
    pub asked: u32,
    /// True if the kernel gets all of them.
    pub is_left: bool,
    /// True if it gets IPv4 from sources that are not reached by this device.
    pub strict: bool,
    /// True if it gets IPv4 from sources that are not reached at all.
    pub loose: bool,
    /// True if it gets IPv6.
    pub no_ipv6: bool,
}

impl Receiver {
    /// Returns the receiver that is there if none is set: a device that is what it seems.
    pub const fn plain(device: u32) -> Self {
        Self {
            device,
            asked: device,
            is_left: false,
            strict: false,
            loose: false,
            no_ipv6: false,
        }
    }

    fn layout(self) -> layout::Receiver {
        use layout::Receiver as Layout;
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        Layout {
            device: self.device,
            asked: self.asked,
            flags: bit(self.is_left, Layout::LEFT)
                | bit(self.strict, Layout::STRICT)
                | bit(self.loose, Layout::LOOSE)
                | bit(self.no_ipv6, Layout::NO_IPV6),
        }
    }
}

/// The way in which frames leave by a VLAN's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The device below, which has to be a port.
    pub port: u32,
    /// One tag or two, from the outermost on.
    pub tags: Vec<[u8; 4]>,
}

impl Sender {
    fn layout(&self) -> layout::Sender {
        let mut tags = [[0; 4]; 2];
        for (to, tag) in tags.iter_mut().zip(&self.tags) {
            *to = *tag;
        }
        layout::Sender {
            port: self.port,
            // CAST: two of them.
            tag_bytes: 4 * self.tags.len().min(2) as u32,
            tags,
        }
    }
}

/// The facts about IPv4, or about IPv6, that programs have to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// True if there are policies of IPsec.
    pub ipsec: bool,
    /// True if it is not forwarded.
    pub disabled: bool,
    /// True if some routes have several next hops, and the kernel chooses by what programs do not know.
    pub unforeseen: bool,
    /// True if the look-up may take packets for those of a VRF.
    pub vrfs: bool,
    /// True if rules suppress routes, and the look-up does not.
    pub suppressed: bool,
    /// True if some routes have several next hops.
    pub multipath: bool,
    /// True if the kernel looks into ICMP.
    pub icmp: bool,
    /// True if rules look at protocols or ports.
    pub ports: bool,
    /// True if the kernel sends redirects.
    pub redirects: bool,
    /// The least MTU that a route has.
    pub least_mtu: Option<u32>,
}

impl Family {
    /// Returns what holds if either of two does.
    fn or(self, other: Self) -> Self {
        Self {
            ipsec: self.ipsec || other.ipsec,
            disabled: self.disabled || other.disabled,
            unforeseen: self.unforeseen || other.unforeseen,
            vrfs: self.vrfs || other.vrfs,
            suppressed: self.suppressed || other.suppressed,
            multipath: self.multipath || other.multipath,
            icmp: self.icmp || other.icmp,
            ports: self.ports || other.ports,
            redirects: self.redirects || other.redirects,
            least_mtu: self.least_mtu.into_iter().chain(other.least_mtu).min(),
        }
    }

    fn layout(self) -> layout::Family {
        use layout::Family as Layout;
        let bits = [
            (self.ipsec, Layout::IPSEC),
            (self.disabled, Layout::DISABLED),
            (self.unforeseen, Layout::UNFORESEEN),
            (self.vrfs, Layout::VRFS),
            (self.suppressed, Layout::SUPPRESSED),
            (self.multipath, Layout::MULTIPATH),
            (self.icmp, Layout::ICMP),
            (self.ports, Layout::PORTS),
            (self.redirects, Layout::REDIRECTS),
        ];
        let set = bits.iter().filter(|(is_set, _)| *is_set);
        Layout {
            flags: set.map(|(_, bit)| bit).sum(),
            most_bytes: self.least_mtu.unwrap_or(u32::MAX),
        }
    }
}

/// The host's routing as far as programs have to be told: by default, nothing is special.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// IPv4, and IPv6.
    pub families: [Family; 2],
    /// The receivers of frames that have tags, or whose device is special. Tags that are not here are nobody's.
    pub receivers: BTreeMap<Tagged, Receiver>,
    /// The ways of frames that leave by VLANs' devices, by index.
    pub senders: BTreeMap<u32, Sender>,
}

impl Routing {
    /// Adds that of another network namespace.
    pub(crate) fn add(&mut self, other: &Self) {
        let [v4, v6] = self.families;
        let [other_v4, other_v6] = other.families;
        self.families = [v4.or(other_v4), v6.or(other_v6)];
        self.receivers.extend(&other.receivers);
        let senders = other.senders.iter();
        self.senders
            .extend(senders.map(|(&device, sender)| (device, sender.clone())));
    }

    fn layout(&self) -> layout::Routing {
        let untagged = |tagged: &Tagged| tagged.tags == [[0; 4]; 2];
        layout::Routing {
            of_version: self.families.map(Family::layout),
            has_receivers: self.receivers.keys().any(untagged).into(),
        }
    }

    /// Writes it into the maps of an instance. What there is no room for is the kernel's.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let mut moves = Epoch::open(folder)?.moves_if_changed();
        let mut routing: Array<MapData, layout::Routing> = open(folder, "routing")?.try_into()?;
        let receivers = self.receivers.iter().take(RECEIVERS);
        let receivers = receivers.map(|(tagged, receiver)| {
            let key = layout::Tagged {
                device: tagged.device,
                tags: tagged.tags,
            };
            (key, receiver.layout())
        });
        replace(open(folder, "receivers")?, &receivers.collect(), &mut moves)?;
        let senders = self.senders.iter().take(SENDERS);
        let senders = senders.map(|(&device, sender)| (device, sender.layout()));
        replace(open(folder, "senders")?, &senders.collect(), &mut moves)?;
        if routing.get(&0, 0)? != self.layout() {
            moves.changes();
            routing.set(0, self.layout(), 0)?;
        }
        Ok(())
    }
}

/// Makes a table have these entries, and no others.
fn replace<K: Pod + Ord, V: Pod + PartialEq>(
    table: Map,
    wanted: &BTreeMap<K, V>,
    moves: &mut Behind,
) -> Result<()> {
    let mut table: HashMap<MapData, K, V> = table.try_into()?;
    let there: Vec<K> = table.keys().collect::<Result<_, MapError>>()?;
    for key in there.iter().filter(|key| !wanted.contains_key(*key)) {
        moves.changes();
        match table.remove(key) {
            Err(error) if is_not_there(&error) => {}
            removed => removed?,
        }
    }
    for (key, value) in wanted {
        match table.get(key, 0) {
            Ok(is) if is == *value => {}
            _ => {
                moves.changes();
                table.insert(key, value, 0)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_special_is_no_flag_and_no_limit() {
        let layout = Routing::default().layout();
        let family = layout::Family {
            flags: 0,
            most_bytes: u32::MAX,
        };
        let expected = layout::Routing {
            of_version: [family; 2],
            has_receivers: 0,
        };
        assert_eq!(layout, expected);
        let plain = Receiver::plain(7).layout();
        assert_eq!((plain.device, plain.asked, plain.flags), (7, 7, 0));
    }

    #[test]
    fn packets_without_tags_look_for_receivers_only_if_there_are_some_for_them() {
        let with = |tags| {
            let tagged = Tagged { device: 7, tags };
            let receivers = [(tagged, Receiver::plain(8))].into();
            Routing {
                receivers,
                ..Routing::default()
            }
        };
        assert_eq!(with([[0x81, 0, 0, 5], [0; 4]]).layout().has_receivers, 0);
        assert_eq!(with([[0; 4]; 2]).layout().has_receivers, 1);
    }

    #[test]
    fn what_one_of_two_namespaces_leaves_is_left() {
        let of = |device, disabled, least_mtu| {
            let tags = [[0; 4]; 2];
            let family = Family {
                disabled,
                least_mtu,
                ..Family::default()
            };
            Routing {
                families: [Family::default(), family],
                receivers: [(Tagged { device, tags }, Receiver::plain(9))].into(),
                ..Routing::default()
            }
        };
        let mut both = of(1, true, Some(1_400));
        both.add(&of(2, false, Some(1_300)));
        let [v4, v6] = both.families;
        assert_eq!(v4, Family::default());
        assert_eq!((v6.disabled, v6.least_mtu), (true, Some(1_300)));
        assert_eq!(both.receivers.len(), 2);
    }

    #[test]
    fn tags_are_counted_in_bytes() {
        let sender = |tags: &[[u8; 4]]| Sender {
            port: 2,
            tags: tags.to_vec(),
        };
        let tag = [0x81, 0, 0, 9];
        assert_eq!(sender(&[tag]).layout().tag_bytes, 4);
        let two = sender(&[[0x88, 0xa8, 0, 1], tag]).layout();
        assert_eq!((two.tag_bytes, two.tags[1]), (8, tag));
    }
}
