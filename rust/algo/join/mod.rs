// SPDX-License-Identifier: GPL-2.0

//! The join of a frame with a packet that GRO holds, before the frame is a packet.
//!
//! A lane's requests are frames of one flow, one behind the other. To build a packet of each, which GRO takes apart again, is most of a
//! lane's work. So a lane compares a frame with a [`Template`] of the packet that its GRO holds. If the frame continues that packet, the lane
//! hangs the frame's payload onto it, and no packet is built. A datagram becomes a packet if its socket wants one of each
//! ([`DatagramForm::List`]), and goes behind the list that GRO holds, past the layers of GRO.
//!
//! The chain of calls: `glue/packet/lane.rs: join_or_build` asks `glue/stack/joiner.rs: join`. That finds the held packet in
//! [`known_packets`], and compares the frame with its template (`template.rs: Template::join`). A frame that continues the packet is hung
//! onto it by `c-shims/module/mflow_join.c: mflow_held_join`, or is built, and appended by `mflow_held_append`.
//!
//! A frame joins only if GRO would have joined the packet that is made of it, and would go on to hold the result: every other frame takes
//! the way through GRO. The rules are those of `inet_gro_receive()`, `ipv6_gro_receive()`, `udp_gro_receive()`, `tcp_gro_receive()` and
//! `gro_receive_network_flush()` in Linux 6.1, 6.12 and 7.3. Where these look at a field that hardly ever changes, here it has to be the same.

mod identifiers;
pub mod known_packets;
mod sums;
mod template;

pub use identifiers::{IdentifierRule, Identifiers};
pub use template::{Joined, Template};

/// Bytes of headers that are compared: two headers of IPv6, those of UDP and of a tunnel with options, two of Ethernet, and TCP.
pub const MOST_HEADER_BYTES: usize = 192;

/// The reason why a frame does not join: a packet is built of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Alone {
    /// The knob `join` is off.
    Off = 0,
    /// GRO holds no packet of the flow that frames can join.
    First = 1,
    /// The driver has no fragment for that packet.
    Driver = 2,
    /// The packet has no room.
    Full = 3,
    /// The headers do not continue those of the packet.
    Headers = 4,
    /// A checksum is wrong, or there is none.
    Checksum = 5,
}

/// The number of these reasons.
pub const NR_ALONE: usize = 6;

/// The form in which datagrams of a lane pass the stack: `MFLOW_FORM_*` in `include/net/mflow.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum DatagramForm {
    /// Each by itself.
    #[default]
    Single = 0,
    /// In a list of packets, each with its headers.
    List = 1,
    /// In one packet with the payload of all, for a socket with `UDP_GRO`.
    Aggregate = 2,
}

/// The places of a packet's headers, from Ethernet's header on, as GRO has found them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The network header of the tunnel's packet, if there is one.
    pub outer_at: Option<usize>,
    /// The network header of the packet that ends at a socket.
    pub network_at: usize,
    /// The header of TCP or UDP behind that.
    pub transport_at: usize,
}

/// A packet that GRO holds.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// The bytes of its first frame, from Ethernet's header on: at least those of all headers.
    pub headers: &'a [u8],
    /// The places of these.
    pub layout: Layout,
    /// The number of its frames.
    pub frames: u16,
    /// The number of frames that GRO would join and go on to hold.
    pub room_frames: u16,
    /// The number of frames of which the payload can be a fragment, before one has to be a packet of its own behind it.
    pub room_fragments: u16,
    /// Its length, from Ethernet's header on.
    pub bytes: u32,
    /// It is shorter than that, always.
    pub limit_bytes: u32,
    /// The payload of each frame (`gso_size`).
    pub frame_payload_bytes: u32,
    /// True if the NIC has summed it (`CHECKSUM_COMPLETE`).
    pub is_summed: bool,
    /// True if it is a list of datagrams, each of which is a packet of its own. Otherwise it is a run of segments, or of datagrams in one
    /// packet.
    pub is_list: bool,
    /// The ways in which the identifiers of its headers go on.
    pub identifiers: Identifiers,
}

/// Returns the field at a place.
#[inline]
fn field<const N: usize>(bytes: &[u8], at: impl Into<usize>) -> Option<&[u8; N]> {
    // One comparison, if the place is known to be a small number.
    let at = at.into();
    bytes.get(at..at.checked_add(N)?)?.first_chunk()
}
