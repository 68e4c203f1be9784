// SPDX-License-Identifier: GPL-2.0

//! Maps and lists in which nothing may stand twice, even if it is written in two ways.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use mflow_hike::Destination;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Reads a map by destination.
pub(super) fn by_destination<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Destination, T>, D::Error> {
    /// A visitor of the map.
    struct Map<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Map<T> {
        type Value = BTreeMap<Destination, T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table by destination")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some(key) = map.next_key_seed(Fresh(&|key| all.contains_key(key)))? {
                all.insert(key, map.next_value()?);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_map(Map(PhantomData))
}

/// Reads a list of names.
pub(super) fn names<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeSet<String>, D::Error> {
    /// A visitor of the list.
    struct Names;

    impl<'de> Visitor<'de> for Names {
        type Value = BTreeSet<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of names")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeSet::new();
            while let Some(name) = list.next_element_seed(Fresh(&|name| all.contains(name)))? {
                all.insert(name);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_seq(Names)
}

/// A key that must not be there already, as the function says. The error belongs to the key, so it has the key's line.
struct Fresh<'a, K>(&'a dyn Fn(&K) -> bool);

impl<'de, K: FromStr<Err: Display> + Display> DeserializeSeed<'de> for Fresh<'_, K> {
    type Value = K;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<K: FromStr<Err: Display> + Display> Visitor<'_> for Fresh<'_, K> {
    type Value = K;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<K, E> {
        let key: K = text.parse().map_err(E::custom)?;
        if !(self.0)(&key) {
            return Ok(key);
        }
        let key = key.to_string();
        let it = if key == text { "it" } else { &key };
        Err(E::custom(format_args!("{it} stands here twice")))
    }
}
