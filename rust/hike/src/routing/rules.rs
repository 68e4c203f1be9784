// SPDX-License-Identifier: GPL-2.0

//! The kernel's routing rules, as far as they ask for more than tables.

use anyhow::Result;

use super::netlink::{attributes, is_unknown, word, Attributes, Listed, Message, Netlink};

/// The bytes in front of the attributes: `struct fib_rule_hdr` of linux/fib_rules.h.
const HEADER_BYTES: usize = 12;
/// Attributes.
const PRIORITY: u16 = 6;
const TABLE: u16 = 15;
const SUPPRESS_PREFIXLEN: u16 = 14;
/// Of groups of devices, and of the lengths of prefixes: a route that is found and has one of these does not count.
const SUPPRESSORS: [u16; 2] = [13, SUPPRESS_PREFIXLEN];
const PROTOCOL: u16 = 21;
const IP_PROTO: u16 = 22;
const SPORT_RANGE: u16 = 23;
const DPORT_RANGE: u16 = 24;
/// `FR_ACT_TO_TBL`.
const TO_TABLE: u8 = 1;
/// The priorities and tables that each network namespace begins with.
const USUAL: [(u32, u32); 3] = [(0, 255), (32_766, 254), (32_767, 253)];

/// The things that rules of a family look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// True if some look at protocols or ports.
    pub(crate) ports: bool,
    /// True if some do not count what a table has found.
    pub(crate) suppress: bool,
    /// True if there are others than those that each host has.
    pub(crate) unusual: bool,
}

impl Rules {
    /// Reads those of a family, by its number.
    pub(crate) fn read(netlink: &mut Netlink, family: u8) -> Result<Self> {
        let mut request = [0; HEADER_BYTES];
        request[0] = family;
        let mut rules = Self::default();
        match netlink.list(libc::RTM_GETRULE, &request, |message| rules.add(message)) {
            Ok(Listed::Whole) => Ok(rules),
            // One may have been missed: until the next message about rules, which is on its way, they may be any.
            Ok(Listed::Interrupted) => Ok(Self {
                ports: true,
                suppress: true,
                unusual: true,
            }),
            // Kernels without policy routing have none.
            Err(error) if is_unknown(&error) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn add(&mut self, Message { body, .. }: Message<'_>) {
        let all = attributes(body, HEADER_BYTES);
        let has = |kind| all.value(kind).is_some();
        self.ports |= [IP_PROTO, SPORT_RANGE, DPORT_RANGE].into_iter().any(has);
        self.suppress |= SUPPRESSORS
            .into_iter()
            .any(|kind| all.value(kind).and_then(word).is_some_and(is_suppressing));
        self.unusual |= !is_usual(body, all);
    }
}

/// Returns whether a suppressor is set.
fn is_suppressing(value: u32) -> bool {
    value != u32::MAX
}

fn is_usual(body: &[u8], mut all: Attributes<'_>) -> bool {
    let number = |kind| all.value(kind).and_then(word);
    // The lengths of prefixes, and DSCP; then what becomes of the packet, and whether the rule is turned round.
    let (Some([_, 0, 0, 0]), Some(&TO_TABLE), Some(0)) = (
        body.first_chunk::<4>(),
        body.get(7),
        body.get(8..).and_then(word).map(|flags| flags & 2),
    ) else {
        return false;
    };
    let is_known = |(kind, value): (u16, &[u8])| match kind {
        PRIORITY | TABLE | PROTOCOL => true,
        kind if SUPPRESSORS.contains(&kind) => !word(value).is_none_or(is_suppressing),
        _ => false,
    };
    let place = (number(PRIORITY).unwrap_or(0), number(TABLE).unwrap_or(0));
    all.all(is_known) && USUAL.contains(&place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::netlink::attribute;

    fn rule(priority: u32, table: u32, more: &[(u16, &[u8])]) -> Rules {
        let mut body = vec![2, 0, 0, 0, 0, 0, 0, TO_TABLE, 0, 0, 0, 0];
        body.extend(attribute(PRIORITY, &priority.to_ne_bytes()));
        body.extend(attribute(TABLE, &table.to_ne_bytes()));
        body.extend(attribute(SUPPRESS_PREFIXLEN, &u32::MAX.to_ne_bytes()));
        for (kind, value) in more {
            body.extend(attribute(*kind, value));
        }
        let mut rules = Rules::default();
        let kind = libc::RTM_NEWRULE;
        rules.add(Message { kind, body: &body });
        rules
    }

    #[test]
    fn rules_that_every_host_has_are_usual() {
        for (priority, table) in USUAL {
            assert_eq!(rule(priority, table, &[]), Rules::default());
        }
        let unusual = Rules {
            unusual: true,
            ..Rules::default()
        };
        assert_eq!(rule(100, 254, &[]), unusual);
        assert_eq!(rule(0, 100, &[]), unusual);
        // A mark.
        assert_eq!(rule(0, 255, &[(10, &[1, 0, 0, 0])]), unusual);
    }

    #[test]
    fn suppressors_are_found() {
        let suppress = Rules {
            suppress: true,
            unusual: true,
            ..Rules::default()
        };
        for one in SUPPRESSORS {
            let mut body = vec![10, 0, 0, 0, 0, 0, 0, TO_TABLE, 0, 0, 0, 0];
            body.extend(attribute(one, &40_u32.to_ne_bytes()));
            let mut rules = Rules::default();
            let kind = libc::RTM_NEWRULE;
            rules.add(Message { kind, body: &body });
            assert_eq!(rules, suppress);
        }
    }

    #[test]
    fn rules_for_ports_are_found() {
        let with_ports = Rules {
            ports: true,
            unusual: true,
            ..Rules::default()
        };
        for kind in [IP_PROTO, SPORT_RANGE, DPORT_RANGE] {
            assert_eq!(rule(100, 100, &[(kind, &[53, 0, 53, 0])]), with_ports);
        }
    }
}
