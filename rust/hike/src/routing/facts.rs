// SPDX-License-Identifier: GPL-2.0

//! All that is read of the host's routing, and what programs are told of it.

use std::collections::BTreeSet;

use anyhow::Result;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::devices::{Device, Devices, Kind, Place};
use super::host::Host;
use super::netlink::Netlink;
use super::offloads::hides_tags;
use super::routes::{has_groups, Noted, Routes};
use super::rules::Rules;
use super::tables::{Family, Receiver, Routing, Sender, Tagged};
use crate::host::namespace;

/// The tags that belong to no VLAN: only their priority is meant.
const PRIORITY_TAGS: [[u8; 4]; 2] = [[0x81, 0, 0, 0], [0x88, 0xa8, 0, 0]];
const NO_TAG: [u8; 4] = [0; 4];

/// The host's routing, in the network namespace of the thread that has read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The number of the namespace.
    pub(crate) namespace: u64,
    pub(crate) host: Host,
    devices: Devices,
    rules: [Rules; 2],
    /// True if there are next hops that are several, whichever routes have them.
    groups: bool,
    pub(crate) routes: Routes,
}

impl Facts {
    /// Reads all. With a million routes this takes a second or two.
    pub fn read() -> Result<Self> {
        let (facts, _) = Self::with_routes(&mut Netlink::open(NETLINK_ROUTE)?)?;
        Ok(facts)
    }

    /// Reads all, and says whether routes changed meanwhile.
    pub(crate) fn with_routes(netlink: &mut Netlink) -> Result<(Self, Noted)> {
        let (routes, noted) = Routes::read(netlink)?;
        Ok((Self::with(netlink, routes)?, noted))
    }

    /// Reads all but the routes again.
    pub fn again(&self) -> Result<Self> {
        Self::with(&mut Netlink::open(NETLINK_ROUTE)?, self.routes)
    }

    pub(crate) fn with(netlink: &mut Netlink, routes: Routes) -> Result<Self> {
        Ok(Self {
            namespace: namespace()?,
            host: Host::read()?,
            devices: Devices::read(netlink, hides_tags)?,
            rules: [
                // CAST: 2 and 10.
                Rules::read(netlink, libc::AF_INET as u8)?,
                Rules::read(netlink, libc::AF_INET6 as u8)?,
            ],
            groups: has_groups(netlink)?,
            routes,
        })
    }

    /// Returns what programs are told that get packets of these devices, by name.
    pub fn routing<'a>(&self, attached: impl IntoIterator<Item = &'a str>) -> Routing {
        let mut routing = Routing {
            families: [self.ipv4(), self.ipv6()],
            ..Routing::default()
        };
        let attached = attached.into_iter();
        let attached = attached.filter_map(|name| self.devices.index(name));
        let carriers: BTreeSet<u32> = attached
            .flat_map(|device| self.devices.carriers(device))
            .collect();
        for carrier in carriers {
            self.add_receivers(&mut routing, carrier);
        }
        let mut receivers = routing.receivers.values();
        routing.families[0].redirects |= receivers.any(|one| self.sends_redirects(one.asked));
        for &device in self.devices.all.keys() {
            if let Some((tags, port)) = self.devices.tags_of(device) {
                routing.senders.insert(device, Sender { port, tags });
            }
        }
        routing
    }

    fn ipv4(&self) -> Family {
        let multipath = self.groups || self.routes.multipath[0];
        Family {
            unforeseen: multipath && self.host.hash_policies[0] != 0,
            icmp: multipath,
            redirects: self.host.sends_redirects,
            least_mtu: self.routes.least_mtu,
            multipath,
            ..self.both(self.rules[0])
        }
    }

    fn ipv6(&self) -> Family {
        let multipath = self.groups || self.routes.multipath[1];
        let answers = |device: &Device| device.answers_for_neighbours;
        Family {
            disabled: !self.host.forwards_ipv6,
            unforeseen: multipath && self.host.hash_policies[1] != 0,
            icmp: multipath
                || self.host.answers_for_neighbours
                || self.devices.all.values().any(answers),
            // IPv6 has no knob for that.
            redirects: true,
            // net/ipv6/fib6_rules.c: fib6_rule_suppress() looks at a route that the look-up for programs leaves out.
            suppressed: self.rules[1].suppress,
            multipath,
            ..self.both(self.rules[1])
        }
    }

    fn both(&self, rules: Rules) -> Family {
        let mut kinds = self.devices.all.values().map(|device| device.kind);
        Family {
            ipsec: self.host.has_ipsec,
            vrfs: self.host.mistakes_vrfs && kinds.any(|kind| kind == Kind::Vrf),
            ports: rules.ports,
            ..Family::default()
        }
    }

    fn sends_redirects(&self, device: u32) -> bool {
        let device = self.devices.all.get(&device);
        device.is_some_and(|device| device.sends_redirects)
    }

    /// Adds what a device receives without tags, with those of a VLAN, and with those of a VLAN on a VLAN.
    fn add_receivers(&self, routing: &mut Routing, carrier: u32) {
        let place = self.devices.place(carrier);
        let this = self.devices.all.get(&carrier);
        let hides = this.is_some_and(|device| device.hides_tags);
        let receiver = self.receiver(carrier, place.filter(|_| !hides));
        let mut add = |tags, receiver| {
            let tagged = Tagged {
                device: carrier,
                tags,
            };
            routing.receivers.insert(tagged, receiver);
        };
        if receiver != Receiver::plain(carrier) {
            add([NO_TAG; 2], receiver);
        }
        // Tags that are seen are then those behind the ones that are not.
        if hides {
            return;
        }
        for tag in PRIORITY_TAGS {
            add([tag, NO_TAG], receiver);
        }
        for below in below(carrier, place) {
            for (tag, vlan) in self.devices.vlans_on(below) {
                add([tag, NO_TAG], self.receiver(vlan, self.devices.place(vlan)));
                for (second, inner) in self.devices.vlans_on(vlan) {
                    let receiver = self.receiver(inner, self.devices.place(inner));
                    add([tag, second], receiver);
                }
            }
        }
    }

    /// Returns how packets are taken of which the kernel says where they are; `None`: they are not for its routing.
    fn receiver(&self, index: u32, place: Option<Place>) -> Receiver {
        let known = place.and_then(|place| {
            let [device, asked] = [place.device, place.asked].map(|one| self.devices.all.get(&one));
            Some((place, device?, asked?))
        });
        let Some((place, device, asked)) = known else {
            return Receiver {
                is_left: true,
                ..Receiver::plain(index)
            };
        };
        let rp_filter = self.host.rp_filter.max(asked.rp_filter);
        // Without an address, the kernel takes a loose filter for a strict one.
        let strict = rp_filter == 1 || rp_filter != 0 && !asked.has_ipv4;
        let in_vrf = place.asked != place.device;
        let always_routed =
            self.routes.default && !self.routes.refused && !self.rules[0].unusual && !in_vrf;
        let loose = !strict && (rp_filter != 0 && !always_routed || self.routes.custom_local);
        Receiver {
            device: place.device,
            asked: place.asked,
            is_left: false,
            strict,
            loose,
            no_ipv6: device.no_ipv6 || asked.no_ipv6,
        }
    }
}

/// Returns the devices that VLANs can be on of which frames come by a device: it, and the bond that it is a port of.
fn below(carrier: u32, place: Option<Place>) -> impl Iterator<Item = u32> {
    let bond = place.map(|place| place.device);
    let bond = bond.filter(|bond| *bond != carrier);
    std::iter::once(carrier).chain(bond)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::routing::devices::Tag;

    const ETH0: u32 = 2;
    const TAG: Tag = [0x81, 0, 0, 100];
    const OUTER: Tag = [0x88, 0xa8, 0, 5];

    fn device(name: &str) -> Device {
        Device {
            name: name.to_owned(),
            is_up: true,
            mtu: 1_500,
            has_ipv4: true,
            ..Device::default()
        }
    }

    fn vlan(name: &str, tag: Tag, parent: u32) -> Device {
        Device {
            kind: Kind::Vlan {
                tag,
                parent: Some(parent),
                maps_priorities: false,
            },
            ..device(name)
        }
    }

    /// Returns a host that forwards, with these devices beside eth0.
    fn facts(others: Vec<(u32, Device)>) -> Facts {
        let mut devices = Devices::default();
        devices.all.insert(ETH0, device("eth0"));
        devices.all.extend(others);
        Facts {
            namespace: 0,
            host: Host {
                forwards_ipv6: true,
                ..Host::default()
            },
            devices,
            rules: [Rules::default(); 2],
            groups: false,
            routes: Routes::default(),
        }
    }

    fn eth0(facts: &mut Facts) -> &mut Device {
        facts.devices.all.get_mut(&ETH0).expect("eth0")
    }

    fn receivers(facts: &Facts) -> Vec<([Tag; 2], Receiver)> {
        let receivers = facts.routing(["eth0"]).receivers.into_iter();
        let all = receivers.map(|(tagged, receiver)| {
            assert_eq!(tagged.device, ETH0);
            (tagged.tags, receiver)
        });
        // Those of tags that are for the device itself are the same as without tags.
        all.filter(|(tags, _)| !PRIORITY_TAGS.contains(&tags[0]))
            .collect()
    }

    fn left(index: u32) -> Receiver {
        Receiver {
            is_left: true,
            ..Receiver::plain(index)
        }
    }

    #[test]
    fn a_device_that_is_what_it_seems_costs_nothing() {
        let facts = facts(Vec::new());
        assert!(receivers(&facts).is_empty());
        let routing = facts.routing(["eth0"]);
        assert_eq!(routing.senders.len(), 0);
        assert_eq!(routing.receivers.len(), PRIORITY_TAGS.len());
        assert_eq!(routing.families[0], Family::default());
    }

    #[test]
    fn tags_lead_to_the_devices_of_their_vlans() {
        let facts = facts(vec![
            (3, vlan("eth0.100", TAG, ETH0)),
            (4, vlan("outer", OUTER, ETH0)),
            (5, vlan("inner", TAG, 4)),
            (
                6,
                Device {
                    is_up: false,
                    ..vlan("down", [0x81, 0, 0, 7], ETH0)
                },
            ),
        ]);
        let expected = [
            ([TAG, NO_TAG], Receiver::plain(3)),
            ([OUTER, NO_TAG], Receiver::plain(4)),
            ([OUTER, TAG], Receiver::plain(5)),
        ];
        assert_eq!(receivers(&facts), expected);
    }

    #[test]
    fn frames_leave_with_the_tags_of_their_vlan() {
        let mut inner = vlan("inner", TAG, 4);
        let facts_of = |inner: &Device| {
            facts(vec![
                (3, vlan("eth0.100", TAG, ETH0)),
                (4, vlan("outer", OUTER, ETH0)),
                (5, inner.clone()),
            ])
        };
        let senders = |facts: &Facts| facts.routing([]).senders;
        let sender = |tags: &[Tag]| Sender {
            port: ETH0,
            tags: tags.to_vec(),
        };
        let mut expected: BTreeMap<u32, Sender> =
            [(3, sender(&[TAG])), (4, sender(&[OUTER]))].into();
        // Two tags and a whole packet are more than a driver takes.
        assert_eq!(senders(&facts_of(&inner)), expected);
        inner.mtu = 1_496;
        expected.insert(5, sender(&[OUTER, TAG]));
        assert_eq!(senders(&facts_of(&inner)), expected);
    }

    #[test]
    fn rules_are_asked_for_the_vrf() {
        let vrf = Device {
            kind: Kind::Vrf,
            ..device("vrf")
        };
        let mut facts = facts(vec![(3, vlan("eth0.100", TAG, ETH0)), (9, vrf)]);
        for index in [ETH0, 3] {
            facts.devices.all.get_mut(&index).expect("there").master = Some(9);
        }
        let asked = |index| Receiver {
            asked: 9,
            ..Receiver::plain(index)
        };
        let expected = [([NO_TAG; 2], asked(ETH0)), ([TAG, NO_TAG], asked(3))];
        assert_eq!(receivers(&facts), expected);
        facts.host.mistakes_vrfs = true;
        let mut families = facts.routing(["eth0"]).families.into_iter();
        assert!(families.all(|family| family.vrfs));
    }

    #[test]
    fn what_a_bridge_or_a_backup_receives_is_left() {
        for (kind, is_backup) in [(Kind::Other, false), (Kind::Bond, true)] {
            let master = Device {
                kind,
                ..device("master")
            };
            let mut facts = facts(vec![(9, master)]);
            eth0(&mut facts).master = Some(9);
            eth0(&mut facts).is_backup = is_backup;
            assert_eq!(receivers(&facts), [([NO_TAG; 2], left(ETH0))]);
        }
    }

    #[test]
    fn a_port_receives_for_its_bond_and_the_vlans_on_that() {
        let bond = Device {
            kind: Kind::Bond,
            ..device("bond")
        };
        let mut facts = facts(vec![(9, bond), (10, vlan("bond.100", TAG, 9))]);
        eth0(&mut facts).master = Some(9);
        let expected = [
            ([NO_TAG; 2], Receiver::plain(9)),
            ([TAG, NO_TAG], Receiver::plain(10)),
        ];
        assert_eq!(receivers(&facts), expected);
        assert_eq!(facts.routing(["bond"]), facts.routing(["eth0"]));
    }

    #[test]
    fn a_device_that_hides_tags_is_left_altogether() {
        let mut facts = facts(vec![(3, vlan("eth0.100", TAG, ETH0))]);
        eth0(&mut facts).hides_tags = true;
        assert_eq!(receivers(&facts), [([NO_TAG; 2], left(ETH0))]);
    }

    #[test]
    fn sources_are_checked_as_far_as_the_kernel_would_refuse_some() {
        let checks = |facts: &Facts| {
            let receivers = receivers(facts);
            let first = receivers.first().map(|(_, receiver)| *receiver);
            first.map_or((false, false), |one| (one.strict, one.loose))
        };
        let mut facts = facts(Vec::new());
        assert_eq!(checks(&facts), (false, false));
        facts.host.rp_filter = 1;
        assert_eq!(checks(&facts), (true, false));
        facts.host.rp_filter = 0;
        eth0(&mut facts).rp_filter = 2;
        assert_eq!(checks(&facts), (false, true));
        // Each source has a way back, unless a rule or a route leads others elsewhere.
        facts.routes.default = true;
        assert_eq!(checks(&facts), (false, false));
        facts.rules[0].unusual = true;
        assert_eq!(checks(&facts), (false, true));
        facts.rules[0].unusual = false;
        facts.routes.refused = true;
        assert_eq!(checks(&facts), (false, true));
        eth0(&mut facts).has_ipv4 = false;
        assert_eq!(checks(&facts), (true, false));
        eth0(&mut facts).rp_filter = 0;
        facts.routes.custom_local = true;
        assert_eq!(checks(&facts), (false, true));
    }

    #[test]
    fn redirects_are_those_of_devices_that_packets_come_from() {
        let mut facts = facts(vec![(3, device("eth1"))]);
        let redirects = |facts: &Facts, name| facts.routing([name]).families[0].redirects;
        assert!(!redirects(&facts, "eth0"));
        eth0(&mut facts).sends_redirects = true;
        assert!(redirects(&facts, "eth0") && !redirects(&facts, "eth1"));
        facts.host.sends_redirects = true;
        assert!(redirects(&facts, "eth1"));
    }

    #[test]
    fn several_next_hops_are_followed_only_by_addresses() {
        let mut facts = facts(Vec::new());
        facts.routes.multipath = [true, false];
        let [v4, v6] = facts.routing([]).families;
        assert_eq!((v4.multipath, v4.icmp, v4.unforeseen), (true, true, false));
        assert!(!v6.multipath && !v6.icmp && !v6.unforeseen);
        facts.groups = true;
        facts.host.hash_policies = [0, 1];
        let [v4, v6] = facts.routing([]).families;
        assert!(!v4.unforeseen && v6.multipath && v6.unforeseen);
    }

    #[test]
    fn families_that_are_not_forwarded_are_left() {
        let mut facts = facts(Vec::new());
        facts.host.forwards_ipv6 = false;
        let [v4, v6] = facts.routing([]).families;
        assert!(!v4.disabled && v6.disabled);
        facts.host.has_ipsec = true;
        let mut families = facts.routing([]).families.into_iter();
        assert!(families.all(|family| family.ipsec));
    }
}
