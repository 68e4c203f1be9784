// SPDX-License-Identifier: GPL-2.0

//! The fates of packets and their reasons: the lines of `c-shims/hike/REASONS`.

use serde::Serialize;

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// The kernel gets it.
    Passed,
    /// It leaves: through a port, or as the answer to its sender.
    Redirected,
    /// Nobody gets it.
    Dropped,
}

/// The reason for a fate; each packet is counted with exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The fate.
    pub fate: Fate,
    /// One word.
    pub name: &'static str,
    /// The meaning of the reason.
    pub meaning: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/reasons.rs"));

/// Returns all reasons, in the order of their numbers.
pub fn reasons() -> &'static [Reason] {
    REASONS
}

/// The reason of packets that were sent to a port, and that of those among them that the port has dropped.
const FORWARDED: &str = "forwarded";
const PORT_DROPPED: &str = "port-dropped";

/// Returns counts by which each packet has one reason: programs count a packet as forwarded before its port may drop it.
pub(crate) fn settled(mut counts: Vec<(&'static Reason, u64)>) -> Vec<(&'static Reason, u64)> {
    let dropped = counts
        .iter()
        .find(|(reason, _)| reason.name == PORT_DROPPED)
        .map_or(0, |(_, pkts)| *pkts);
    for (reason, pkts) in &mut counts {
        if reason.name == FORWARDED {
            *pkts = pkts.saturating_sub(dropped);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = REASONS.iter().map(|reason| reason.name).collect();
        assert_eq!(names.len(), REASONS.len());
    }

    #[test]
    fn what_a_port_drops_is_not_forwarded() {
        let counts = REASONS.iter().map(|reason| match reason.name {
            FORWARDED => (reason, 10),
            PORT_DROPPED => (reason, 3),
            _ => (reason, 1),
        });
        let settled = settled(counts.collect());
        let of = |name: &str| settled.iter().find(|(reason, _)| reason.name == name);
        assert_eq!(of(FORWARDED).map(|(_, pkts)| *pkts), Some(7));
        assert_eq!(of(PORT_DROPPED).map(|(_, pkts)| *pkts), Some(3));
        assert_eq!(of("no-class").map(|(_, pkts)| *pkts), Some(1));
    }
}
