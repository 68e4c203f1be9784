// SPDX-License-Identifier: GPL-2.0

//! Changes of the host's routing. Of most, the kernel tells at once. Knobs and IPsec are looked at each second, and what else there is
//! twice a minute.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::facts::Facts;
use super::host::Host;
use super::netlink::{Heard, Netlink};
use super::routes::{Noted, Routes};

/// linux/rtnetlink.h: devices, addresses, routes and rules of both families, knobs of devices, and next hops.
const GROUPS: [u32; 9] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_IPV4_NETCONF,
    libc::RTNLGRP_IPV6_NETCONF,
    // RTNLGRP_NEXTHOP.
    32,
];
/// The time within which messages are taken together.
const TOGETHER: Duration = Duration::from_millis(20);
/// Datagrams that are read before what they say is acted upon.
const MOST_DATAGRAMS: usize = 10_000;
/// The time from one look at knobs to the next.
const KNOBS: Duration = Duration::from_secs(1);
/// The same of what there is beside routes.
const ALL_ELSE: Duration = Duration::from_secs(30);
/// The time after which routes are listed again if something is known of them that may be so no more. They are listed for a twentieth of
/// the time at most.
const ROUTES: Duration = Duration::from_secs(1);
const ROUTES_SHARE: u32 = 20;
/// The kernel does not tell of routes that have gone with their device.
const OLD_ROUTES: Duration = Duration::from_secs(60);

/// A reader of the host's routing that is told of changes, in the network namespace of the thread that has made it.
pub struct Follower {
    events: Netlink,
    netlink: Netlink,
    facts: Facts,
    looked_at_knobs: Instant,
    looked_at_all: Instant,
    listed_routes: Instant,
    listing_took: Duration,
    routes: Noted,
}

impl Follower {
    /// Reads all, and follows from then on.
    pub fn new() -> Result<Self> {
        // Changes during the reading are heard of.
        let events = Netlink::listen(NETLINK_ROUTE, &GROUPS)?;
        let mut netlink = Netlink::open(NETLINK_ROUTE)?;
        let begin = Instant::now();
        let (facts, routes) = Facts::with_routes(&mut netlink)?;
        let now = Instant::now();
        Ok(Self {
            events,
            netlink,
            facts,
            looked_at_knobs: now,
            looked_at_all: now,
            listed_routes: now,
            listing_took: now - begin,
            routes,
        })
    }

    /// Returns what is known.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Waits for a second at most, and returns whether something has changed.
    pub fn follow(&mut self) -> Result<bool> {
        self.events.wait(KNOBS)?;
        thread::sleep(TOGETHER);
        let before = self.facts.clone();
        let is_loss = self.hear()?;
        let now = Instant::now();
        if is_loss || now - self.looked_at_all >= ALL_ELSE {
            self.facts = Facts::with(&mut self.netlink, self.facts.routes)?;
            self.looked_at_all = now;
            self.looked_at_knobs = now;
        } else if now - self.looked_at_knobs >= KNOBS {
            self.facts.host = Host::read()?;
            self.looked_at_knobs = now;
        }
        if self.is_time_for_routes(now) {
            self.list_routes()?;
        }
        Ok(self.facts != before)
    }

    /// Takes in what the kernel has told; returns whether anything but routes is to be read again.
    fn hear(&mut self) -> Result<bool> {
        let mut others = false;
        let (routes, noted) = (&mut self.facts.routes, &mut self.routes);
        let heard = self
            .events
            .heard(MOST_DATAGRAMS, |message| match message.kind {
                libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
                    if routes.note(message) == Noted::Stale {
                        *noted = Noted::Stale;
                    }
                }
                libc::RTM_NEWLINK | libc::RTM_DELLINK => {
                    others = true;
                    // The default route may have gone with it, of which nobody tells.
                    routes.default = false;
                    *noted = Noted::Stale;
                }
                _ => others = true,
            })?;
        if heard == Heard::Lost {
            // Until all is listed again, routes may be any.
            routes.multipath = [true; 2];
            routes.default = false;
            *noted = Noted::Stale;
        }
        Ok(others || heard == Heard::Lost)
    }

    fn is_time_for_routes(&self, now: Instant) -> bool {
        let routes = &self.facts.routes;
        let says_something = routes.multipath != [false; 2]
            || routes.least_mtu.is_some()
            || routes.custom_local
            || routes.refused;
        let wait = match self.routes {
            Noted::Stale => ROUTES,
            Noted::Known if says_something => OLD_ROUTES,
            Noted::Known => return false,
        };
        now - self.listed_routes >= wait.max(ROUTES_SHARE * self.listing_took)
    }

    fn list_routes(&mut self) -> Result<()> {
        let begin = Instant::now();
        (self.facts.routes, self.routes) = Routes::read(&mut self.netlink)?;
        self.listed_routes = Instant::now();
        self.listing_took = self.listed_routes - begin;
        Ok(())
    }
}
