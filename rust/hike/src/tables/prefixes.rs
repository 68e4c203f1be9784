// SPDX-License-Identifier: GPL-2.0

//! The keys of destinations.

use std::net::IpAddr;

use anyhow::{bail, Context as _, Result};
use aya::maps::lpm_trie::Key;

use crate::config::destination::{width, Destination};
use crate::layout::{Address, VERSION_BITS};

impl Address {
    /// Returns the key of a destination; the default is the prefix of 0 bits, which has no version.
    pub(crate) fn prefix(destination: Destination) -> Key<Self> {
        let (bits, address) = match destination {
            Destination::Address(address) => (u32::from(width(address)), address),
            Destination::Prefix(address, bits) => (u32::from(bits), address),
            Destination::Default => return Key::new(0, Self::NONE),
        };
        Key::new(VERSION_BITS + bits, Self::of(address))
    }

    /// Returns how many bits the key of a destination has.
    pub(crate) fn length(destination: Destination) -> u8 {
        // CAST: 160 at most.
        Self::prefix(destination).prefix_len() as u8
    }

    /// Returns the key of an address, of which all bits count.
    pub(crate) fn whole(address: IpAddr) -> Key<Self> {
        Self::prefix(Destination::Address(address))
    }

    /// Returns what has this with this many bits as its key.
    pub(crate) fn destination(&self, bits: u32) -> Result<Destination> {
        if bits == 0 {
            return Ok(Destination::Default);
        }
        let [a, b, c, d, ..] = self.address;
        let address = match self.version {
            [0, 0, 0, 4] => IpAddr::V4([a, b, c, d].into()),
            [0, 0, 0, 6] => IpAddr::V6(self.address.into()),
            version => bail!("{version:?} is no IP version"),
        };
        let bits = bits.checked_sub(VERSION_BITS).context("half a version")?;
        Destination::prefix(address, u8::try_from(bits)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_what_they_are_of() {
        for text in [
            "default",
            "0.0.0.0/0",
            "::/0",
            "10.0.0.0/8",
            "2001:db8::/33",
        ] {
            let destination: Destination = text.parse().expect(text);
            let key = Address::prefix(destination);
            let back = key.data().destination(key.prefix_len());
            assert_eq!(back.expect(text), destination);
        }
        for text in ["10.0.0.1", "2001:db8::1"] {
            let address: IpAddr = text.parse().expect(text);
            let key = Address::whole(address);
            let back = key.data().destination(key.prefix_len()).expect(text);
            assert_eq!(back, Destination::Address(address));
        }
    }
}
