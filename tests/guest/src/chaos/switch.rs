// SPDX-License-Identifier: GPL-2.0

//! Settings that steps switch on, and the way in which each is switched off again.

use anyhow::Result;

use super::step::{Device, Discipline};
use crate::machine::cpu::LANE_MASK;
use crate::network::topology::{self, CONTAINER};
use crate::network::{netns, nft};

/// The usual length of the NIC's receive ring, and the usual number of queues that the container's device receives from.
const RING_PKTS: usize = 1024;
const QUEUES: usize = 1;

/// Something that is not as the topology makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Switch {
    Rings,
    Channels,
    Rps(Device),
    Gro(Device),
    Qdisc,
    Ask,
    Drops,
    Rules,
    Tracking,
    Interrupts,
}

/// A datagram in 128, by the checksum that its bytes happen to have.
const DROPS: &str = "
table inet mflow_drops {
    chain in { type filter hook input priority 0; udp dport 5001 udp checksum & 0x007f == 0 drop; }
}
";

/// Another DSCP for datagrams and another hop limit for all, as firewalls and meshes set them, and a mark, by which nothing is routed.
const RULES: &str = "
table inet mflow_rules {
    counter seen { }
    chain before {
        type filter hook prerouting priority mangle;
        meta l4proto udp ip dscp set cs1
        meta l4proto udp ip6 dscp set cs1
        ip ttl set 42
        meta mark set 0x7
    }
    chain in { type filter hook input priority 10; meta mark 0x7 counter name seen; }
}
";

/// The state of each packet is looked up, packets are marked by it, and connections to FTP have a helper.
const TRACKING: &str = "
table inet mflow_tracking {
    ct helper ftp { type \"ftp\" protocol tcp; }
    chain before {
        type filter hook prerouting priority mangle;
        ct state new meta mark set 0x8
        ct state established meta mark set 0x9
    }
    chain in {
        type filter hook input priority 0;
        ct state invalid counter
        ct state new tcp dport 21 ct helper set \"ftp\"
        meta mark 0x9 counter
    }
    chain out { type filter hook output priority 0; ct state established counter; }
}
";

/// A program is asked about each datagram.
const ASKED: &str = "
table inet mflow_asked {
    chain in { type filter hook input priority 0; udp dport 5001 queue num 0; }
}
";

impl Switch {
    /// Tells whether it is about a device that stays when the overlay is built again.
    pub(super) fn stays(self) -> bool {
        match self {
            Self::Rings | Self::Interrupts => true,
            Self::Rps(device) | Self::Gro(device) => device == Device::Nic,
            Self::Channels
            | Self::Qdisc
            | Self::Ask
            | Self::Drops
            | Self::Rules
            | Self::Tracking => false,
        }
    }

    pub(super) fn off(self) -> Result<()> {
        match self {
            Self::Rings => set_rings(RING_PKTS),
            Self::Channels => set_channels(QUEUES),
            Self::Rps(device) => set_rps(device, false),
            // Only a veth device has none by itself.
            Self::Gro(device) => set_gro(device, device != Device::Container),
            Self::Qdisc => topology::tc("qdisc del dev veth0 root"),
            // The kernel drops what waits for a verdict then.
            Self::Ask => nft::add(CONTAINER, "delete table inet mflow_asked"),
            Self::Drops => nft::add(CONTAINER, "delete table inet mflow_drops"),
            Self::Rules => nft::add(CONTAINER, "delete table inet mflow_rules"),
            Self::Tracking => nft::add(CONTAINER, "delete table inet mflow_tracking"),
            Self::Interrupts => topology::pin_server_nic(),
        }
    }
}

pub(super) fn set_rings(pkts: usize) -> Result<()> {
    ethtool(Device::Nic, &format!("-G DEV rx {pkts}"))
}

pub(super) fn set_channels(count: usize) -> Result<()> {
    ethtool(Device::Container, &format!("-L DEV rx {count}"))
}

pub(super) fn set_rps(device: Device, on: bool) -> Result<()> {
    topology::rps(device.place().1, if on { LANE_MASK } else { "0" })
}

pub(super) fn set_gro(device: Device, on: bool) -> Result<()> {
    let word = if on { "on" } else { "off" };
    ethtool(device, &format!("-K DEV gro {word}"))
}

/// Another discipline that is there already goes.
pub(super) fn add_qdisc(discipline: Discipline) -> Result<()> {
    let words = discipline.words();
    topology::tc(&format!("qdisc replace dev veth0 root {words}"))
}

/// A program has to be there that says yes.
pub(super) fn add_questions() -> Result<()> {
    nft::add(CONTAINER, ASKED)
}

pub(super) fn add_drops() -> Result<()> {
    nft::add(CONTAINER, DROPS)
}

pub(super) fn add_rules() -> Result<()> {
    nft::add(CONTAINER, RULES)
}

pub(super) fn add_tracking() -> Result<()> {
    nft::add(CONTAINER, TRACKING)
}

fn ethtool(device: Device, words: &str) -> Result<()> {
    let (namespace, name) = device.place();
    let line = format!("ethtool {}", words.replace("DEV", name));
    netns::run(namespace, &line).map(drop)
}
