// SPDX-License-Identifier: GPL-2.0

//! The access list: its rules as they are written, and as the programs take them.

use std::fmt;
use std::ops::RangeInclusive;

use mflow_hike::{Action, Destination, Rule};
use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::at::{At, Result};
use super::document::inline;

/// A rule. Its number is its place in the list, from 1 on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RuleEntry {
    /// The action on packets that meet it.
    pub action: RuleWord,
    /// The source of packets, an address or a prefix; absent: anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The destination of packets; likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// The number of their protocol, 0 to 255; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<i64>,
    /// Their source ports; absent: any, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<PortsEntry>,
    /// Their destination ports; likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_ports: Option<PortsEntry>,
}

impl fmt::Display for RuleEntry {
    /// Writes it as it stands in a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&inline(self))
    }
}

/// The action on packets that meet a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleWord {
    /// They go on.
    Allow,
    /// They are dropped.
    Deny,
}

/// A range of ports: a number, or `"FIRST-LAST"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortsEntry {
    /// The first of them.
    pub first: i64,
    /// The last of them.
    pub last: i64,
}

impl Serialize for PortsEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        if self.first == self.last {
            return serializer.serialize_i64(self.first);
        }
        serializer.collect_str(&format_args!("{}-{}", self.first, self.last))
    }
}

impl<'de> Deserialize<'de> for PortsEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        /// A visitor that reads the forms which ports may have.
        struct Ports;

        impl Visitor<'_> for Ports {
            type Value = PortsEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port, or \"FIRST-LAST\"")
            }

            fn visit_i64<E: serde::de::Error>(
                self,
                port: i64,
            ) -> std::result::Result<PortsEntry, E> {
                Ok(PortsEntry {
                    first: port,
                    last: port,
                })
            }

            fn visit_str<E: serde::de::Error>(
                self,
                text: &str,
            ) -> std::result::Result<PortsEntry, E> {
                let ends = text.split_once('-');
                let ends =
                    ends.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
                let (first, last) =
                    ends.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))?;
                Ok(PortsEntry { first, last })
            }
        }

        deserializer
            .deserialize_any(Ports)
            .map_err(|error| D::Error::custom(error.to_string()))
    }
}

/// Returns the rule that an entry says.
pub(super) fn rule(at: At<'_>, entry: &RuleEntry) -> Result<Rule> {
    let end = |field: &str, text: &Option<String>| match text {
        None => Ok(Destination::Default),
        Some(text) => text.parse().map_err(|error| at.problem_of(field, error)),
    };
    let ports = |field: &str, ports: Option<PortsEntry>| -> Result<Option<RangeInclusive<u16>>> {
        let Some(PortsEntry { first, last }) = ports else {
            return Ok(None);
        };
        let port = |port| at.number(field, Some(port), 0, u16::MAX.into());
        Ok(port(first)?
            .zip(port(last)?)
            .map(|(first, last)| first..=last))
    };
    let rule = Rule {
        action: match entry.action {
            RuleWord::Allow => Action::Allow,
            RuleWord::Deny => Action::Deny,
        },
        source: end("source", &entry.source)?,
        destination: end("destination", &entry.destination)?,
        protocol: at.number("protocol", entry.protocol, 0, u8::MAX.into())?,
        source_ports: ports("source-ports", entry.source_ports)?,
        destination_ports: ports("destination-ports", entry.destination_ports)?,
    };
    rule.check().map_err(|error| at.problem(error))?;
    Ok(rule)
}

/// Returns how a rule is written.
pub(crate) fn entry(rule: &Rule) -> RuleEntry {
    let end = |end: Destination| (end != Destination::Default).then(|| end.to_string());
    let ports = |ports: &RangeInclusive<u16>| PortsEntry {
        first: (*ports.start()).into(),
        last: (*ports.end()).into(),
    };
    RuleEntry {
        action: match rule.action {
            Action::Allow => RuleWord::Allow,
            Action::Deny => RuleWord::Deny,
        },
        source: end(rule.source),
        destination: end(rule.destination),
        protocol: rule.protocol.map(i64::from),
        source_ports: rule.source_ports.as_ref().map(ports),
        destination_ports: rule.destination_ports.as_ref().map(ports),
    }
}

#[cfg(test)]
mod tests {
    use crate::configuration::error;

    #[test]
    fn rules_are_checked_one_by_one() {
        let rules =
            |rule: &str| error(&format!("rules = [\n{{ action = \"allow\" }},\n{rule},\n]"));
        assert_eq!(
            rules("{ action = \"deny\", source = \"10.0.0.1/8\" }"),
            "f:3: rule 2: 10.0.0.1/8 has bits beyond its prefix; 10.0.0.0/8 has not"
        );
        assert_eq!(
            rules("{ action = \"deny\", protocol = 256 }"),
            "f:3: rule 2: protocol is 256: 0 to 255 are allowed"
        );
        assert_eq!(
            rules("{ action = \"deny\", destination-ports = 65536 }"),
            "f:3: rule 2: destination-ports is 65536: 0 to 65535 are allowed"
        );
        assert_eq!(
            rules("{ action = \"deny\", protocol = 1, source-ports = \"1-2\" }"),
            "f:3: rule 2: protocol 1 has no ports; take one of [6, 17, 33, 132, 136], or no ports"
        );
        assert_eq!(
            rules("{ action = \"deny\", source-ports = \"http\" }"),
            "f:3: invalid value: string \"http\", expected a port, or \"FIRST-LAST\""
        );
        assert_eq!(
            rules("{ action = \"reject\" }"),
            "f:3: unknown variant `reject`, expected `allow` or `deny`"
        );
        let many = vec!["{ action = \"allow\" }"; 257].join(",");
        assert_eq!(
            error(&format!("rules = [{many}]")),
            "f:1: there are 257 rules: 256 are allowed"
        );
        assert_eq!(
            error("[chains]\na = \"acl,drop\""),
            "f:2: chain a: it has acl, and without rules that lets all packets through; add rules, or take acl out"
        );
    }
}
