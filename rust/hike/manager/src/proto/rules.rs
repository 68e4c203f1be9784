// SPDX-License-Identifier: GPL-2.0

//! Rules of the access list as messages, and back.

use super::{number, Result};
use crate::configuration::objects::Kind;
use crate::configuration::rules::{PortsEntry, RuleEntry, RuleWord};
use crate::configuration::Problem;
use crate::v1;

pub(crate) fn message(entry: &RuleEntry) -> v1::Rule {
    let action = match entry.action {
        RuleWord::Allow => v1::RuleAction::Allow,
        RuleWord::Deny => v1::RuleAction::Deny,
    };
    let ports = |ports: PortsEntry| v1::Ports {
        first: number(Some(ports.first)).unwrap_or_default(),
        last: number(Some(ports.last)).unwrap_or_default(),
    };
    v1::Rule {
        action: action.into(),
        source: entry.source.clone(),
        destination: entry.destination.clone(),
        protocol: number(entry.protocol),
        source_ports: entry.source_ports.map(ports),
        destination_ports: entry.destination_ports.map(ports),
    }
}

pub(super) fn entries(rules: Vec<v1::Rule>) -> Result<Vec<RuleEntry>> {
    let numbered = (1..).zip(rules);
    let entries = numbered.map(|(number, rule)| entry(number, rule));
    entries.collect()
}

/// Returns the entry of the rule with this number.
pub(super) fn entry(number: usize, rule: v1::Rule) -> Result<RuleEntry> {
    let action = match v1::RuleAction::try_from(rule.action) {
        Ok(v1::RuleAction::Allow) => RuleWord::Allow,
        Ok(v1::RuleAction::Deny) => RuleWord::Deny,
        Ok(v1::RuleAction::Unspecified) | Err(_) => {
            let at = [Kind::Rule.section(), &number.to_string()];
            return Err(Problem::new(at, "its action is 1 (allow) or 2 (deny)"));
        }
    };
    let ports = |ports: v1::Ports| PortsEntry {
        first: ports.first.into(),
        last: ports.last.into(),
    };
    Ok(RuleEntry {
        action,
        source: rule.source,
        destination: rule.destination,
        protocol: rule.protocol.map(i64::from),
        source_ports: rule.source_ports.map(ports),
        destination_ports: rule.destination_ports.map(ports),
    })
}
