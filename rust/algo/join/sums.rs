// SPDX-License-Identifier: GPL-2.0

//! The checksums of a frame, which one pass over its bytes verifies: the tunnel's checksum covers all that TCP's covers.

use super::template::field;
use crate::algo::headers::flow_key::IPPROTO_UDP;

const IPV4_ADDRESSES_AT: usize = 12;
const IPV4_ADDRESSES_BYTES: usize = 8;
const IPV6_ADDRESSES_AT: usize = 8;
const IPV6_ADDRESSES_BYTES: usize = 32;
const UDP_CHECKSUM_AT: usize = 6;

/// The sums that are the same in each frame of a held packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    has_tunnel: bool,
    tunnel: TunnelSum,
    transport_at: usize,
    /// The pseudo header of TCP.
    pseudo: u32,
}

/// The sum of a tunnel's datagram.
#[derive(Clone, Copy, Debug, Default)]
struct TunnelSum {
    at: usize,
    has_checksum: bool,
    pseudo: u32,
    /// The bytes from the datagram's header to TCP's, without the checksum. A header of IPv4 among them sums up to nothing in each frame.
    headers: u32,
}

impl Sums {
    /// Returns the sums of a held packet, whose headers are given. The tunnel has the places of its network
    /// header and of its datagram; what is inside, the same and its protocol.
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
                let in_front = plain_sum(headers.get(at..checksum_at)?);
                let behind = plain_sum(headers.get(checksum_at + 2..transport_at)?);
                TunnelSum {
                    at,
                    has_checksum,
                    pseudo: pseudo_sum(
                        headers,
                        outer_at,
                        IPPROTO_UDP,
                        frame_bytes.checked_sub(at)?,
                    )?,
                    headers: in_front + behind,
                }
            }
        };
        let bytes = frame_bytes.checked_sub(transport_at)?;
        Some(Self {
            has_tunnel,
            tunnel,
            transport_at,
            pseudo: pseudo_sum(headers, network_at, protocol, bytes)?,
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
        let tunnel = &self.tunnel;
        if !self.has_tunnel {
            let is_good =
                good >= 1 || is_all_ones(sum(frame.get(self.transport_at..)?), self.pseudo);
            return Some(is_good);
        }
        if good >= 2 {
            return Some(true);
        }
        if good == 1 || !tunnel.has_checksum {
            let sum = sum(frame.get(self.transport_at..)?);
            return Some(is_all_ones(sum, self.pseudo));
        }
        let sum = sum(frame.get(tunnel.at..)?);
        let checksum = u16::from_ne_bytes(*field(frame, tunnel.at + UDP_CHECKSUM_AT)?);
        // In ones' complement, the complement is the negative.
        let headers = tunnel.headers + u32::from(checksum);
        let inner = u64::from(sum) + u64::from(!headers);
        Some(is_all_ones(sum, tunnel.pseudo) && is_all_ones(fold(inner).into(), self.pseudo))
    }
}

/// Returns whether a sum and that of a pseudo header make a good checksum.
#[inline]
fn is_all_ones(sum: u32, pseudo: u32) -> bool {
    fold(u64::from(sum) + u64::from(pseudo)) == 0xffff
}

/// Returns a sum as one word.
#[inline]
fn fold(sum: u64) -> u16 {
    let once = |sum: u64| (sum & 0xffff) + (sum >> 16);
    // CAST: four times are enough for 64 bits.
    once(once(once(once(sum)))) as u16
}

/// Returns the sum of an even number of bytes, fewer than those whose words may overflow it.
fn plain_sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(4);
    let last = words.remainder().first_chunk::<2>().copied();
    let sum = words.filter_map(|word| word.first_chunk()).fold(
        u64::from(u16::from_ne_bytes(last.unwrap_or_default())),
        |sum, word| sum + u64::from(u32::from_ne_bytes(*word)),
    );
    fold(sum).into()
}

/// Returns the sum of the pseudo header of a network header at a place, for this many bytes behind it.
fn pseudo_sum(headers: &[u8], at: usize, protocol: u8, bytes: usize) -> Option<u32> {
    let addresses = match headers.get(at)? >> 4 {
        4 => headers
            .get(at + IPV4_ADDRESSES_AT..)?
            .get(..IPV4_ADDRESSES_BYTES)?,
        _ => headers
            .get(at + IPV6_ADDRESSES_AT..)?
            .get(..IPV6_ADDRESSES_BYTES)?,
    };
    let bytes = u16::try_from(bytes).ok()?;
    Some(plain_sum(addresses) + u32::from(u16::to_be(protocol.into())) + u32::from(bytes.to_be()))
}
