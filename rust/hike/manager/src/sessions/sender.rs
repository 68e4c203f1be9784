// SPDX-License-Identifier: GPL-2.0

//! The socket of a session: it sends a packet at each tick, and reads the answers with the times at which the kernel got them.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket as Socket};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use mflow_hike::stamp::{Clock, HOP_LIMIT};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{recvmsg, send, setsockopt, sockopt, ControlMessageOwned, MsgFlags};
use nix::sys::time::TimeSpec;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{interval_at, sleep, sleep_until, MissedTickBehavior};

use super::tally::{Arrival, Moment, Tally};
use crate::configuration::Session;
use crate::say;

/// The time after which a socket that could not be opened is opened again, and after which it is looked whether its source is still there.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest time before the first packet of a session.
const MOST_WAIT: Duration = Duration::from_secs(1);
/// Answers that are read before the next tick has its turn.
const MOST_AT_ONCE: usize = 64;
/// More answers than a socket's buffer has room for; if there are more, they come faster than they can be read.
const MOST_WAITING: usize = 4_096;
/// The times that both clocks are read, unless there is so little time in between.
const READINGS: usize = 8;
const TOGETHER: Duration = Duration::from_micros(20);
/// More bytes than an answer has in front of its extensions.
const MOST_BYTES: usize = 128;

/// Runs a session until it is aborted. What keeps it from that is told once.
pub(super) async fn run(name: String, session: Session, tally: Arc<Mutex<Tally>>) {
    let mut said = String::new();
    loop {
        let Err(error) = exchange(&session, &tally).await;
        let problem = format!("{error:#}");
        {
            let mut tally = locked(&tally);
            tally.end();
            tally.not_sent(problem.clone());
        }
        if problem != said {
            say(format_args!(
                "session {name}: {problem}; tried again each second"
            ));
            said = problem;
        }
        sleep(AGAIN).await;
    }
}

/// Sends and receives for as long as the socket is good.
async fn exchange(session: &Session, tally: &Mutex<Tally>) -> Result<Infallible> {
    let socket = open(session)?;
    let source = socket.local_addr()?.ip();
    let drawn = RandomState::new().hash_one(());
    // A number that others do not guess, and that answers to the session before do not have; 0 is that of reflectors that know none.
    // CAST: less than 2^16.
    locked(tally).begin((drawn % u64::from(u16::MAX)) as u16 + 1);
    // Sessions that begin together do not send together.
    let most = session.interval().min(MOST_WAIT);
    // CAST: a part of the bits is as random.
    let wait = most.mul_f64(f64::from(drawn as u32) / f64::from(u32::MAX));
    let mut ticks = interval_at((Instant::now() + wait).into(), session.interval());
    // After a pause, packets do not come in a burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looked = Instant::now();
    loop {
        let expiry = locked(tally).next_expiry();
        tokio::select! {
            _ = ticks.tick() => {
                if looked.elapsed() >= AGAIN {
                    is_there(source)?;
                    looked = Instant::now();
                }
                expire(&socket, tally)?;
                ask(&socket, tally)?;
            }
            () = sleep_until(expiry.unwrap_or_else(Instant::now).into()), if expiry.is_some() => {
                expire(&socket, tally)?;
            }
            ready = socket.readable() => {
                ready.context("cannot wait for answers")?;
                receive(&socket, tally)?;
            }
        }
    }
}

fn locked(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails if an address is none of this host any more: over IPv6, the kernel goes on to send from it.
fn is_there(source: IpAddr) -> Result<()> {
    let bound = Socket::bind((source, 0));
    bound.with_context(|| format!("cannot send from {source} any more"))?;
    Ok(())
}

/// Opens a socket that sends to the reflector, and gets nothing from others.
fn open(session: &Session) -> Result<UdpSocket> {
    let any: IpAddr = match session.reflector {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = session.source.unwrap_or(any);
    let socket = Socket::bind((source, 0)).with_context(|| format!("cannot send from {source}"))?;
    socket.set_nonblocking(true)?;
    // The kernel notes when it gets a packet.
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    let class = i32::from(session.dscp.unwrap_or(0)) << 2;
    if session.reflector.is_ipv4() {
        setsockopt(&socket, sockopt::Ipv4Ttl, &HOP_LIMIT.into())?;
        setsockopt(&socket, sockopt::Ipv4Tos, &class)?;
    } else {
        setsockopt(&socket, sockopt::Ipv6Ttl, &HOP_LIMIT.into())?;
        setsockopt(&socket, sockopt::Ipv6TClass, &class)?;
    }
    socket
        .connect((session.reflector, session.port))
        .with_context(|| format!("cannot send to {}", session.reflector))?;
    Ok(UdpSocket::from_std(socket)?)
}

/// Returns this moment. It is that of a reading of both clocks with the least time in between, as others may have this CPU meanwhile.
fn now() -> Moment {
    let read = || {
        let at = Instant::now();
        let utc = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let moment = Moment {
            utc: utc.unwrap_or_default(),
            at,
        };
        (at.elapsed(), moment)
    };
    let mut best = read();
    for _ in 1..READINGS {
        if best.0 < TOGETHER {
            break;
        }
        let other = read();
        if other.0 < best.0 {
            best = other;
        }
    }
    best.1
}

/// Sends a packet. If the kernel does not send it, as without a route, that is counted, and the session goes on, unless its source is gone.
fn ask(socket: &UdpSocket, tally: &Mutex<Tally>) -> Result<()> {
    let clock = Clock::read()?;
    let mut tries = 2;
    loop {
        let sent = now();
        let (question, bytes) = locked(tally).question(sent.utc, clock);
        tries -= 1;
        match send(socket.as_raw_fd(), &bytes, MsgFlags::MSG_DONTWAIT) {
            Ok(_) => {
                locked(tally).sent(question, sent);
                return Ok(());
            }
            // It may be the error of a packet before, to which an ICMP message came; this one was not sent for that.
            Err(_) if tries > 0 => {}
            // The kernel has no route from an address that this host has not.
            Err(error @ (Errno::EINVAL | Errno::EADDRNOTAVAIL)) => {
                return Err(error).context("cannot send any more");
            }
            Err(error) => {
                let error = io::Error::from(error);
                locked(tally).not_sent(format!("cannot send: {error}"));
                return Ok(());
            }
        }
    }
}

/// Counts packets as lost whose time has passed, behind all answers that the kernel has got by then.
fn expire(socket: &UdpSocket, tally: &Mutex<Tally>) -> Result<()> {
    let now = Instant::now();
    let tai_ahead_s = Clock::read()?.tai_ahead_s;
    for _ in 0..MOST_WAITING {
        let mut bytes = [0; MOST_BYTES];
        // The socket may not be known yet to be readable.
        match read(socket, &mut bytes) {
            Ok((length, came)) => {
                let bytes = bytes.get(..length).unwrap_or_default();
                locked(tally).received(bytes, came, tai_ahead_s);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                locked(tally).expire(now);
                break;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Reads the answers that are there.
fn receive(socket: &UdpSocket, tally: &Mutex<Tally>) -> Result<()> {
    let tai_ahead_s = Clock::read()?.tai_ahead_s;
    for _ in 0..MOST_AT_ONCE {
        let mut bytes = [0; MOST_BYTES];
        let got = socket.try_io(Interest::READABLE, || read(socket, &mut bytes));
        match got {
            Ok((length, came)) => {
                let bytes = bytes.get(..length).unwrap_or_default();
                locked(tally).received(bytes, came, tai_ahead_s);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // An ICMP message says that nobody listens there: such packets are lost.
            Err(_) => {}
        }
    }
    Ok(())
}

/// Reads an answer, with the time at which the kernel got it.
fn read(socket: &UdpSocket, bytes: &mut [u8]) -> io::Result<(usize, Arrival)> {
    let mut parts = [IoSliceMut::new(bytes)];
    let mut room = cmsg_space!(TimeSpec);
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut room), flags)?;
    let read = now();
    let mut came = Arrival {
        utc: read.utc,
        read,
    };
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmTimestampns(time) = part {
            came.utc = Duration::from(time);
        }
    }
    Ok((message.bytes, came))
}
