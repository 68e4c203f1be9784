// SPDX-License-Identifier: GPL-2.0

//! The kernel's routes, as far as look-ups by programs do not tell of them. There may be a million, so no route is kept: a message says
//! what there is more now, and if what it takes away might have been the last of its kind, all have to be listed again.

use anyhow::{Context as _, Result};

use super::netlink::{attributes, is_unknown, word, Attributes, Listed, Message, Netlink};

/// The bytes in front of the attributes: `struct rtmsg` and `struct nhmsg` (linux/rtnetlink.h, linux/nexthop.h).
const ROUTE_BYTES: usize = 12;
const NEXT_HOP_BYTES: usize = 8;
/// `RTM_GETNEXTHOP`.
const GET_NEXT_HOP: u16 = 106;
/// Attributes of routes.
const METRICS: u16 = 8;
const MULTIPATH: u16 = 9;
const TABLE: u16 = 15;
/// Of those in `METRICS`: `RTAX_MTU`.
const MTU: u16 = 2;
/// Attributes of next hops: a list of them, each of so many bytes; and one of a bridge's.
const GROUP: u16 = 2;
const GROUP_ENTRY_BYTES: usize = 8;
const OF_BRIDGE: u16 = 11;
/// `rtm_type`.
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
/// Blackhole, unreachable, prohibit and throw.
const REFUSED: std::ops::RangeInclusive<u8> = 6..=9;
/// `rtm_protocol` of what the kernel makes itself, such as the routes of its own addresses.
const BY_KERNEL: u8 = 2;
/// `rtm_flags`: a copy for one destination; a next hop that is dead, or whose link is down.
const CLONED: u32 = 0x200;
const DEAD: u32 = 1 | 16;
/// The tables that usual rules lead to: default, main and local.
const USUAL_TABLES: std::ops::RangeInclusive<u32> = 253..=255;
const MAIN_TABLE: u32 = 254;
/// Lists that change while they are read are read this many times at most.
const TRIES: u32 = 3;

/// The kinds of routes that there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Routes {
    /// True if some have several next hops: of IPv4, and of IPv6.
    pub(crate) multipath: [bool; 2],
    /// The least MTU that a route of IPv4 has.
    pub(crate) least_mtu: Option<u32>,
    /// True if addresses of IPv4 are local that no device has.
    pub(crate) custom_local: bool,
    /// True if usual rules lead every packet of IPv4 somewhere.
    pub(crate) default: bool,
    /// True if routes in their way refuse packets of IPv4.
    pub(crate) refused: bool,
}

/// The result of a message about a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// All that is known is true.
    Known,
    /// Something that is known may be so no more.
    Stale,
}

impl Routes {
    /// Lists all routes. If they changed all the while, that is said.
    pub(crate) fn read(netlink: &mut Netlink) -> Result<(Self, Noted)> {
        let mut routes = Self::default();
        for _ in 0..TRIES {
            routes = Self::default();
            let mut whole = true;
            // CAST: 2 and 10.
            for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
                let mut request = [0; ROUTE_BYTES];
                request[0] = family;
                let listed = netlink.list(libc::RTM_GETROUTE, &request, |one| {
                    routes.note(one);
                });
                whole &= listed.context("cannot list the kernel's routes")? == Listed::Whole;
            }
            if whole {
                return Ok((routes, Noted::Known));
            }
        }
        Ok((routes, Noted::Stale))
    }

    /// Takes note of a message about a route.
    pub(crate) fn note(&mut self, message: Message<'_>) -> Noted {
        let Some(route) = Route::of(message.body) else {
            return Noted::Known;
        };
        match message.kind {
            libc::RTM_NEWROUTE => self.add(route),
            libc::RTM_DELROUTE => return self.remove(route),
            _ => {}
        }
        Noted::Known
    }

    fn add(&mut self, route: Route) {
        self.multipath[usize::from(!route.v4)] |= route.multipath;
        if !route.v4 {
            return;
        }
        let mtu = route.mtu.filter(|mtu| *mtu > 0);
        self.least_mtu = self.least_mtu.into_iter().chain(mtu).min();
        self.custom_local |= route.is_custom_local();
        self.default |= route.is_default();
        self.refused |= route.refuses();
    }

    fn remove(&mut self, route: Route) -> Noted {
        let counted = route.multipath
            || route.v4 && (route.mtu.is_some() || route.is_custom_local() || route.refuses());
        if route.v4 && route.is_default() {
            // It may have been one of several, and is at once no more to be relied on.
            self.default = false;
            return Noted::Stale;
        }
        if counted {
            Noted::Stale
        } else {
            Noted::Known
        }
    }
}

#[derive(Clone, Copy)]
struct Route {
    v4: bool,
    kind: u8,
    table: u32,
    by_kernel: bool,
    /// Prefix, source and class of all packets.
    all: bool,
    works: bool,
    multipath: bool,
    mtu: Option<u32>,
}

impl Route {
    fn of(body: &[u8]) -> Option<Self> {
        let &[family, to_bits, from_bits, class, table, protocol, _, kind] = body.first_chunk()?;
        let flags = word(body.get(8..)?)?;
        if flags & CLONED != 0 {
            return None;
        }
        let attributes = attributes(body, ROUTE_BYTES);
        let number = |attributes: Attributes<'_>, kind| attributes.value(kind).and_then(word);
        Some(Self {
            // CAST: 2.
            v4: family == libc::AF_INET as u8,
            kind,
            table: number(attributes, TABLE).unwrap_or(table.into()),
            by_kernel: protocol == BY_KERNEL,
            all: [to_bits, from_bits, class] == [0; 3],
            works: flags & DEAD == 0,
            multipath: attributes.value(MULTIPATH).is_some(),
            mtu: number(attributes.inside(METRICS), MTU),
        })
    }

    fn is_custom_local(self) -> bool {
        self.kind == LOCAL && !self.by_kernel
    }

    fn is_default(self) -> bool {
        self.kind == UNICAST && self.all && self.works && self.table == MAIN_TABLE
    }

    fn refuses(self) -> bool {
        REFUSED.contains(&self.kind) && USUAL_TABLES.contains(&self.table)
    }
}

/// Returns whether there are next hops that are several, which routes may share.
pub(crate) fn has_groups(netlink: &mut Netlink) -> Result<bool> {
    let mut found = false;
    let listed = netlink.list(GET_NEXT_HOP, &[0; NEXT_HOP_BYTES], |message| {
        let all = attributes(message.body, NEXT_HOP_BYTES);
        let several = |group: &[u8]| group.len() >= 2 * GROUP_ENTRY_BYTES;
        found |= all.value(GROUP).is_some_and(several) && all.value(OF_BRIDGE).is_none();
    });
    match listed {
        Ok(listed) => Ok(found || listed == Listed::Interrupted),
        // Kernels before 5.3 have none.
        Err(error) if is_unknown(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::netlink::attribute;

    /// Returns a route of IPv4 by a gateway, as `ip route add` makes it.
    fn body(bits: u8, table: u8, kind: u8, more: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![2, bits, 0, 0, table, 3, 0, kind, 0, 0, 0, 0];
        body.extend(more.concat());
        body
    }

    fn note(routes: &mut Routes, kind: u16, body: &[u8]) -> Noted {
        routes.note(Message { kind, body })
    }

    #[test]
    fn what_comes_is_known_and_what_goes_makes_it_stale() {
        let mtu = attribute(METRICS, &attribute(MTU, &1_400u32.to_ne_bytes()));
        let several = attribute(MULTIPATH, &[0; 16]);
        let default = body(0, 254, UNICAST, &[]);
        for (route, expected) in [
            (
                body(24, 254, UNICAST, &[mtu]),
                Routes {
                    least_mtu: Some(1_400),
                    ..Routes::default()
                },
            ),
            (
                body(24, 100, UNICAST, &[several]),
                Routes {
                    multipath: [true, false],
                    ..Routes::default()
                },
            ),
            (
                body(8, 255, LOCAL, &[]),
                Routes {
                    custom_local: true,
                    ..Routes::default()
                },
            ),
            (
                body(24, 254, 6, &[]),
                Routes {
                    refused: true,
                    ..Routes::default()
                },
            ),
            (
                default.clone(),
                Routes {
                    default: true,
                    ..Routes::default()
                },
            ),
        ] {
            let mut routes = Routes::default();
            assert_eq!(note(&mut routes, libc::RTM_NEWROUTE, &route), Noted::Known);
            assert_eq!(routes, expected);
            assert_eq!(note(&mut routes, libc::RTM_DELROUTE, &route), Noted::Stale);
        }
        // Another table's default, and a route like most, change nothing.
        for route in [body(0, 100, UNICAST, &[]), body(24, 254, UNICAST, &[])] {
            let mut routes = Routes::default();
            assert_eq!(note(&mut routes, libc::RTM_NEWROUTE, &route), Noted::Known);
            assert_eq!(routes, Routes::default());
            assert_eq!(note(&mut routes, libc::RTM_DELROUTE, &route), Noted::Known);
        }
        let mut routes = Routes {
            default: true,
            ..Routes::default()
        };
        note(&mut routes, libc::RTM_DELROUTE, &default);
        assert!(!routes.default);
    }

    #[test]
    fn the_least_mtu_counts_and_messages_that_are_too_short_say_nothing() {
        let mut routes = Routes::default();
        for mtu in [1_400u32, 1_300, 1_450] {
            let metrics = attribute(METRICS, &attribute(MTU, &mtu.to_ne_bytes()));
            let route = body(24, 254, UNICAST, &[metrics]);
            note(&mut routes, libc::RTM_NEWROUTE, &route);
            assert_eq!(
                note(&mut routes, libc::RTM_NEWROUTE, &route[..9]),
                Noted::Known
            );
        }
        assert_eq!(routes.least_mtu, Some(1_300));
    }
}
