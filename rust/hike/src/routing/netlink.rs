// SPDX-License-Identifier: GPL-2.0

//! Netlink: questions to the kernel, and what it tells of its own accord. Messages stay bytes, of which others read what they need:
//! a table of routes may have a million.

use std::io::{self, ErrorKind};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// The kernel puts no more than 32 KiB of a list into one datagram.
const BUFFER_BYTES: usize = 64 << 10;
/// The bytes that the kernel may keep for a listener, if it allows so many.
const KEPT_BYTES: i32 = 4 << 20;
const HEADER_BYTES: usize = 16;

/// `linux/netlink.h`: flags of requests and of answers, and kinds of messages.
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const INTERRUPTED: u16 = 0x10;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Set in the kind of an attribute that has others inside.
pub(crate) const NESTED: u16 = 0x8000;
/// Without that, and another such bit.
const KIND: u16 = 0x3fff;

/// A message, without its header.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) body: &'a [u8],
}

/// A socket that asks, or listens.
pub(crate) struct Netlink {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Netlink {
    /// Opens one, in the network namespace of the calling thread.
    pub(crate) fn open(protocol: isize) -> Result<Self> {
        let mut socket = Socket::new(protocol).context("cannot open a netlink socket")?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            buffer: vec![0; BUFFER_BYTES],
            sequence: 0,
        })
    }

    /// Opens one that listens to these groups, of which the kernel need not know all.
    pub(crate) fn listen(protocol: isize, groups: &[u32]) -> Result<Self> {
        let netlink = Self::open(protocol)?;
        // It keeps fewer if it does not allow that.
        let _smaller = netlink.socket.set_rx_buf_sz(KEPT_BYTES);
        for &group in groups {
            match netlink.socket.add_membership(group) {
                Err(error) if error.kind() != ErrorKind::InvalidInput => {
                    return Err(error).with_context(|| format!("cannot listen to group {group}"));
                }
                _ => {}
            }
        }
        netlink.socket.set_non_blocking(true)?;
        Ok(netlink)
    }

    /// Lists everything of a kind.
    pub(crate) fn list(
        &mut self,
        kind: u16,
        body: &[u8],
        mut take: impl FnMut(Message<'_>),
    ) -> Result<Listed> {
        let flags = self.ask(kind, REQUEST | DUMP, body, &mut take)?;
        Ok(match flags & INTERRUPTED {
            0 => Listed::Whole,
            _ => Listed::Interrupted,
        })
    }

    /// Asks for one thing.
    pub(crate) fn get(
        &mut self,
        kind: u16,
        body: &[u8],
        mut take: impl FnMut(Message<'_>),
    ) -> Result<()> {
        self.ask(kind, REQUEST | ACK, body, &mut take).map(drop)
    }

    /// Sends a request, and reads up to the end of the answer; returns all flags that its messages had.
    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        take: &mut dyn FnMut(Message<'_>),
    ) -> Result<u16> {
        self.sequence += 1;
        // CAST: requests have some ten bytes.
        let bytes = (HEADER_BYTES + body.len()) as u32;
        let mut request = bytes.to_ne_bytes().to_vec();
        request.extend(kind.to_ne_bytes());
        request.extend(flags.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend([0; 4]);
        request.extend(body);
        self.socket.send(&request, 0)?;
        let mut seen = 0;
        loop {
            let length = self.receive()?;
            let mut left = self.buffer.get(..length).unwrap_or_default();
            while let Some((header, message, rest)) = split(left) {
                left = rest;
                if header.sequence != self.sequence {
                    continue;
                }
                seen |= header.flags;
                match message.kind {
                    ERROR | DONE => {
                        // A list without an error ends with nothing, or 0.
                        let code = word(message.body).unwrap_or(0);
                        // CAST: errors are negative.
                        let code = code as i32;
                        ensure!(code == 0, io::Error::from_raw_os_error(-code));
                        return Ok(seen);
                    }
                    _ => take(message),
                }
            }
        }
    }

    /// Reads one datagram, whatever signals come meanwhile.
    fn receive(&mut self) -> io::Result<usize> {
        loop {
            let received = self.socket.recv(&mut &mut self.buffer[..], 0);
            let is_interrupted = |error: &io::Error| error.kind() == ErrorKind::Interrupted;
            if !received.as_ref().is_err_and(is_interrupted) {
                return received;
            }
        }
    }

    /// Waits until the kernel has told something, for this long at most.
    pub(crate) fn wait(&self, patience: Duration) -> Result<()> {
        let patience = Timespec::try_from(patience)?;
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut polled, Some(&patience)) {
            Err(error) if error != Errno::INTR => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Takes what the kernel has told: this many datagrams at most.
    pub(crate) fn heard(
        &mut self,
        most: usize,
        mut take: impl FnMut(Message<'_>),
    ) -> Result<Heard> {
        for _ in 0..most {
            let length = match self.receive() {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Heard::All),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Ok(Heard::Lost);
                }
                Err(error) => return Err(error.into()),
            };
            let mut left = self.buffer.get(..length).unwrap_or_default();
            while let Some((_, message, rest)) = split(left) {
                left = rest;
                take(message);
            }
        }
        Ok(Heard::All)
    }
}

/// The state of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Whole,
    /// It changed while it was read, so something may be missing.
    Interrupted,
}

/// The state of what the kernel has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    All,
    /// There was more than the kernel keeps.
    Lost,
}

/// Returns whether the kernel does not know what it was asked for.
pub(crate) fn is_unknown(error: &anyhow::Error) -> bool {
    const UNKNOWN: [i32; 3] = [libc::EOPNOTSUPP, libc::EAFNOSUPPORT, libc::EINVAL];
    let error = error.downcast_ref::<io::Error>();
    let code = error.and_then(io::Error::raw_os_error);
    code.is_some_and(|code| UNKNOWN.contains(&code))
}

struct Header {
    flags: u16,
    sequence: u32,
}

/// Splits the first message off.
fn split(bytes: &[u8]) -> Option<(Header, Message<'_>, &[u8])> {
    // CAST: wider.
    let length = word(bytes)? as usize;
    let body = bytes.get(HEADER_BYTES..length)?;
    let header = Header {
        flags: half(&bytes[6..])?,
        sequence: word(&bytes[8..])?,
    };
    let kind = half(&bytes[4..])?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((header, Message { kind, body }, rest))
}

/// Returns the first four bytes as a number.
pub(crate) fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

/// Returns the first two bytes as a number.
pub(crate) fn half(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.first_chunk()?))
}

/// Returns the attributes behind the fixed part of a message, which has this many bytes.
pub(crate) fn attributes(body: &[u8], fixed: usize) -> Attributes<'_> {
    Attributes(body.get(fixed..).unwrap_or_default())
}

/// Kinds and values of attributes.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// Returns the value of the first attribute of a kind.
    pub(crate) fn value(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find(|attribute| attribute.0 == kind)
            .map(|found| found.1)
    }

    /// Returns the attributes inside of the first one of a kind; none if that is not there.
    pub(crate) fn inside(self, kind: u16) -> Self {
        Self(self.value(kind).unwrap_or_default())
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(half(self.0)?);
        let value = self.0.get(4..length)?;
        let kind = half(&self.0[2..])? & KIND;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// Writes an attribute.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    // CAST: some ten bytes.
    let length = (4 + value.len()) as u16;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_are_written() {
        let inner = attribute(3, b"eth0\0");
        let bytes = [attribute(1, &[7]), attribute(2 | NESTED, &inner)].concat();
        let all: Vec<(u16, &[u8])> = Attributes(&bytes).collect();
        assert_eq!(all, [(1, &[7][..]), (2, &inner[..])]);
        assert_eq!(Attributes(&bytes).inside(2).value(3), Some(&b"eth0\0"[..]));
        assert_eq!(Attributes(&bytes).inside(9).value(3), None);
    }

    #[test]
    fn what_is_cut_short_or_has_no_length_ends_the_list() {
        let bytes = attribute(1, &[1, 2, 3, 4]);
        for end in 0..bytes.len() {
            assert_eq!(Attributes(&bytes[..end]).count(), 0, "{end}");
        }
        assert_eq!(Attributes(&[0; 16]).count(), 0);
        assert!(split(&[0; 64]).is_none());
        assert!(split(&[255; 64]).is_none());
    }

    #[test]
    fn messages_follow_each_other() {
        let message = |kind: u16, body: &[u8]| {
            // CAST: some bytes.
            let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(body);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let bytes = [message(16, b"one"), message(17, b"")].concat();
        let (_, first, rest) = split(&bytes).expect("the first");
        assert_eq!((first.kind, first.body), (16, &b"one"[..]));
        let (_, second, rest) = split(rest).expect("the second");
        assert_eq!((second.kind, second.body), (17, &b""[..]));
        assert!(split(rest).is_none());
    }
}
