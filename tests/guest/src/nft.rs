// SPDX-License-Identifier: GPL-2.0

//! Rules and counters of a namespace's packet filter.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::command;

/// Adds rules to a namespace, or to the first one.
pub(crate) fn add<'a>(namespace: impl Into<Option<&'a str>>, rules: &str) -> Result<()> {
    command::run_with_input(&nft(namespace.into(), "-f -"), rules).map(drop)
}

fn nft(namespace: Option<&str>, words: &str) -> String {
    match namespace {
        None => format!("nft {words}"),
        Some(namespace) => format!("ip netns exec {namespace} nft {words}"),
    }
}

pub(crate) fn flush<'a>(namespace: impl Into<Option<&'a str>>) -> Result<()> {
    add(namespace, "flush ruleset")
}

/// Returns how many packets a named counter of the table `inet mflow` has seen.
pub(crate) fn counted_pkts<'a>(namespace: impl Into<Option<&'a str>>, name: &str) -> Result<u64> {
    let words = format!("-j list counter inet mflow {name}");
    let listing = command::run(&nft(namespace.into(), &words))?;
    packets(&listing).with_context(|| format!("no counter {name} in {listing}"))
}

fn packets(listing: &str) -> Option<u64> {
    let listing: Value = serde_json::from_str(listing).ok()?;
    let mut objects = listing.get("nftables")?.as_array()?.iter();
    objects.find_map(|object| object.get("counter")?.get("packets")?.as_u64())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_counter_is_read() {
        let listing = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"counter": {"family": "inet", "name": "opened", "table": "mflow", "handle": 1, "packets": 7, "bytes": 420}}]}"#;
        assert_eq!(super::packets(listing), Some(7));
        assert_eq!(super::packets(r#"{"nftables": []}"#), None);
    }
}
