// SPDX-License-Identifier: GPL-2.0

//! The keys of the flows whose packets came last.
//!
//! Most packets of a source belong to few flows, and to compare what a key is made of is cheaper than to hash it.

use super::flow_key::{FlowHasher, FlowKey, Ipv4Flow, ETH_P_IP};

/// Flows that are remembered, each in the place that its source port gives it.
const PLACES: usize = 8;

/// Keys of IPv4 flows; those of IPv6 are made again for each packet. Memory of zeros is empty.
#[derive(Clone, Copy, Debug)]
pub struct RecentKeys {
    places: [(Ipv4Flow, FlowKey); PLACES],
}

impl RecentKeys {
    /// Returns an empty one.
    pub fn new() -> Self {
        // No packet is of the default flow, so this key is never returned.
        Self {
            places: [(Ipv4Flow::default(), FlowKey::NONE); PLACES],
        }
    }

    /// Returns what [`FlowHasher::key`] returns for the packet. `hasher` has to be the same one each time.
    #[inline]
    pub fn key(
        &mut self,
        hasher: impl FnOnce() -> FlowHasher,
        eth_proto: u16,
        packet: &[u8],
    ) -> Option<FlowKey> {
        if eth_proto != ETH_P_IP {
            return hasher().key(eth_proto, packet);
        }
        let flow = Ipv4Flow::of(packet)?;
        // PANIC: the remainder is below the length.
        let (recent, key) = &mut self.places[usize::from(flow.source_port_low()) % PLACES];
        if *recent != flow {
            (*recent, *key) = (flow, hasher().ipv4(flow));
        }
        Some(*key)
    }
}

impl Default for RecentKeys {
    fn default() -> Self {
        Self::new()
    }
}
