// SPDX-License-Identifier: GPL-2.0

//! The checksums of a frame, which one pass over its bytes verifies: the tunnel's checksum covers all that the inner one covers.

use super::field;
use crate::algo::headers::checksums::{
    fold, pseudo_sum, word_sum, IPV4_ADDRESSES_AT, IPV6_ADDRESSES_AT, UDP_CHECKSUM_AT,
};
use crate::algo::headers::flow_key::{IPPROTO_UDP, IPV4_HEADER_SIZE};
use crate::algo::headers::overlay::IPV6_HEADER_SIZE;

/// The sums that are the same in each frame of a held packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    has_tunnel: bool,
    tunnel: TunnelSum,
    transport_at: u8,
    /// The pseudo header of the inner transport header.
    pseudo: u32,
}

/// The sum of a tunnel's datagram.
#[derive(Clone, Copy, Debug, Default)]
struct TunnelSum {
    at: u8,
    has_checksum: bool,
    pseudo: u32,
    /// The bytes from the datagram's header to the inner transport header, without the datagram's checksum. A header of IPv4 among them sums
    /// up to nothing in each frame.
    headers: u32,
}

impl Sums {
    /// Returns the sums of a held packet, of whose frames each has `frame_bytes`. `tunnel` has the places of the outer network header and of
    /// the datagram behind it, if there is a tunnel, and the other tuple the inner network header, the header behind it and its protocol.
    pub(super) fn of(
        headers: &[u8],
        tunnel: Option<(usize, usize)>,
        (network_at, transport_at, protocol): (usize, usize, u8),
        frame_bytes: usize,
        has_checksum: bool,
    ) -> Option<Self> {
        let has_tunnel = tunnel.is_some();
        let tunnel = match tunnel {
            None => TunnelSum::default(),
            Some((outer_at, at)) => {
                let checksum_at = at + UDP_CHECKSUM_AT;
                let in_front = word_sum(headers.get(at..checksum_at)?);
                let behind = word_sum(headers.get(checksum_at + 2..transport_at)?);
                TunnelSum {
                    at: at.try_into().ok()?,
                    has_checksum,
                    pseudo: pseudo_sum(
                        addresses(headers, outer_at)?,
                        IPPROTO_UDP,
                        frame_bytes.checked_sub(at)?,
                    ),
                    headers: fold(in_front + behind).into(),
                }
            }
        };
        let bytes = frame_bytes.checked_sub(transport_at)?;
        Some(Self {
            has_tunnel,
            tunnel,
            transport_at: transport_at.try_into().ok()?,
            pseudo: pseudo_sum(addresses(headers, network_at)?, protocol, bytes),
        })
    }

    /// Returns whether the checksums of a frame are good, beyond those that the NIC has verified.
    #[inline]
    pub(super) fn are_good(
        &self,
        frame: &[u8],
        good: u32,
        sum: impl FnOnce(&[u8]) -> u32,
    ) -> Option<bool> {
        let (tunnel, transport_at) = (&self.tunnel, usize::from(self.transport_at));
        if !self.has_tunnel {
            let is_good =
                good >= 1 || is_all_ones(sum(frame.get(transport_at..)?).into(), self.pseudo);
            return Some(is_good);
        }
        if good >= 2 {
            return Some(true);
        }
        if good == 1 || !tunnel.has_checksum {
            let sum = sum(frame.get(transport_at..)?);
            return Some(is_all_ones(sum.into(), self.pseudo));
        }
        let at = usize::from(tunnel.at);
        let sum = sum(frame.get(at..)?);
        let checksum = u16::from_ne_bytes(*field(frame, at + UDP_CHECKSUM_AT)?);
        // In ones' complement, the complement is the negative.
        let headers = tunnel.headers + u32::from(checksum);
        let inner = u64::from(sum) + u64::from(!headers);
        Some(is_all_ones(sum.into(), tunnel.pseudo) && is_all_ones(inner, self.pseudo))
    }
}

/// Returns whether a sum of words and that of a pseudo header make a good checksum: all ones, when folded.
#[inline]
fn is_all_ones(sum: u64, pseudo: u32) -> bool {
    // A pseudo header has a protocol, so the sum is not 0. The remainder costs less than to fold.
    (sum + u64::from(pseudo)) % 0xffff == 0
}

/// Returns the addresses in the network header at a place.
fn addresses(headers: &[u8], at: usize) -> Option<&[u8]> {
    match headers.get(at)? >> 4 {
        4 => headers.get(at + IPV4_ADDRESSES_AT..at + IPV4_HEADER_SIZE),
        _ => headers.get(at + IPV6_ADDRESSES_AT..at + IPV6_HEADER_SIZE),
    }
}
