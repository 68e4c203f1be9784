// SPDX-License-Identifier: GPL-2.0

//! The destinations that are the host's own: what the kernel delivers on this host, or to all hosts of a link.
//!
//! These are routes of three types in the local table, and in the table of each VRF (include/uapi/linux/rtnetlink.h: RTN_LOCAL,
//! RTN_BROADCAST, RTN_ANYCAST). Local routes in other tables are for packets that rules choose, as those of transparent proxies are.

use std::collections::btree_map::Entry;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::netlink::Netlink;
use crate::config::destination::Destination;

/// The kernel's numbers of its tables; without policy routing, the main one has the routes of both.
const LOCAL: u32 = 255;
const MAIN: u32 = 254;

/// The hosts that have a destination, by the numbers that programs know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnedBy {
    /// This one alone: a unicast address.
    This = 1,
    /// Several, as it is a broadcast or anycast address: nothing is sent from there.
    Several = 2,
}

const ASKED: [(AddressFamily, RouteType); 4] = [
    (AddressFamily::Inet, RouteType::Local),
    (AddressFamily::Inet, RouteType::Broadcast),
    (AddressFamily::Inet6, RouteType::Local),
    (AddressFamily::Inet6, RouteType::Anycast),
];

/// Asks the kernel for them, in the local table and in those of VRFs.
pub(super) fn read(netlink: &Netlink, vrfs: &[u32]) -> Result<BTreeMap<Destination, OwnedBy>> {
    let mut own = BTreeMap::new();
    for (family, kind) in ASKED {
        let ask = |table| {
            let routes = routes(netlink, family, kind, table);
            routes.with_context(|| format!("cannot list the routes of table {table}"))
        };
        let local = ask(LOCAL)?.map_or_else(|| ask(MAIN), |routes| Ok(Some(routes)))?;
        add(&mut own, kind, local.iter().flatten());
        for &table in vrfs {
            add(&mut own, kind, ask(table)?.iter().flatten());
        }
    }
    Ok(own)
}

/// Adds the destinations of routes of one type. One that is this host's alone by some route is that.
fn add<'a>(
    own: &mut BTreeMap<Destination, OwnedBy>,
    kind: RouteType,
    routes: impl Iterator<Item = &'a RouteMessage>,
) {
    let by = match kind {
        RouteType::Local => OwnedBy::This,
        _ => OwnedBy::Several,
    };
    for destination in routes.filter_map(destination) {
        match own.entry(destination) {
            Entry::Occupied(mut known) if by == OwnedBy::This => {
                known.insert(by);
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(none) => {
                none.insert(by);
            }
        }
    }
}

/// Returns the routes of one type in a table; `None`: there is no such table.
fn routes(
    netlink: &Netlink,
    family: AddressFamily,
    kind: RouteType,
    table: u32,
) -> io::Result<Option<Vec<RouteMessage>>> {
    let mut question = RouteMessage::default();
    question.header.address_family = family;
    question.header.kind = kind;
    question.attributes.push(RouteAttribute::Table(table));
    let answers = match netlink.ask(RouteNetlinkMessage::GetRoute(question), NLM_F_DUMP) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        answers => answers?,
    };
    let routes = answers.into_iter().filter_map(|answer| match answer {
        // Kernels that do not leave out what is not asked for are older than those that this is for.
        RouteNetlinkMessage::NewRoute(route) if route.header.kind == kind => Some(route),
        _ => None,
    });
    Ok(Some(routes.collect()))
}

/// Returns the destinations of a route, but for those to which no router forwards anyway.
fn destination(route: &RouteMessage) -> Option<Destination> {
    let unspecified = match route.header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let address = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::V4(*address)),
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
            _ => None,
        });
    let address = address.unwrap_or(unspecified);
    if address.is_loopback() {
        return None;
    }
    Destination::prefix(address, route.header.destination_prefix_length).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(address: Option<IpAddr>, bits: u8) -> Option<String> {
        let mut route = RouteMessage::default();
        route.header.address_family = match address {
            Some(IpAddr::V4(_)) => AddressFamily::Inet,
            _ => AddressFamily::Inet6,
        };
        route.header.destination_prefix_length = bits;
        let address = address.map(|address| RouteAttribute::Destination(address.into()));
        route.attributes.extend(address);
        destination(&route).map(|own| own.to_string())
    }

    #[test]
    fn an_address_of_this_host_stays_one_whatever_others_have_it() {
        let message = |text: &str| {
            let mut route = RouteMessage::default();
            route.header.address_family = AddressFamily::Inet;
            route.header.destination_prefix_length = 32;
            let address: IpAddr = text.parse().expect(text);
            let address = RouteAttribute::Destination(address.into());
            route.attributes.push(address);
            route
        };
        let routes = ["192.0.2.0", "192.0.2.255"].map(message);
        let mut own = BTreeMap::new();
        for (kind, routes) in [
            (RouteType::Broadcast, &routes[..]),
            (RouteType::Local, &routes[..1]),
            (RouteType::Broadcast, &routes[..]),
        ] {
            add(&mut own, kind, routes.iter());
        }
        let own: Vec<_> = own
            .into_iter()
            .map(|(one, by)| (one.to_string(), by))
            .collect();
        assert_eq!(
            own,
            [
                ("192.0.2.0".to_owned(), OwnedBy::This),
                ("192.0.2.255".to_owned(), OwnedBy::Several)
            ]
        );
    }

    #[test]
    fn routes_have_the_destinations_that_are_the_host_s_own() {
        let of = |text: &str, bits| route(Some(text.parse().expect(text)), bits);
        assert_eq!(of("192.0.2.1", 32).as_deref(), Some("192.0.2.1"));
        assert_eq!(of("2001:db8::", 64).as_deref(), Some("2001:db8::/64"));
        // A route without a destination is for all.
        assert_eq!(route(None, 0).as_deref(), Some("::/0"));
        assert_eq!(of("127.0.0.0", 8), None);
        assert_eq!(of("::1", 128), None);
    }
}
