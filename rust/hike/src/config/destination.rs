// SPDX-License-Identifier: GPL-2.0

//! Destinations of packets: one address, a prefix, or the default for all other packets.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use anyhow::{ensure, Context as _, Error, Result};

use super::fields::as_text;

/// Exact destinations are looked for first, then the longest prefix, then the default.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    /// One address.
    Address(IpAddr),
    /// All addresses that begin with this many bits of this one; the others are 0.
    Prefix(IpAddr, u8),
    /// All that no address and no prefix is there for.
    #[default]
    Default,
}

impl Destination {
    /// Returns the prefix of this many bits of an address; as many as it has make it exact.
    pub fn prefix(address: IpAddr, bits: u8) -> Result<Self> {
        let most = width(address);
        ensure!(
            bits <= most,
            "a prefix of {address} has 0 to {most} bits, not {bits}"
        );
        if bits == most {
            return Ok(Self::Address(address));
        }
        let masked = mask(address, bits);
        ensure!(
            masked == address,
            "{address}/{bits} has bits beyond its prefix; {masked}/{bits} has not"
        );
        Ok(Self::Prefix(address, bits))
    }

    /// Returns the same as [`Destination::prefix`] and reading a text make it: equal ones are of the same packets.
    pub(crate) fn checked(self) -> Result<Self> {
        match self {
            Self::Prefix(address, bits) => Self::prefix(address, bits),
            Self::Address(_) | Self::Default => Ok(self),
        }
    }

    /// Returns the IP version; `None`: both.
    pub(crate) const fn version(self) -> Option<u8> {
        match self {
            Self::Address(IpAddr::V4(_)) | Self::Prefix(IpAddr::V4(_), _) => Some(4),
            Self::Address(IpAddr::V6(_)) | Self::Prefix(IpAddr::V6(_), _) => Some(6),
            Self::Default => None,
        }
    }
}

impl FromStr for Destination {
    type Err = Error;

    /// Reads `2001:db8::1`, `10.0.0.0/8` or `default`.
    fn from_str(text: &str) -> Result<Self> {
        if text == "default" {
            return Ok(Self::Default);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let wrong = || {
            format!("`{text}` is no destination: an IPv4 or IPv6 address, ADDRESS/BITS, or default")
        };
        let address: IpAddr = address.parse().with_context(wrong)?;
        match bits {
            None => Ok(Self::Address(address)),
            Some(bits) => Self::prefix(address, bits.parse().with_context(wrong)?),
        }
    }
}

as_text!(Destination);

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Prefix(address, bits) => write!(f, "{address}/{bits}"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns how many bits addresses of this kind have.
pub(crate) fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() {
        32
    } else {
        128
    }
}

/// Returns the address with only this many of its first bits.
pub(crate) fn mask(address: IpAddr, bits: u8) -> IpAddr {
    let keep = |width: u8| u128::MAX.checked_shl(u32::from(width - bits)).unwrap_or(0);
    match address {
        // CAST: the low bits, of which `keep` has as many as are there.
        IpAddr::V4(address) => IpAddr::V4((u32::from(address) & keep(32) as u32).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & keep(128)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Destination>().expect_err(text).to_string()
    }

    #[test]
    fn destinations_are_read_and_printed() {
        for text in [
            "2001:db8::1",
            "10.1.2.3",
            "10.0.0.0/8",
            "2001:db8::/33",
            "::/0",
            "0.0.0.0/0",
            "default",
        ] {
            let destination: Destination = text.parse().expect(text);
            assert_eq!(destination.to_string(), text);
        }
        assert_eq!(
            "10.1.2.3/32"
                .parse::<Destination>()
                .expect("good")
                .to_string(),
            "10.1.2.3"
        );
    }

    #[test]
    fn what_is_no_destination_is_refused_with_the_reason() {
        assert_eq!(
            error("10.0.0.0/33"),
            "a prefix of 10.0.0.0 has 0 to 32 bits, not 33"
        );
        assert_eq!(
            error("2001:db8::1/64"),
            "2001:db8::1/64 has bits beyond its prefix; 2001:db8::/64 has not"
        );
        assert_eq!(
            error("10.0.0.1/0"),
            "10.0.0.1/0 has bits beyond its prefix; 0.0.0.0/0 has not"
        );
        for text in ["", "host", "10.0.0.0/", "10.0.0.0/x", "/8", "Default"] {
            assert!(error(text).contains("is no destination"), "{text}");
        }
    }
}
