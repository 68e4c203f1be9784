// SPDX-License-Identifier: GPL-2.0

//! Devices where the same frames arrive, one of which is inside of the SR domain, and devices of several network namespaces.
//!
//! The one case fails if a key does not have the device; the other one if the cache is used for devices of several network namespaces, or
//! not again for those of one.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use mflow_hike::{Class, Destination, Engine, Hike};
use nix::net::if_::if_nametoindex;

use super::ways::{
    hits_in, is_used, mac, router, Seen, Ways, ENOUGH, FROM, IN, MARK, ROUTER, SRC, STAMP_BYTES,
    TO_V6,
};
use crate::hike::instance;
use crate::network::packet_socket::PacketSocket;
use crate::network::{netns, topology};

/// A second device where frames arrive, and its other end.
const SECOND: &str = "second";
const SECOND_FROM: &str = "to-second";
/// A device in another network namespace, whose number no other device has.
const ELSEWHERE: &str = "elsewhere";
/// Bits of the time in a frame that no clock has: it has come by the second device, while that was inside, or outside.
const INSIDE: u64 = 1 << 63;
const OUTSIDE: u64 = 3 << 62;
/// The time for which frames are sent twice, and for which the cache may not be used.
const WHILE: Duration = Duration::from_millis(500);

/// Sends the same frames to a device inside and to one outside.
pub(super) fn of_the_domain() -> Result<()> {
    let ways = Ways::up()?;
    router(&format!(
        "link add {SECOND} address {} type veth peer name {SECOND_FROM} netns {SRC}
         link set {SECOND} up",
        mac(0, 1)
    ))?;
    topology::ip_in(SRC, &format!("link set {SECOND_FROM} up"))?;
    let mut hike = instance(Engine::Compiled)?;
    ways.attach(&mut hike)?;
    let second = netns::within(ROUTER, || {
        hike.attach(SECOND)?;
        hike.add_inside(if_nametoindex(IN)?)?;
        let second = if_nametoindex(SECOND)?;
        hike.add_inside(second)?;
        Ok(second)
    })?;
    let class = Class::of(hike.add_chain(&"fw-fib".parse()?)?);
    hike.set_class_inside(Destination::Address(TO_V6.into()), class, None)?;
    ways.under_traffic(TO_V6.into(), |seen| outside(&mut hike, second, seen))
}

/// Attaches an instance to a device of another network namespace, too.
pub(super) fn of_namespaces() -> Result<()> {
    let ways = Ways::up()?;
    topology::ip_in(
        SRC,
        &format!(
            "link add {ELSEWHERE} index 77 type veth peer name to-{ELSEWHERE} index 78
             link set {ELSEWHERE} up
             link set to-{ELSEWHERE} up"
        ),
    )?;
    // One that does not forward would leave all packets to the kernel, by whichever device they come.
    netns::within(SRC, || {
        topology::sysctl("net/ipv6/conf/all/forwarding", "1")
    })?;
    let mut hike = instance(Engine::Compiled)?;
    ways.attach(&mut hike)?;
    let class = Class::of(hike.add_chain(&"fw-fib".parse()?)?);
    hike.set_class(Destination::Address(TO_V6.into()), class)?;
    ways.under_traffic(TO_V6.into(), |_| namespaces(&mut hike))
}

/// Takes the second device out of the domain: the frames that the cache knows are not good there.
fn outside(hike: &mut Hike, second: u32, seen: &Seen) -> Result<()> {
    let folder = hike.folder().to_owned();
    let hits = || hits_in(&folder);
    is_used("both devices are inside", &hits)?;
    again(INSIDE)?;
    let arrived = seen.sent_since(INSIDE).len();
    ensure!(
        arrived >= ENOUGH,
        "{arrived} frames have arrived by the second device"
    );
    hike.remove_inside(second)?;
    is_used("the second device is outside", &hits)?;
    let before = hits()?;
    let sent = again(OUTSIDE)?;
    let arrived = seen.sent_since(OUTSIDE).len();
    ensure!(
        arrived == 0,
        "of {sent} frames from outside, {arrived} have left"
    );
    let dropped = hike.reasons()?.into_iter();
    let dropped = dropped.filter(|(reason, _)| reason.name == "from-outside");
    let dropped: u64 = dropped.map(|(_, packets)| packets).sum();
    // CAST: twenty.
    ensure!(
        dropped >= sent && sent >= ENOUGH as u64,
        "of {sent} frames from outside, {dropped} were dropped as such"
    );
    ensure!(hits()? > before, "the cache was not used meanwhile");
    Ok(())
}

/// Sends for a while what is sent to the first device to the second one, too, with these bits in its time; returns how many frames.
fn again(bits: u64) -> Result<u64> {
    let from = PacketSocket::open(SRC, FROM)?;
    let to = PacketSocket::open(SRC, SECOND_FROM)?;
    let (begin, mut sent) = (Instant::now(), 0);
    while begin.elapsed() < WHILE {
        let Some(mut frame) = from.next()? else {
            continue;
        };
        let Some((rest, stamp)) = frame.split_last_chunk_mut::<STAMP_BYTES>() else {
            continue;
        };
        if !rest.ends_with(MARK) {
            continue;
        }
        *stamp = (u64::from_be_bytes(*stamp) | bits).to_be_bytes();
        to.send(&frame)?;
        sent += 1;
    }
    // The last ones are on their way.
    thread::sleep(WHILE / 10);
    Ok(sent)
}

/// Attaches the instance in another network namespace for a while.
fn namespaces(hike: &mut Hike) -> Result<()> {
    let folder = hike.folder().to_owned();
    let hits = || hits_in(&folder);
    is_used("all devices are in one namespace", &hits)?;
    netns::within(SRC, || hike.attach(ELSEWHERE))?;
    let before = hits()?;
    thread::sleep(WHILE);
    let taken = hits()? - before;
    ensure!(
        taken == 0,
        "with devices of two namespaces, {taken} packets were taken from the cache"
    );
    hike.detach(ELSEWHERE)?;
    netns::within(ROUTER, || {
        hike.detach(IN)?;
        hike.attach(IN)
    })?;
    is_used("all devices are in one namespace again", &hits)
}
