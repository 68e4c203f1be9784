// SPDX-License-Identifier: GPL-2.0

//! The ways in which applications read a socket. Each reads one stream to its end and checks every byte of it.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use clap::ValueEnum as _;
use nix::errno::Errno;
use nix::fcntl::{splice, SpliceFFlags};
use nix::poll::{poll, PollFd, PollFlags};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::unistd::{pipe, read};

use super::syscalls::Ring;
use super::tls;
use super::verifier::{Pieces, Verifier};
use super::writers::WriteStyle;
use crate::machine::sockopt;
use crate::machine::threads;
use crate::network::bpf::{Sockmap, SockmapPrograms};

const BUFFER_BYTES: usize = 64 << 10;
const PIPE_BYTES: usize = 64 << 10;
const STUCK_MS: u16 = 15_000;
/// The low-water mark: many packets, and far below the receive buffer.
const LOW_WATER_BYTES: usize = 24 << 10;
/// A receive buffer of a few packets; the kernel doubles it.
pub(crate) const SMALL_BUFFER_BYTES: usize = 8 << 10;
/// A receive buffer that a pause fills.
pub(crate) const SLOW_BUFFER_BYTES: usize = 64 << 10;
/// A receive buffer that never fills up. If a buffer is full, this kernel's stream parser can stop for good, with or
/// without splitting.
pub(crate) const PARSER_BUFFER_BYTES: usize = 60 << 20;
/// The slow reader takes a nap after this many bytes.
const NAP_EVERY_BYTES: u64 = 512 << 10;
/// The time without new bytes after which the window counts as full.
const NAP: Duration = Duration::from_millis(80);
const THREADS: usize = 4;

/// A way to read a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReadStyle {
    /// `recv` that waits.
    Blocking,
    /// Edge-triggered `epoll`: if one wake-up is missing, the reader waits for ever.
    Epoll,
    /// `poll`, then one `recv` that does not wait.
    Poll,
    /// `splice` to a pipe.
    Splice,
    /// `recv` with `MSG_PEEK`, then `recv` of the same bytes without it.
    Peek,
    /// `SO_RCVLOWAT`: a reader that is woken only for many bytes.
    LowWater,
    /// A receive buffer of a few packets.
    SmallBuffer,
    Threads,
    IoUring,
    /// A socket in a sockmap.
    Sockmap,
    /// A socket in a sockmap with a parser of streams.
    SockmapParser,
    /// A socket that the kernel decrypts.
    Tls,
    /// A socket that the kernel decrypts, with `splice` to a pipe.
    TlsSplice,
    /// A reader that lets the window fill up again and again.
    Slow,
}

impl ReadStyle {
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(crate) fn buffer_bytes(self) -> Option<usize> {
        match self {
            Self::SmallBuffer => Some(SMALL_BUFFER_BYTES),
            Self::Slow => Some(SLOW_BUFFER_BYTES),
            Self::SockmapParser => Some(PARSER_BUFFER_BYTES),
            _ => None,
        }
    }

    pub(crate) fn write_style(self) -> WriteStyle {
        match self {
            Self::Tls | Self::TlsSplice => WriteStyle::Tls,
            _ => WriteStyle::Write,
        }
    }

    pub(crate) fn read(self, socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
        match self {
            Self::Blocking | Self::SmallBuffer => blocking(socket, verifier),
            Self::Sockmap => {
                let _in_map = Sockmap::with(socket, SockmapPrograms::Verdict)?;
                blocking(socket, verifier)
            }
            Self::SockmapParser => {
                let _in_map = Sockmap::with(socket, SockmapPrograms::ParserAndVerdict)?;
                parsed(socket, verifier)
            }
            Self::Tls => {
                tls::decrypt(socket)?;
                blocking(socket, verifier)
            }
            Self::TlsSplice => {
                tls::decrypt(socket)?;
                splicing(socket, verifier)
            }
            Self::Slow => slow(socket, verifier),
            Self::Epoll => epoll(socket, verifier),
            Self::Poll => polling(socket, verifier),
            Self::Splice => splicing(socket, verifier),
            Self::Peek => peeking(socket, verifier),
            Self::LowWater => low_water(socket, verifier),
            Self::Threads => threads(socket, verifier),
            Self::IoUring => {
                let mut ring = Ring::new()?;
                to_end(verifier, |buffer| ring.receive(socket, buffer))
            }
        }
    }
}

/// Checks what `receive` puts into a buffer, until the end of the stream.
fn to_end(
    verifier: &mut Verifier<'_>,
    mut receive: impl FnMut(&mut [u8]) -> Result<usize>,
) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match receive(&mut buffer)? {
            0 => return Ok(()),
            length => verifier.take(&buffer[..length])?,
        }
    }
}

fn blocking(mut socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    to_end(verifier, |buffer| {
        socket.read(buffer).context("cannot receive")
    })
}

fn slow(mut socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    let mut since_nap = 0;
    to_end(verifier, |buffer| {
        if since_nap >= NAP_EVERY_BYTES {
            since_nap = 0;
            nap(socket)?;
        }
        let length = socket.read(buffer).context("cannot receive")?;
        since_nap += length as u64;
        Ok(length)
    })
}

/// Sleeps until no more bytes come. By then the sender, however slow, has filled the window.
fn nap(socket: &TcpStream) -> Result<()> {
    let mut buffer = vec![0; 4 * SLOW_BUFFER_BYTES];
    let mut queued = None;
    loop {
        let before = queued;
        queued = Some(socket.peek(&mut buffer).context("cannot peek")?);
        if queued == before {
            return Ok(());
        }
        thread::sleep(NAP);
    }
}

/// Repeats a read until it finds something, and calls `wait` between two tries.
fn read_when_there(
    mut socket: &TcpStream,
    buffer: &mut [u8],
    mut wait: impl FnMut() -> Result<()>,
) -> Result<usize> {
    loop {
        match socket.read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait()?,
            read => return read.context("cannot receive"),
        }
    }
}

/// Reads a socket with a parser, and tries again after `EAGAIN`. The kernel wakes a reader with this error for bytes
/// that have not been parsed yet.
fn parsed(socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    to_end(verifier, |buffer| {
        let start = Instant::now();
        read_when_there(socket, buffer, || {
            ensure!(
                start.elapsed().as_millis() < u128::from(STUCK_MS),
                "no bytes for {STUCK_MS} ms"
            );
            Ok(())
        })
    })
}

fn epoll(socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    socket.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::empty())?;
    let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
    epoll.add(socket, EpollEvent::new(interest, 0))?;
    to_end(verifier, |buffer| {
        read_when_there(socket, buffer, || {
            let mut events = [EpollEvent::empty()];
            let woken = epoll.wait(&mut events, EpollTimeout::from(STUCK_MS))?;
            ensure!(woken > 0, "epoll: nothing for {STUCK_MS} ms");
            Ok(())
        })
    })
}

fn wait_readable(socket: &TcpStream) -> Result<()> {
    let mut wanted = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    ensure!(
        poll(&mut wanted, STUCK_MS)? > 0,
        "poll: nothing for {STUCK_MS} ms"
    );
    Ok(())
}

fn polling(mut socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    socket.set_nonblocking(true)?;
    to_end(verifier, |buffer| {
        wait_readable(socket)?;
        socket
            .read(buffer)
            .context("after poll has said that there is something to receive")
    })
}

fn splicing(socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    let mut buffer = vec![0; PIPE_BYTES];
    let (output, input) = pipe()?;
    loop {
        let moved = match splice(
            socket,
            None,
            &input,
            None,
            PIPE_BYTES,
            SpliceFFlags::SPLICE_F_MOVE,
        ) {
            Ok(0) => return Ok(()),
            Ok(moved) => moved,
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error).context("cannot splice"),
        };
        let mut left = moved;
        while left > 0 {
            let length = read(&output, &mut buffer[..left])?;
            ensure!(length > 0, "the pipe lost {left} bytes");
            verifier.take(&buffer[..length])?;
            left -= length;
        }
    }
}

fn peeking(mut socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    let (mut seen, mut buffer) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    loop {
        let length = socket.peek(&mut seen).context("MSG_PEEK")?;
        if length == 0 {
            return Ok(());
        }
        verifier.check(&seen[..length]).context("with MSG_PEEK")?;
        // All bytes that have been seen are there, so this neither waits nor returns fewer.
        let taken = socket.read(&mut buffer[..length])?;
        ensure!(
            taken == length,
            "{length} bytes were seen with MSG_PEEK, then {taken} of them received"
        );
        verifier.take(&buffer[..taken])?;
    }
}

fn low_water(mut socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    // CAST: a small number.
    sockopt::set_low_water_mark(socket, LOW_WATER_BYTES as i32)?;
    let mut short = None;
    to_end(verifier, |buffer| {
        wait_readable(socket)?;
        let length = socket.read(buffer).context("cannot receive")?;
        if let (Some(short), true) = (short, length > 0) {
            bail!("received {short} bytes below the mark of {LOW_WATER_BYTES}, and it was not the end of the stream");
        }
        short = (length < LOW_WATER_BYTES).then_some(length);
        Ok(length)
    })
}

/// Reads in several threads. Each thread finds out from its bytes where in the stream they belong. Together the
/// threads must have all of the stream.
fn threads(socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    let pieces = Mutex::new((verifier, Pieces::default()));
    thread::scope(|scope| {
        let readers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let (mut socket, mut buffer) = (socket, vec![0; BUFFER_BYTES]);
                    loop {
                        let length = socket.read(&mut buffer).context("cannot receive")?;
                        if length == 0 {
                            return Ok(());
                        }
                        let mut guard = match pieces.lock() {
                            Ok(guard) => guard,
                            Err(_) => bail!("another reader panicked"),
                        };
                        let (verifier, pieces) = &mut *guard;
                        pieces.add(&buffer[..length])?;
                        verifier.count(length);
                    }
                })
            })
            .collect();
        threads::results(readers.into_iter().map(ScopedJoinHandle::join))
    })?;
    match pieces.into_inner() {
        Ok((verifier, pieces)) => pieces.require_all(verifier.start(), verifier.taken()),
        Err(_) => bail!("a reader panicked"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::traffic::streams::pattern;
    use crate::traffic::streams::verifier::ReadProgress;

    /// Reads a stream with this read style, and returns the number of bytes taken. If `wrong` is given, the byte at
    /// this offset is a wrong one.
    fn read(read_style: ReadStyle, wrong: Option<usize>) -> Result<u64> {
        let mut bytes = vec![0; 1 << 20];
        pattern::fill(0, &mut bytes);
        if let Some(byte) = wrong.and_then(|at| bytes.get_mut(at)) {
            *byte ^= 1;
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        // A reader that sees a wrong byte hangs up, and the rest cannot be written.
        let writer = thread::spawn(move || drop(client.write_all(&bytes)));
        let progress = ReadProgress::default();
        let mut verifier = Verifier::new(0, &progress);
        let result = read_style.read(&server, &mut verifier);
        let taken = verifier.taken();
        drop(server);
        writer.join().expect("no panic");
        result.map(|()| taken)
    }

    #[test]
    fn readers_come_to_the_end_and_see_a_wrong_byte() {
        use ReadStyle::{IoUring, Sockmap, SockmapParser, Tls, TlsSplice};
        for &style in ReadStyle::value_variants() {
            // The host may lack, or forbid, what these use.
            if !matches!(style, IoUring | Sockmap | SockmapParser | Tls | TlsSplice) {
                assert_eq!(read(style, None).expect("whole"), 1 << 20, "{style:?}");
                assert!(read(style, Some(700_000)).is_err(), "{style:?}");
            }
        }
    }
}
