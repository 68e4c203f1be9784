// SPDX-License-Identifier: GPL-2.0

//! Rules and counters of a namespace's packet filter.

use anyhow::{Context as _, Result};
use serde::Deserialize as _;
use serde_json::Value;

use super::netns;
use crate::machine::command;

/// Adds rules to a namespace, or to the first one.
pub(crate) fn add<'a>(namespace: impl Into<Option<&'a str>>, rules: &str) -> Result<()> {
    command::run_with_input(&command::within(namespace, "nft -f -"), rules).map(drop)
}

pub(crate) fn flush<'a>(namespace: impl Into<Option<&'a str>>) -> Result<()> {
    add(namespace, "flush ruleset")
}

/// Returns what is registered at the hooks of a namespace, or of the first one, and of a device if one is named.
pub(crate) fn hooks<'a>(
    namespace: impl Into<Option<&'a str>>,
    device: Option<&str>,
) -> Result<String> {
    let of_device = device.map_or_else(String::new, |device| format!(" netdev device {device}"));
    netns::run(namespace, &format!("nft list hooks{of_device}"))
}

/// The packets and bytes that a counter has seen, from the Internet header on. Packets that GRO has joined are one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Counted {
    #[serde(rename = "packets")]
    pub(crate) pkts: u64,
    pub(crate) bytes: u64,
}

/// Returns what a named counter of the table `inet mflow` has seen.
pub(crate) fn counted<'a>(namespace: impl Into<Option<&'a str>>, name: &str) -> Result<Counted> {
    let listing = netns::run(namespace, &format!("nft -j list counter inet mflow {name}"))?;
    counter(&listing).with_context(|| format!("no counter {name} in {listing}"))
}

fn counter(listing: &str) -> Option<Counted> {
    let listing: Value = serde_json::from_str(listing).ok()?;
    let mut objects = listing.get("nftables")?.as_array()?.iter();
    let found = objects.find_map(|object| object.get("counter"))?;
    Counted::deserialize(found).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_counter_is_read() {
        let listing = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"counter": {"family": "inet", "name": "opened", "table": "mflow", "handle": 1, "packets": 7, "bytes": 420}}]}"#;
        let counted = super::Counted {
            pkts: 7,
            bytes: 420,
        };
        assert_eq!(super::counter(listing), Some(counted));
        assert_eq!(super::counter(r#"{"nftables": []}"#), None);
    }
}
