// SPDX-License-Identifier: GPL-2.0

//! The ways of packets: `"kernel"`, or a table with a chain.

use std::fmt;

use mflow_hike::Lanes;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde::Serialize;

/// The devices by which packets of a class come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Those that the configuration names as inside of the SR domain; packets that come by others are dropped.
    Inside,
    /// All.
    Anywhere,
}

/// The way of the packets of a class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The kernel's path.
    Kernel,
    /// A chain.
    #[serde(untagged)]
    Fast(Fast),
}

/// A chain, and what its programs need.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Fast {
    /// The chain's name.
    pub chain: String,
    /// The name of the path that its programs use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The name of what they do, where the destinations are local SIDs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behaviour: Option<String>,
    /// The request to mflow for the flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes: Option<Lanes>,
    /// The devices by which its packets come; `None`: those inside if it is for local SIDs and any device is inside, else all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Origin>,
}

impl<'de> Deserialize<'de> for Way {
    /// Reads one of the two forms; a derived reader would not say what is wrong in a table.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A visitor of both forms.
        struct Ways;

        impl<'de> Visitor<'de> for Ways {
            type Value = Way;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"kernel\" or { chain = NAME, path = NAME, behaviour = NAME, lanes = WORD, from = WORD }",
                )
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Way, E> {
                match word {
                    "kernel" => Ok(Way::Kernel),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Way, A::Error> {
                Fast::deserialize(MapAccessDeserializer::new(map)).map(Way::Fast)
            }
        }

        deserializer.deserialize_any(Ways)
    }
}
