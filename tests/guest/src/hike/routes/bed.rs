// SPDX-License-Identifier: GPL-2.0

//! A router, one that sends to it, and one that sees what leaves it.
//!
//! ```text
//!   sender ───────── router ═════════ receiver
//!       wan1     wan0      out0, out1, out2
//! ```
//!
//! The link to the sender is `10.8.0.0/24` and `fd08::/64`, that of `outK` is `10.8.K+1.0/24` and `fd08:K+1::/64`. The router has 1 on each;
//! behind each `outK` are the next hops 2, 3 and 4, which are there by their Ethernet addresses alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;

use anyhow::{ensure, Context as _, Result};
use mflow_hike::{Class, Destination, Engine, Hike};
use nix::net::if_::if_nametoindex;

use super::packet::{number, Packet, FROM_MAC, ROUTER_MAC};
use crate::hike::instance;
use crate::hike::network::text;
use crate::network::packet_socket::PacketSocket;
use crate::network::{netns, topology};

pub(crate) const FROM: &str = "sender";
pub(crate) const ROUTER: &str = "router";
pub(crate) const TO: &str = "receiver";
pub(crate) const IN: &str = "wan0";
const BEFORE: &str = "wan1";
pub(crate) const PORTS: [&str; 3] = ["out0", "out1", "out2"];
/// Looks in a row in which no frame is seen: then nothing is on its way any more.
const QUIET: u32 = 3;
/// Hosts behind each device of the router.
const HOPS: std::ops::RangeInclusive<u8> = 2..=4;

/// Addresses of the sender, and others that are behind it.
pub(crate) const SOURCES_V4: [&str; 2] = ["10.8.0.2", "10.88.0.1"];
pub(crate) const SOURCES_V6: [&str; 2] = ["fd08::2", "fd88::1"];

/// The network, until the end of the scope.
pub(crate) struct Bed {
    sender: PacketSocket,
    receiver: PacketSocket,
}

/// The frames that were seen of a packet behind the router, with their devices. A VLAN's device shows that the packet had its tag.
pub(crate) type Seen = BTreeSet<(String, Vec<u8>)>;

/// The bytes of a frame that are shown: its headers.
const SHOWN_BYTES: usize = 80;

/// Returns the places where a packet was seen, and how it began there.
fn shown(seen: Option<&Seen>) -> String {
    let places = seen.into_iter().flatten();
    let all = places.map(|(device, frame)| {
        let bytes = &frame[..frame.len().min(SHOWN_BYTES)];
        format!("{device} {bytes:02x?} of {} bytes", frame.len())
    });
    all.collect::<Vec<_>>().join(", ")
}

impl Bed {
    pub(crate) fn up() -> Result<Self> {
        for node in [FROM, ROUTER, TO] {
            netns::add(node)?;
        }
        let made = Self::links().and_then(|()| Self::sockets());
        if made.is_err() {
            down();
        }
        made
    }

    fn links() -> Result<()> {
        netns::within(ROUTER, || {
            topology::sysctl("net/ipv4/ip_forward", "1")?;
            for scope in ["all", "default"] {
                for (knob, value) in [("forwarding", "1"), ("accept_dad", "0")] {
                    topology::sysctl(&format!("net/ipv6/conf/{scope}/{knob}"), value)?;
                }
                for knob in ["rp_filter", "send_redirects"] {
                    topology::sysctl(&format!("net/ipv4/conf/{scope}/{knob}"), "0")?;
                }
            }
            topology::sysctl("net/ipv6/conf/all/proxy_ndp", "0")
        })?;
        let (router, from) = (text(ROUTER_MAC), text(FROM_MAC));
        topology::ip_in(
            ROUTER,
            &format!(
                "link set lo up
                 link add {IN} address {router} type veth peer name {BEFORE} netns {FROM} address {from}
                 address add 10.8.0.1/24 dev {IN}
                 address add fd08::1/64 dev {IN} nodad
                 link set {IN} up
                 neighbour add 10.8.0.2 lladdr {from} dev {IN}
                 neighbour add fd08::2 lladdr {from} dev {IN}
                 route add 10.88.0.0/16 via 10.8.0.2
                 route add fd88::/32 via fd08::2"
            ),
        )?;
        topology::ip_in(FROM, &format!("link set lo up\nlink set {BEFORE} up"))?;
        for (number, port) in PORTS.into_iter().enumerate() {
            // CAST: three of them.
            let mac = text([2, 0, 0, 8, number as u8, 1]);
            let link = number + 1;
            topology::ip_in(
                ROUTER,
                &format!(
                    "link add {port} address {mac} type veth peer name {port} netns {TO}
                     address add 10.8.{link}.1/24 dev {port}
                     address add fd08:{link}::1/64 dev {port} nodad
                     link set {port} up"
                ),
            )?;
            neighbours(port, &format!("10.8.{link}."), &format!("fd08:{link}::"))?;
            topology::ip_in(TO, &format!("link set {port} up"))?;
            // Frames that XDP redirects to a veth need a NAPI at its other end.
            netns::run(TO, &format!("ethtool -K {port} gro on"))?;
        }
        // Frames that XDP takes lose what offloads leave to the device.
        netns::run(FROM, &format!("ethtool -K {BEFORE} tx off")).map(drop)
    }

    fn sockets() -> Result<Self> {
        let receiver = netns::within(TO, PacketSocket::open_everywhere)?;
        receiver.make_room(4 << 20)?;
        Ok(Self {
            sender: PacketSocket::open(FROM, BEFORE)?,
            receiver,
        })
    }

    /// Sends packets, and returns what is seen of each until nothing has come for a while. If so many frames are expected, and are there,
    /// a short while shows whether there are more.
    pub(crate) fn carry(
        &self,
        packets: &[Packet],
        expected: Option<usize>,
    ) -> Result<BTreeMap<u32, Seen>> {
        while self.receiver.next_with_device()?.is_some() {}
        for (number, packet) in (0..).zip(packets) {
            self.sender.send(&packet.frame(number))?;
        }
        let mut frames = Vec::new();
        let mut quiet = 0;
        let are_all_there = |frames: &[(Vec<u8>, usize)]| {
            expected.is_some_and(|expected| expected > 0 && frames.len() >= expected)
        };
        while quiet < QUIET && !(quiet > 0 && are_all_there(&frames)) {
            match self.receiver.next_with_device()? {
                Some((frame, device)) => {
                    quiet = 0;
                    if number(&frame).is_some() {
                        frames.push((frame, device));
                    }
                }
                None => quiet += 1,
            }
        }
        netns::within(TO, || {
            let mut seen: BTreeMap<u32, Seen> = BTreeMap::new();
            for (frame, device) in frames {
                if let Some(number) = number(&frame) {
                    let device = topology::device_name(device)?;
                    seen.entry(number).or_default().insert((device, frame));
                }
            }
            Ok(seen)
        })
    }

    /// Sends packets once by the kernel and once by HIKE, which has to treat them alike. Returns by which reasons HIKE has counted them, and
    /// how many the kernel has forwarded.
    pub(crate) fn compare(&self, hike: &mut Hike, packets: &[Packet]) -> Result<Compared> {
        let kernels = self.carry(packets, None)?;
        let frames = kernels.values().map(BTreeSet::len).sum();
        let before = hike.reasons()?;
        netns::within(ROUTER, || hike.attach(IN))?;
        let ours = self.carry(packets, Some(frames));
        netns::within(ROUTER, || hike.detach(IN))?;
        let ours = ours?;
        let after = hike.reasons()?;
        let counted = after.iter().zip(&before);
        let counted = counted.map(|((reason, after), (_, before))| (reason.name, after - before));
        let compared = Compared {
            reasons: counted.filter(|(_, pkts)| *pkts > 0).collect(),
            kernels,
        };
        for (number, packet) in (0..).zip(packets) {
            let (expected, seen) = (compared.kernels.get(&number), ours.get(&number));
            ensure!(
                expected == seen,
                "packet {number}, {packet:?}:\nwith HIKE {}\nand from the kernel {}\n{:?}",
                shown(seen),
                shown(expected),
                compared.reasons
            );
        }
        let counted: u64 = compared.reasons.values().sum();
        ensure!(
            counted >= packets.len() as u64,
            "of {} packets, {counted} were counted: {:?}",
            packets.len(),
            compared.reasons
        );
        Ok(compared)
    }
}

/// The outcome of a comparison in which all packets were treated alike.
pub(crate) struct Compared {
    pub(crate) reasons: BTreeMap<&'static str, u64>,
    pub(crate) kernels: BTreeMap<u32, Seen>,
}

impl Compared {
    /// Returns how many packets HIKE has counted by a reason.
    pub(crate) fn counted(&self, reason: &str) -> u64 {
        self.reasons.get(reason).copied().unwrap_or(0)
    }

    /// Fails unless HIKE has forwarded this many packets.
    pub(crate) fn forwarded(&self, expected: usize) -> Result<()> {
        let forwarded = self.counted("forwarded");
        ensure!(
            forwarded == expected as u64,
            "{forwarded} packets were forwarded, and not {expected}: {:?}",
            self.reasons
        );
        Ok(())
    }

    /// Fails unless HIKE has left this many packets to the kernel for a reason.
    pub(crate) fn left(&self, reason: &str, expected: usize) -> Result<()> {
        let left = self.counted(reason);
        ensure!(
            left == expected as u64,
            "{left} packets had {reason}, and not {expected}: {:?}",
            self.reasons
        );
        Ok(())
    }

    /// Returns the devices by which packets have left, as far as they are seen.
    pub(crate) fn devices(&self) -> BTreeSet<&str> {
        let seen = self.kernels.values().flatten();
        seen.map(|(device, _)| device.as_str()).collect()
    }

    /// Returns those by which packets with these numbers have left.
    pub(crate) fn devices_of(&self, numbers: Range<usize>) -> BTreeSet<&str> {
        let of = |(number, _): &(&u32, _)| numbers.contains(&(**number as usize));
        let seen = self.kernels.iter().filter(of).flat_map(|(_, seen)| seen);
        seen.map(|(device, _)| device.as_str()).collect()
    }
}

/// Makes an instance that forwards all packets by the kernel's routes, through all ports.
pub(crate) fn forwarding(engine: Engine) -> Result<Hike> {
    let mut hike = instance(engine)?;
    let class = Class::of(hike.add_chain(&"fw-fib".parse()?)?);
    hike.set_class(Destination::Default, class)?;
    netns::within(ROUTER, || {
        for port in PORTS {
            hike.add_port(if_nametoindex(port)?)?;
        }
        Ok(())
    })?;
    Ok(hike)
}

/// Makes next hops known behind a device, with these prefixes.
pub(crate) fn neighbours(device: &str, v4: &str, v6: &str) -> Result<()> {
    let index = netns::within(ROUTER, || Ok(if_nametoindex(device)?))?;
    let lines = HOPS.map(|hop| {
        // CAST: there are some ten devices.
        let mac = text([2, 0, 0, 9, index as u8, hop]);
        format!(
            "neighbour replace {v4}{hop} lladdr {mac} dev {device} nud permanent
             neighbour replace {v6}{hop} lladdr {mac} dev {device} nud permanent\n"
        )
    });
    topology::ip_in(ROUTER, &lines.collect::<String>())
}

/// Runs lines of `ip` in the router, one after the other, as a line may have a family of its own.
pub(crate) fn ip(lines: &str) -> Result<()> {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        crate::machine::command::run(&format!("ip -n {ROUTER} {line}")).context(line.to_owned())?;
    }
    Ok(())
}

/// Sets a knob of the router.
pub(crate) fn sysctl(name: &str, value: &str) -> Result<()> {
    netns::within(ROUTER, || topology::sysctl(name, value))
}

/// Returns an address that is known to be one.
pub(crate) fn address(text: &str) -> IpAddr {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn down() {
    for node in [FROM, ROUTER, TO] {
        // The next case finds out if one is left.
        let _gone = netns::delete(node);
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        down();
    }
}
