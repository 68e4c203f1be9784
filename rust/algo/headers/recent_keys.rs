// SPDX-License-Identifier: GPL-2.0

//! The keys of the flows whose packets came last.
//!
//! Most packets of a source belong to few flows, and to compare what a key is made of is cheaper than to hash it.

use super::flow_key::{FlowHasher, FlowKey, Ipv4Flow, ETH_P_IP};

/// Flows that are remembered, each in the place that its ports give it.
const PLACES: usize = 8;

/// Keys of IPv4 flows; those of IPv6 are made again for each packet. Memory of zeros is empty.
#[derive(Clone, Copy, Debug)]
pub struct RecentKeys {
    places: [(Ipv4Flow, FlowKey); PLACES],
}

impl RecentKeys {
    /// Returns an empty one.
    pub fn new() -> Self {
        // No packet is of this flow, so this key is never returned.
        Self {
            places: [(Ipv4Flow::NONE, FlowKey::NONE); PLACES],
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
        Some(self.ipv4(hasher, Ipv4Flow::of(packet)?))
    }

    /// Returns the key of a flow of IPv4. `hasher` as for [`key`](Self::key).
    #[inline]
    pub fn ipv4(&mut self, hasher: impl FnOnce() -> FlowHasher, flow: Ipv4Flow) -> FlowKey {
        // PANIC: the remainder is below the length.
        let (recent, key) = &mut self.places[flow.place(PLACES)];
        if *recent != flow {
            (*recent, *key) = (flow, hasher().ipv4(flow));
        }
        *key
    }
}

impl Default for RecentKeys {
    fn default() -> Self {
        Self::new()
    }
}
