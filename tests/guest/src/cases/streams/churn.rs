// SPDX-License-Identifier: GPL-2.0

//! Connections that begin and end within the outer flow of a stream. Most of their packets reach no merge point, and any
//! of them can come just when splitting starts.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use socket2::SockRef;

use super::switches::off_and_on;
use super::unnoticed;
use crate::cases::{Case, Run};
use crate::mflow::Knobs;
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::streams::counters::{noise, Counters};
use crate::streams::{connection, run};
use crate::topology::{self, Family, CLIENT, CONTAINER};
use crate::{cpu, netns, nft, proc_net};

/// How often splitting starts.
const ROUNDS: u32 = 15;
/// With the switch in either position.
const PAUSE: Duration = Duration::from_millis(60);
const PORT: u16 = 6_001;
/// How long the server waits for a connection until it looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(100);
/// Connections that may wait for the server.
const PLACES: i32 = 4096;
/// How long a connection may take.
const STUCK: Duration = Duration::from_secs(15);
/// How long one may take to end. Its last segment is sent again after 5 s, which is what shall not happen.
const END: Duration = Duration::from_secs(4);

/// Both ends count the segments of handshakes that leave, before mflow sees them, and those that arrive.
///
/// What arrives is counted just before TCP gets it, so that one which mflow or the overlay lost would be missing.
const HANDSHAKES: &str = "
table inet mflow {
    counter asked {}
    counter answered {}
    chain out {
        type filter hook output priority 0;
        tcp dport 6001 tcp flags & (syn | ack) == syn counter name asked;
        tcp sport 6001 tcp flags & (syn | ack) == (syn | ack) counter name answered;
    }
    chain in {
        type filter hook input priority 0;
        tcp dport 6001 tcp flags & (syn | ack) == syn counter name asked;
        tcp sport 6001 tcp flags & (syn | ack) == (syn | ack) counter name answered;
    }
}
";

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let case = |inner: Family, when| {
        Case::of_traffic(
            format!("tcp/flows/churn/v{}", inner.number()),
            "splitting starts again and again in an outer flow full of connections that begin and end: nothing waits, \
             and none of their segments is lost",
            when,
            move |rig| churn(rig, inner),
        )
        .patching_code()
    };
    vec![case(Family::V4, Run::Always), case(Family::V6, Run::Plain)]
}

fn churn(rig: &Rig, inner: Family) -> Result<Outcome> {
    let plan = run::Plan {
        inner,
        ..rig.tcp_plan()
    };
    rig.prepare_tcp(&plan, &Knobs::default())?;
    topology::one_outer_flow(plan.outer)?;
    topology::patient_tcp()?;
    for namespace in [CLIENT, CONTAINER] {
        nft::add(namespace, HANDSHAKES)?;
    }
    let outcome = beside_connections(rig, &plan);
    // Also after a failure; those of the container go with it.
    nft::flush(CLIENT)?;
    outcome
}

fn beside_connections(rig: &Rig, plan: &run::Plan) -> Result<Outcome> {
    let counters = Counters::read()?;
    let address = SocketAddr::from((plan.inner.container(), PORT));
    let listener = netns::within(CONTAINER, || Ok(TcpListener::bind(address)?))?;
    // The server may be away for long on an emulated CPU; a SYN that finds no place is sent again.
    SockRef::from(&listener).listen(PLACES)?;
    let stop = AtomicBool::new(false);
    let (outcome, connections) = thread::scope(|scope| {
        let server = scope.spawn(|| accept(&listener, &stop));
        let client = scope.spawn(|| connect(address, &stop));
        let outcome = run::measure(plan, |live| {
            if rig.mflow {
                off_and_on(live, ROUNDS, PAUSE)
            } else {
                live.flow_for(PAUSE * 2 * ROUNDS)
            }
        });
        stop.store(true, Ordering::Relaxed);
        let connections = connection::join(client);
        let accepted = connection::join(server);
        Ok::<_, anyhow::Error>((outcome?, connections.and_then(|n| accepted.map(|()| n))?))
    })?;
    all_end()?;
    none_lost()?;
    let counted = Counters::read()?.since(&counters);
    for name in ["RetransSegs", "ListenDrops"] {
        ensure!(
            noise(&counted, name) == 0,
            "segments of the connections were sent again or not taken: {counted:?}"
        );
    }
    ensure!(
        connections > u64::from(4 * ROUNDS),
        "only {connections} connections came and went"
    );
    if rig.mflow {
        unnoticed(outcome)
    } else {
        outcome.judge(Outcome::require_quiet_tcp)
    }
}

/// Fails unless every segment of a handshake that was sent arrives.
fn none_lost() -> Result<()> {
    for (name, from, to) in [
        ("asked", CLIENT, CONTAINER),
        ("answered", CONTAINER, CLIENT),
    ] {
        let start = Instant::now();
        loop {
            let sent = nft::counted_pkts(from, name)?;
            let arrived = nft::counted_pkts(to, name)?;
            if sent == arrived && sent != 0 {
                break;
            }
            ensure!(
                start.elapsed() < END,
                "of the segments with which connections begin ({name}), {sent} left and {arrived} arrived"
            );
            thread::sleep(LOOK);
        }
    }
    Ok(())
}

/// Opens and closes connections, one after the other; returns how many.
fn connect(address: SocketAddr, stop: &AtomicBool) -> Result<u64> {
    netns::enter(CLIENT)?;
    cpu::pin(cpu::SENDER)?;
    let mut connections = 0;
    while !stop.load(Ordering::Relaxed) {
        TcpStream::connect_timeout(&address, STUCK).context("cannot connect")?;
        connections += 1;
    }
    Ok(connections)
}

/// Accepts connections and closes them at once.
fn accept(listener: &TcpListener, stop: &AtomicBool) -> Result<()> {
    cpu::pin(cpu::READER)?;
    SockRef::from(listener).set_read_timeout(Some(LOOK))?;
    loop {
        match listener.accept() {
            Ok(_closed_at_once) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error).context("cannot accept"),
        }
    }
}

/// Waits until the client knows of every connection that it has ended.
fn all_end() -> Result<()> {
    let start = Instant::now();
    loop {
        let left = proc_net::open_towards(CLIENT, PORT)?;
        if left.is_empty() {
            return Ok(());
        }
        ensure!(
            start.elapsed() < END,
            "{} connections have not ended {} s after the last one began; their states: {}",
            left.len(),
            END.as_secs(),
            left.join(", ")
        );
        thread::sleep(Duration::from_millis(20));
    }
}
