// SPDX-License-Identifier: GPL-2.0

//! How connections end while their packets are on the way over several lanes: nothing may stay parked, and the next stream
//! is as good as new.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{bail, ensure, Result};
use etherparse::TcpHeader;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::cases::{Case, Run};
use crate::command::wait_until;
use crate::hog::Hog;
use crate::mflow::{self, Knobs, Stats};
use crate::outcome::Outcome;
use crate::rig::{self, Rig};
use crate::streams::connection::{self, End, Pair};
use crate::streams::syscalls;
use crate::streams::verifier::Progress;
use crate::topology::{self, Family, CLIENT};
use crate::{cpu, netns};

/// What the container sends back after the client has ended its stream.
const ANSWER_BYTES: u64 = 1 << 20;
/// How often the listener is started again, or made of a connected socket.
const ROUNDS: usize = 4;
/// Between two requests for a connection.
const ASK: Duration = Duration::from_micros(200);
/// How long a lane is held, so that packets of the others are parked for certain.
const HOLD: Duration = Duration::from_millis(240);

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let case = |name: &str, proves: &str, when, run: fn(&Rig) -> Result<()>| {
        Case::of_traffic(format!("tcp/{name}"), proves, when, move |rig| {
            let plan = rig.tcp_plan();
            rig.prepare_tcp(&plan, &Knobs::default())?;
            run(rig)?;
            if rig.mflow {
                rig::settle()?;
            }
            // Nothing of what has ended is in the way of what comes.
            let outcome: Outcome = rig.strict_tcp(&plan, &Knobs::default(), |_| Ok(()))?;
            Ok(outcome)
        })
    };
    vec![
        case(
            "half-close/client",
            "the client ends its stream after its last byte, and the answer to all of it comes",
            Run::Always,
            client_ends_first,
        ),
        case(
            "half-close/server",
            "a container that has ended its own stream receives the rest of the client's",
            Run::Always,
            server_ends_first,
        ),
        case(
            "reset",
            "a reset in mid-stream ends it; what was read before is the stream's beginning",
            Run::Always,
            reset,
        ),
        case(
            "close",
            "the container closes a socket that packets are parked for",
            Run::Always,
            close_with_parked,
        ),
        case(
            "disconnect",
            "the container makes a listener of a socket that packets are parked for, requests for connections among them",
            Run::Always,
            listen_with_parked,
        ),
        case(
            "listener",
            "a server that is stopped and started under load gets each of its streams right",
            Run::Always,
            restart_listener,
        ),
    ]
}

/// Waits until the connection's flow is split, if anything is to be split.
fn wait_split(rig: &Rig, progress: &Progress, before: u64) -> Result<()> {
    wait_until("bytes arrive", || Ok(progress.bytes() > 1 << 20))?;
    if rig.mflow {
        wait_until("the flow is split", || Ok(mflow::flows_split()? > before))?;
    }
    Ok(())
}

/// Writes until it is told to stop, and ends the stream; returns how many bytes it had.
fn write_and_end(socket: &TcpStream, stop: &AtomicBool) -> Result<u64> {
    let (written, _) = connection::write_until(socket, stop)?;
    socket.shutdown(Shutdown::Write)?;
    Ok(written)
}

fn client_ends_first(rig: &Rig) -> Result<()> {
    let (Pair { client, server }, stop) =
        (connection::connect(Family::V4)?, AtomicBool::new(false));
    let (progress, before) = (Progress::default(), mflow::flows_split()?);
    let (written, read) = thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_end(&client, &stop));
        let reader = scope.spawn(|| connection::read_to_end(&server, &progress));
        let split = wait_split(rig, &progress, before);
        stop.store(true, Ordering::Relaxed);
        let ends = (connection::join(writer)?, connection::join(reader)?.0);
        split.map(|()| ends)
    })?;
    ensure!(read == written, "{written} bytes written, {read} read");
    let (back, stop) = (Progress::default(), AtomicBool::new(false));
    let answer = thread::scope(|scope| {
        let reader = scope.spawn(|| connection::read_to_end(&client, &back));
        let writer = scope.spawn(|| write_and_end(&server, &stop));
        let answered = wait_until("the answer arrives", || Ok(back.bytes() >= ANSWER_BYTES));
        stop.store(true, Ordering::Relaxed);
        let ends = (connection::join(writer)?, connection::join(reader)?.0);
        answered.map(|()| ends)
    })?;
    ensure!(
        answer.0 == answer.1,
        "{} bytes answered, {} read",
        answer.0,
        answer.1
    );
    Ok(())
}

fn server_ends_first(rig: &Rig) -> Result<()> {
    let (Pair { client, server }, stop) =
        (connection::connect(Family::V4)?, AtomicBool::new(false));
    let (progress, before) = (Progress::default(), mflow::flows_split()?);
    let (written, read) = thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_end(&client, &stop));
        let reader = scope.spawn(|| connection::read_to_end(&server, &progress));
        let lived = (|| {
            wait_split(rig, &progress, before)?;
            server.shutdown(Shutdown::Write)?;
            let at = progress.bytes();
            wait_until("the stream goes on", || {
                Ok(progress.bytes() > at + (2 << 20))
            })
        })();
        stop.store(true, Ordering::Relaxed);
        let ends = (connection::join(writer)?, connection::join(reader)?.0);
        lived.map(|()| ends)
    })?;
    ensure!(read == written, "{written} bytes written, {read} read");
    Ok(())
}

fn reset(rig: &Rig) -> Result<()> {
    let (Pair { client, server }, stop) =
        (connection::connect(Family::V4)?, AtomicBool::new(false));
    let (progress, before) = (Progress::default(), mflow::flows_split()?);
    // Closing throws away what is not sent yet, and resets.
    SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
    let (written, (read, end)) = thread::scope(|scope| {
        let reader = scope.spawn(|| connection::read_to_end(&server, &progress));
        let writer = scope.spawn(|| {
            let written = connection::write_until(&client, &stop)?.0;
            drop(client);
            Ok(written)
        });
        let split = wait_split(rig, &progress, before);
        stop.store(true, Ordering::Relaxed);
        let ends = (connection::join(writer)?, connection::join(reader)?);
        split.map(|()| ends)
    })?;
    ensure!(
        end == End::Reset,
        "the stream was reset, and the reader saw it end"
    );
    ensure!(read <= written, "{written} bytes written, {read} read");
    Ok(())
}

fn close_with_parked(rig: &Rig) -> Result<()> {
    let pair = connection::connect(Family::V4)?;
    leave_with_parked(rig, &pair.client, pair.server, |server| {
        drop(server);
        Ok(None)
    })
}

fn listen_with_parked(rig: &Rig) -> Result<()> {
    // So that what the kernel sends for the connection and what we send are one flow.
    topology::one_outer_flow(rig.tcp_plan().outer)?;
    for _ in 0..ROUNDS {
        let Pair { client, server } = connection::connect(Family::V4)?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let asker = scope.spawn(|| ask(&client, &stop));
            let left = leave_with_parked(rig, &client, server, |server| {
                syscalls::disconnect(&server)?;
                SockRef::from(&server).listen(1)?;
                Ok(Some(server))
            });
            stop.store(true, Ordering::Relaxed);
            connection::join(asker)?;
            left
        })?;
    }
    Ok(())
}

/// Asks for a connection again and again, with the addresses and ports of one that there is.
fn ask(client: &TcpStream, stop: &AtomicBool) -> Result<()> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (client.local_addr()?, client.peer_addr()?)
    else {
        bail!("the connection is not one over IPv4");
    };
    let mut header = TcpHeader::new(from.port(), to.port(), 1, 1024);
    header.syn = true;
    header.checksum = header.calc_checksum_ipv4_raw(from.ip().octets(), to.ip().octets(), &[])?;
    netns::enter(CLIENT)?;
    cpu::pin(cpu::SENDER)?;
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP))?;
    while !stop.load(Ordering::Relaxed) {
        socket.send_to(&header.to_bytes(), &SocketAddr::V4(to).into())?;
        thread::sleep(ASK);
    }
    Ok(())
}

/// Lets a stream flow into a socket, and `leave` with it when packets are parked for it. What comes back goes last.
fn leave_with_parked(
    rig: &Rig,
    client: &TcpStream,
    server: TcpStream,
    leave: impl FnOnce(TcpStream) -> Result<Option<TcpStream>> + Send,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let progress = Progress::default();
    // The flow may still be split for what was before.
    let carried = || Stats::read()?.get("lane_pkts");
    let before = if rig.mflow { carried()? } else { 0 };
    let enough = AtomicBool::new(false);
    let end = thread::scope(|scope| {
        let writer = scope.spawn(|| connection::write_until(client, &stop));
        let reader = scope.spawn(|| {
            connection::read_while(&server, &progress, |_| !enough.load(Ordering::Relaxed))?;
            leave(server)
        });
        let parked = (|| {
            wait_until("bytes arrive", || Ok(progress.bytes() > 1 << 20))?;
            if rig.mflow {
                wait_until("the flow is split", || Ok(carried()? > before))?;
                let hog = Hog::start(cpu::LANES[0], HOLD)?;
                let parked = wait_until("packets are parked", || {
                    Ok(Stats::read()?.get("parked_pkts")? > 0)
                });
                enough.store(true, Ordering::Relaxed);
                thread::sleep(HOLD);
                hog.stop()?;
                parked?;
            }
            Ok(())
        })();
        enough.store(true, Ordering::Relaxed);
        let left = connection::join(reader)?;
        // Told to stop only if it did not find out by itself.
        let gone = wait_until("the writer sees the reset", || Ok(writer.is_finished()));
        stop.store(true, Ordering::Relaxed);
        let (_, end) = connection::join(writer)?;
        drop(left);
        parked.and(gone).map(|()| end)
    })?;
    ensure!(
        end == End::Reset,
        "the container left its socket with bytes unread, and the client did not notice"
    );
    Ok(())
}

fn restart_listener(rig: &Rig) -> Result<()> {
    for round in 0..ROUNDS {
        let Pair { client, server } = connection::connect(Family::V4)?;
        let (stop, progress) = (AtomicBool::new(false), Progress::default());
        let before = mflow::flows_split()?;
        thread::scope(|scope| {
            let writer = scope.spawn(|| connection::write_until(&client, &stop));
            let reader = scope.spawn(|| {
                // Its socket is closed with bytes unread and more to come.
                let read = connection::read_while(&server, &progress, |bytes| bytes < 4 << 20);
                drop(server);
                read
            });
            // Every other time without waiting for the split: then it is closed in the middle of the start.
            let split = if round % 2 == 0 && rig.mflow {
                wait_until("the flow is split, or its end", || {
                    Ok(reader.is_finished() || mflow::flows_split()? > before)
                })
            } else {
                Ok(())
            };
            connection::join(reader)?;
            stop.store(true, Ordering::Relaxed);
            connection::join(writer)?;
            split
        })?;
    }
    Ok(())
}
