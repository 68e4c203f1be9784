// SPDX-License-Identifier: GPL-2.0

//! A card is taken from its driver and given back while packets that lanes have joined hold its pages: in sockets that nobody reads, in a
//! queueing discipline, and in requests that wait for a lane.

use std::time::Duration;

use anyhow::{ensure, Result};

use crate::cases::operation::held;
use crate::cases::operation::unread::{with_unread, DATAGRAM_BYTES};
use crate::cases::{Case, Run};
use crate::machine::{command, cpu, page_pool};
use crate::mflow::{Knobs, Stats};
use crate::network::topology;
use crate::traffic::hog::Hog;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;

/// The time for which packets stand in the queue. The driver has gone by then.
const DELAY: Duration = Duration::from_secs(4);
/// The headers of a datagram in the tunnel.
const HEADER_BYTES: u64 = 14 + 20 + 8;
/// The time for which a lane is held at once. It is shorter than the deadline of the cases.
const HOLD: Duration = Duration::from_millis(240);

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "connectx/joined",
        "the card is taken from its driver and given back while packets that lanes have joined stand in sockets and in a queue, and requests \
         wait for a lane: all pages come back, and the next flow is as good as new",
        Run::ConnectX,
        joined,
    )]
}

fn joined(rig: &Rig) -> Result<Outcome> {
    let plan = rig.streams();
    let knobs = Knobs {
        build: "lane",
        ..Knobs::default()
    };
    rig.prepare(&plan, &knobs)?;
    queue_up()?;
    with_unread(rig, gone_with_queue)?;
    all_comes_back(rig)?;
    // The tunnel has gone with the card.
    rig.prepare(&plan, &knobs)?;
    with_unread(rig, gone_with_rings)?;
    all_comes_back(rig)?;
    rig.strict(&plan, &knobs, |_| Ok(()))
}

/// Makes a queue, before there is traffic: the first one in the system patches the kernel's code.
fn queue_up() -> Result<()> {
    topology::ip("link add queue0 txqueuelen 10000 type ifb\nlink set queue0 up")?;
    topology::tc(&format!(
        "qdisc add dev queue0 root netem delay {}ms limit 100000
         qdisc add dev vxlan0 clsact",
        DELAY.as_millis()
    ))
}

/// Takes the card away while packets stand in the queue, some of them joined.
fn gone_with_queue() -> Result<()> {
    topology::tc(
        "filter add dev vxlan0 ingress matchall action mirred egress redirect dev queue0",
    )?;
    command::wait_until("joined packets stand in the queue", || {
        let queued = held::queued()?;
        // CAST: about a thousand.
        Ok(queued.bytes > queued.pkts * (HEADER_BYTES + DATAGRAM_BYTES as u64))
    })?;
    gone()
}

/// Takes the card away while a lane is held now and again, so that requests wait for it.
fn gone_with_rings() -> Result<()> {
    let hog = Hog::start(cpu::LANES[0], HOLD)?;
    let done = command::wait_until("requests wait for a lane", || {
        Ok(Stats::read()?.get("ring_bytes")? > 0)
    })
    .and_then(|()| gone());
    hog.stop()?;
    done
}

/// Takes the card from its driver and gives it back. Fails unless packets hold pages of it still.
fn gone() -> Result<()> {
    topology::probe_again(|| Ok(()))?;
    let pools = page_pool::all()?;
    ensure!(
        pools.iter().any(|pool| pool.detached && pool.inflight > 0),
        "no packet in a socket has a page of the card that has gone: {pools:?}"
    );
    Ok(())
}

/// Waits until nothing is parked, and the card has all its pages back.
fn all_comes_back(rig: &Rig) -> Result<()> {
    rig.settle()?;
    page_pool::wait_returned()
}
