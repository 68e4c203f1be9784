// SPDX-License-Identifier: GPL-2.0

//! The access list as `acl` looks it up: for each part of a packet, which rules it meets.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use crate::config::destination::{mask, width, Destination};
use crate::config::rule::{Action, Rule};
use crate::layout::{rule_sets, Rules};

/// Ports there are.
const PORTS: usize = 1 << 16;
/// The sets of ports that no rule names, and of ports that cannot be seen.
const NO_RULES: usize = 0;
const UNSEEN: usize = 1;

/// All sets of one access list.
pub(crate) struct Sets {
    /// By prefix: an address has the set of the longest prefix that it is in.
    pub(crate) sources: BTreeMap<Destination, Rules>,
    pub(crate) destinations: BTreeMap<Destination, Rules>,
    /// By number, as in `rule_sets`.
    pub(crate) numbered: Vec<Rules>,
    /// The set to which each port belongs, from the first set of its kind on.
    pub(crate) source_ports: Vec<u16>,
    pub(crate) destination_ports: Vec<u16>,
}

impl Sets {
    /// Makes the sets of rules that were checked.
    pub(crate) fn of(rules: &[Rule]) -> Self {
        let mut numbered = vec![Rules::default(); rule_sets::COUNT];
        for (protocol, set) in (0..=u8::MAX).zip(&mut numbered[rule_sets::OF_PROTOCOL..]) {
            *set = those(rules, |rule| {
                rule.protocol.is_none_or(|own| own == protocol)
            });
        }
        numbered[rule_sets::OF_UNSEEN_PROTOCOL] = those(rules, |rule| {
            rule.protocol.is_none() || rule.action == Action::Deny
        });
        numbered[rule_sets::THAT_DENY] = those(rules, |rule| rule.action == Action::Deny);
        let mut ports = |of: fn(&Rule) -> &Option<RangeInclusive<u16>>, first| {
            let (sets, of_ports) = port_sets(rules, of);
            numbered[first..][..sets.len()].copy_from_slice(&sets);
            of_ports
        };
        Self {
            source_ports: ports(|rule| &rule.source_ports, rule_sets::OF_SOURCE_PORT),
            destination_ports: ports(
                |rule| &rule.destination_ports,
                rule_sets::OF_DESTINATION_PORT,
            ),
            sources: prefix_sets(rules, |rule| rule.source),
            destinations: prefix_sets(rules, |rule| rule.destination),
            numbered,
        }
    }
}

/// Returns the set of the rules that are like this.
fn those(rules: &[Rule], is: impl Fn(&Rule) -> bool) -> Rules {
    let mut set = Rules::default();
    for (number, _) in rules.iter().enumerate().filter(|(_, rule)| is(rule)) {
        set.words[number / 64] |= 1 << (number % 64);
    }
    set
}

/// Returns all prefixes that rules name, and all of each version, with the rules that addresses in them meet.
fn prefix_sets(rules: &[Rule], of: impl Fn(&Rule) -> Destination) -> BTreeMap<Destination, Rules> {
    let all = [
        Destination::Prefix(Ipv4Addr::UNSPECIFIED.into(), 0),
        Destination::Prefix(Ipv6Addr::UNSPECIFIED.into(), 0),
    ];
    let named = rules.iter().map(&of);
    let prefixes = named
        .filter(|prefix| *prefix != Destination::Default)
        .chain(all);
    prefixes
        .map(|prefix| (prefix, those(rules, |rule| contains(of(rule), prefix))))
        .collect()
}

/// Returns whether all addresses of `inner` are among those of `outer`.
fn contains(outer: Destination, inner: Destination) -> bool {
    if outer.version() != inner.version() {
        return outer == Destination::Default;
    }
    match (parts(outer), parts(inner)) {
        (Some((address, bits)), Some((own, own_bits))) => {
            bits <= own_bits && mask(own, bits) == address
        }
        (outer, _) => outer.is_none(),
    }
}

fn parts(destination: Destination) -> Option<(IpAddr, u8)> {
    match destination {
        Destination::Address(address) => Some((address, width(address))),
        Destination::Prefix(address, bits) => Some((address, bits)),
        Destination::Default => None,
    }
}

/// Returns the sets of ports that rules tell apart, and which one each port belongs to.
fn port_sets(
    rules: &[Rule],
    of: impl Fn(&Rule) -> &Option<RangeInclusive<u16>>,
) -> (Vec<Rules>, Vec<u16>) {
    let mut sets = vec![Rules::default(); 2];
    sets[NO_RULES] = those(rules, |rule| of(rule).is_none());
    sets[UNSEEN] = those(rules, |rule| {
        of(rule).is_none() || rule.action == Action::Deny
    });
    // Where another set may begin.
    let ranges = rules.iter().filter_map(|rule| of(rule).as_ref());
    let mut begins: Vec<usize> = ranges
        .flat_map(|range| [usize::from(*range.start()), usize::from(*range.end()) + 1])
        .chain([0, PORTS])
        .collect();
    begins.sort_unstable();
    begins.dedup();
    let mut numbers = BTreeMap::from([(sets[NO_RULES], NO_RULES)]);
    let mut of_ports = Vec::with_capacity(PORTS);
    for ends in begins.windows(2) {
        // CAST: below 65536.
        let port = ends[0] as u16;
        let set = those(rules, |rule| {
            of(rule).as_ref().is_none_or(|range| range.contains(&port))
        });
        let number = *numbers.entry(set).or_insert_with(|| {
            sets.push(set);
            sets.len() - 1
        });
        // CAST: two for each rule, and two more.
        of_ports.resize(ends[1], number as u16);
    }
    (sets, of_ports)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::{RULES, RULE_PORT_SETS};

    /// Looks an address and ports up as `acl` does; returns the first rule.
    fn first(
        sets: &Sets,
        from: IpAddr,
        to: IpAddr,
        protocol: usize,
        ports: (u16, u16),
    ) -> Option<usize> {
        let longest = |prefixes: &BTreeMap<Destination, Rules>, address| {
            let exact = Destination::Address(address);
            let holding = prefixes
                .iter()
                .filter(|(prefix, _)| contains(**prefix, exact));
            let longest = holding.max_by_key(|(prefix, _)| parts(**prefix).map(|one| one.1));
            longest.map_or(Rules::default(), |(_, rules)| *rules)
        };
        let of_port = |first: usize, of_ports: &[u16], port: u16| {
            sets.numbered[first + usize::from(of_ports[usize::from(port)])]
        };
        let all = [
            longest(&sets.sources, from),
            longest(&sets.destinations, to),
            sets.numbered[rule_sets::OF_PROTOCOL + protocol],
            of_port(rule_sets::OF_SOURCE_PORT, &sets.source_ports, ports.0),
            of_port(
                rule_sets::OF_DESTINATION_PORT,
                &sets.destination_ports,
                ports.1,
            ),
        ];
        (0..RULES).find(|rule| {
            all.iter()
                .all(|set| set.words[rule / 64] >> (rule % 64) & 1 == 1)
        })
    }

    fn prefix() -> impl Strategy<Value = Destination> {
        prop_oneof![
            Just(Destination::Default),
            (0u32..4, 0u8..=32).prop_map(|(address, bits)| {
                let address = mask(Ipv4Addr::from(address << 29 | address).into(), bits);
                Destination::prefix(address, bits).expect("masked")
            }),
        ]
    }

    fn range() -> impl Strategy<Value = Option<RangeInclusive<u16>>> {
        prop::option::of((0u16..6, 0u16..6).prop_map(|(one, two)| {
            let port = |number: u16| [0, 1, 80, 443, 65534, 65535][usize::from(number)];
            port(one.min(two))..=port(one.max(two))
        }))
    }

    prop_compose! {
        fn rule()(
            deny in any::<bool>(), source in prefix(), destination in prefix(),
            protocol in prop::option::of(prop_oneof![Just(6u8), Just(17)]), source_ports in range(), destination_ports in range(),
        ) -> Rule {
            let action = if deny { Action::Deny } else { Action::Allow };
            Rule { action, source, destination, protocol, source_ports, destination_ports }
        }
    }

    proptest! {
        #[test]
        fn the_first_rule_that_all_meets_is_found(
            rules in prop::collection::vec(rule(), 0..40),
            packets in prop::collection::vec((0u32..4, 0u32..4, 0usize..3, 0usize..8, 0usize..8), 20),
        ) {
            let sets = Sets::of(&rules);
            for (from, to, protocol, out_of, into) in packets {
                let address = |word: u32| IpAddr::from(Ipv4Addr::from(word << 29 | word));
                let port = |number: usize| [0, 1, 2, 79, 80, 443, 65534, 65535][number];
                let (from, to, protocol) = (address(from), address(to), [6u8, 17, 1][protocol]);
                let (out_of, into): (u16, u16) = (port(out_of), port(into));
                let meets = |rule: &Rule| {
                    let within = |prefix, address| contains(prefix, Destination::Address(address));
                    let has = |range: &Option<RangeInclusive<u16>>, port| range.as_ref().is_none_or(|range| range.contains(&port));
                    within(rule.source, from) && within(rule.destination, to) && rule.protocol.is_none_or(|own| own == protocol)
                        && has(&rule.source_ports, out_of) && has(&rule.destination_ports, into)
                };
                prop_assert_eq!(first(&sets, from, to, protocol.into(), (out_of, into)), rules.iter().position(meets));
            }
        }
    }

    #[test]
    fn what_cannot_be_seen_meets_what_denies() {
        let rule = |action| Rule {
            protocol: Some(6),
            destination_ports: Some(22..=22),
            ..Rule::all(action)
        };
        let sets = Sets::of(&[rule(Action::Allow), rule(Action::Deny)]);
        let words = |number: usize| sets.numbered[number].words[0];
        assert_eq!(words(rule_sets::OF_UNSEEN_PROTOCOL), 0b10);
        assert_eq!(words(rule_sets::OF_DESTINATION_PORT + UNSEEN), 0b10);
        assert_eq!(words(rule_sets::OF_DESTINATION_PORT + NO_RULES), 0);
        assert_eq!(words(rule_sets::OF_SOURCE_PORT + UNSEEN), 0b11);
        assert_eq!(words(rule_sets::THAT_DENY), 0b10);
    }

    #[test]
    fn as_many_sets_of_ports_as_there_can_be_have_numbers() {
        // Ranges that all overlap: each begins and ends where no other one does.
        let rules: Vec<Rule> = (0..RULES)
            .map(|number| {
                // CAST: some hundreds.
                let number = number as u16;
                Rule {
                    source_ports: Some(1 + number..=1_000 + number),
                    ..Rule::all(Action::Deny)
                }
            })
            .collect();
        let (sets, of_ports) = port_sets(&rules, |rule| &rule.source_ports);
        assert_eq!((sets.len(), of_ports.len()), (RULE_PORT_SETS - 1, PORTS));
    }
}
