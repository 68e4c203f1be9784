// SPDX-License-Identifier: GPL-2.0

//! A socket that sends and receives whole frames of one device, or receives those of all.
#![allow(unsafe_code, reason = "no crate binds a packet socket to a device")]

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    recv, recvfrom, send, setsockopt, socket, sockopt, AddressFamily, LinkAddr, MsgFlags, SockFlag,
    SockType,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use crate::machine::sockopt as more_sockopt;
use crate::network::netns;

const LONGEST: usize = 4_096;
/// The time that a receiver waits before it looks at the clock.
const LOOK_MS: i64 = 100;
const PATIENCE: Duration = Duration::from_secs(10);

/// A field that a filter looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    EtherType,
    Length,
}

pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens one for a device of a namespace.
    pub(crate) fn open(namespace: &str, device: &str) -> Result<Self> {
        netns::within(namespace, || Self::open_here(device))
    }

    /// Opens one for a device of the caller's namespace.
    pub(crate) fn open_here(device: &str) -> Result<Self> {
        Self::open_at(if_nametoindex(device)?).with_context(|| format!("cannot bind to {device}"))
    }

    /// Opens one for all devices of the caller's namespace, as `tcpdump -i any` does.
    pub(crate) fn open_everywhere() -> Result<Self> {
        Self::open_at(0)
    }

    fn open_at(index: u32) -> Result<Self> {
        let (family, kind) = (AddressFamily::Packet, SockType::Raw);
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(
            &socket,
            sockopt::ReceiveTimeout,
            &TimeVal::milliseconds(LOOK_MS),
        )?;
        // SAFETY: Numbers, of which 0 is a valid one.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        // CAST: 17.
        address.sll_family = libc::AF_PACKET as u16;
        // CAST: it is 3, and has 16 bits in network byte order.
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        // CAST: indexes are positive.
        address.sll_ifindex = index as i32;
        // SAFETY: The address outlives the call, and is as long as is said.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                // CAST: 20.
                size_of_val(&address) as u32,
            )
        };
        Errno::result(bound)?;
        Ok(Self(socket))
    }

    /// Joins a group whose members share out the packets of a device, each flow to one of them.
    pub(crate) fn share(&self, group: u16) -> Result<()> {
        more_sockopt::share_packets(&self.0, group)
    }

    /// Lets those packets through a filter of the classic kind that have a number in a field.
    pub(crate) fn filter(&self, field: Field, number: u32) -> Result<()> {
        let step = |code: u32, jt, jf, k| libc::sock_filter {
            // CAST: codes have 16 bits.
            code: code as u16,
            jt,
            jf,
            k,
        };
        let (size, at) = match field {
            Field::EtherType => (libc::BPF_H | libc::BPF_ABS, 12),
            Field::Length => (libc::BPF_W | libc::BPF_LEN, 0),
        };
        let mut steps = [
            step(libc::BPF_LD | size, 0, 0, at),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        ];
        more_sockopt::attach_filter(&self.0, &mut steps)
    }

    /// Makes the socket keep this many bytes for a reader who is late.
    pub(crate) fn make_room(&self, bytes: usize) -> Result<()> {
        Ok(setsockopt(&self.0, sockopt::RcvBufForce, &bytes)?)
    }

    /// Returns the next frame, if one comes soon.
    pub(crate) fn next(&self) -> Result<Option<Vec<u8>>> {
        let mut frame = vec![0; LONGEST];
        match recv(self.0.as_raw_fd(), &mut frame, MsgFlags::empty()) {
            Ok(bytes) => {
                frame.truncate(bytes);
                Ok(Some(frame))
            }
            Err(Errno::EAGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the next frame and the number of its device, if a frame comes soon.
    pub(crate) fn next_with_device(&self) -> Result<Option<(Vec<u8>, usize)>> {
        let mut frame = vec![0; LONGEST];
        match recvfrom::<LinkAddr>(self.0.as_raw_fd(), &mut frame) {
            Ok((bytes, address)) => {
                frame.truncate(bytes);
                let address = address.context("a frame has no device")?;
                Ok(Some((frame, address.ifindex())))
            }
            Err(Errno::EAGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) -> Result<()> {
        send(self.0.as_raw_fd(), frame, MsgFlags::empty())?;
        Ok(())
    }

    /// Waits for a frame that ends with these bytes.
    pub(crate) fn receive(&self, end: &[u8]) -> Result<Vec<u8>> {
        let start = Instant::now();
        let mut frame = vec![0; LONGEST];
        while start.elapsed() < PATIENCE {
            match recv(self.0.as_raw_fd(), &mut frame, MsgFlags::empty()) {
                Ok(bytes) if frame[..bytes].ends_with(end) => {
                    frame.truncate(bytes);
                    return Ok(frame);
                }
                Ok(_) | Err(Errno::EAGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        bail!("no such frame for {} s", PATIENCE.as_secs())
    }
}
