// SPDX-License-Identifier: GPL-2.0

//! Rules of the access list: what `acl` lets through, and what it drops.

use std::ops::RangeInclusive;

use anyhow::{bail, ensure, Result};
use serde::{Deserialize, Serialize};

use super::destination::Destination;
use super::fields;
use crate::limits::RULES;

/// Protocols whose headers begin with a source and a destination port: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// The action on packets that meet a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// They go on.
    Allow,
    /// They are dropped.
    Deny,
}

/// A rule. Of several that a packet meets, the first counts; a packet that meets none goes on.
///
/// If a field of a packet cannot be seen (its ports, if it is a later fragment or cut short; its protocol, behind more than four
/// extension headers), the packet meets rules that deny, and none that allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rule {
    /// The action.
    pub action: Action,
    /// The source of packets; the default is anywhere.
    #[serde(default, skip_serializing_if = "fields::is_default")]
    pub source: Destination,
    /// The destination of packets; likewise.
    #[serde(default, skip_serializing_if = "fields::is_default")]
    pub destination: Destination,
    /// The number of their protocol: for IPv6, the first that is no extension header of routing, options or fragments.
    #[serde(deserialize_with = "fields::protocol", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Their source ports.
    #[serde(deserialize_with = "fields::source_ports", default)]
    #[serde(serialize_with = "fields::write_ports")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<RangeInclusive<u16>>,
    /// Their destination ports.
    #[serde(deserialize_with = "fields::destination_ports", default)]
    #[serde(serialize_with = "fields::write_ports")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_ports: Option<RangeInclusive<u16>>,
}

impl Rule {
    /// Returns a rule for all packets.
    pub fn all(action: Action) -> Self {
        Self {
            action,
            source: Destination::Default,
            destination: Destination::Default,
            protocol: None,
            source_ports: None,
            destination_ports: None,
        }
    }

    /// Fails if no packet could ever meet it.
    pub fn check(&self) -> Result<()> {
        if let (Some(source), Some(destination)) =
            (self.source.version(), self.destination.version())
        {
            ensure!(
                source == destination,
                "no packet goes from {} to {}: take addresses of one version",
                self.source,
                self.destination
            );
        }
        for ports in [&self.source_ports, &self.destination_ports]
            .into_iter()
            .flatten()
        {
            if let Some(protocol) = self.protocol.filter(|one| !WITH_PORTS.contains(one)) {
                bail!("protocol {protocol} has no ports; take one of {WITH_PORTS:?}, or no ports");
            }
            ensure!(
                !ports.is_empty(),
                "no port is from {} to {}: write the lower one first",
                ports.start(),
                ports.end()
            );
        }
        Ok(())
    }
}

/// Fails if these rules cannot be an access list.
pub(crate) fn check(rules: &[Rule]) -> Result<()> {
    ensure!(
        rules.len() <= RULES,
        "{} rules are too many: {RULES} are allowed",
        rules.len()
    );
    for (number, rule) in rules.iter().enumerate() {
        if let Err(error) = rule.check() {
            bail!("rule {}: {error}", number + 1);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_packet_meets_is_refused_with_the_reason() {
        let all = Rule::all(Action::Deny);
        let error = |rule: Rule| check(&[all.clone(), rule]).expect_err("bad").to_string();
        assert_eq!(
            error(Rule {
                source: "10.0.0.0/8".parse().expect("good"),
                destination: "2001:db8::1".parse().expect("good"),
                ..all.clone()
            }),
            "rule 2: no packet goes from 10.0.0.0/8 to 2001:db8::1: take addresses of one version"
        );
        assert_eq!(
            error(Rule {
                protocol: Some(58),
                destination_ports: Some(80..=80),
                ..all.clone()
            }),
            "rule 2: protocol 58 has no ports; take one of [6, 17, 33, 132, 136], or no ports"
        );
        #[expect(clippy::reversed_empty_ranges, reason = "what is to be refused")]
        let reversed = Some(81..=80);
        assert_eq!(
            error(Rule {
                source_ports: reversed,
                ..all.clone()
            }),
            "rule 2: no port is from 81 to 80: write the lower one first"
        );
        let many = check(&vec![all.clone(); 257]).expect_err("too many");
        assert_eq!(many.to_string(), "257 rules are too many: 256 are allowed");
        assert!(check(&vec![all; 256]).is_ok());
    }
}
