// SPDX-License-Identifier: GPL-2.0

//! The fates of packets and their reasons: the lines of `c-shims/hike/REASONS`.

use serde::Serialize;

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// The kernel gets it.
    Passed,
    /// It leaves through a port.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = REASONS.iter().map(|reason| reason.name).collect();
        assert_eq!(names.len(), REASONS.len());
    }
}
