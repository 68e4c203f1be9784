// SPDX-License-Identifier: GPL-2.0

//! Packets that a socket with `UDP_GRO` reads: each has one datagram or many.

use std::slice::Chunks;

use anyhow::Result;
use nix::sys::socket::{ControlMessageOwned, RecvMsg, SockaddrLike};

/// No packet is larger.
pub(crate) const MOST_BYTES: usize = 1 << 16;

/// Returns the length of each datagram of a message but the last one, which may be shorter; nothing if the message is one datagram.
pub(crate) fn datagram_bytes<S: SockaddrLike>(
    message: &RecvMsg<'_, '_, S>,
) -> Result<Option<usize>> {
    Ok(message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::UdpGroSegments(bytes) => usize::try_from(bytes).ok(),
        _ => None,
    }))
}

/// Returns the datagrams of a message's bytes.
pub(crate) fn datagrams(bytes: &[u8], datagram_bytes: Option<usize>) -> Chunks<'_, u8> {
    bytes.chunks(datagram_bytes.unwrap_or(bytes.len()).max(1))
}
