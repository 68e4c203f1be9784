// SPDX-License-Identifier: GPL-2.0

//! Connections that begin in an outer flow that is split already. Each client writes all it has before anything is read, so
//! the last segment of a handshake and the first ones with data come back to back, and a batch may end between them.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use socket2::SockRef;

use super::churn::all_end;
use crate::cases::{Case, Run};
use crate::machine::sockopt;
use crate::machine::{cpu, proc_net, threads};
use crate::mflow::Knobs;
use crate::network::netns;
use crate::network::topology::{
    self,
    Family::{self, V4, V6},
    CLIENT, CONTAINER,
};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::connection::accept_all;
use crate::traffic::streams::connection::{self, End};
use crate::traffic::streams::pattern;
use crate::traffic::streams::run::Streams;
use crate::traffic::streams::verifier::ReadProgress;
use crate::traffic::Load as _;

const PORT: u16 = 6_003;
/// Clients that connect at the same time, each again and again.
const CLIENTS: u64 = 4;
/// The number of bytes that each connection carries: as many as a sender may send before the first answer.
const BYTES: usize = 14_000;
/// For one connection, this many of the datagrams that other cases send.
const DATAGRAMS_PER_CONNECTION: u64 = 16;
/// The most that GRO makes of segments.
const MOST_SEGMENT_BYTES: u64 = 65_536;
/// Connections that may wait for the server.
const PLACES: i32 = 4096;
const STUCK: Duration = Duration::from_secs(15);
/// The time in seconds for which a listener waits for data of a connection.
const DEFER_S: i32 = 10;
/// The number of times that the listener is closed, and the number of connections that it takes before each time.
const LISTENERS: usize = 30;
const TAKEN: usize = 3;

/// The way in which connections begin.
#[derive(Clone, Copy)]
struct Beginning {
    inner: Family,
    /// True if the listener remembers nothing of a connection that begins, as when it is flooded.
    cookies: bool,
    batch_pkts: u32,
    /// True if a connection comes into being only with its first data.
    deferred: bool,
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    let beginning = |inner, cookies, batch_pkts| Beginning {
        inner,
        cookies,
        batch_pkts,
        deferred: false,
    };
    let case = |name: &str, when, beginning: Beginning| {
        Case::of_traffic(
            format!("tcp/handshake/{name}"),
            "TCP gets all of a connection in order that begins in a split flow, from its first segment on, and resets none",
            when,
            move |rig| begin(rig, beginning),
        )
    };
    vec![
        case("cookies-1/batch-16", Run::Always, beginning(V4, false, 16)),
        case("cookies-1/batch-256", Run::Plain, beginning(V4, false, 256)),
        case("cookies-2/batch-1", Run::Always, beginning(V4, true, 1)),
        case("cookies-2/batch-256", Run::Plain, beginning(V4, true, 256)),
        case("v6/cookies-1/batch-16", Run::Plain, beginning(V6, false, 16)),
        case("v6/cookies-2/batch-16", Run::Plain, beginning(V6, true, 16)),
        case(
            "deferred",
            Run::Plain,
            Beginning {
                deferred: true,
                ..beginning(V4, false, 16)
            },
        ),
        Case::of_traffic(
            "tcp/handshake/listener-closed",
            "a listener is closed while connections begin in a split flow: those it has not taken end, and nothing stays parked",
            Run::Plain,
            close_listener,
        ),
    ]
}

fn begin(rig: &Rig, beginning: Beginning) -> Result<Outcome> {
    let mut plan = rig.streams();
    (plan.inner, plan.one_outer) = (beginning.inner, true);
    let knobs = Knobs::of(2, beginning.batch_pkts);
    rig.prepare(&plan, &knobs)?;
    netns::within(CONTAINER, || {
        let cookies = if beginning.cookies { "2" } else { "1" };
        topology::sysctl("net/ipv4/tcp_syncookies", cookies)
    })?;
    let address = SocketAddr::from((plan.inner.container(), PORT));
    let each = rig.scale.other / DATAGRAMS_PER_CONNECTION / CLIENTS;
    let taken = AtomicU64::new(0);
    let outcome = Streams::measure(&plan, |_| {
        let listener = netns::within(CONTAINER, || listen(address))?;
        if beginning.deferred {
            sockopt::defer_accept(&listener, DEFER_S)?;
        }
        let serve = |stop: &AtomicBool| {
            accept_all(&listener, stop, |socket, _| {
                taken.fetch_add(1, Ordering::Relaxed);
                read_all(&socket)
            })
        };
        let ((), _) = threads::beside(serve, || {
            clients(|| {
                for number in 0..each {
                    exchange(address)
                        .with_context(|| format!("connection {number} of a client"))?;
                }
                Ok(())
            })
        })?;
        all_end(PORT)
    })?;
    outcome.judge(|outcome| {
        let count = |name: &str| outcome.tcp.get(name).copied().unwrap_or(0);
        let (begun, taken) = (CLIENTS * each, taken.load(Ordering::Relaxed));
        ensure!(taken == begun, "{begun} connections, {taken} taken");
        for (wanted, name) in [
            (beginning.cookies, "SyncookiesRecv"),
            (beginning.deferred, "TCPDeferAcceptDrop"),
        ] {
            ensure!(
                !wanted || count(name) >= begun / 2,
                "{name} grew by {} with {begun} connections: they began in another way",
                count(name)
            );
        }
        rig.require_strict(&plan, &knobs, outcome)?;
        require_counted_once(outcome)
    })
}

/// Fails if TCP of the container has counted more segments than its device has received packets: one that waits for its turn
/// comes to TCP twice.
fn require_counted_once(outcome: &Outcome) -> Result<()> {
    let segments = proc_net::counter(Some(CONTAINER), "Tcp", "InSegs")?;
    let received = proc_net::device(CONTAINER, "eth0")?.rx_pkts;
    ensure!(
        segments <= received && segments > outcome.stream_bytes / MOST_SEGMENT_BYTES,
        "the container's TCP has counted {segments} segments in {received} packets"
    );
    Ok(())
}

fn close_listener(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.streams();
    plan.one_outer = true;
    // What a socket that is being closed does not take comes again soon.
    plan.load.patient = false;
    rig.prepare(&plan, &Knobs::of(2, 16))?;
    let address = SocketAddr::from((plan.inner.container(), PORT));
    let refused = AtomicU64::new(0);
    let outcome = Streams::measure(&plan, |_| {
        threads::beside(
            |stop| {
                clients(|| {
                    while !stop.load(Ordering::Relaxed) {
                        match exchange(address) {
                            Err(error) if is_refused(&error) => {
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                            ended => ended?,
                        }
                    }
                    Ok(())
                })
            },
            || netns::within(CONTAINER, || listen_again_and_again(address)),
        )?;
        all_end(PORT)
    })?;
    outcome.judge(|outcome| {
        ensure!(
            refused.load(Ordering::Relaxed) >= LISTENERS as u64,
            "the listener was closed {LISTENERS} times, and only {refused:?} connections noticed"
        );
        if rig.mflow {
            outcome.require_no_deadline()?;
        }
        rig.settle()
    })
}

fn listen_again_and_again(address: SocketAddr) -> Result<()> {
    for _ in 0..LISTENERS {
        let listener = listen(address)?;
        SockRef::from(&listener).set_read_timeout(Some(STUCK))?;
        for _ in 0..TAKEN {
            let (socket, _) = listener.accept().context("cannot accept")?;
            read_all(&socket)?;
        }
        // It is closed here, with connections that wait for it.
    }
    Ok(())
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // The server may be away for long on an emulated CPU; a SYN that finds no place is sent again.
    SockRef::from(&listener).listen(PLACES)?;
    Ok(listener)
}

/// Runs this many clients, and waits for all of them.
fn clients(client: impl Fn() -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let clients = [(); CLIENTS as usize].map(|()| {
            scope.spawn(|| {
                netns::enter(CLIENT)?;
                cpu::pin(cpu::SENDER)?;
                client()
            })
        });
        threads::results(clients.map(ScopedJoinHandle::join)).map(drop)
    })
}

/// Writes everything at once, and waits for the other end to have read it.
fn exchange(address: SocketAddr) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    pattern::fill(0, &mut bytes);
    let mut socket = TcpStream::connect_timeout(&address, STUCK)?;
    socket.set_read_timeout(Some(STUCK))?;
    socket.write_all(&bytes)?;
    socket.shutdown(Shutdown::Write)?;
    match socket.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::other("the server sent something")),
    }
}

/// Fails unless a connection carries exactly what a client writes.
fn read_all(socket: &TcpStream) -> Result<()> {
    socket.set_read_timeout(Some(STUCK))?;
    let (read, end) = connection::read_to_end(socket, &ReadProgress::default())?;
    ensure!(
        read == BYTES as u64 && end == End::Orderly,
        "a connection ended after {read} of {BYTES} bytes: {end:?}"
    );
    Ok(())
}

/// Tells whether a connection has ended because its listener is gone.
fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
    )
}
