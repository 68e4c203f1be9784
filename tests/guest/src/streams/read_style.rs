// SPDX-License-Identifier: GPL-2.0

//! The ways in which applications read a socket. Each reads one stream to its end and checks every byte of it.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use nix::errno::Errno;
use nix::fcntl::{splice, SpliceFFlags};
use nix::poll::{poll, PollFd, PollFlags};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::unistd::{pipe, read};

use super::syscalls::{self, Ring};
use super::tls;
use super::verifier::{Pieces, Verifier};
use super::writers::WriteStyle;
use crate::bpf::{Sockmap, SockmapPrograms};
use crate::threads;

/// Bytes asked for at once.
const BUFFER_BYTES: usize = 64 << 10;
/// What fits into a pipe.
const PIPE_BYTES: usize = 64 << 10;
/// Nothing may keep a reader waiting for longer.
const STUCK_MS: u16 = 15_000;
/// The low-water mark: many packets, and far below the receive buffer.
const LOW_WATER_BYTES: usize = 24 << 10;
/// A receive buffer of a few packets; the kernel doubles it.
pub(crate) const SMALL_BUFFER_BYTES: usize = 8 << 10;
/// A receive buffer that a pause fills.
pub(crate) const SLOW_BUFFER_BYTES: usize = 64 << 10;
/// A receive buffer that never fills up. When it does, this kernel's stream parser can stop for good, split or not.
pub(crate) const PARSER_BUFFER_BYTES: usize = 60 << 20;
/// The slow reader takes a nap after so many bytes.
const NAP_EVERY_BYTES: u64 = 512 << 10;
/// A sender that has sent nothing for so long must not.
const NAP: Duration = Duration::from_millis(80);
/// How many threads read one socket.
const THREADS: usize = 4;

/// A way to read a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadStyle {
    /// `recv` that waits.
    Blocking,
    /// Edge-triggered `epoll`: one wake-up that is missing, and the reader waits for ever.
    Epoll,
    /// `poll`, then one `recv` that does not wait.
    Poll,
    /// `splice` to a pipe.
    Splice,
    /// `recv` with `MSG_PEEK`, then the same bytes again without.
    Peek,
    /// `SO_RCVLOWAT`: a reader that is only woken for much.
    LowWater,
    /// A receive buffer of a few packets.
    SmallBuffer,
    /// Several threads at the same socket.
    Threads,
    /// `io_uring`.
    IoUring,
    /// A socket in a sockmap.
    Sockmap,
    /// A socket in a sockmap with a parser of streams.
    SockmapParser,
    /// A socket that the kernel decrypts.
    Tls,
    /// The same with `splice`.
    TlsSplice,
    /// A reader that lets the window fill up again and again.
    Slow,
}

impl ReadStyle {
    /// All of them.
    pub(crate) const ALL: [Self; 14] = [
        Self::Blocking,
        Self::Epoll,
        Self::Poll,
        Self::Splice,
        Self::Peek,
        Self::LowWater,
        Self::SmallBuffer,
        Self::Threads,
        Self::IoUring,
        Self::Sockmap,
        Self::SockmapParser,
        Self::Tls,
        Self::TlsSplice,
        Self::Slow,
    ];

    /// Returns what the cases call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Epoll => "epoll",
            Self::Poll => "poll",
            Self::Splice => "splice",
            Self::Peek => "peek",
            Self::LowWater => "low-water",
            Self::SmallBuffer => "small-buffer",
            Self::Threads => "threads",
            Self::IoUring => "io-uring",
            Self::Sockmap => "sockmap",
            Self::SockmapParser => "sockmap-parser",
            Self::Tls => "tls",
            Self::TlsSplice => "tls-splice",
            Self::Slow => "slow",
        }
    }

    /// Returns the receive buffer it needs, if not the usual one.
    pub(crate) fn buffer_bytes(self) -> Option<usize> {
        match self {
            Self::SmallBuffer => Some(SMALL_BUFFER_BYTES),
            Self::Slow => Some(SLOW_BUFFER_BYTES),
            Self::SockmapParser => Some(PARSER_BUFFER_BYTES),
            _ => None,
        }
    }

    /// Returns how the stream has to be written.
    pub(crate) fn write_style(self) -> WriteStyle {
        match self {
            Self::Tls | Self::TlsSplice => WriteStyle::Tls,
            _ => WriteStyle::Write,
        }
    }

    /// Reads a stream to its end.
    pub(crate) fn read(self, socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
        match self {
            Self::Blocking | Self::SmallBuffer => blocking(socket, verifier, |_| Ok(())),
            Self::Sockmap => {
                let _in_map = Sockmap::with(socket, SockmapPrograms::Verdict)?;
                blocking(socket, verifier, |_| Ok(()))
            }
            Self::SockmapParser => {
                let _in_map = Sockmap::with(socket, SockmapPrograms::ParserAndVerdict)?;
                parsed(socket, verifier)
            }
            Self::Tls => {
                tls::decrypt(socket)?;
                blocking(socket, verifier, |_| Ok(()))
            }
            Self::TlsSplice => {
                tls::decrypt(socket)?;
                splicing(socket, verifier)
            }
            Self::Slow => {
                let mut rested = verifier.taken();
                blocking(socket, verifier, |taken| {
                    if taken - rested >= NAP_EVERY_BYTES {
                        rested = taken;
                        nap(socket)?;
                    }
                    Ok(())
                })
            }
            Self::Epoll => epoll(socket, verifier),
            Self::Poll => polling(socket, verifier),
            Self::Splice => splicing(socket, verifier),
            Self::Peek => peeking(socket, verifier),
            Self::LowWater => low_water(socket, verifier),
            Self::Threads => threads(socket, verifier),
            Self::IoUring => io_uring(socket, verifier),
        }
    }
}

fn blocking(
    mut socket: &TcpStream,
    verifier: &mut Verifier<'_>,
    mut then: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match socket.read(&mut buffer).context("cannot receive")? {
            0 => return Ok(()),
            length => verifier.take(&buffer[..length])?,
        }
        then(verifier.taken())?;
    }
}

/// Sleeps until the sender has filled the window, however slow it is: nothing more comes.
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

/// With a parser, a reader that waits is also woken, with `EAGAIN`, for bytes that have not been parsed yet.
fn parsed(mut socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut last = Instant::now();
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                last = Instant::now();
                verifier.take(&buffer[..length])?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => ensure!(
                last.elapsed().as_millis() < u128::from(STUCK_MS),
                "no bytes for {STUCK_MS} ms"
            ),
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
}

fn epoll(mut socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    socket.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::empty())?;
    let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
    epoll.add(socket, EpollEvent::new(interest, 0))?;
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => verifier.take(&buffer[..length])?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut events = [EpollEvent::empty()];
                let woken = epoll.wait(&mut events, EpollTimeout::from(STUCK_MS))?;
                ensure!(woken > 0, "epoll: nothing for {STUCK_MS} ms");
            }
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
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
    let mut buffer = vec![0; BUFFER_BYTES];
    socket.set_nonblocking(true)?;
    loop {
        wait_readable(socket)?;
        match socket
            .read(&mut buffer)
            .context("after poll has said that there is something to receive")?
        {
            0 => return Ok(()),
            length => verifier.take(&buffer[..length])?,
        }
    }
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
        // What has been seen is there: no wait, and no less.
        let taken = socket.read(&mut buffer[..length])?;
        ensure!(
            taken == length,
            "{length} bytes were seen with MSG_PEEK, then {taken} of them received"
        );
        verifier.take(&buffer[..taken])?;
    }
}

fn low_water(mut socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    // CAST: a small number.
    syscalls::set_low_water_mark(socket, LOW_WATER_BYTES as i32)?;
    let mut short = None;
    loop {
        wait_readable(socket)?;
        let length = socket.read(&mut buffer).context("cannot receive")?;
        if length == 0 {
            return Ok(());
        }
        if let Some(short) = short {
            bail!("received {short} bytes below the mark of {LOW_WATER_BYTES}, and it was not the end of the stream");
        }
        short = (length < LOW_WATER_BYTES).then_some(length);
        verifier.take(&buffer[..length])?;
    }
}

/// Each thread finds out from the bytes where in the stream they belong; together they must have all of it.
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

fn io_uring(socket: &TcpStream, verifier: &mut Verifier<'_>) -> Result<()> {
    let (mut ring, mut buffer) = (Ring::new()?, vec![0; BUFFER_BYTES]);
    loop {
        match ring.receive(socket, &mut buffer)? {
            0 => return Ok(()),
            length => verifier.take(&buffer[..length])?,
        }
    }
}
