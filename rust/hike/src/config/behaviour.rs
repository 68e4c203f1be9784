// SPDX-License-Identifier: GPL-2.0

//! Behaviours of local SIDs (RFC 8986, 4): what `end`, `end-x` and `dec` do with a packet that came to one.

use std::fmt;
use std::net::Ipv6Addr;

use anyhow::{ensure, Result};
use serde::{Deserialize, Serialize};

use super::device::DeviceName;
use super::fields;
use crate::layout;

/// The kernel's table in which End.X finds link-local next hops ([`Hop`]): "HIKE" as a number, which nobody else takes.
pub const HOPS_TABLE: u32 = 0x4849_4b45;

/// The first bits of addresses that stand for link-local next hops: a block of unique local addresses (RFC 4193), "HIK".
const STAND_IN: [u16; 2] = [0xfd48, 0x494b];

/// A flavour of End and End.X (RFC 8986, 4.16), by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// Penultimate segment pop.
    Psp,
    /// Ultimate segment pop.
    Usp,
    /// Ultimate segment decapsulation.
    Usd,
}

/// The flavours of End and End.X.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Flavour>", into = "Vec<Flavour>")]
pub struct Flavours {
    /// Penultimate segment pop: where the last segment becomes the destination, the SRH is taken out.
    pub psp: bool,
    /// Ultimate segment pop: at the last segment, the SRH is taken out before the kernel gets the packet.
    pub usp: bool,
    /// Ultimate segment decapsulation: at the last segment, the outer headers are taken off, and what was inside is forwarded.
    pub usd: bool,
}

impl From<Vec<Flavour>> for Flavours {
    fn from(flavours: Vec<Flavour>) -> Self {
        let has = |flavour| flavours.contains(&flavour);
        Self {
            psp: has(Flavour::Psp),
            usp: has(Flavour::Usp),
            usd: has(Flavour::Usd),
        }
    }
}

impl From<Flavours> for Vec<Flavour> {
    fn from(Flavours { psp, usp, usd }: Flavours) -> Self {
        let all = [
            (psp, Flavour::Psp),
            (usp, Flavour::Usp),
            (usd, Flavour::Usd),
        ];
        let all = all.into_iter();
        all.filter(|one| one.0).map(|one| one.1).collect()
    }
}

/// The behaviour of a local SID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Behaviour {
    /// End: goes on to the next segment; the programs behind `end` forward.
    End {
        /// Its flavours.
        #[serde(default, skip_serializing_if = "fields::is_default")]
        flavours: Flavours,
    },
    /// End.X: goes on to the next segment, and forwards to this next hop, which is a neighbour.
    #[serde(rename = "End.X")]
    EndX {
        /// The address of the next hop.
        #[serde(deserialize_with = "fields::next_hop")]
        next_hop: Ipv6Addr,
        /// The device by which a link-local next hop is reached; other next hops have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<DeviceName>,
        /// Its flavours.
        #[serde(default, skip_serializing_if = "fields::is_default")]
        flavours: Flavours,
    },
    /// End.DT4: takes the outer headers off IPv4, and forwards it.
    #[serde(rename = "End.DT4")]
    Dt4 {
        /// By this routing table of the kernel's; `None`: by the one that its rules choose.
        #[serde(deserialize_with = "fields::table", default)]
        #[serde(skip_serializing_if = "Option::is_none")]
        table: Option<u32>,
    },
    /// End.DT6: the same of IPv6.
    #[serde(rename = "End.DT6")]
    Dt6 {
        /// Likewise.
        #[serde(deserialize_with = "fields::table", default)]
        #[serde(skip_serializing_if = "Option::is_none")]
        table: Option<u32>,
    },
    /// End.DT46: the same of both.
    #[serde(rename = "End.DT46")]
    Dt46 {
        /// Likewise.
        #[serde(deserialize_with = "fields::table", default)]
        #[serde(skip_serializing_if = "Option::is_none")]
        table: Option<u32>,
    },
}

/// A link-local next hop of End.X. The kernel's look-up has no routes to such destinations, so another address stands for it in
/// [`HOPS_TABLE`]: packets find it if there is a route to this address there, by the next hop as router and by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The address that stands for the next hop.
    pub stands_for: Ipv6Addr,
    /// The next hop.
    pub next_hop: Ipv6Addr,
    /// Its device.
    pub device: DeviceName,
}

impl Hop {
    fn of(next_hop: Ipv6Addr, device: DeviceName) -> Self {
        let [_, _, _, _, a, b, c, d] = next_hop.segments();
        let number = device.number();
        // CAST: the two halves.
        let (high, low) = ((number >> 16) as u16, number as u16);
        let [first, second] = STAND_IN;
        Self {
            stands_for: Ipv6Addr::new(first, second, high, low, a, b, c, d),
            next_hop,
            device,
        }
    }
}

impl Behaviour {
    /// Returns the device that it names.
    pub fn device(&self) -> Option<&DeviceName> {
        match self {
            Self::EndX { device, .. } => device.as_ref(),
            _ => None,
        }
    }

    /// Returns its next hop if that is a link-local one.
    pub fn hop(&self) -> Option<Hop> {
        match *self {
            Self::EndX {
                next_hop,
                device: Some(device),
                ..
            } => Some(Hop::of(next_hop, device)),
            _ => None,
        }
    }

    /// Returns the name of the program that does it.
    pub fn program(&self) -> &'static str {
        match self {
            Self::End { .. } => "end",
            Self::EndX { .. } => "end-x",
            Self::Dt4 { .. } | Self::Dt6 { .. } | Self::Dt46 { .. } => "dec",
        }
    }

    /// Fails with the reason if it cannot be.
    pub fn check(&self) -> Result<()> {
        self.layout().map(drop)
    }

    fn check_next_hop(&self, next_hop: Ipv6Addr) -> Result<()> {
        ensure!(
            !next_hop.is_unspecified() && !next_hop.is_multicast() && !next_hop.is_loopback(),
            "{next_hop} can be no next hop: take a unicast address of the neighbour"
        );
        if self.device().is_none() {
            ensure!(
                !next_hop.is_unicast_link_local(),
                "{next_hop} is link-local, so that its device has to be known; add: device = NAME"
            );
            return Ok(());
        }
        ensure!(
            next_hop.segments()[..4] == [0xfe80, 0, 0, 0],
            "{next_hop} is not link-local (fe80::/64), and others have no device; leave it out"
        );
        Ok(())
    }

    /// Returns it as the programs read it; fails if it cannot be.
    pub(crate) fn layout(&self) -> Result<layout::Behaviour> {
        let layout = layout::Behaviour::NONE;
        let with_flavours = |flavours: &Flavours| {
            [
                (flavours.psp, layout::Behaviour::PSP),
                (flavours.usp, layout::Behaviour::USP),
                (flavours.usd, layout::Behaviour::USD),
            ]
            .into_iter()
            .filter(|(has, _)| *has)
            .fold(layout::Behaviour::END, |flags, (_, flag)| flags | flag)
        };
        let (flags, table) = match self {
            Self::End { flavours } => (with_flavours(flavours), None),
            Self::EndX {
                next_hop, flavours, ..
            } => {
                self.check_next_hop(*next_hop)?;
                let hop = self.hop();
                return Ok(layout::Behaviour {
                    flags: with_flavours(flavours),
                    table: hop.map_or(0, |_| HOPS_TABLE),
                    next_hop: hop.map_or(*next_hop, |hop| hop.stands_for).octets(),
                    ..layout
                });
            }
            Self::Dt4 { table } => (layout::Behaviour::DEC4, *table),
            Self::Dt6 { table } => (layout::Behaviour::DEC6, *table),
            Self::Dt46 { table } => (layout::Behaviour::DEC4 | layout::Behaviour::DEC6, *table),
        };
        ensure!(
            table != Some(0),
            "there is no table 0: 1 to {} are allowed, or none for the one that the kernel's rules choose",
            u32::MAX
        );
        Ok(layout::Behaviour {
            flags,
            table: table.unwrap_or(0),
            ..layout
        })
    }
}

impl fmt::Display for Behaviour {
    /// Writes it as RFC 8986 does: `End with PSP and USD`, `End.X`, `End.DT46`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, flavours) = match self {
            Self::End { flavours } => ("End", *flavours),
            Self::EndX { flavours, .. } => ("End.X", *flavours),
            Self::Dt4 { .. } => ("End.DT4", Flavours::default()),
            Self::Dt6 { .. } => ("End.DT6", Flavours::default()),
            Self::Dt46 { .. } => ("End.DT46", Flavours::default()),
        };
        f.write_str(name)?;
        let names = [
            (flavours.psp, "PSP"),
            (flavours.usp, "USP"),
            (flavours.usd, "USD"),
        ];
        let names: Vec<&str> = names.iter().filter(|one| one.0).map(|one| one.1).collect();
        match names.is_empty() {
            true => Ok(()),
            false => write!(f, " with {}", names.join(" and ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_behaviour_says_what_it_is() {
        let flavours = Flavours {
            psp: true,
            usd: true,
            ..Flavours::default()
        };
        let end = Behaviour::End { flavours };
        assert_eq!(
            (end.to_string().as_str(), end.program()),
            ("End with PSP and USD", "end")
        );
        assert_eq!(end.layout().expect("good").flags, 1 | 8 | 32);
        let dec = Behaviour::Dt46 { table: Some(1_000) };
        let layout = dec.layout().expect("good");
        assert_eq!((layout.flags, layout.table), (6, 1_000));
        assert_eq!(
            (dec.to_string().as_str(), dec.program()),
            ("End.DT46", "dec")
        );
        let main = Behaviour::Dt4 { table: None }.layout().expect("good");
        assert_eq!((main.flags, main.table), (2, 0));
    }

    #[test]
    fn another_address_stands_for_a_link_local_next_hop() {
        let of = |next_hop: &str, device: &str| Behaviour::EndX {
            next_hop: next_hop.parse().expect(next_hop),
            device: Some(device.parse().expect(device)),
            flavours: Flavours::default(),
        };
        let one = of("fe80::1:2", "eth1");
        let hop = one.hop().expect("link-local");
        let layout = one.layout().expect("good");
        assert_eq!(layout.table, HOPS_TABLE);
        assert_eq!(layout.next_hop, hop.stands_for.octets());
        assert!(hop.stands_for.is_unique_local());
        assert_eq!(hop.stands_for.segments()[4..], [0, 0, 1, 2]);
        for other in [of("fe80::1:3", "eth1"), of("fe80::1:2", "eth2")] {
            assert_ne!(other.layout().expect("good").next_hop, layout.next_hop);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let error = |behaviour: Behaviour| behaviour.layout().expect_err("bad").to_string();
        let by = |text: &str, device: Option<&str>| Behaviour::EndX {
            next_hop: text.parse().expect(text),
            device: device.map(|name| name.parse().expect(name)),
            flavours: Flavours::default(),
        };
        let to = |text: &str| by(text, None);
        for text in ["::", "::1", "ff02::1"] {
            assert_eq!(
                error(to(text)),
                format!("{text} can be no next hop: take a unicast address of the neighbour")
            );
        }
        assert!(to("2001:db8::1").layout().is_ok());
        assert_eq!(
            error(to("fe80::1")),
            "fe80::1 is link-local, so that its device has to be known; add: device = NAME"
        );
        for text in ["2001:db8::1", "fe80:1::1"] {
            assert_eq!(
                error(by(text, Some("eth1"))),
                format!(
                    "{text} is not link-local (fe80::/64), and others have no device; leave it out"
                )
            );
        }
        assert!(by("fe80::1", Some("eth1")).layout().is_ok());
        assert_eq!(
            error(Behaviour::Dt6 { table: Some(0) }),
            "there is no table 0: 1 to 4294967295 are allowed, or none for the one that the kernel's rules choose"
        );
    }
}
