// SPDX-License-Identifier: GPL-2.0

//! A router with two ways to a destination that is not there, datagrams that cross it, and what arrives at the ends of the ways.
//!
//! ```text
//!                           out0 ───── left  (one)
//!   src ───── left  router
//!     right                 out1 ───── left  (other)
//! ```
//!
//! Link n is `fd00:2n::/64` and `10.2n.0.0/24`: from src (0), to one (1), to other (2). The router has 1 on each, the others 2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{bail, Result};
use mflow_hike::counters::cache;
use mflow_hike::Hike;
use nix::net::if_::if_nametoindex;

use crate::machine::clock::now_ns;
use crate::machine::command::wait_until;
use crate::machine::threads;
use crate::network::packet_socket::PacketSocket;
use crate::network::{netns, topology};

pub(super) const SRC: &str = "cache-src";
/// Its device.
pub(super) const FROM: &str = "right";
pub(super) const ROUTER: &str = "cache-router";
pub(super) const ENDS: [&str; 2] = ["cache-one", "cache-other"];
pub(super) const IN: &str = "left";
pub(super) const OUT: [&str; 2] = ["out0", "out1"];
/// The device at the end of each way.
pub(super) const END: &str = "left";

pub(super) const TO_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 1);
pub(super) const TO_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
/// The ports that datagrams are sent to, and from: small ones, and large ones.
pub(super) const PORT: u16 = 9_007;
pub(super) const SMALL_FROM: u16 = 9_100;
const LARGE_FROM: u16 = 9_101;
pub(super) const SRC_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 2);

/// Bytes of the datagrams: those of each kind in turn.
const SMALL_BYTES: usize = 64;
const LARGE_BYTES: usize = 1_300;
/// They end with this, and the time.
pub(super) const MARK: &[u8; 8] = b"hike-way";
pub(super) const STAMP_BYTES: usize = 8;
/// The time for which the sender rests after one of each kind.
const REST: Duration = Duration::from_millis(2);
/// Room for the frames that come while an emulated CPU is away.
const ROOM_BYTES: usize = 16 << 20;
/// The time for which packets are looked at when enough have come.
const LONGER: Duration = Duration::from_millis(100);
/// Datagrams that show what the router does, and packets that show that the cache is used.
pub(super) const ENOUGH: usize = 20;
/// The time for which nothing may arrive: shorter than an entry is good.
const QUIET: Duration = Duration::from_millis(500);

const ETHERNET_BYTES: usize = 14;
/// The next header of a fragment of IPv6.
const FRAGMENT: u8 = 44;

/// A datagram at the end of a way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// The place of the way in [`ENDS`].
    pub(super) way: usize,
    pub(super) sent_ns: u64,
    /// True for those of [`LARGE_BYTES`], in one piece.
    pub(super) is_large: bool,
    /// True for the last pieces of those that the sender has cut.
    pub(super) is_piece: bool,
    /// The last bytes of the Ethernet addresses.
    pub(super) source: u8,
    pub(super) destination: u8,
    /// The destination in the outer header, if there is one, and its traffic class.
    pub(super) outer: Option<(Ipv6Addr, u8)>,
}

/// Returns what a frame says, if it is one of the datagrams.
fn arrival(way: usize, frame: &[u8]) -> Option<Arrival> {
    let (rest, stamp) = frame.split_last_chunk::<STAMP_BYTES>()?;
    if !rest.ends_with(MARK) {
        return None;
    }
    let ip = frame.get(ETHERNET_BYTES..)?;
    let is_v6 = frame[12..14] == [0x86, 0xdd];
    let to = <[u8; 16]>::try_from(ip.get(24..40)?).ok()?;
    let outer = Some(Ipv6Addr::from(to)).filter(|to| is_v6 && *to != TO_V6);
    Some(Arrival {
        way,
        sent_ns: u64::from_be_bytes(*stamp),
        is_large: frame.len() > LARGE_BYTES,
        is_piece: match is_v6 {
            true => ip[6] == FRAGMENT,
            false => (ip[6] & 0x1f, ip[7]) != (0, 0),
        },
        source: frame[11],
        destination: frame[5],
        outer: outer.map(|to| (to, ip[0] << 4 | ip[1] >> 4)),
    })
}

/// The network, until the end of the scope.
pub(super) struct Ways(());

impl Ways {
    pub(super) fn up() -> Result<Self> {
        let nodes = [SRC, ROUTER, ENDS[0], ENDS[1]];
        for node in nodes {
            netns::add(node)?;
        }
        let ways = Self(());
        for node in nodes {
            netns::within(node, || {
                for scope in ["all", "default"] {
                    topology::sysctl(&format!("net/ipv6/conf/{scope}/accept_dad"), "0")?;
                    topology::sysctl(&format!("net/ipv6/conf/{scope}/accept_ra"), "0")?;
                }
                Ok(())
            })?;
        }
        netns::within(ROUTER, || {
            topology::sysctl("net/ipv4/ip_forward", "1")?;
            topology::sysctl("net/ipv6/conf/all/forwarding", "1")
        })?;
        topology::ip_in(
            ROUTER,
            &format!(
                "link set lo up
                 link add {IN} address {} type veth peer name {FROM} netns {SRC} address {}
                 link add {} address {} type veth peer name {END} netns {} address {}
                 link add {} address {} type veth peer name {END} netns {} address {}",
                mac(0, 1),
                mac(0, 2),
                OUT[0],
                mac(1, 1),
                ENDS[0],
                mac(1, 2),
                OUT[1],
                mac(2, 1),
                ENDS[1],
                mac(2, 2)
            ),
        )?;
        for (link, device) in [IN, OUT[0], OUT[1]].into_iter().enumerate() {
            topology::ip_in(
                ROUTER,
                &format!(
                    "address add fd00:2{link}::1/64 dev {device} nodad
                     address add 10.2{link}.0.1/24 dev {device}
                     link set {device} up"
                ),
            )?;
        }
        for (link, (node, device)) in [(SRC, FROM), (ENDS[0], END), (ENDS[1], END)]
            .into_iter()
            .enumerate()
        {
            topology::ip_in(
                node,
                &format!(
                    "link set lo up
                     address add fd00:2{link}::2/64 dev {device} nodad
                     address add 10.2{link}.0.2/24 dev {device}
                     link set {device} up"
                ),
            )?;
            netns::run(node, &format!("ethtool -K {device} tx off"))?;
            // What XDP redirects to a veth needs a NAPI at its other end.
            netns::run(node, &format!("ethtool -K {device} gro on"))?;
        }
        topology::ip_in(
            SRC,
            &format!(
                "neighbour add fd00:20::1 lladdr {0} dev {FROM}
                 neighbour add 10.20.0.1 lladdr {0} dev {FROM}
                 route add default via 10.20.0.1
                 route add ::/0 via fd00:20::1",
                mac(0, 1)
            ),
        )?;
        ways.leads_to(0)?;
        Ok(ways)
    }

    /// Lets routes of both versions lead to one of the ways, whose next hops are known for good.
    pub(super) fn leads_to(&self, way: usize) -> Result<()> {
        router(&format!(
            "{}\n{}\nroute replace {TO_V6} {}\nroute replace {TO_V4} {}",
            neighbour(way, IpAddr::V6(TO_V6), &mac(way + 1, 2)),
            neighbour(way, IpAddr::V4(TO_V4), &mac(way + 1, 2)),
            by(way, IpAddr::V6(TO_V6)),
            by(way, IpAddr::V4(TO_V4))
        ))
    }

    /// Attaches an instance to the router; packets may leave by both ways.
    pub(super) fn attach(&self, hike: &mut Hike) -> Result<()> {
        netns::within(ROUTER, || {
            for out in OUT {
                hike.add_port(if_nametoindex(out)?)?;
            }
            hike.attach(IN)
        })
    }

    /// Runs `work` while datagrams cross the router.
    pub(super) fn under_traffic<T>(
        &self,
        to: IpAddr,
        work: impl FnOnce(&Seen) -> Result<T>,
    ) -> Result<T> {
        let seen = Seen(Mutex::new(Vec::new()));
        let sockets = [
            PacketSocket::open(ENDS[0], END)?,
            PacketSocket::open(ENDS[1], END)?,
        ];
        for socket in &sockets {
            socket.make_room(ROOM_BYTES)?;
        }
        let run = |stop: &AtomicBool| {
            thread::scope(|scope| {
                let send = scope.spawn(|| netns::within(SRC, || send(to, stop)));
                let one = scope.spawn(|| seen.receive(0, &sockets[0], stop));
                let other = scope.spawn(|| seen.receive(1, &sockets[1], stop));
                threads::results([send.join(), one.join(), other.join()]).map(drop)
            })
        };
        let ((), done) = threads::beside(run, || work(&seen))?;
        Ok(done)
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        for node in [SRC, ROUTER, ENDS[0], ENDS[1]] {
            // The next case finds out if one is left.
            let _gone = netns::delete(node);
        }
    }
}

/// Returns the Ethernet address of an end of a link.
pub(super) fn mac(link: usize, end: u8) -> String {
    format!("02:00:00:00:2{link}:{end:02x}")
}

/// Returns how a route leads to one of the ways.
pub(super) fn by(way: usize, to: IpAddr) -> String {
    let link = way + 1;
    match to {
        IpAddr::V6(_) => format!("via fd00:2{link}::2 dev {}", OUT[way]),
        IpAddr::V4(_) => format!("via 10.2{link}.0.2 dev {}", OUT[way]),
    }
}

/// Returns the command that gives the next hop of a way an Ethernet address.
pub(super) fn neighbour(way: usize, to: IpAddr, mac: &str) -> String {
    let link = way + 1;
    let next_hop = match to {
        IpAddr::V6(_) => format!("fd00:2{link}::2"),
        IpAddr::V4(_) => format!("10.2{link}.0.2"),
    };
    format!(
        "neighbour replace {next_hop} lladdr {mac} dev {} nud permanent",
        OUT[way]
    )
}

/// Runs lines of `ip` commands in the router.
pub(super) fn router(lines: &str) -> Result<()> {
    topology::ip_in(ROUTER, lines)
}

/// Forgets what hosts and the router have learned of the MTU.
pub(super) fn forget_mtu() -> Result<()> {
    for node in [SRC, ROUTER] {
        netns::run(node, "ip -6 route flush cache")?;
        netns::run(node, "ip -4 route flush cache")?;
    }
    Ok(())
}

fn send(to: IpAddr, stop: &AtomicBool) -> Result<()> {
    let from: IpAddr = match to {
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
    };
    let bind = |port| UdpSocket::bind(SocketAddr::new(from, port));
    let sockets = [bind(SMALL_FROM)?, bind(LARGE_FROM)?];
    for socket in &sockets {
        socket.connect((to, PORT))?;
    }
    // ORDERING: Nothing else depends on it.
    while !stop.load(Ordering::Relaxed) {
        for (socket, bytes) in sockets.iter().zip([SMALL_BYTES, LARGE_BYTES]) {
            let mut datagram = vec![0; bytes - MARK.len() - STAMP_BYTES];
            datagram.extend(MARK);
            datagram.extend(now_ns().to_be_bytes());
            // While there is no route, the router says so.
            let _refused = socket.send(&datagram);
        }
        thread::sleep(REST);
    }
    Ok(())
}

/// The datagrams that have arrived.
pub(super) struct Seen(Mutex<Vec<Arrival>>);

impl Seen {
    fn all(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, way: usize, socket: &PacketSocket, stop: &AtomicBool) -> Result<()> {
        // ORDERING: Nothing else depends on it.
        while !stop.load(Ordering::Relaxed) {
            let arrived = socket.next()?.and_then(|frame| arrival(way, &frame));
            if let Some(arrived) = arrived {
                self.all().push(arrived);
            }
        }
        Ok(())
    }

    /// Returns those that were sent at this time or later.
    pub(super) fn sent_since(&self, ns: u64) -> Vec<Arrival> {
        let all = self.all();
        all.iter()
            .copied()
            .filter(|one| one.sent_ns >= ns)
            .collect()
    }

    /// Waits until datagrams that are sent from now on are like this, and no others come any more.
    pub(super) fn settles(&self, what: &str, is: impl Fn(&Arrival) -> bool) -> Result<()> {
        let mut begin = now_ns();
        wait_until(&format!("packets are as before: {what}"), || {
            let sent = self.sent_since(begin);
            if !sent.iter().all(&is) {
                begin = now_ns();
            }
            Ok(sent.len() >= ENOUGH && sent.iter().all(&is))
        })
    }

    /// Makes a change under packets that the cache is good for. Fails if one that was sent this long after the change, or later, is not
    /// like this. `hits` counts packets that the cache was good for.
    pub(super) fn changes(
        &self,
        what: &str,
        allowance: Duration,
        hits: &dyn Fn() -> Result<u64>,
        change: impl FnOnce() -> Result<()>,
        is_new: impl Fn(&Arrival) -> bool,
    ) -> Result<()> {
        is_used(what, hits)?;
        self.changed(what, allowance, change, is_new)?;
        // What the cache has learned of the new state is as good.
        is_used(what, hits)
    }

    /// Makes a change under packets that the cache is good for. Fails if one that was sent afterwards arrives at an end.
    pub(super) fn stops(
        &self,
        what: &str,
        hits: &dyn Fn() -> Result<u64>,
        change: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        is_used(what, hits)?;
        change()?;
        let since = now_ns();
        thread::sleep(QUIET);
        if let Some(one) = self.sent_since(since).first() {
            bail!("{what}: a packet that was sent afterwards has left: {one:?}");
        }
        self.all().clear();
        Ok(())
    }

    /// The same where the cache is not used, or not any more.
    pub(super) fn changed(
        &self,
        what: &str,
        allowance: Duration,
        change: impl FnOnce() -> Result<()>,
        is_new: impl Fn(&Arrival) -> bool,
    ) -> Result<()> {
        change()?;
        // CAST: a second.
        let since = now_ns() + allowance.as_nanos() as u64;
        wait_until(&format!("packets come after the change: {what}"), || {
            Ok(self.sent_since(since).len() >= ENOUGH)
        })?;
        // Some of which the cache has learned.
        thread::sleep(LONGER);
        let sent = self.sent_since(since);
        if let Some(old) = sent.iter().rfind(|one| !is_new(one)) {
            bail!(
                "{what}: a packet that was sent {} ms later than is allowed has left as before: {old:?}",
                (old.sent_ns - since) / 1_000_000
            );
        }
        self.all().clear();
        Ok(())
    }
}

/// Returns how many packets the cache of the instance in a folder was good for.
pub(super) fn hits_in(folder: &Path) -> Result<u64> {
    Ok(cache::read(folder)?.hits)
}

/// Waits until the cache is good for packets: a change while it is not shows nothing.
pub(super) fn is_used(what: &str, hits: &dyn Fn() -> Result<u64>) -> Result<()> {
    let before = hits()?;
    wait_until(&format!("the cache is used: {what}"), || {
        // CAST: twenty.
        Ok(hits()? >= before + ENOUGH as u64)
    })
}

/// Returns a file of hiked's by which packets to one address go by the kernel's routes.
pub(super) fn configuration() -> String {
    format!(
        r#"
devices = ["{IN}"]
ports = ["{}", "{}"]

[chains]
way = "fw-fib"

[classes]
"{TO_V6}" = {{ chain = "way" }}
"#,
        OUT[0], OUT[1]
    )
}
