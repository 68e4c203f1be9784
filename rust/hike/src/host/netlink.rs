// SPDX-License-Identifier: GPL-2.0

//! Questions to the kernel over netlink; each is answered before the next one is asked.

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result};
use netlink_packet_core::{
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NLM_F_MULTIPART, NLM_F_REQUEST,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{set_socket_timeout, Timeout};

/// The kernel answers at once, so this is a time that only a fault exceeds.
const PATIENCE: Duration = Duration::from_secs(5);

/// A socket in the network namespace of the thread that has opened it.
pub(super) struct Netlink(Socket);

impl Netlink {
    /// Opens one for a protocol of netlink.
    pub(super) fn open(protocol: isize) -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(protocol)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // The kernel then leaves out what is not asked for.
            socket.set_netlink_get_strict_chk(true)?;
            set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
            Ok(socket)
        };
        open().map(Self).context("cannot open a netlink socket")
    }

    /// Asks one question, with these flags; returns all parts of the answer.
    pub(super) fn ask<M>(&self, question: M, flags: u16) -> io::Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Debug,
    {
        let inner = NetlinkPayload::InnerMessage(question);
        let mut request = NetlinkMessage::new(NetlinkHeader::default(), inner);
        request.header.flags = NLM_F_REQUEST | flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.0.recv_from_full()?;
            if take(&bytes, &mut answers)? {
                return Ok(answers);
            }
        }
    }
}

/// Takes the parts of the answer that have come together; returns whether the last one is among them.
fn take<M>(bytes: &[u8], answers: &mut Vec<M>) -> io::Result<bool>
where
    M: NetlinkDeserializable,
{
    let mut left = bytes;
    while !left.is_empty() {
        let message = NetlinkMessage::<M>::deserialize(left).map_err(io::Error::other)?;
        // CAST: 32 bits.
        let bytes = (message.header.length as usize).next_multiple_of(4);
        left = left.get(bytes.max(4)..).unwrap_or_default();
        let is_part = message.header.flags & NLM_F_MULTIPART != 0;
        match message.payload {
            NetlinkPayload::InnerMessage(answer) => {
                answers.push(answer);
                if !is_part {
                    return Ok(true);
                }
            }
            NetlinkPayload::Done(done) if done.code < 0 => {
                return Err(io::Error::from_raw_os_error(-done.code))
            }
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::Error(_) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}
