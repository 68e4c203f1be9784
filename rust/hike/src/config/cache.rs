// SPDX-License-Identifier: GPL-2.0

//! The cache by flow: whether an instance has one, how it learns of changes, and what is learned of the packets of a chain.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::chain::Chain;

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
    fn in_a_file_it_is_a_truth_value() {
        use serde::de::value::{BoolDeserializer, Error, StrDeserializer};

        for (cache, is_on) in [(Cache::On, true), (Cache::Off, false)] {
            let read = Cache::deserialize(BoolDeserializer::<Error>::new(is_on));
            assert_eq!(read.expect("a truth value"), cache);
        }
        assert!(Cache::deserialize(StrDeserializer::<Error>::new("on")).is_err());
    }
}
