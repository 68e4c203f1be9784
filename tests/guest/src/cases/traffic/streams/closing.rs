// SPDX-License-Identifier: GPL-2.0

//! Ends of connections while their packets are on the way over several lanes: nothing may stay parked, and the next stream is as
//! good as new.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{bail, ensure, Result};
use etherparse::TcpHeader;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::cases::{Case, Run};
use crate::machine::command::wait_until;
use crate::machine::{cpu, threads};
use crate::mflow::{self, Knobs, Stats};
use crate::network::netns;
use crate::network::topology::{self, Family, CLIENT};
use crate::traffic::hog::Hog;
use crate::traffic::rig::Rig;
use crate::traffic::streams::connection::{self, End, Pair};
use crate::traffic::streams::syscalls;
use crate::traffic::streams::verifier::ReadProgress;

/// The number of bytes that the container sends back after the client has ended its stream.
const ANSWER_BYTES: u64 = 1 << 20;
/// The number of times that the listener is started again, or made of a connected socket.
const ROUNDS: usize = 3;
/// A request now and then among the packets that are parked, not a flood on a checking kernel.
const ASK: Duration = Duration::from_millis(1);
/// The time for which a lane is held, so that packets of the others are parked for certain.
const HOLD: Duration = Duration::from_millis(240);

pub(in crate::cases) fn cases() -> Vec<Case> {
    let case = |name: &str, proves: &str, when, run: fn(&Rig) -> Result<()>| {
        Case::of_traffic(format!("tcp/{name}"), proves, when, move |rig| {
            let plan = rig.streams();
            rig.prepare(&plan, &Knobs::default())?;
            run(rig)?;
            rig.settle()?;
            // The connection that has ended must not disturb the next one.
            rig.strict(&plan, &Knobs::default(), |_| Ok(()))
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

fn wait_split(rig: &Rig, progress: &ReadProgress, before: u64) -> Result<()> {
    wait_until("bytes arrive", || Ok(progress.bytes() > 1 << 20))?;
    if rig.mflow {
        mflow::wait_split_since(before, 1)?;
    }
    Ok(())
}

/// Runs both ends of a connection while `meanwhile` runs, and tells the writer to stop afterwards; returns what they do.
fn with_both_ends<W: Send, R: Send>(
    writer: impl FnOnce(&AtomicBool) -> Result<W> + Send,
    reader: impl FnOnce(&ReadProgress) -> Result<R> + Send,
    meanwhile: impl FnOnce(&ReadProgress) -> Result<()>,
) -> Result<(W, R)> {
    let progress = ReadProgress::default();
    // The reader ends by itself, at the end of the stream.
    let (read, (written, ())) = threads::beside(
        |_| reader(&progress),
        || threads::beside(writer, || meanwhile(&progress)),
    )?;
    Ok((written, read))
}

/// Writes a stream at one end until `meanwhile` is over, and ends it; fails unless the other end reads all of it.
fn whole_stream(
    from: &TcpStream,
    to: &TcpStream,
    meanwhile: impl FnOnce(&ReadProgress) -> Result<()>,
) -> Result<()> {
    let write_and_end = |stop: &AtomicBool| {
        let (written, _) = connection::write_until(from, stop)?;
        from.shutdown(Shutdown::Write)?;
        Ok(written)
    };
    let read = |progress: &ReadProgress| connection::read_to_end(to, progress);
    let (written, (read, _)) = with_both_ends(write_and_end, read, meanwhile)?;
    ensure!(read == written, "{written} bytes written, {read} read");
    Ok(())
}

fn client_ends_first(rig: &Rig) -> Result<()> {
    let Pair { client, server } = connection::connect(Family::V4)?;
    let before = mflow::flows_split()?;
    whole_stream(&client, &server, |progress| {
        wait_split(rig, progress, before)
    })?;
    whole_stream(&server, &client, |progress| {
        wait_until(
            "the answer arrives",
            || Ok(progress.bytes() >= ANSWER_BYTES),
        )
    })
}

fn server_ends_first(rig: &Rig) -> Result<()> {
    let Pair { client, server } = connection::connect(Family::V4)?;
    let before = mflow::flows_split()?;
    whole_stream(&client, &server, |progress| {
        wait_split(rig, progress, before)?;
        server.shutdown(Shutdown::Write)?;
        let at = progress.bytes();
        wait_until("the stream goes on", || {
            Ok(progress.bytes() > at + (2 << 20))
        })
    })
}

fn reset(rig: &Rig) -> Result<()> {
    let Pair { client, server } = connection::connect(Family::V4)?;
    let before = mflow::flows_split()?;
    // Closing throws away what is not sent yet, and resets.
    SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
    let (written, (read, end)) = with_both_ends(
        |stop| {
            let (written, _) = connection::write_until(&client, stop)?;
            drop(client);
            Ok(written)
        },
        |progress| connection::read_to_end(&server, progress),
        |progress| wait_split(rig, progress, before),
    )?;
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
    topology::one_outer_flow(Family::V4)?;
    for _ in 0..rig.scale.rounds(ROUNDS) {
        let Pair { client, server } = connection::connect(Family::V4)?;
        threads::beside(
            |stop| ask(&client, stop),
            || {
                leave_with_parked(rig, &client, server, |server| {
                    syscalls::disconnect(&server)?;
                    SockRef::from(&server).listen(1)?;
                    Ok(Some(server))
                })
            },
        )?;
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

/// Lets a stream flow into a socket, and calls `leave` with it when packets are parked for it. What that returns is dropped
/// last.
fn leave_with_parked(
    rig: &Rig,
    client: &TcpStream,
    server: TcpStream,
    leave: impl FnOnce(TcpStream) -> Result<Option<TcpStream>> + Send,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let progress = ReadProgress::default();
    // The flow may still be split because of the connection before.
    let carried = || Stats::read()?.get("lane_pkts");
    let before = if rig.splits() { carried()? } else { 0 };
    let enough = AtomicBool::new(false);
    let end = thread::scope(|scope| {
        let writer = scope.spawn(|| connection::write_until(client, &stop));
        let reader = scope.spawn(|| {
            connection::read_while(&server, &progress, |_| !enough.load(Ordering::Relaxed))?;
            leave(server)
        });
        let parked = (|| {
            wait_until("bytes arrive", || Ok(progress.bytes() > 1 << 20))?;
            if rig.splits() {
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
        let left = threads::result(reader.join())?;
        // If it did not notice, it must still end.
        let gone = wait_until("the writer sees the reset", || Ok(writer.is_finished()));
        stop.store(true, Ordering::Relaxed);
        let (_, end) = threads::result(writer.join())?;
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
    for round in 0..rig.scale.rounds(ROUNDS) {
        let Pair { client, server } = connection::connect(Family::V4)?;
        let (stop, progress) = (AtomicBool::new(false), ReadProgress::default());
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
            let split = if round % 2 == 0 && rig.splits() {
                wait_until("the flow is split, or its end", || {
                    Ok(reader.is_finished() || mflow::flows_split()? > before)
                })
            } else {
                Ok(())
            };
            threads::result(reader.join())?;
            stop.store(true, Ordering::Relaxed);
            threads::result(writer.join())?;
            split
        })?;
    }
    Ok(())
}
