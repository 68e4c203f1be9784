// SPDX-License-Identifier: GPL-2.0

//! The headers of an overlay packet, outer and inner: how long they are, and whether there is data behind them.
//!
//! Drivers leave a large packet in pages. GRO reads the headers there; without it, each layer pulls its own into the
//! linear part: five pulls for one packet, where one would do. It must take all headers and nothing behind them: what
//! follows is copied to the application, and a piece of it elsewhere costs more than a pull saves.
//!
//! The answer is a guess from the packet's bytes. A wrong one costs time and changes nothing else.

use super::flow_key::{
    fold, FlowHasher, ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP, IPV4_HEADER_SIZE, MIX_A,
    TCP_FLAGS_AT, TCP_HEADER_SIZE, TCP_SYN, UDP_HEADER_SIZE,
};

const IPV4_FRAGMENT_OFFSET: u16 = 0x1fff;
const IPV4_MORE_FRAGMENTS: u16 = 0x2000;
pub(in crate::algo) const IPV6_HEADER_SIZE: usize = 40;
pub(in crate::algo) const IPV6_NEXT_HEADER_AT: usize = 6;
const IPV6_FRAGMENT_SIZE: usize = 8;
const IPV6_FRAGMENT_OFFSET: u16 = 0xfff8;
const IPV6_MORE_FRAGMENTS: u16 = 1;
pub(super) const IPPROTO_FRAGMENT: u8 = 44;
pub(in crate::algo) const ETHERNET_SIZE: usize = 14;
pub(in crate::algo) const ETHERNET_TYPE_AT: usize = 12;
/// The Ethernet protocol of VLAN tags.
pub(super) const ETH_P_8021Q: u16 = 0x8100;
pub(in crate::algo) const TCP_DATA_OFFSET_AT: usize = 12;
/// Flags that say that there is a network identifier, and zeros (RFC 7348, section 5).
const VXLAN_START: [u8; 4] = [0x08, 0, 0, 0];
const VXLAN_SIZE: usize = 8;
/// The protocol of a frame in Geneve's header (RFC 8926, section 3.4), where it is, and the bits that count its options in words.
const GENEVE_FRAME: [u8; 2] = [0x65, 0x58];
const GENEVE_PROTOCOL_AT: usize = 2;
const GENEVE_OPTION_WORDS: u8 = 0x3f;

/// The hasher that makes the numbers of inner flows. An attacker who finds two flows with the same number can disturb their order
/// for a moment, and nothing else.
const INNER_HASHER: FlowHasher = FlowHasher::new(0x243f_6a88_85a3_08d3);

/// Bytes that hold all headers, those with few options too.
pub const OVERLAY_HEADER_BYTES: usize = 192;

/// Returns how many bytes of headers a VXLAN packet begins with; nothing for any other packet.
///
/// `eth_proto` is in host byte order. `packet` starts at the network header.
#[inline]
pub fn overlay_header_bytes(eth_proto: u16, packet: &[u8]) -> Option<usize> {
    overlay(eth_proto, packet).map(|headers| headers.bytes)
}

/// Returns whether a packet of `len` bytes, of which `packet` has the first, may be data for a socket.
///
/// Segments that open, acknowledge or close a connection are not, nor is what an overlay carries besides UDP and TCP:
/// neighbours are looked for in the same outer flow. Nor is a fragment but for the first: what it holds is not known, and its tag
/// may not be that of the datagram. Other packets may be data.
pub fn may_be_data(eth_proto: u16, packet: &[u8], len: usize) -> bool {
    let Some(headers) = overlay(eth_proto, packet) else {
        return vxlan(eth_proto, packet).is_none();
    };
    match (headers.protocol, headers.tcp_flags) {
        (_, Some(flags)) => flags & TCP_SYN == 0 && len > headers.bytes,
        (protocol, None) => protocol == Some(IPPROTO_UDP),
    }
}

/// Returns whether a packet may come to a socket. What an overlay carries besides UDP and TCP does not: ARP, reports of groups, pings.
/// A fragment may, as it does not say what it holds.
pub fn may_reach_socket(eth_proto: u16, packet: &[u8]) -> bool {
    match overlay(eth_proto, packet) {
        Some(Headers { protocol, .. }) => {
            protocol.is_none_or(|protocol| matches!(protocol, IPPROTO_UDP | IPPROTO_TCP))
        }
        None => vxlan(eth_proto, packet).is_none(),
    }
}

/// Returns a number of the flow that a VXLAN packet carries, by its network and its frame's receiver, addresses and ports; 0 for any
/// other packet.
///
/// Fragments have no ports, so those of one datagram have one number. Two flows may have the same.
pub fn inner_flow(eth_proto: u16, packet: &[u8]) -> u64 {
    let flow = || {
        let (network, frame) = vxlan(eth_proto, packet)?;
        let (receiver, frame) = frame.split_first_chunk::<ETHERNET_TYPE_AT>()?;
        let (eth_proto, inner) = frame.split_first_chunk()?;
        let [receiver @ .., _, _, _, _] = receiver;
        let flow = INNER_HASHER.stage_key(u16::from_be_bytes(*eth_proto), inner)?;
        // Each network may have the same addresses.
        let flow = fold(flow, MIX_A ^ u64::from(network));
        Some(fold(u64::from_ne_bytes(*receiver), flow))
    };
    flow().unwrap_or(0)
}

/// The part of a datagram that a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The packet is no fragment, as far as its first bytes show.
    None,
    /// The fragment with which a datagram begins.
    First,
    /// Any other fragment.
    Later,
}

/// Returns the part of a datagram that the packet inside of a tunnel is. The tunnel is VXLAN's or Geneve's.
pub fn fragment(eth_proto: u16, packet: &[u8]) -> Fragment {
    inner_fragment(eth_proto, packet).unwrap_or(Fragment::None)
}

fn inner_fragment(eth_proto: u16, packet: &[u8]) -> Option<Fragment> {
    let (outer, protocol) = ip(eth_proto, packet)?;
    if protocol != Some(IPPROTO_UDP) {
        return None;
    }
    let frame = packet.get(tunnel_frame(packet, outer)?..)?;
    let (mut eth_proto, mut inner) = protocol_field(frame.get(ETHERNET_TYPE_AT..)?)?;
    if eth_proto == ETH_P_8021Q {
        let (_tag, tagged) = protocol_field(inner)?;
        (eth_proto, inner) = protocol_field(tagged)?;
    }
    let (offset, has_more) = fragment_field(eth_proto, inner)?;
    match (offset, has_more) {
        (0, false) => None,
        (0, true) => Some(Fragment::First),
        _ => Some(Fragment::Later),
    }
}

/// Returns the Ethernet protocol that bytes begin with, and the bytes behind it.
fn protocol_field(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (protocol, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*protocol), rest))
}

/// Returns the fragment's offset that an IP header has, in any unit, and whether more fragments follow.
fn fragment_field(eth_proto: u16, packet: &[u8]) -> Option<(u16, bool)> {
    let (field, offset, more) = match eth_proto {
        ETH_P_IP => {
            let [_, _, _, _, _, _, field @ ..] = packet.first_chunk::<8>()?;
            (field, IPV4_FRAGMENT_OFFSET, IPV4_MORE_FRAGMENTS)
        }
        ETH_P_IPV6 if *packet.get(IPV6_NEXT_HEADER_AT)? == IPPROTO_FRAGMENT => {
            let [_, _, field @ ..] = packet.get(IPV6_HEADER_SIZE..)?.first_chunk::<4>()?;
            (field, IPV6_FRAGMENT_OFFSET, IPV6_MORE_FRAGMENTS)
        }
        _ => return None,
    };
    let field = u16::from_be_bytes(*field);
    Some((field & offset, field & more != 0))
}

/// The headers at the start of a VXLAN packet.
struct Headers {
    bytes: usize,
    /// The protocol that follows the inner IP header; none in a fragment that is not the first.
    protocol: Option<u8>,
    tcp_flags: Option<u8>,
}

/// Returns the number of the network to which a VXLAN packet belongs, and the Ethernet frame that it carries.
#[inline]
fn vxlan(eth_proto: u16, packet: &[u8]) -> Option<(u32, &[u8])> {
    let (outer, protocol) = ip(eth_proto, packet)?;
    if protocol != Some(IPPROTO_UDP) {
        return None;
    }
    let vxlan = packet.get(outer.checked_add(UDP_HEADER_SIZE)?..)?;
    let (header, frame) = vxlan.split_first_chunk::<VXLAN_SIZE>()?;
    let [start @ .., high, middle, low, _] = header;
    (start == &VXLAN_START).then_some((u32::from_be_bytes([0, *high, *middle, *low]), frame))
}

#[inline]
fn overlay(eth_proto: u16, packet: &[u8]) -> Option<Headers> {
    let (_, frame) = vxlan(eth_proto, packet)?;
    let eth_proto = u16::from_be_bytes(*frame.get(ETHERNET_TYPE_AT..)?.first_chunk()?);
    let inner = frame.get(ETHERNET_SIZE..)?;
    let (bytes, protocol) = ip(eth_proto, inner)?;
    let payload = inner.get(bytes..)?;
    let (l4, tcp_flags) = match protocol {
        Some(IPPROTO_UDP) => (UDP_HEADER_SIZE, None),
        Some(IPPROTO_TCP) => {
            let header = payload.first_chunk::<TCP_HEADER_SIZE>()?;
            let bytes = usize::from(header[TCP_DATA_OFFSET_AT] >> 4) * 4;
            (bytes, Some(header[TCP_FLAGS_AT]))
        }
        _ => (0, None),
    };
    Some(Headers {
        // The length of what is left says where it begins, without a sum that could overflow.
        bytes: packet.len().checked_sub(payload.get(l4..)?.len())?,
        protocol,
        tcp_flags,
    })
}

/// Returns how long an IP header is, and what follows it: nothing known, in a fragment that is not the first.
#[inline]
fn ip(eth_proto: u16, packet: &[u8]) -> Option<(usize, Option<u8>)> {
    match eth_proto {
        ETH_P_IP => {
            let [version_ihl, _, _, _, _, _, fragment @ ..] = packet.first_chunk::<8>()?;
            let protocol = packet.first_chunk::<IPV4_HEADER_SIZE>()?[9];
            let bytes = usize::from(version_ihl & 0x0f) * 4;
            if version_ihl >> 4 != 4 || bytes < IPV4_HEADER_SIZE {
                return None;
            }
            let is_first = u16::from_be_bytes(*fragment) & IPV4_FRAGMENT_OFFSET == 0;
            Some((bytes, is_first.then_some(protocol)))
        }
        ETH_P_IPV6 => {
            let header = packet.first_chunk::<IPV6_HEADER_SIZE>()?;
            if header[0] >> 4 != 6 {
                return None;
            }
            let next_header = header[IPV6_NEXT_HEADER_AT];
            if next_header != IPPROTO_FRAGMENT {
                return Some((IPV6_HEADER_SIZE, Some(next_header)));
            }
            let [next_header, _, fragment @ ..] =
                packet.get(IPV6_HEADER_SIZE..)?.first_chunk::<4>()?;
            let is_first = u16::from_be_bytes(*fragment) & IPV6_FRAGMENT_OFFSET == 0;
            let bytes = IPV6_HEADER_SIZE + IPV6_FRAGMENT_SIZE;
            Some((bytes, is_first.then_some(*next_header)))
        }
        _ => None,
    }
}

/// Returns the offset of the Ethernet frame that a datagram at a place of the packet carries, if it looks like one of VXLAN or
/// Geneve.
#[inline]
pub(in crate::algo) fn tunnel_frame(packet: &[u8], datagram_at: usize) -> Option<usize> {
    let at = datagram_at + UDP_HEADER_SIZE;
    let tunnel = packet.get(at..)?.first_chunk::<VXLAN_SIZE>()?;
    if tunnel.starts_with(&VXLAN_START) {
        return Some(at + VXLAN_SIZE);
    }
    let options = usize::from(tunnel[0] & GENEVE_OPTION_WORDS) * 4;
    tunnel[GENEVE_PROTOCOL_AT..]
        .starts_with(&GENEVE_FRAME)
        .then_some(at + VXLAN_SIZE + options)
}
