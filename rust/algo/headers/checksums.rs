// SPDX-License-Identifier: GPL-2.0

//! The checksums of a packet that GRO would verify.
//!
//! A packet that goes past GRO is to be to all behind it what GRO would have left: verified. If it is not, connection tracking verifies it
//! and keeps the sum (`__skb_checksum_complete()`). A rule that writes class or hop limit into a header of IPv6 makes that sum wrong,
//! as no checksum of IPv6 makes up for the change, and `udp6_csum_init()` drops the packet. Nor would a datagram arrive into which a
//! rule writes that knows nothing of checksums, or a segment: with GRO it does.
//!
//! Tunnels are told by their bytes, where GRO asks their sockets. Where that guess is wrong, a sum was verified that nobody asks for.

use super::flow_key::{
    ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP, IPV4_HEADER_SIZE, TCP_HEADER_SIZE,
    UDP_HEADER_SIZE,
};
use super::overlay::{
    tunnel_frame, ETHERNET_SIZE, ETHERNET_TYPE_AT, ETH_P_8021Q, IPPROTO_FRAGMENT, IPV6_HEADER_SIZE,
    IPV6_NEXT_HEADER_AT,
};

/// Bytes of a packet that are looked at: two headers of IPv6, those of UDP and of a tunnel with options, Ethernet, and TCP.
pub const CHECKSUM_HEADER_BYTES: usize = 160;

/// The Ethernet protocol of a provider's VLAN tags.
const ETH_P_8021AD: u16 = 0x88a8;
/// Bytes of a tag: its number, and the protocol behind it.
const TAG_SIZE: usize = 4;
const MOST_TAGS: usize = 2;
/// The headers of IPv6 that GRO passes by (`ipv6_gro_pull_exthdrs()`): options for each hop, a route, and options for the destination.
const IPV6_OPTIONS: [u8; 3] = [0, 43, 60];
/// The bytes of a unit of their length, which leaves the first unit out (RFC 8200, section 4).
const IPV6_OPTIONS_UNIT: usize = 8;
const MOST_OPTIONS: usize = 4;
/// Version 4, and a header without options: GRO verifies no others.
pub(in crate::algo) const IPV4_START: u8 = 0x45;
/// The more-fragments flag and the fragment offset.
const IPV4_FRAGMENT_MASK: u16 = 0x3fff;
pub(in crate::algo) const IPV4_ADDRESSES_AT: usize = 12;
pub(in crate::algo) const IPV6_ADDRESSES_AT: usize = 8;
pub(in crate::algo) const UDP_CHECKSUM_AT: usize = 6;

/// The bytes of a packet that a checksum covers, and the sum of its pseudo header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The place of the first byte in the packet, behind a network header.
    pub at: usize,
    /// Their number: all to the packet's end.
    pub bytes: usize,
    /// The sum of its pseudo header, in words as they are in memory.
    pub pseudo: u32,
}

/// A network header, and what it has a checksum for.
enum Layer {
    /// Nothing that GRO would verify: a fragment, options, or padding behind the packet.
    Opaque,
    /// A datagram, with a checksum or without one.
    Datagram(Covered, bool),
    Segment(Covered),
}

/// The checksums of a packet that are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Good {
    /// The number of them, counted from the outermost one.
    pub count: usize,
    /// False if GRO may find more, behind headers that are not known here.
    pub is_all: bool,
}

/// Returns which checksums of a packet are good.
///
/// `eth_proto` is in host byte order. `packet` has the first bytes from the network header on, of `len`. `good` checksums have been
/// verified by the NIC. `is_good` sums what one covers beyond the first bytes. A datagram without a checksum counts, as for those that
/// ask.
#[inline]
pub fn good_checksums(
    eth_proto: u16,
    packet: &[u8],
    len: usize,
    good: usize,
    is_good: impl Fn(Covered) -> bool,
) -> Good {
    let outer = layer(eth_proto, packet, 0, len);
    let frame_at = match &outer {
        Some(Layer::Datagram(covered, _)) => tunnel_frame(packet, covered.at),
        Some(Layer::Opaque | Layer::Segment(_)) | None => None,
    };
    let inner = frame_at.map_or(Some(Layer::Opaque), |frame_at| {
        let eth_proto = packet.get(frame_at + ETHERNET_TYPE_AT..)?.first_chunk()?;
        let eth_proto = u16::from_be_bytes(*eth_proto);
        layer(eth_proto, packet, frame_at + ETHERNET_SIZE, len)
    });
    let is_all = outer.is_some() && inner.is_some();
    let sums_up = |covered: Covered| {
        // What is all here, a small datagram, costs a handful of additions.
        let bytes = packet.get(covered.at..covered.at.saturating_add(covered.bytes));
        bytes.map_or_else(
            || is_good(covered),
            |bytes| suit_checksum(bytes, covered.pseudo),
        )
    };
    let mut verified = 0;
    for layer in [outer, inner] {
        let passes = match layer.unwrap_or(Layer::Opaque) {
            Layer::Opaque => false,
            Layer::Datagram(_, false) => true,
            Layer::Datagram(covered, true) | Layer::Segment(covered) => {
                verified < good || sums_up(covered)
            }
        };
        if !passes {
            break;
        }
        verified += 1;
    }
    Good {
        count: verified,
        is_all,
    }
}

/// Returns whether bytes and the sum of a pseudo header suit the checksum among the bytes (RFC 1071).
#[inline]
pub fn suit_checksum(bytes: &[u8], pseudo: u32) -> bool {
    fold(word_sum(bytes) + u64::from(pseudo)) == 0xffff
}

/// Returns the sum of bytes in words as they are in memory, with zeros behind the last byte. Less than 2^40.
#[inline]
pub(in crate::algo) fn word_sum(bytes: &[u8]) -> u64 {
    // In ones' complement, four words that are summed as one of 64 bits have the sum of the four.
    let mut sum = 0_u128;
    let blocks = bytes.chunks_exact(4 * size_of::<u64>());
    let mut rest = blocks.remainder();
    for block in blocks {
        for eight in block.chunks_exact(size_of::<u64>()) {
            sum += u128::from(u64::from_ne_bytes(eight.try_into().unwrap_or_default()));
        }
    }
    while let Some((eight, behind)) = rest.split_first_chunk() {
        sum += u128::from(u64::from_ne_bytes(*eight));
        rest = behind;
    }
    // CAST: both halves of the sum.
    let mut sum = (sum as u64 >> 32) + (sum as u64 & 0xffff_ffff) + (sum >> 64) as u64;
    if let Some((four, behind)) = rest.split_first_chunk() {
        sum += u64::from(u32::from_ne_bytes(*four));
        rest = behind;
    }
    if let Some((two, behind)) = rest.split_first_chunk() {
        sum += u64::from(u16::from_ne_bytes(*two));
        rest = behind;
    }
    match rest {
        [last, ..] => sum + u64::from(u16::from_ne_bytes([*last, 0])),
        [] => sum,
    }
}

/// Returns a sum in ones' complement as one word of a checksum.
#[inline]
pub(in crate::algo) fn fold(sum: u64) -> u16 {
    let once = |sum: u64| (sum & 0xffff) + (sum >> 16);
    // CAST: four times are enough for 64 bits.
    once(once(once(once(sum)))) as u16
}

/// Returns the layer of the network header at a place of the packet; nothing if GRO may know more about it.
#[inline(always)]
fn layer(eth_proto: u16, packet: &[u8], at: usize, len: usize) -> Option<Layer> {
    let header = packet.get(at..)?;
    let bytes = len.checked_sub(at)?;
    let (header_bytes, addresses, protocol) = match eth_proto {
        ETH_P_IP => {
            let header = header.first_chunk::<IPV4_HEADER_SIZE>()?;
            let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
            if header[0] != IPV4_START
                || usize::from(word(2)) != bytes
                || word(6) & IPV4_FRAGMENT_MASK != 0
            {
                return Some(Layer::Opaque);
            }
            (IPV4_HEADER_SIZE, &header[IPV4_ADDRESSES_AT..], header[9])
        }
        ETH_P_IPV6 => {
            let header = header.first_chunk::<IPV6_HEADER_SIZE>()?;
            let payload = u16::from_be_bytes([header[4], header[5]]);
            let protocol = header[IPV6_NEXT_HEADER_AT];
            if header[0] >> 4 != 6
                || usize::from(payload) + IPV6_HEADER_SIZE != bytes
                || protocol == IPPROTO_FRAGMENT
            {
                return Some(Layer::Opaque);
            }
            let addresses = &header[IPV6_ADDRESSES_AT..];
            if IPV6_OPTIONS.contains(&protocol) {
                return layer_behind_options(packet, addresses, at + IPV6_HEADER_SIZE, len);
            }
            (IPV6_HEADER_SIZE, addresses, protocol)
        }
        ETH_P_8021Q | ETH_P_8021AD => return layer_behind_tags(packet, at, len),
        _ => return None,
    };
    transport_layer(packet, addresses, protocol, at + header_bytes, len)
}

/// Returns the layer of UDP's or TCP's header at a place of the packet.
#[inline(always)]
fn transport_layer(
    packet: &[u8],
    addresses: &[u8],
    protocol: u8,
    at: usize,
    len: usize,
) -> Option<Layer> {
    let bytes = len.checked_sub(at)?;
    let covered = Covered {
        at,
        bytes,
        pseudo: pseudo_sum(addresses, protocol, bytes),
    };
    let transport = packet.get(at..)?;
    match protocol {
        IPPROTO_UDP => {
            let udp = transport.first_chunk::<UDP_HEADER_SIZE>()?;
            let has_checksum = udp[UDP_CHECKSUM_AT..] != [0; 2];
            Some(Layer::Datagram(covered, has_checksum))
        }
        IPPROTO_TCP if bytes >= TCP_HEADER_SIZE => Some(Layer::Segment(covered)),
        _ => None,
    }
}

/// Returns the layer behind tags of VLANs, which few packets have.
#[cold]
#[inline(never)]
fn layer_behind_tags(packet: &[u8], at: usize, len: usize) -> Option<Layer> {
    let (eth_proto, at) = untagged(packet, at)?;
    // This ends: what is behind tags is none.
    layer(eth_proto, packet, at, len)
}

/// Returns the layer behind headers of IPv6's options, which few packets have.
#[cold]
#[inline(never)]
fn layer_behind_options(packet: &[u8], addresses: &[u8], at: usize, len: usize) -> Option<Layer> {
    let (protocol, at) = behind_options(packet, at)?;
    transport_layer(packet, addresses, protocol, at, len)
}

/// Returns the Ethernet protocol behind tags of VLANs, and where its header is.
fn untagged(packet: &[u8], mut at: usize) -> Option<(u16, usize)> {
    for _ in 0..MOST_TAGS {
        let [_, _, eth_proto @ ..] = packet.get(at..)?.first_chunk::<TAG_SIZE>()?;
        let eth_proto = u16::from_be_bytes(*eth_proto);
        at += TAG_SIZE;
        if !matches!(eth_proto, ETH_P_8021Q | ETH_P_8021AD) {
            return Some((eth_proto, at));
        }
    }
    None
}

/// Returns the protocol behind the headers of IPv6's options that begin at a place, and where its header is.
fn behind_options(packet: &[u8], mut at: usize) -> Option<(u8, usize)> {
    for _ in 0..MOST_OPTIONS {
        let [protocol, units] = packet.get(at..)?.first_chunk()?;
        at += (usize::from(*units) + 1) * IPV6_OPTIONS_UNIT;
        if !IPV6_OPTIONS.contains(protocol) {
            return Some((*protocol, at));
        }
    }
    None
}

/// Returns the sum of a pseudo header: addresses, protocol, and the length of what is behind the network header.
#[inline]
pub(in crate::algo) fn pseudo_sum(addresses: &[u8], protocol: u8, bytes: usize) -> u32 {
    let addresses = u32::from(fold(word_sum(addresses)));
    // CAST: a packet's length field has 16 bits, and the caller has compared it.
    let bytes = u32::from((bytes as u16).to_be());
    addresses + bytes + u32::from(u16::from(protocol).to_be())
}
