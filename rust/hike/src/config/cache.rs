// SPDX-License-Identifier: GPL-2.0

//! The cache by flow: whether an instance has one and how large it is, how it learns of changes, and what is learned of the packets of a
//! chain.

use anyhow::{bail, Error};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::chain::Chain;
use crate::limits::{CACHE_ENTRIES, CACHE_ENTRY_BYTES, CACHE_LEAST_ENTRIES, CACHE_MOST_ENTRIES};

/// The caching of an instance at XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caching {
    /// On or off.
    pub cache: Cache,
    /// The size of each CPU's cache.
    pub entries: CacheEntries,
    /// The way to learn of changes.
    pub notice: Notice,
}

/// The cache of an instance at XDP. Instances at tcx have none. In a file it is `true` or `false`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cache {
    /// Packets of a flow leave as the last one did, for a second at most, as long as nothing has changed.
    #[default]
    On,
    /// Each packet takes its chain.
    Off,
}

impl Serialize for Cache {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(*self == Self::On)
    }
}

impl<'de> Deserialize<'de> for Cache {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bool::deserialize(deserializer).map(|on| if on { Self::On } else { Self::Off })
    }
}

/// The number of entries that each CPU's cache has: a power of two. In a file it is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheEntries(u32);

impl CacheEntries {
    /// Returns the number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns the bytes that a cache of this size takes for each CPU that the host may have.
    pub fn bytes(self) -> u64 {
        // CAST: some hundred.
        u64::from(self.0) * CACHE_ENTRY_BYTES as u64
    }

    /// Returns `hike_cache_shift` in `c-shims/hike/cache/look_up.h`.
    pub(crate) fn shift(self) -> u8 {
        // CAST: a power of two above 1 has 1 to 31 zeros.
        64 - self.0.trailing_zeros() as u8
    }
}

impl Default for CacheEntries {
    fn default() -> Self {
        // CAST: some thousand.
        Self(CACHE_ENTRIES as u32)
    }
}

impl TryFrom<i64> for CacheEntries {
    type Error = Error;

    fn try_from(number: i64) -> Result<Self, Error> {
        let entries = usize::try_from(number).ok();
        let entries = entries.filter(|entries| {
            entries.is_power_of_two()
                && (CACHE_LEAST_ENTRIES..=CACHE_MOST_ENTRIES).contains(entries)
        });
        match entries {
            // CAST: at most CACHE_MOST_ENTRIES.
            Some(entries) => Ok(Self(entries as u32)),
            None => bail!(
                "cache-entries is {number}: powers of two from {CACHE_LEAST_ENTRIES} to {CACHE_MOST_ENTRIES} are allowed"
            ),
        }
    }
}

impl Serialize for CacheEntries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de> Deserialize<'de> for CacheEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i64::deserialize(deserializer)?
            .try_into()
            .map_err(D::Error::custom)
    }
}

/// The way in which an instance at XDP learns that routes, neighbours or links have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notice {
    /// By programs that the kernel runs when it changes them, if it can; else by netlink.
    #[default]
    Traced,
    /// By netlink: a thread of the process has to listen.
    Told,
}

/// The bits of `hike_learns` in `c-shims/hike/cache/tables.h`.
const WAY: u8 = 1;
const MON_IN: u8 = 2;
const MON_OUT: u8 = 4;

impl Cache {
    /// Returns what is learned of packets of a chain: nothing, unless what it does depends on the flow alone, on lengths, hop limits and
    /// the tables.
    pub(crate) fn learns(self, chain: &Chain) -> u8 {
        let names: Vec<&str> = chain.programs().iter().map(|one| one.name).collect();
        let behind_enc = names.strip_prefix(&["enc"]).unwrap_or(&names);
        match (self, behind_enc) {
            (Self::On, ["fw-fib" | "fw-table"]) => WAY,
            (Self::On, ["mon-in", "fw-fib" | "fw-table"]) => WAY | MON_IN,
            (Self::On, ["mon-out", "fw-fib" | "fw-table"]) => WAY | MON_OUT,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_learned_of_chains_that_do_more() {
        let learns = |text: &str| Cache::On.learns(&text.parse().expect(text));
        for (text, expected) in [
            ("fw-fib", WAY),
            ("enc,fw-table", WAY),
            ("mon-in,fw-fib", WAY | MON_IN),
            ("enc,mon-in,fw-fib", WAY | MON_IN),
            ("enc,mon-out,fw-table", WAY | MON_OUT),
            ("fw-kernel", 0),
            ("acl,fw-fib", 0),
            ("enc,acl,fw-fib", 0),
            ("enc,enc,fw-fib", 0),
            ("mon-in,enc,fw-fib", 0),
            ("mon-in,mon-out,fw-fib", 0),
            ("enc,lanes,fw-table", 0),
            ("end,fw-fib", 0),
            ("mon-out,dec", 0),
        ] {
            assert_eq!(learns(text), expected, "{text}");
            assert_eq!(Cache::Off.learns(&text.parse().expect(text)), 0);
        }
    }

    #[test]
    fn a_cache_has_a_power_of_two_entries() -> Result<(), Error> {
        assert_eq!(
            CacheEntries::default(),
            CacheEntries::try_from(i64::try_from(CACHE_ENTRIES)?)?
        );
        for bits in 10..=17_u8 {
            let entries = CacheEntries::try_from(1 << bits)?;
            assert_eq!(entries.get(), 1 << bits);
            // The highest bits of a hash are a place.
            assert_eq!(u64::MAX >> entries.shift(), u64::from(entries.get()) - 1);
        }
        for bad in [i64::MIN, -4096, 0, 1, 512, 4_095, 4_097, 1 << 18, 1 << 44] {
            let error = CacheEntries::try_from(bad).expect_err("refused");
            assert_eq!(
                error.to_string(),
                format!("cache-entries is {bad}: powers of two from 1024 to 131072 are allowed")
            );
        }
        Ok(())
    }

    #[test]
    fn in_a_file_it_is_a_truth_value() {
        use serde::de::value::{BoolDeserializer, Error, StrDeserializer};

        for (cache, is_on) in [(Cache::On, true), (Cache::Off, false)] {
            let read = Cache::deserialize(BoolDeserializer::<Error>::new(is_on));
            assert_eq!(read.expect("a truth value"), cache);
        }
        assert!(Cache::deserialize(StrDeserializer::<Error>::new("on")).is_err());
    }
}
