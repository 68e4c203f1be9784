// SPDX-License-Identifier: GPL-2.0

//! A socket that suits a flow better comes and goes under load. What a lane remembers of look-ups must not outlive its poll.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use socket2::{Domain, Socket, Type};

use crate::cases::{Case, Run};
use crate::machine::command::wait_until;
use crate::mflow::{self, Knobs};
use crate::network::netns;
use crate::network::topology::CONTAINER;
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::wait_quiet;
use crate::traffic::datagrams::sender::{SendOrder, Sender};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Mark;

const ROUNDS: u64 = 8;
/// The time that a datagram may be on its way.
const WAY: Duration = Duration::from_millis(100);
/// The time for which no datagram may stray after that.
const TIME: Duration = Duration::from_millis(50);

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "takeover",
        "a socket at the very address that a split flow goes to gets what comes then, and when it has closed, that at any address does again",
        Run::Always,
        takeover,
    )
    .about_splitting()]
}

fn takeover(rig: &Rig) -> Result<Outcome> {
    let plan = rig.datagrams();
    rig.prepare(&plan, &Knobs::default())?;
    let to = plan.addresses();
    let any = match to[0] {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let usual = netns::within(CONTAINER, || open((any, to[0].port()).into()))?;
    let mark = Mark::set()?;
    let sender = Sender::start(SendOrder {
        from: plan.inner.client(),
        to: to.clone(),
        bytes: plan.load.bytes,
        rate: plan.load.frames_per_s,
    });
    let first = usual.peek_from(&mut [0]);
    let usual = Receiver::of(vec![usual], plan.flows, plan.load.bytes);
    let mut total = Outcome::default();
    let rounds = first.context("nothing arrives").and_then(|_| {
        if rig.mflow {
            mflow::wait_split_since(0, 1)?;
        }
        for round in 1..=ROUNDS {
            let one = round_trip(to[0], &usual, (plan.flows, plan.load.bytes));
            total.add_received(&one.with_context(|| format!("round {round}"))?);
        }
        Ok(())
    });
    // Also after a failure.
    sender.stop_at(0);
    total.sent = sender.join()?.iter().sum();
    wait_quiet(|| usual.arrivals(), total.sent);
    total.add_received(&usual.stop()?.outcome(0));
    total.lost = total.sent - total.delivered.min(total.sent);
    total.mflow = mark.outcome()?.mflow;
    total.judge(|outcome| {
        rounds?;
        outcome.require_order()?;
        rig.settle()
    })
}

/// Opens a socket at the address, and closes it when it has received the flow. Returns what it has received.
fn round_trip(to: SocketAddr, usual: &Receiver, (flows, bytes): (u16, usize)) -> Result<Outcome> {
    let better = netns::within(CONTAINER, || open(to))?;
    let better = Receiver::of(vec![better], flows, bytes);
    wait_until("the socket at the address gets the flow", || {
        Ok(better.arrivals() > 0)
    })?;
    thread::sleep(WAY);
    let before = usual.arrivals();
    thread::sleep(TIME);
    let strayed = usual.arrivals() - before;
    ensure!(
        strayed == 0,
        "{strayed} datagrams went to the socket at any address"
    );
    let got = better.stop()?.outcome(0);
    wait_until("the first socket gets the flow again", || {
        Ok(usual.arrivals() > before)
    })?;
    Ok(got)
}

fn open(address: SocketAddr) -> Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    let socket = socket.into();
    receiver::make_room(&socket)?;
    Ok(socket)
}
