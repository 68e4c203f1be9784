// SPDX-License-Identifier: GPL-2.0

//! The template of a held packet: the bytes that its next frame has to have, and a mask of those that differ from frame to frame.

use super::identifiers::{Identifiers, Place};
use super::sums::Sums;
use super::{field, Alone, Held, Layout, MOST_HEADER_BYTES};
use crate::algo::headers::checksums::{IPV4_START, UDP_CHECKSUM_AT};
use crate::algo::headers::flow_key::{
    ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP, IPV4_HEADER_SIZE, TCP_FLAGS_AT,
    TCP_HEADER_SIZE, UDP_HEADER_SIZE,
};
use crate::algo::headers::overlay::{
    tunnel_frame, ETHERNET_SIZE, ETHERNET_TYPE_AT, IPV6_HEADER_SIZE, IPV6_NEXT_HEADER_AT,
    TCP_DATA_OFFSET_AT,
};

const WORD_BYTES: usize = 8;
const WORDS: usize = MOST_HEADER_BYTES / WORD_BYTES;
/// Words of the headers of a datagram in VXLAN, both over IPv4.
const VXLAN_DATAGRAM_WORDS: usize = 12;

const IPV4_LENGTH_AT: usize = 2;
const IPV4_IDENTIFIER_AT: usize = 4;
const IPV4_FLAGS_AT: usize = 6;
const IPV4_PROTOCOL_AT: usize = 9;
const IPV4_CHECKSUM_AT: usize = 10;
/// Don't-fragment, the only flag that a frame may have here.
const IPV4_DF: u16 = 0x4000;
const IPV6_LENGTH_AT: usize = 4;
const UDP_LENGTH_AT: usize = 4;
const TCP_SEQUENCE_AT: usize = 4;
const TCP_CHECKSUM_AT: usize = 16;
/// ACK, and the echo of congestion (ECE). With each other flag GRO lets go what it holds.
const TCP_PLAIN_FLAGS: u8 = 0x10 | 0x40;

/// A header of IPv4 whose identifier goes on from frame to frame.
#[derive(Clone, Copy, Debug, Default)]
struct Ipv4 {
    at: u8,
    place: Place,
    is_atomic: bool,
    identifier: u16,
    /// Identifier and checksum: their sum is the same in each frame, as all else in the header is.
    sum: u32,
}

impl Ipv4 {
    /// Returns the identifier, and the sum of identifier and checksum in words as they are in memory.
    #[inline]
    fn changing(frame: &[u8], at: u8) -> Option<(u16, u32)> {
        let header = field::<IPV4_HEADER_SIZE>(frame, at)?;
        let identifier = [header[IPV4_IDENTIFIER_AT], header[IPV4_IDENTIFIER_AT + 1]];
        let checksum = [header[IPV4_CHECKSUM_AT], header[IPV4_CHECKSUM_AT + 1]];
        let sum =
            u32::from(u16::from_ne_bytes(identifier)) + u32::from(u16::from_ne_bytes(checksum));
        Some((u16::from_be_bytes(identifier), sum))
    }

    /// Returns how identifiers go on behind a frame; nothing if its identifier or the header's checksum is another one.
    #[inline]
    fn follow(&self, frame: &[u8], frames: u16, identifiers: Identifiers) -> Option<Identifiers> {
        let (identifier, sum) = Self::changing(frame, self.at)?;
        // In ones' complement (RFC 1624).
        if sum.abs_diff(self.sum) % 0xffff != 0 {
            return None;
        }
        identifiers.follow(
            self.place,
            identifier.wrapping_sub(self.identifier),
            frames,
            self.is_atomic,
        )
    }
}

/// Bytes of a held packet, and those of their bits that are the same in each frame.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    held: u64,
    mask: u64,
}

/// The template of a packet that GRO holds. Zeros are one that no frame continues.
#[derive(Clone, Copy, Debug, Default)]
pub struct Template {
    words: [Word; WORDS],
    used_words: usize,
    header_bytes: usize,
    frame_bytes: usize,
    network_at: u8,
    transport_at: u8,
    // The outer one first, as GRO has them.
    ipv4: [Ipv4; 2],
    nr_ipv4: usize,
    is_list: bool,
    is_summed: bool,
    is_tcp: bool,
    has_tunnel: bool,
    has_tunnel_checksum: bool,
    tunnel_checksum_at: u8,
    sums: Sums,
    frames: u16,
    room_frames: u16,
    room_fragments: u16,
    bytes: u32,
    limit_bytes: u32,
    frame_payload_bytes: u32,
    next_sequence: u32,
    identifiers: Identifiers,
}

/// A frame that continues the held packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The place of its payload in the frame; it goes to the frame's end.
    pub payload_at: usize,
    /// The ways in which identifiers go on behind it.
    pub identifiers: Identifiers,
}

/// The network header at a place, and the protocol behind it.
struct Network {
    transport_at: usize,
    protocol: u8,
    ipv4: Option<Ipv4>,
}

impl Template {
    /// Makes this the template of a held packet. Returns false if no frame can join it here.
    pub fn read(&mut self, held: &Held<'_>) -> bool {
        // Whatever has been written stays without effect then.
        self.room_frames = 0;
        self.try_read(held).is_some()
    }

    fn try_read(&mut self, held: &Held<'_>) -> Option<()> {
        let Layout {
            outer_at,
            network_at,
            transport_at,
        } = held.layout;
        let protocol = inner_protocol(held.headers, network_at)?;
        let transport_bytes = match protocol {
            IPPROTO_UDP => UDP_HEADER_SIZE,
            IPPROTO_TCP if !held.is_list => segment_header_bytes(held.headers, transport_at)?,
            _ => return None,
        };
        let header_bytes = transport_at + transport_bytes;
        let headers = held.headers.get(..header_bytes)?;
        // CAST: 32 bits into a usize.
        let frame_bytes = header_bytes + held.frame_payload_bytes as usize;
        let used_words = header_bytes.div_ceil(WORD_BYTES);
        // A frame has the last word as a whole.
        if used_words > WORDS || frame_bytes < used_words * WORD_BYTES || held.frames == 0 {
            return None;
        }
        self.used_words = used_words;
        for (word, bytes) in self.words.iter_mut().zip(headers.chunks(WORD_BYTES)) {
            *word = Word::of(bytes);
        }
        self.nr_ipv4 = 0;
        self.has_tunnel = outer_at.is_some();
        let mut tunnel = None;
        match outer_at {
            Some(ETHERNET_SIZE) => {
                let outer = network(headers, ETHERNET_SIZE, frame_bytes, Place::Outer)?;
                self.has_tunnel_checksum =
                    tunnel_checksum(headers, &outer, network_at, frame_bytes)?;
                let checksum_at = outer.transport_at + UDP_CHECKSUM_AT;
                self.tunnel_checksum_at = checksum_at.try_into().ok()?;
                self.differ(checksum_at)?;
                self.note_ipv4(&outer)?;
                tunnel = Some((ETHERNET_SIZE, outer.transport_at));
            }
            None if network_at == ETHERNET_SIZE => {}
            _ => return None,
        }
        let place = if self.has_tunnel {
            Place::Inner
        } else {
            Place::Only
        };
        let inner = network(headers, network_at, frame_bytes, place)?;
        if inner.transport_at != transport_at {
            return None;
        }
        self.note_ipv4(&inner)?;
        // CAST: a small number.
        let payload_bytes = held.bytes.checked_sub(header_bytes as u32)?;
        if protocol == IPPROTO_UDP {
            if be16(headers, transport_at + UDP_LENGTH_AT)? as usize != frame_bytes - transport_at {
                return None;
            }
            self.differ(transport_at + UDP_CHECKSUM_AT)?;
        } else {
            self.differ(transport_at + TCP_SEQUENCE_AT)?;
            self.differ(transport_at + TCP_SEQUENCE_AT + 2)?;
            self.differ(transport_at + TCP_CHECKSUM_AT)?;
            let sequence = u32::from_be_bytes(*field(headers, transport_at + TCP_SEQUENCE_AT)?);
            self.next_sequence = sequence.wrapping_add(payload_bytes);
        }
        (self.is_list, self.is_summed) = (held.is_list, held.is_summed);
        self.is_tcp = protocol == IPPROTO_TCP;
        self.sums = Sums::of(
            headers,
            tunnel,
            (network_at, transport_at, protocol),
            frame_bytes,
            self.has_tunnel_checksum,
        )?;
        self.header_bytes = header_bytes;
        self.frame_bytes = frame_bytes;
        self.network_at = network_at.try_into().ok()?;
        self.transport_at = transport_at.try_into().ok()?;
        self.frames = held.frames;
        self.bytes = held.bytes;
        self.limit_bytes = held.limit_bytes;
        self.frame_payload_bytes = held.frame_payload_bytes;
        self.identifiers = held.identifiers;
        self.room_fragments = held.room_fragments;
        self.room_frames = held.room_frames;
        Some(())
    }

    /// Notes that a field of 16 bits, at an even place, differs from frame to frame.
    fn differ(&mut self, at: usize) -> Option<()> {
        let mut bytes = [0xff; WORD_BYTES];
        bytes.get_mut(at % WORD_BYTES..)?.get_mut(..2)?.fill(0);
        self.words.get_mut(at / WORD_BYTES)?.mask &= u64::from_ne_bytes(bytes);
        Some(())
    }

    /// Notes a network header if it is one of IPv4.
    fn note_ipv4(&mut self, network: &Network) -> Option<()> {
        if let Some(header) = network.ipv4 {
            *self.ipv4.get_mut(self.nr_ipv4)? = header;
            self.nr_ipv4 += 1;
            self.differ(usize::from(header.at) + IPV4_IDENTIFIER_AT)?;
            self.differ(usize::from(header.at) + IPV4_CHECKSUM_AT)?;
        }
        Some(())
    }

    /// Returns whether the payload of the next frame can be a fragment of the held packet. If not, a packet that is built of the frame goes
    /// behind it: as each datagram of a list, or as there is no room for another fragment.
    #[inline]
    pub fn takes_fragments(&self) -> bool {
        !self.is_list && self.room_fragments > 0
    }

    /// Returns whether a frame of which the driver makes a packet by copying may go behind the held packet: a datagram may. GRO makes a fragment
    /// of a copied segment, so that the reader has fewer packets to free.
    #[inline]
    pub fn takes_copies(&self) -> bool {
        !self.is_tcp
    }

    /// Returns whether a frame that the NIC has summed, or has not, may go behind the held packet. GRO puts datagrams into a list only if the
    /// NIC's word for all is of one kind.
    #[inline]
    pub fn takes_sums(&self, is_summed: bool) -> bool {
        !self.is_list || self.is_summed == is_summed
    }

    /// Makes no frame join until the template is read again: the last one that was to join has not.
    #[inline]
    pub fn close(&mut self) {
        self.room_frames = 0;
    }

    /// Notes that a payload has become a fragment.
    #[inline]
    pub fn note_fragment(&mut self) {
        self.room_fragments = self.room_fragments.saturating_sub(1);
    }

    /// Notes that a packet has gone behind the held one, with room for this many fragments.
    #[inline]
    pub fn note_member(&mut self, room_fragments: u16) {
        self.room_fragments = room_fragments;
    }

    /// Returns the place of the network header that ends at a socket, and that of the header behind it.
    #[inline]
    pub fn inner_at(&self) -> (usize, usize) {
        (self.network_at.into(), self.transport_at.into())
    }

    /// Returns where the payload of a frame that continues the held packet is, and notes the frame: the caller hangs its payload onto the
    /// packet, and notes how. Otherwise returns why the frame does not.
    ///
    /// `frame` is all of the frame, from Ethernet's header on. Of its checksums, the NIC has verified the outermost `good`. `sum` returns the
    /// sum of bytes in ones' complement, in words as they are in memory, as `csum_partial()`.
    #[inline]
    pub fn join(
        &mut self,
        frame: &[u8],
        good: u32,
        sum: impl FnOnce(&[u8]) -> u32,
    ) -> Result<Joined, Alone> {
        let room_frames = self.room_frames.checked_sub(1).ok_or(Alone::Full)?;
        if !self.has_its_words(frame).unwrap_or(false) {
            return Err(Alone::Headers);
        }
        let bytes = self.bytes_with_next().ok_or(Alone::Full)?;
        let identifiers = self.goes_on(frame).ok_or(Alone::Headers)?;
        if !self.is_summed_as_held(frame).unwrap_or(false)
            || !self.sums.are_good(frame, good, sum).unwrap_or(false)
        {
            return Err(Alone::Checksum);
        }
        let frames = self.frames.checked_add(1).ok_or(Alone::Full)?;
        self.identifiers = identifiers;
        self.frames = frames;
        self.room_frames = room_frames;
        self.bytes = bytes;
        self.next_sequence = self.next_sequence.wrapping_add(self.frame_payload_bytes);
        Ok(Joined {
            payload_at: self.header_bytes,
            identifiers,
        })
    }

    /// Returns whether a frame has the length and the bits that are the same in each frame.
    #[inline]
    fn has_its_words(&self, frame: &[u8]) -> Option<bool> {
        if frame.len() != self.frame_bytes {
            return None;
        }
        let words = self.words.get(..self.used_words)?;
        // Most headers have as many words as the first part, or a few more. Without a loop that part costs half as much.
        let differs = match words.split_first_chunk::<VXLAN_DATAGRAM_WORDS>() {
            Some((first, rest)) => {
                let (bytes, behind) = frame.split_at_checked(VXLAN_DATAGRAM_WORDS * WORD_BYTES)?;
                differ(first, bytes)? | differ(rest, behind)?
            }
            None => differ(words, frame)?,
        };
        Some(differs == 0)
    }

    /// Returns the length that the packet has with one more frame, if that is short enough.
    #[inline]
    fn bytes_with_next(&self) -> Option<u32> {
        let bytes = self.bytes.checked_add(self.frame_payload_bytes)?;
        // GRO counts the headers of a datagram that is to be in a list, too.
        let more_bytes = match self.is_list {
            // CAST: within a frame.
            true => (self.header_bytes - ETHERNET_SIZE) as u32,
            false => 0,
        };
        (bytes.checked_add(more_bytes)? < self.limit_bytes).then_some(bytes)
    }

    /// Returns how identifiers go on behind a frame whose sequence number and identifiers go on.
    #[inline]
    fn goes_on(&self, frame: &[u8]) -> Option<Identifiers> {
        if self.is_tcp {
            let at = usize::from(self.transport_at) + TCP_SEQUENCE_AT;
            let sequence = u32::from_be_bytes(*field(frame, at)?);
            if sequence != self.next_sequence {
                return None;
            }
        }
        let mut identifiers = self.identifiers;
        for header in self.ipv4.get(..self.nr_ipv4)? {
            identifiers = header.follow(frame, self.frames, identifiers)?;
        }
        Some(identifiers)
    }

    /// Returns whether a frame has a checksum where GRO wants one, and as the held packet has.
    #[inline]
    fn is_summed_as_held(&self, frame: &[u8]) -> Option<bool> {
        // GRO joins no datagrams without a checksum.
        let checksum_at = usize::from(self.transport_at) + UDP_CHECKSUM_AT;
        if !self.is_tcp && *field::<2>(frame, checksum_at)? == [0; 2] {
            return None;
        }
        // GRO tells tunnels' datagrams with a checksum from those without.
        Some(
            !self.has_tunnel
                || (*field::<2>(frame, self.tunnel_checksum_at)? != [0; 2])
                    == self.has_tunnel_checksum,
        )
    }
}

/// Returns the bits of a frame that differ from those of words, one behind the other, and may not.
#[inline(always)]
fn differ(words: &[Word], frame: &[u8]) -> Option<u64> {
    let (mut differs, mut frame) = (0, frame.get(..words.len() * WORD_BYTES)?);
    for word in words {
        let (bytes, behind) = frame.split_first_chunk()?;
        differs |= (u64::from_ne_bytes(*bytes) ^ word.held) & word.mask;
        frame = behind;
    }
    Some(differs)
}

impl Word {
    /// Returns the word of these bytes, of which the last one of the headers may have fewer than eight.
    #[inline]
    fn of(bytes: &[u8]) -> Self {
        if let Some(bytes) = bytes.first_chunk() {
            return Self {
                held: u64::from_ne_bytes(*bytes),
                mask: u64::MAX,
            };
        }
        let (mut held, mut mask) = ([0; WORD_BYTES], [0; WORD_BYTES]);
        for (at, byte) in bytes.iter().enumerate() {
            // PANIC: there are fewer than eight.
            (held[at], mask[at]) = (*byte, 0xff);
        }
        Self {
            held: u64::from_ne_bytes(held),
            mask: u64::from_ne_bytes(mask),
        }
    }
}

/// Returns the protocol behind the network header at a place, which has to be one without options.
fn inner_protocol(headers: &[u8], at: usize) -> Option<u8> {
    match be16(headers, at.checked_sub(ETHERNET_SIZE - ETHERNET_TYPE_AT)?)? {
        ETH_P_IP => headers.get(at + IPV4_PROTOCOL_AT).copied(),
        ETH_P_IPV6 => headers.get(at + IPV6_NEXT_HEADER_AT).copied(),
        _ => None,
    }
}

/// Returns the bytes of a segment's header, if its flags are those of segments that go on.
fn segment_header_bytes(headers: &[u8], at: usize) -> Option<usize> {
    let tcp = field::<TCP_HEADER_SIZE>(headers, at)?;
    let bytes = usize::from(tcp[TCP_DATA_OFFSET_AT] >> 4) * 4;
    (bytes >= TCP_HEADER_SIZE && tcp[TCP_FLAGS_AT] & !TCP_PLAIN_FLAGS == 0).then_some(bytes)
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*field(bytes, at)?))
}

/// Returns the network header at a place of a frame, if it is one without options that ends with the frame.
fn network(headers: &[u8], at: usize, frame_bytes: usize, place: Place) -> Option<Network> {
    let eth_proto = be16(headers, at.checked_sub(ETHERNET_SIZE - ETHERNET_TYPE_AT)?)?;
    let bytes = frame_bytes.checked_sub(at)?;
    match eth_proto {
        ETH_P_IP => {
            let header = field::<IPV4_HEADER_SIZE>(headers, at)?;
            let flags = be16(header, IPV4_FLAGS_AT)?;
            if header[0] != IPV4_START
                || usize::from(be16(header, IPV4_LENGTH_AT)?) != bytes
                || flags & !IPV4_DF != 0
            {
                return None;
            }
            let ipv4_at = at.try_into().ok()?;
            let (identifier, sum) = Ipv4::changing(headers, ipv4_at)?;
            Some(Network {
                transport_at: at + IPV4_HEADER_SIZE,
                protocol: header[IPV4_PROTOCOL_AT],
                ipv4: Some(Ipv4 {
                    at: ipv4_at,
                    place,
                    is_atomic: flags & IPV4_DF != 0,
                    identifier,
                    sum,
                }),
            })
        }
        ETH_P_IPV6 => {
            let header = field::<IPV6_HEADER_SIZE>(headers, at)?;
            let length = usize::from(be16(header, IPV6_LENGTH_AT)?);
            (header[0] >> 4 == 6 && length + IPV6_HEADER_SIZE == bytes).then_some(Network {
                transport_at: at + IPV6_HEADER_SIZE,
                protocol: header[IPV6_NEXT_HEADER_AT],
                ipv4: None,
            })
        }
        _ => None,
    }
}

/// Returns whether the datagram of a tunnel has a checksum; nothing if it is none whose frame has its network header at `network_at`.
fn tunnel_checksum(
    headers: &[u8],
    outer: &Network,
    network_at: usize,
    frame_bytes: usize,
) -> Option<bool> {
    let udp = field::<UDP_HEADER_SIZE>(headers, outer.transport_at)?;
    let length = usize::from(be16(udp, UDP_LENGTH_AT)?);
    if outer.protocol != IPPROTO_UDP || length != frame_bytes.checked_sub(outer.transport_at)? {
        return None;
    }
    let frame_at = tunnel_frame(headers, outer.transport_at)?;
    (frame_at + ETHERNET_SIZE == network_at).then(|| udp[UDP_CHECKSUM_AT..] != [0; 2])
}
