// SPDX-License-Identifier: GPL-2.0

//! Connections that begin and end within the outer flow of a stream. Most of their packets reach no merge point, and any
//! of them can come just when splitting starts.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use socket2::SockRef;

use crate::cases::operation::reload::switch;
use crate::cases::{Case, Run};
use crate::machine::{cpu, proc_net, threads};
use crate::mflow::Knobs;
use crate::network::topology::{Family, CLIENT, CONTAINER};
use crate::network::{netns, nft};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::connection::accept_all;
use crate::traffic::streams::run::Streams;
use crate::traffic::tcp_counters::{noise, Counters};
use crate::traffic::{Live as _, Load as _, Plan};

const ROUNDS: usize = 15;
/// The time for which traffic flows with the switch in either position.
const PAUSE: Duration = Duration::from_millis(60);
const PORT: u16 = 6_001;
/// Connections that may wait for the server.
const PLACES: i32 = 4096;
const STUCK: Duration = Duration::from_secs(15);
/// The time that a connection may take to end: less than the 5 s after which its last segment would be sent again.
const END: Duration = Duration::from_secs(4);

/// The rules by which both ends count the segments that begin and end connections.
///
/// Leaving segments are counted before mflow sees them. Arriving segments are counted just before TCP gets them, so a segment
/// that mflow or the overlay loses is missing there.
const SEGMENTS: &str = "
table inet mflow {
    counter asked {}
    counter answered {}
    counter ended {}
    counter closed {}
    chain out {
        type filter hook output priority 0;
        tcp dport 6001 tcp flags & (syn | ack) == syn counter name asked;
        tcp sport 6001 tcp flags & (syn | ack) == (syn | ack) counter name answered;
        tcp dport 6001 tcp flags & fin == fin counter name ended;
        tcp sport 6001 tcp flags & fin == fin counter name closed;
    }
    chain in {
        type filter hook input priority 0;
        tcp dport 6001 tcp flags & (syn | ack) == syn counter name asked;
        tcp sport 6001 tcp flags & (syn | ack) == (syn | ack) counter name answered;
        tcp dport 6001 tcp flags & fin == fin counter name ended;
        tcp sport 6001 tcp flags & fin == fin counter name closed;
    }
}
";

/// The name of a counter of [`SEGMENTS`], the namespace that its segments leave, and the namespace in which they arrive.
type Counter = (&'static str, &'static str, &'static str);

/// The counters of the segments that begin connections.
const BEGINNINGS: [Counter; 2] = [
    ("asked", CLIENT, CONTAINER),
    ("answered", CONTAINER, CLIENT),
];
/// The counters of the segments by which the client and the server end connections.
const ENDS: [Counter; 2] = [("ended", CLIENT, CONTAINER), ("closed", CONTAINER, CLIENT)];

pub(in crate::cases) fn cases() -> Vec<Case> {
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
    let mut plan = rig.streams();
    (plan.inner, plan.one_outer) = (inner, true);
    rig.prepare(&plan, &Knobs::default())?;
    for namespace in [CLIENT, CONTAINER] {
        nft::add(namespace, SEGMENTS)?;
    }
    let outcome = beside_connections(rig, &plan);
    // The client's rules go after a failure too. The container's rules go with the container.
    nft::flush(CLIENT)?;
    outcome
}

fn beside_connections(rig: &Rig, plan: &Plan<Streams>) -> Result<Outcome> {
    let counters = Counters::read()?;
    let address = SocketAddr::from((plan.inner.container(), PORT));
    let listener = netns::within(CONTAINER, || Ok(TcpListener::bind(address)?))?;
    // An emulated CPU may keep the server away for long. A SYN that finds no place is sent again, so there are many places.
    SockRef::from(&listener).listen(PLACES)?;
    let serve = |stop: &AtomicBool| accept_all(&listener, stop, |_closed_at_once, _| Ok(()));
    // The client stops first, so that the server accepts, and closes, all connections.
    let ((), (connections, mut outcome)) = threads::beside(serve, || {
        threads::beside(|stop| connect(address, stop), || stream(rig, plan))
    })?;
    all_end(PORT)?;
    none_lost(&BEGINNINGS)?;
    let ends_sent = none_lost(&ENDS)?;
    // TCP sends a segment again if no answer comes for 200 ms. An emulated CPU may be away for longer, so a segment that
    // has arrived may be sent again.
    let sent_again = ends_sent.saturating_sub(2 * connections);
    let counted = Counters::read()?.since(&counters);
    for (name, allowed) in [("RetransSegs", sent_again), ("ListenDrops", 0)] {
        ensure!(
            noise(&counted, name) == allowed,
            "segments were sent again or not taken, {sent_again} of those with which connections end: {counted:?}"
        );
    }
    ensure!(
        // CAST: a small number.
        connections > 4 * rig.scale.rounds(ROUNDS) as u64,
        "only {connections} connections came and went"
    );
    // The stream has the same counters, and all segments that were sent again are judged above.
    outcome
        .tcp
        .retain(|name, _| sent_again == 0 || name != "RetransSegs");
    outcome.judge(|outcome| rig.require_unnoticed::<Streams>(outcome))
}

/// Runs the stream, whose flow begins to be split again and again.
fn stream(rig: &Rig, plan: &Plan<Streams>) -> Result<Outcome> {
    Streams::measure(plan, |live| {
        for _ in 0..rig.scale.rounds(ROUNDS) {
            if rig.mflow {
                switch(live, "enabled", "1", "0", PAUSE)?;
            } else {
                live.flow_for(PAUSE * 2)?;
            }
        }
        Ok(())
    })
}

/// Fails unless every segment that the counters have counted arrives. Returns the number of segments that were sent.
fn none_lost(counters: &[Counter]) -> Result<u64> {
    let mut all = 0;
    for (name, from, to) in counters {
        threads::until_ok(END, || {
            let sent = nft::counted(*from, name)?.pkts;
            let arrived = nft::counted(*to, name)?.pkts;
            ensure!(
                sent == arrived && sent != 0,
                "of the segments with which connections begin or end ({name}), {sent} left and {arrived} arrived"
            );
            Ok(())
        })?;
        all += nft::counted(*from, name)?.pkts;
    }
    Ok(all)
}

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

/// Waits until the client knows that all connections to a port have ended.
pub(super) fn all_end(port: u16) -> Result<()> {
    threads::until_ok(END, || {
        let left = proc_net::open_towards(CLIENT, port)?;
        ensure!(
            left.is_empty(),
            "{} connections have not ended since the last one began; their states: {}",
            left.len(),
            left.join(", ")
        );
        Ok(())
    })
}
