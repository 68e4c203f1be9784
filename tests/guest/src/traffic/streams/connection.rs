// SPDX-License-Identifier: GPL-2.0

//! Both ends of one connection through the overlay, for cases about how connections live and end.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use socket2::SockRef;

use super::pattern;
use super::readers::listen;
use super::run::PORT;
use super::verifier::{ReadProgress, Verifier};
use crate::machine::cpu;
use crate::network::netns;
use crate::network::topology::{Family, CLIENT, CONTAINER};

const STUCK: Duration = Duration::from_secs(15);
/// The time that a server waits for a connection until it looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes given to the kernel, or taken from it, by one system call.
const CHUNK_BYTES: usize = 64 << 10;

pub(crate) struct Pair {
    /// The client's end: what it sends is what may be split.
    pub(crate) client: TcpStream,
    pub(crate) server: TcpStream,
}

/// The way in which one end of a connection saw the other end go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In good order, or this end stopped itself.
    Orderly,
    Reset,
}

/// Takes connections until it is told to stop and none is left, and does this with each of them and its other end.
pub(crate) fn accept_all(
    listener: &TcpListener,
    stop: &AtomicBool,
    mut each: impl FnMut(TcpStream, SocketAddr) -> Result<()>,
) -> Result<()> {
    cpu::pin(cpu::READER)?;
    SockRef::from(listener).set_read_timeout(Some(LOOK))?;
    loop {
        match listener.accept() {
            Ok((socket, from)) => each(socket, from)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error).context("cannot accept"),
        }
    }
}

/// Connects the client to a port of the container that listens just for this.
pub(crate) fn connect(inner: Family) -> Result<Pair> {
    connect_by(inner, 0, None)
}

/// Does the same where the port is translated on the way: the client connects to one that is `port_shift` above.
pub(crate) fn connect_shifted(inner: Family, port_shift: u16) -> Result<Pair> {
    connect_by(inner, port_shift, None)
}

/// Does the same with a receive buffer of this size at the container's end. The kernel doubles it, and changes it no more.
pub(crate) fn connect_with_buffer(inner: Family, bytes: usize) -> Result<Pair> {
    connect_by(inner, 0, Some(bytes))
}

fn connect_by(inner: Family, port_shift: u16, buffer_bytes: Option<usize>) -> Result<Pair> {
    let address = SocketAddr::from((inner.container(), PORT));
    let listener = netns::within(CONTAINER, || listen(address, buffer_bytes))?;
    // The kernel completes the connection before it is accepted.
    let address = SocketAddr::from((inner.container(), PORT + port_shift));
    let client = netns::within(CLIENT, || {
        TcpStream::connect_timeout(&address, STUCK)
            .with_context(|| format!("cannot connect to {address}"))
    })?;
    let (server, _) = listener.accept().context("cannot accept")?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(STUCK))?;
        socket.set_write_timeout(Some(STUCK))?;
    }
    Ok(Pair { client, server })
}

/// Writes a stream from the sender's CPU until it is told to stop, or the other end is gone; returns how many bytes it has
/// written.
pub(crate) fn write_until(socket: &TcpStream, stop: &AtomicBool) -> Result<(u64, End)> {
    write_until_on(cpu::SENDER, socket, stop)
}

/// Does the same from another CPU.
pub(crate) fn write_until_on(
    cpu: usize,
    socket: &TcpStream,
    stop: &AtomicBool,
) -> Result<(u64, End)> {
    write_on(cpu, socket, |_| {
        (!stop.load(Ordering::Relaxed)).then_some(CHUNK_BYTES)
    })
}

/// Writes a stream from the sender's CPU, each time at most this many bytes as `next` says, which is told how many have been
/// written, until it says none, or the other end is gone; returns how many bytes it has written.
pub(crate) fn write_while(
    socket: &TcpStream,
    next: impl Fn(u64) -> Option<usize>,
) -> Result<(u64, End)> {
    write_on(cpu::SENDER, socket, next)
}

fn write_on(
    cpu: usize,
    mut socket: &TcpStream,
    next: impl Fn(u64) -> Option<usize>,
) -> Result<(u64, End)> {
    cpu::pin(cpu)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut written = 0;
    while let Some(bytes) = next(written) {
        let chunk = &mut buffer[..bytes.min(CHUNK_BYTES)];
        pattern::fill(written, chunk);
        // What a partial write leaves is filled in again.
        match socket.write(chunk) {
            Ok(bytes) => written += bytes as u64,
            Err(error) if is_reset(&error) => return Ok((written, End::Reset)),
            Err(error) => return Err(error).context("cannot send"),
        }
    }
    Ok((written, End::Orderly))
}

/// Reads a stream from the reader's CPU to its end; returns how many bytes it had.
pub(crate) fn read_to_end(socket: &TcpStream, progress: &ReadProgress) -> Result<(u64, End)> {
    read_while(socket, progress, |_| true)
}

/// Reads a stream as long as `more` says so, which is told how many bytes have been read, or to its end.
pub(crate) fn read_while(
    mut socket: &TcpStream,
    progress: &ReadProgress,
    more: impl Fn(u64) -> bool,
) -> Result<(u64, End)> {
    cpu::pin(cpu::READER)?;
    let mut verifier = Verifier::new(0, progress);
    let mut buffer = vec![0; CHUNK_BYTES];
    while more(verifier.taken()) {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => verifier.take(&buffer[..length])?,
            Err(error) if is_reset(&error) => return Ok((verifier.taken(), End::Reset)),
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
    Ok((verifier.taken(), End::Orderly))
}

fn is_reset(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}
