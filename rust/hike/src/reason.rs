// SPDX-License-Identifier: GPL-2.0

//! What can become of a packet: the lines of `c-shims/hike/REASONS`.

use crate::generated::REASONS;

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The kernel gets it.
    Passed,
    /// It leaves through a port.
    Redirected,
    /// Nobody gets it.
    Dropped,
}

/// Why that happens; each packet is counted with exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What happens.
    pub fate: Fate,
    /// One word.
    pub name: &'static str,
    /// What that means.
    pub meaning: &'static str,
}

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
