// SPDX-License-Identifier: GPL-2.0

//! A next hop whose Ethernet address changes, and that says nothing of it: the kernel finds out as it asks again for addresses that it
//! uses. With HIKE in front of it, it has to know that they are used.
//!
//! The case fails if the kernel never gets a packet for a next hop that is stale: the old address is then used for ever.

use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use mflow_hike::{Class, Destination, Engine};

use super::ways::{by, router, Seen, Ways, END, ENDS, OUT, ROUTER, TO_V6};
use crate::hike::instance;
use crate::machine::clock::now_ns;
use crate::machine::command::wait_until;
use crate::network::{netns, topology};

/// Ethernet addresses that the next hop has in turn, and their last bytes.
const ADDRESSES: [(&str, u8); 3] = [
    ("02:00:00:00:2e:01", 0x01),
    ("02:00:00:00:2e:02", 0x02),
    ("02:00:00:00:2e:03", 0x03),
];
/// The time by which it may take longer than with the kernel alone: when an address becomes stale is drawn by the kernel, from half of
/// the time below to one and a half of it, and one second passes before it gets a packet.
const MORE: Duration = Duration::from_secs(4);
/// Settings of the kernel for this device: an address is fresh for two seconds or so, and is asked for a second after it is used stale.
const SETTINGS: [(&str, &str); 3] = [
    ("base_reachable_time_ms", "2000"),
    ("delay_first_probe_time", "1"),
    ("retrans_time_ms", "200"),
];

pub(super) fn run() -> Result<()> {
    let ways = Ways::up()?;
    netns::within(ROUTER, || {
        for (name, value) in SETTINGS {
            topology::sysctl(&format!("net/ipv6/neigh/{}/{name}", OUT[0]), value)?;
        }
        Ok(())
    })?;
    // It is found out, and no longer known for good.
    router(&format!(
        "neighbour del fd00:21::2 dev {}\nroute replace {TO_V6} {}",
        OUT[0],
        by(0, TO_V6.into())
    ))?;
    ways.under_traffic(TO_V6.into(), |seen| {
        let of_kernel = moves(seen, ADDRESSES[0])?;
        let mut hike = instance(Engine::Compiled)?;
        let class = Class::of(hike.add_chain(&"fw-fib".parse()?)?);
        hike.set_class(Destination::Address(TO_V6.into()), class)?;
        ways.attach(&mut hike)?;
        let begin = hike.cache_counts()?.hits;
        wait_until("the cache is used", || {
            Ok(hike.cache_counts()?.hits > begin + 100)
        })?;
        for address in &ADDRESSES[1..] {
            let with_hike = moves(seen, *address)?;
            ensure!(
                with_hike <= of_kernel.max(SLOWEST) + MORE,
                "a next hop has its packets again after {} ms, and from the kernel alone after {} ms",
                with_hike.as_millis(),
                of_kernel.as_millis()
            );
        }
        let reasons = hike.reasons()?;
        let asked = reasons.iter().find(|(reason, _)| reason.name == "fw-stale");
        let asked = asked.map_or(0, |(_, packets)| *packets);
        ensure!(asked > 0, "the kernel got no packet to ask again with");
        Ok(())
    })
}

/// The slowest that the kernel alone is with these settings: fresh for three seconds, used stale for one, and three questions.
const SLOWEST: Duration = Duration::from_millis(4_600);

/// Gives the next hop another Ethernet address. Returns the time until packets are sent there.
fn moves(seen: &Seen, (address, ends): (&str, u8)) -> Result<Duration> {
    seen.settles("they go to the address before", |one| {
        one.destination != ends
    })?;
    topology::ip_in(ENDS[0], &format!("link set {END} address {address}"))?;
    let (begin, since) = (Instant::now(), now_ns());
    wait_until(&format!("packets are sent to {address}"), || {
        let sent = seen.sent_since(since);
        Ok(sent.iter().any(|one| one.destination == ends))
    })?;
    Ok(begin.elapsed())
}
