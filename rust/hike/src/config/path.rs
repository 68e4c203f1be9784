// SPDX-License-Identifier: GPL-2.0

//! Paths: the outer headers that `enc` puts in front of packets.
//!
//! ```text
//!   IPv6 header ─ [destination options: RFC 9343] ─ [SRH: RFC 8754] ─ the packet
//!   40            8                                 8 + 16 for each SID in it
//! ```

use std::net::Ipv6Addr;

use anyhow::{ensure, Result};
use serde::{Deserialize, Serialize};

use super::fields::{self, LEAST_MTU};
use crate::layout;
use crate::limits::{PATH_BYTES, PATH_SIDS};

const IPV6_BYTES: usize = 40;
const OPTION_BYTES: usize = 8;
const SRH_BYTES: usize = 8;
const SID_BYTES: usize = 16;
const USUAL_MTU: u32 = 1500;
const USUAL_HOP_LIMIT: u32 = 64;

/// The number of FlowMonIDs that there can be: RFC 9343, 3.1.
pub(super) const FLOW_IDS: u32 = 1 << 20;

/// Numbers of next headers.
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;

/// The mode of encapsulation: RFC 8986, 5.1 and 5.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// H.Encaps: the SRH lists all SIDs.
    #[default]
    Encaps,
    /// H.Encaps.Red: not the first, which is the destination anyway; with one SID there is no SRH.
    Reduced,
}

/// The DSCP of the outer header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Dscp {
    /// The DSCP of the packet that is put on the path.
    #[default]
    Copied,
    /// This one: 0 to 63.
    Fixed(u8),
}

/// The flow label of the outer header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum FlowLabel {
    /// One that tells flows apart, so that routers can spread them (RFC 6438).
    #[default]
    PerFlow,
    /// This one: 20 bits.
    Fixed(u32),
}

/// The treatment of packets that cannot be encapsulated: their hop limit has run out, or they would be too big.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exceptions {
    /// The source of one that is too big is told so, with the MTU that is left for it, and the kernel answers one whose hop limit has run
    /// out. Those of which no source can be told are dropped: at tcx all, packets of IPv4 that may be cut, and of IPv6 those that
    /// need not become smaller (RFC 8200, 5).
    #[default]
    Told,
    /// They are dropped, and counted.
    Dropped,
    /// The kernel gets them as they are. With the same path as a route of its own, it answers as it always does; without, they
    /// leave without a tunnel.
    Left,
}

/// A path through an SRv6 domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Path {
    /// The tunnel's source.
    #[serde(deserialize_with = "fields::source")]
    pub source: Ipv6Addr,
    /// 1 to 10 SIDs, in the order in which they are visited.
    #[serde(deserialize_with = "fields::sids")]
    pub sids: Vec<Ipv6Addr>,
    /// The mode of encapsulation.
    #[serde(default, skip_serializing_if = "fields::is_default")]
    pub mode: Mode,
    /// The hop limit of the outer header: 1 to 255.
    #[serde(deserialize_with = "fields::hop_limit")]
    #[serde(default = "fields::usual::<_, USUAL_HOP_LIMIT>")]
    #[serde(skip_serializing_if = "fields::is_usual::<_, USUAL_HOP_LIMIT>")]
    pub hop_limit: u8,
    /// Its DSCP.
    #[serde(deserialize_with = "fields::dscp", default)]
    #[serde(skip_serializing_if = "fields::is_default")]
    pub dscp: Dscp,
    /// Its flow label.
    #[serde(deserialize_with = "fields::flow_label", default)]
    #[serde(skip_serializing_if = "fields::is_default")]
    pub flow_label: FlowLabel,
    /// The largest packet that the path carries, with the outer headers: 1280 to 65535 bytes.
    #[serde(deserialize_with = "fields::path_mtu")]
    #[serde(default = "fields::usual::<_, USUAL_MTU>")]
    #[serde(skip_serializing_if = "fields::is_usual::<_, USUAL_MTU>")]
    pub mtu: u16,
    /// The treatment of packets that cannot be encapsulated.
    #[serde(default, skip_serializing_if = "fields::is_default")]
    pub exceptions: Exceptions,
    /// The FlowMonID of the option of RFC 9343, 20 bits; `None`: there is no option.
    #[serde(deserialize_with = "fields::flow_id", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_id: Option<u32>,
}

impl From<u8> for Dscp {
    fn from(dscp: u8) -> Self {
        Self::Fixed(dscp)
    }
}

impl From<u32> for FlowLabel {
    fn from(label: u32) -> Self {
        Self::Fixed(label)
    }
}

impl Path {
    /// Returns a path with all SIDs in the SRH, hop limit 64, copied DSCP, a label for each flow, an MTU of 1500 bytes, exceptions
    /// told and no option.
    pub fn new(source: Ipv6Addr, sids: impl Into<Vec<Ipv6Addr>>) -> Self {
        Self {
            source,
            sids: sids.into(),
            mode: Mode::Encaps,
            hop_limit: fields::usual::<_, USUAL_HOP_LIMIT>(),
            dscp: Dscp::Copied,
            flow_label: FlowLabel::PerFlow,
            mtu: fields::usual::<_, USUAL_MTU>(),
            exceptions: Exceptions::Told,
            flow_id: None,
        }
    }

    /// Returns the SIDs that stand in the SRH, in the order in which they are visited.
    pub fn listed_sids(&self) -> &[Ipv6Addr] {
        match self.mode {
            Mode::Encaps => &self.sids,
            Mode::Reduced => self.sids.get(1..).unwrap_or_default(),
        }
    }

    /// Returns how many bytes it puts in front of a packet.
    pub fn bytes(&self) -> usize {
        let listed = self.listed_sids().len();
        let option = self.flow_id.map_or(0, |_| OPTION_BYTES);
        let srh = if listed > 0 {
            SRH_BYTES + listed * SID_BYTES
        } else {
            0
        };
        IPV6_BYTES + option + srh
    }

    /// Fails with the reason if it cannot be.
    pub fn check(&self) -> Result<()> {
        let most = PATH_SIDS;
        ensure!(
            (1..=most).contains(&self.sids.len()),
            "a path of {} SIDs cannot be: 1 to {most} are allowed",
            self.sids.len()
        );
        for address in self.sids.iter().chain([&self.source]) {
            ensure!(
                !address.is_unspecified() && !address.is_multicast() && !address.is_loopback(),
                "{address} can be neither source nor SID of a path: take a unicast address"
            );
        }
        ensure!(
            self.hop_limit > 0,
            "a hop limit of 0 leads nowhere: 1 to 255 are allowed"
        );
        if let Dscp::Fixed(dscp) = self.dscp {
            ensure!(dscp < 64, "{dscp} is no DSCP: 0 to 63 are allowed");
        }
        for (what, number) in [
            (
                "flow label",
                match self.flow_label {
                    FlowLabel::Fixed(label) => label,
                    FlowLabel::PerFlow => 0,
                },
            ),
            ("FlowMonID", self.flow_id.unwrap_or(0)),
        ] {
            ensure!(
                number < 1 << 20,
                "{number} is no {what}: 0 to {} are allowed",
                (1 << 20) - 1
            );
        }
        ensure!(
            self.mtu >= LEAST_MTU,
            "a path's MTU of {} is too small: {LEAST_MTU} to {} are allowed",
            self.mtu,
            u16::MAX
        );
        Ok(())
    }

    /// Returns the headers as `enc` copies them; fails if the path cannot be.
    pub(crate) fn layout(&self) -> Result<layout::Path> {
        self.check()?;
        let listed = self.listed_sids();
        let class = match self.dscp {
            Dscp::Copied => 0,
            Dscp::Fixed(dscp) => u32::from(dscp) << 2,
        };
        let (label, labels_flows) = match self.flow_label {
            FlowLabel::PerFlow => (0, layout::Path::LABELS_FLOWS),
            FlowLabel::Fixed(label) => (label, 0),
        };
        let mut header = Vec::with_capacity(PATH_BYTES);
        // The length is the packet's, and so is the last next header.
        header.extend((6 << 28 | class << 20 | label).to_be_bytes());
        header.extend([0, 0]);
        let mut next_header_at = header.len();
        header.extend([0, self.hop_limit]);
        header.extend(self.source.octets());
        // Never empty: it was checked.
        header.extend(self.sids[0].octets());
        if let Some(flow_id) = self.flow_id {
            header[next_header_at] = DESTINATION_OPTIONS;
            next_header_at = header.len();
            header.extend([0, 0, 0x12, 4]);
            header.extend((flow_id << 12).to_be_bytes());
        }
        if !listed.is_empty() {
            header[next_header_at] = ROUTING;
            next_header_at = header.len();
            // CAST: ten at most, for both.
            let (listed_count, left) = (listed.len() as u8, self.sids.len() as u8 - 1);
            header.extend([0, 2 * listed_count, 4, left, listed_count - 1, 0, 0, 0]);
            header.extend(listed.iter().rev().flat_map(|sid| sid.octets()));
        }
        let mut layout = layout::Path {
            // CAST: 216 at most, for both.
            bytes: header.len() as u16,
            most_bytes: self.mtu,
            next_header_at: next_header_at as u8,
            flags: labels_flows,
            ..layout::Path::NONE
        };
        if self.dscp == Dscp::Copied {
            layout.flags |= layout::Path::COPIES_DSCP;
        }
        layout.flags |= match self.exceptions {
            Exceptions::Told => layout::Path::TELLS,
            Exceptions::Dropped => 0,
            Exceptions::Left => layout::Path::LEAVES_EXCEPTIONS,
        };
        layout.header[..header.len()].copy_from_slice(&header);
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use etherparse::Ipv6Header;

    use super::*;

    fn sid(number: u16) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 1)
    }

    fn path(sids: u16) -> Path {
        Path::new(sid(0), (1..=sids).map(sid).collect::<Vec<_>>())
    }

    #[test]
    fn the_longest_path_fills_the_headroom() {
        let longest = Path {
            flow_id: Some(7),
            ..path(10)
        };
        assert_eq!(longest.bytes(), PATH_BYTES);
        for sids in 1..=10 {
            for mode in [Mode::Encaps, Mode::Reduced] {
                for flow_id in [None, Some(0xfffff)] {
                    let path = Path {
                        mode,
                        flow_id,
                        ..path(sids)
                    };
                    let layout = path.layout().expect("good");
                    assert_eq!(usize::from(layout.bytes), path.bytes());
                    assert_eq!(layout.bytes % 8, 0);
                }
            }
        }
    }

    #[test]
    fn the_headers_are_those_of_the_standards() {
        let path = Path {
            dscp: Dscp::Fixed(46),
            flow_label: FlowLabel::Fixed(0xabcde),
            flow_id: Some(0x12345),
            hop_limit: 9,
            exceptions: Exceptions::Dropped,
            ..path(3)
        };
        let layout = path.layout().expect("good");
        let header = &layout.header[..usize::from(layout.bytes)];
        let (ip6, rest) = Ipv6Header::from_slice(header).expect("an IPv6 header");
        assert_eq!(ip6.traffic_class, 46 << 2);
        assert_eq!(ip6.flow_label.value(), 0xabcde);
        assert_eq!((ip6.hop_limit, ip6.next_header.0), (9, DESTINATION_OPTIONS));
        assert_eq!(ip6.source_addr(), sid(0));
        assert_eq!(ip6.destination_addr(), sid(1));
        // FlowMonID, then L and D, which are not set yet.
        assert_eq!(rest[..8], [ROUTING, 0, 0x12, 4, 0x12, 0x34, 0x50, 0]);
        // Six words, type 4, two SIDs left, the last entry is 2.
        assert_eq!(rest[8..16], [0, 6, 4, 2, 2, 0, 0, 0]);
        assert_eq!(rest[16..32], sid(3).octets());
        assert_eq!(rest[48..], sid(1).octets());
        assert_eq!(usize::from(layout.next_header_at), 48);
        assert_eq!(layout.flags, 0);
        let flags = |exceptions| {
            let layout = Path {
                exceptions,
                ..path.clone()
            };
            layout.layout().expect("good").flags
        };
        assert_eq!(flags(Exceptions::Told), layout::Path::TELLS);
        assert_eq!(flags(Exceptions::Left), layout::Path::LEAVES_EXCEPTIONS);
    }

    #[test]
    fn a_reduced_path_lists_no_first_sid() {
        let reduced = |sids| Path {
            mode: Mode::Reduced,
            ..path(sids)
        };
        let layout = reduced(1).layout().expect("good");
        assert_eq!((layout.bytes, layout.next_header_at), (40, 6));
        let layout = reduced(3).layout().expect("good");
        assert_eq!(layout.bytes, 40 + 8 + 32);
        // Two SIDs left of three, and the last entry is 1.
        assert_eq!(layout.header[40..48], [0, 4, 4, 2, 1, 0, 0, 0]);
        assert_eq!(layout.header[48..64], sid(3).octets());
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let error = |path: Path| path.layout().expect_err("bad").to_string();
        assert_eq!(
            error(path(0)),
            "a path of 0 SIDs cannot be: 1 to 10 are allowed"
        );
        assert_eq!(
            error(path(11)),
            "a path of 11 SIDs cannot be: 1 to 10 are allowed"
        );
        let bad = [
            Path {
                source: Ipv6Addr::UNSPECIFIED,
                ..path(1)
            },
            Path {
                hop_limit: 0,
                ..path(1)
            },
            Path {
                dscp: Dscp::Fixed(64),
                ..path(1)
            },
            Path {
                flow_label: FlowLabel::Fixed(1 << 20),
                ..path(1)
            },
            Path {
                flow_id: Some(1 << 20),
                ..path(1)
            },
            Path {
                mtu: 1279,
                ..path(1)
            },
        ];
        let errors = [
            ":: can be neither source nor SID of a path: take a unicast address",
            "a hop limit of 0 leads nowhere: 1 to 255 are allowed",
            "64 is no DSCP: 0 to 63 are allowed",
            "1048576 is no flow label: 0 to 1048575 are allowed",
            "1048576 is no FlowMonID: 0 to 1048575 are allowed",
            "a path's MTU of 1279 is too small: 1280 to 65535 are allowed",
        ];
        for (path, expected) in bad.into_iter().zip(errors) {
            assert_eq!(error(path), expected);
        }
    }
}
