// SPDX-License-Identifier: GPL-2.0

//! TCP's own counters: what the two stacks count when segments come in another order, are dropped or are sent again.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::machine::proc_net;
use crate::network::topology::{CLIENT, CONTAINER};

/// Counters that must not grow because of the module when nothing is lost, as they are called in `/proc/net`.
///
/// The receiving stack counts the first ones, the sending stack the others.
pub(crate) const QUIET: [&str; 8] = [
    "TCPOFOQueue",
    "TCPBacklogDrop",
    "TCPRcvQDrop",
    "InCsumErrors",
    "TCPSACKReorder",
    "TCPDSACKRecv",
    "TCPDSACKOfoRecv",
    "RetransSegs",
];

/// Returns how much a counter of [`QUIET`] has grown, without the segments of handshakes that were sent again.
///
/// A handshake begins again after a second without an answer, and an emulated CPU can be away for longer. Flows are split
/// when they have sent much, so it is mflow's only in an outer flow with others: `tcp/flows/churn` counts it there.
pub(crate) fn noise(added: &BTreeMap<String, u64>, name: &str) -> u64 {
    let count = |name: &str| added.get(name).copied().unwrap_or(0);
    match name {
        "RetransSegs" => count(name).saturating_sub(count("TCPSynRetrans")),
        _ => count(name),
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(BTreeMap<String, u64>);

impl Counters {
    pub(crate) fn read() -> Result<Self> {
        let mut sums = BTreeMap::new();
        for namespace in [CLIENT, CONTAINER] {
            for (file, protocol) in [("netstat", "TcpExt"), ("snmp", "Tcp")] {
                add(&mut sums, &proc_net::read(Some(namespace), file)?, protocol)?;
            }
        }
        Ok(Self(sums))
    }

    /// Returns what was added since `earlier`, by name, without what did not change.
    pub(crate) fn since(&self, earlier: &Self) -> BTreeMap<String, u64> {
        let added = self.0.iter().filter_map(|(name, &now)| {
            let before = earlier.0.get(name).copied().unwrap_or(0);
            let added = now.saturating_sub(before);
            (added > 0).then(|| (name.clone(), added))
        });
        added.collect()
    }
}

fn add(sums: &mut BTreeMap<String, u64>, text: &str, protocol: &str) -> Result<()> {
    for (name, count) in proc_net::counters(text, protocol)? {
        *sums.entry(name.to_owned()).or_default() += count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_that_begins_anew_is_no_noise() {
        let added = BTreeMap::from([
            ("RetransSegs".to_owned(), 3),
            ("TCPSynRetrans".to_owned(), 2),
            ("TCPOFOQueue".to_owned(), 5),
        ]);
        assert_eq!(noise(&added, "RetransSegs"), 1);
        assert_eq!(noise(&added, "TCPOFOQueue"), 5);
        assert_eq!(noise(&added, "TCPRcvQDrop"), 0);
    }

    #[test]
    fn lines_of_two_namespaces_are_added_up() {
        let text = "Tcp: RtoMin MaxConn RetransSegs\nTcp: 200 -1 3\nUdp: A\nUdp: 1\n";
        let mut sums = BTreeMap::new();
        add(&mut sums, text, "Tcp").unwrap();
        add(&mut sums, text, "Tcp").unwrap();
        assert_eq!(sums.get("RetransSegs"), Some(&6));
        assert_eq!(sums.get("MaxConn"), None);
        assert!(add(&mut sums, text, "TcpExt").is_err());
    }
}
