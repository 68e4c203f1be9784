// SPDX-License-Identifier: GPL-2.0

//! The parts of a configuration as they are written.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The hook at which packets take chains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookWord {
    /// The point where devices receive packets.
    #[default]
    Xdp,
    /// The point where packets leave by devices.
    Tcx,
}

/// An engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineWord {
    /// One program for each distinct chain.
    #[default]
    Compiled,
    /// One tail call for each program of a chain.
    TailCalls,
}

/// A path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PathEntry {
    /// The tunnel's source.
    pub source: String,
    /// 1 to 10 SIDs.
    pub sids: Vec<String>,
    /// The mode of encapsulation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: ModeWord,
    /// 1 to 255; absent: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_limit: Option<i64>,
    /// 0 to 63; absent: that of the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<i64>,
    /// 0 to 1048575; absent: one for each flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_label: Option<i64>,
    /// 1280 to 65535; absent: 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i64>,
    /// The treatment of packets that cannot be encapsulated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exceptions: ExceptionsWord,
    /// The FlowMonID of RFC 9343, 0 to 1048575; absent: there is no such option.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_id: Option<i64>,
}

/// The mode of encapsulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeWord {
    /// H.Encaps.
    #[default]
    Encaps,
    /// H.Encaps.Red.
    Reduced,
}

/// The treatment of packets that cannot be encapsulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExceptionsWord {
    /// They are dropped.
    #[default]
    Dropped,
    /// The kernel gets them.
    Left,
}

/// The behaviour of a local SID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BehaviourEntry {
    /// The behaviour of RFC 8986.
    pub action: ActionWord,
    /// The next hop of End.X.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
    /// The kernel's routing table of End.DT4, DT6 and DT46, 1 to 4294967295; absent: the one that its rules choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<i64>,
    /// The flavours of End and End.X.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavours: Vec<FlavourWord>,
}

/// A behaviour of RFC 8986.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActionWord {
    /// Goes on to the next segment.
    End,
    /// Does so, and forwards to a next hop.
    #[serde(rename = "End.X")]
    EndX,
    /// Takes the outer headers off IPv4.
    #[serde(rename = "End.DT4")]
    Dt4,
    /// The same of IPv6.
    #[serde(rename = "End.DT6")]
    Dt6,
    /// The same of both.
    #[serde(rename = "End.DT46")]
    Dt46,
}

/// A flavour of RFC 8986, 4.16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlavourWord {
    /// Penultimate segment pop.
    Psp,
    /// Ultimate segment pop.
    Usp,
    /// Ultimate segment decapsulation.
    Usd,
}

/// The way of a class: `"kernel"`, or a table with a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassEntry {
    /// The kernel's path.
    Kernel,
    /// A chain.
    Fast(FastEntry),
}

/// A chain, and what its programs need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FastEntry {
    /// The name of the chain.
    pub chain: String,
    /// The name of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The name of the behaviour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behaviour: Option<String>,
    /// The request to mflow for the flows; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes: Option<LanesWord>,
}

/// A request to mflow for the flows of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LanesWord {
    /// To split them.
    Split,
    /// Not to.
    Never,
}

/// A route of `fw-table`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RouteEntry {
    /// The device that packets leave through.
    pub port: String,
    /// The next hop's Ethernet address.
    pub next_hop: String,
    /// The Ethernet address that packets come from; absent: that of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The largest packet, 68 to 65535; absent: what the port takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i64>,
}

/// A monitor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MonitorEntry {
    /// The end of the flow at which it is counted.
    pub direction: DirectionWord,
    /// The name of the path that the flow takes; else it has source and SIDs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The flow's source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its SIDs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sids: Option<Vec<String>>,
    /// 10 to 86400000; absent: 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<i64>,
    /// 0 to 5; absent: the colour is in the option of RFC 9343.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp_bit: Option<i64>,
}

/// The end of a flow at which it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectionWord {
    /// The end at which the flow enters.
    In,
    /// The end at which the flow leaves.
    Out,
}

const KERNEL: &str = "kernel";

impl Serialize for ClassEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Kernel => serializer.serialize_str(KERNEL),
            Self::Fast(fast) => fast.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ClassEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A visitor that reads the forms which a way may have.
        struct Ways;

        impl<'de> Visitor<'de> for Ways {
            type Value = ClassEntry;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(
                    "\"kernel\" or { chain = NAME, path = NAME, behaviour = NAME, lanes = WORD }",
                )
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<ClassEntry, E> {
                if word == KERNEL {
                    return Ok(ClassEntry::Kernel);
                }
                let way = serde::de::Unexpected::Str(word);
                Err(E::invalid_value(way, &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ClassEntry, A::Error> {
                FastEntry::deserialize(MapAccessDeserializer::new(map)).map(ClassEntry::Fast)
            }
        }

        deserializer
            .deserialize_any(Ways)
            .map_err(|error| D::Error::custom(error.to_string()))
    }
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
