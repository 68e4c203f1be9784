// SPDX-License-Identifier: GPL-2.0

//! The packets that rules have counted, as `iptables-save` prints them.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::network::netns;
use crate::network::topology::Family;

/// The packets of each rule.
pub(in crate::hosts) type Counts = BTreeMap<String, u64>;

/// Returns how many packets the rules of a table have seen, of those that are asked for.
pub(in crate::hosts) fn counted(
    namespace: Option<&str>,
    family: Family,
    table: &str,
    is_it: impl Fn(&str) -> bool,
) -> Result<Counts> {
    let program = match family {
        Family::V4 => "iptables-nft-save",
        Family::V6 => "ip6tables-nft-save",
    };
    let line = format!("{program} -c -t {table}");
    Ok(counts(&netns::run(namespace, &line)?, is_it))
}

/// Reads the lines `[PACKETS:BYTES] RULE`; a rule that is there twice has the packets of both.
fn counts(text: &str, is_it: impl Fn(&str) -> bool) -> Counts {
    let mut counts = Counts::new();
    let lines = text.lines().filter_map(|line| {
        let (count, rule) = line.strip_prefix('[')?.split_once("] ")?;
        let (pkts, _) = count.split_once(':')?;
        Some((rule, pkts.parse::<u64>().ok()?))
    });
    for (rule, pkts) in lines.filter(|(rule, _)| is_it(rule)) {
        *counts.entry(rule.to_owned()).or_default() += pkts;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_rules_are_read() {
        let text = "*nat\n:PREROUTING ACCEPT [7:420]\n[60:3600] -A PREROUTING -p tcp -j ISTIO_INBOUND\n[0:0] -A OUTPUT -j ISTIO_OUTPUT\n";
        let found = counts(text, |rule| rule.contains("-p tcp"));
        assert_eq!(
            found,
            Counts::from([("-A PREROUTING -p tcp -j ISTIO_INBOUND".to_owned(), 60)])
        );
    }
}
