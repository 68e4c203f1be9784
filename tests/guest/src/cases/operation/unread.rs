// SPDX-License-Identifier: GPL-2.0

//! Packets that lanes have joined stand in sockets that nobody reads while the module and the NIC go. They are freed long after all that
//! has made them.

use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;

use crate::cases::{Case, Run};
use crate::machine::sockopt::receive_memory;
use crate::machine::{command, memory, page_pool, threads};
use crate::mflow::{self, Knobs, Stats};
use crate::network::netns;
use crate::network::topology::{self, Family, CONTAINER};
use crate::traffic::datagrams::receiver;
use crate::traffic::datagrams::sender::{SendOrder, Sender};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::connection::{self, Pair};
use crate::traffic::streams::verifier::ReadProgress;

/// The number of times that module and NIC go, and the same where everything is slow.
const ROUNDS: usize = 5;
const BRIEF_ROUNDS: usize = 2;
/// Datagrams that the NIC's driver does not copy, their port, and the part of the usual rate at which they are sent.
pub(in crate::cases) const DATAGRAM_BYTES: usize = 1_200;
const PORT: u16 = 5_021;
const SHARE: f64 = 0.5;
/// The stream's receive buffer.
const BUFFER_BYTES: usize = 8 << 20;
/// Memory of unread packets that each of the two sockets gets, and the same where everything is slow.
const UNREAD_BYTES: u32 = 4 << 20;
const BRIEF_UNREAD_BYTES: u32 = 1 << 20;
/// Packets that join before the reader stops.
const JOINED_PKTS: u64 = 64;
/// The time for which the writer waits for a reader, who does not come.
const WRITER_WAITS: Duration = Duration::from_secs(120);

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "join/unread",
        "packets that lanes have joined stand in sockets that nobody reads while the module is unloaded and the NIC goes down and up, \
         again and again: no memory is lost, and the next stream is as good as new",
        Run::Plain,
        unread,
    )
    .patching_code()]
}

fn unread(rig: &Rig) -> Result<Outcome> {
    let plan = rig.streams();
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(2, 64)
    };
    rig.prepare(&plan, &knobs)?;
    let rounds = if rig.scale.brief {
        BRIEF_ROUNDS
    } else {
        ROUNDS
    };
    let mut free_kib = Vec::new();
    for round in 0..rounds {
        if round > 0 {
            mflow::load(&knobs)?;
        }
        with_unread(rig, || {
            mflow::unload()?;
            let down = topology::ip("link set eth0 down");
            // Also after a failure.
            topology::restore_nic()?;
            down
        })
        .with_context(|| format!("in round {round}"))?;
        free_kib.push(free_behind_sockets()?);
    }
    if !rig.scale.brief {
        // A quarter of what stood in sockets in the rounds that count. CAST: a few.
        let most_kib = i64::from(UNREAD_BYTES / 1_024) * 2 * (rounds as i64 - 2) / 4;
        memory::no_loss(&free_kib, most_kib)?;
    }
    rig.strict(&plan, &knobs, |_| Ok(()))
}

/// Returns the free memory when that of closed sockets is free, too.
fn free_behind_sockets() -> Result<i64> {
    page_pool::free_deferred()?;
    // A socket of datagrams goes after a grace period. To delete a device, the kernel waits until all that has waited for one is freed.
    topology::ip("link add freed0 type veth peer name freed1\nlink del freed0")?;
    memory::free_kib()
}

/// Fills a socket of a stream and one with `UDP_GRO` with packets that lanes have joined. Does some work while nobody reads them and the
/// senders go on, and closes the sockets.
pub(in crate::cases) fn with_unread<T>(rig: &Rig, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let Pair { client, server } = connection::connect_with_buffer(Family::V4, BUFFER_BYTES)?;
    client.set_write_timeout(Some(WRITER_WAITS))?;
    // What has not been sent by then is not sent any more.
    SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| connection::write_until(&client, &stop));
        let done = fill_with_segments(rig, &server).and_then(|()| with_unread_datagrams(rig, work));
        stop.store(true, Ordering::Relaxed);
        drop(server);
        // The writer waits for room. The reset that tells it more may not arrive.
        let _already_reset = client.shutdown(Shutdown::Both);
        let written = threads::result(writer.join());
        let done = done?;
        written?;
        Ok(done)
    })
}

/// Reads the stream until its segments join, and then lets them fill the socket.
fn fill_with_segments(rig: &Rig, server: &TcpStream) -> Result<()> {
    let (enough, progress) = (AtomicBool::new(false), ReadProgress::default());
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            connection::read_while(server, &progress, |_| !enough.load(Ordering::Relaxed))
        });
        let joined = wait_joined("segments join");
        enough.store(true, Ordering::Relaxed);
        threads::result(reader.join())?;
        joined
    })?;
    let before = joined_pkts()?;
    command::wait_until("segments fill their socket", || {
        Ok(receive_memory(server)?.bytes >= unread_bytes(rig))
    })
    .with_context(|| format!("{:?}", receive_memory(server)))?;
    require_joined(before, "segments")
}

/// Lets datagrams fill a socket, and does some work while they go on.
fn with_unread_datagrams<T>(rig: &Rig, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let address = SocketAddr::from((Family::V4.container(), PORT));
    let socket = netns::within(CONTAINER, || receiver::bind(&address))?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true).context("UDP_GRO")?;
    let sender = Sender::start(SendOrder {
        from: Family::V4.client(),
        to: vec![address],
        bytes: DATAGRAM_BYTES,
        rate: Some(rig.frames_per_s() * SHARE),
    });
    let done = fill_with_datagrams(rig, &socket).and_then(|()| work());
    sender.stop_at(0);
    let sent = sender.join();
    drop(socket);
    let done = done?;
    sent?;
    Ok(done)
}

fn fill_with_datagrams(rig: &Rig, socket: &UdpSocket) -> Result<()> {
    wait_joined("datagrams join")?;
    let (before, first_bytes) = (joined_pkts()?, receive_memory(socket)?.bytes);
    command::wait_until("datagrams fill their socket", || {
        Ok(receive_memory(socket)?.bytes >= first_bytes + unread_bytes(rig))
    })
    .with_context(|| format!("{:?}", receive_memory(socket)))?;
    require_joined(before, "datagrams")
}

fn unread_bytes(rig: &Rig) -> u32 {
    if rig.scale.brief {
        BRIEF_UNREAD_BYTES
    } else {
        UNREAD_BYTES
    }
}

fn joined_pkts() -> Result<u64> {
    Stats::read()?.get("joined_pkts")
}

/// Waits until some packets have joined, of the only flow that has any.
fn wait_joined(what: &str) -> Result<()> {
    let before = joined_pkts()?;
    command::wait_until(what, || Ok(joined_pkts()? >= before + JOINED_PKTS))
        .with_context(mflow::reasons)
}

/// Fails unless packets have joined since then, while nobody read them.
fn require_joined(before: u64, what: &str) -> Result<()> {
    ensure!(
        joined_pkts()? > before,
        "no {what} have joined while nobody read them"
    );
    Ok(())
}
