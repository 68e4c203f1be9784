// SPDX-License-Identifier: GPL-2.0

//! Sockets that are chosen by CPU: a group with `SO_REUSEPORT` one of which wants what its CPU receives, or whose program asks for the
//! CPU. Lanes would send one flow to several of them, so it is not split.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Result};
use socket2::{Domain, SockRef, Socket, Type};

use crate::cases::{Case, Run};
use crate::machine::command::wait_until;
use crate::machine::{cpu, sockopt};
use crate::mflow::{self, Knobs, Stats, FASTER_THAN_ANY_PPS};
use crate::network::netns;
use crate::network::topology::CONTAINER;
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::wait_quiet;
use crate::traffic::datagrams::sender::{SendOrder, Sender};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Mark;

/// The time for which datagrams come after the module has found out how the sockets are chosen.
const TIME: Duration = Duration::from_millis(800);
/// The time that a datagram may be on its way.
const WAY: Duration = Duration::from_millis(200);

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![
        Case::of_traffic(
        "by-cpu",
        "a flow to sockets that are chosen by CPU is not split, and stays with one of them",
        Run::Plain,
        |rig| one_gets_all(rig, false, want),
    )
    .about_splitting(),
    Case::of_traffic(
        "by-cpu/program",
        "the same where a classic program of the group chooses by CPU",
        Run::Plain,
        |rig| one_gets_all(rig, false, choose),
    )
    .about_splitting(),
    Case::of_traffic(
        "by-cpu/later",
        "a split flow to sockets one of which then wants what its CPU receives goes there, and is not split any more",
        Run::Plain,
        |rig| one_gets_all(rig, true, want),
    )
    .about_splitting()]
}

/// The way to let the socket in this place have what the NIC's CPU receives.
type Give = fn(&[UdpSocket], usize) -> Result<()>;

fn want(sockets: &[UdpSocket], by_cpu: usize) -> Result<()> {
    Ok(SockRef::from(&sockets[by_cpu]).set_cpu_affinity(cpu::NIC)?)
}

/// Makes a program choose that place on the NIC's CPU, and the other one of two elsewhere.
fn choose(sockets: &[UdpSocket], by_cpu: usize) -> Result<()> {
    // CAST: one of two places.
    let (here, elsewhere) = (by_cpu as u32, 1 - by_cpu as u32);
    sockopt::choose_by_cpu(&sockets[0], cpu::NIC, here, elsewhere)
}

fn one_gets_all(rig: &Rig, later: bool, give: Give) -> Result<Outcome> {
    let plan = rig.datagrams();
    let knobs = Knobs {
        // Not yet.
        min_flow_pps: if later { 100 } else { FASTER_THAN_ANY_PPS },
        ..Knobs::of(2, 16)
    };
    rig.prepare_pinned(&plan, &knobs)?;
    let to = plan.addresses();
    let sockets = netns::within(CONTAINER, || Ok([open(to[0])?, open(to[0])?]))?;
    let mut receivers = Vec::new();
    for socket in &sockets {
        let socket = vec![socket.try_clone()?];
        receivers.push(Receiver::of(socket, plan.flows, plan.load.bytes));
    }
    let mark = Mark::set()?;
    let sender = Sender::start(SendOrder {
        from: plan.inner.client(),
        to,
        bytes: plan.load.bytes,
        rate: plan.load.frames_per_s,
    });
    let chosen = by_cpu(rig, &sockets, &receivers, later, give);
    // Also after a failure.
    sender.stop_at(0);
    let sent: u64 = sender.join()?.iter().sum();
    wait_quiet(|| receivers.iter().map(Receiver::arrivals).sum(), sent);
    let mut total = Outcome {
        sent,
        mflow: mark.outcome()?.mflow,
        ..Outcome::default()
    };
    for receiver in receivers {
        total.add_received(&receiver.stop()?.outcome(0));
    }
    total.lost = sent - total.delivered.min(sent);
    total.judge(|outcome| {
        chosen?;
        outcome.require_whole()?;
        outcome.require_order()?;
        if rig.mflow && !later {
            let split = outcome.counter("flows_split")?;
            ensure!(split == 0, "the flow was split {split} times");
        }
        rig.settle()
    })
}

/// Lets one socket have the flow because of the CPU of the NIC, and fails if the other one gets anything from then on.
fn by_cpu(
    rig: &Rig,
    sockets: &[UdpSocket],
    receivers: &[Receiver],
    later: bool,
    give: Give,
) -> Result<()> {
    // Without the wish of one of them, the flow's ports choose.
    wait_until("something arrives", || {
        Ok(receivers.iter().any(|receiver| receiver.arrivals() > 0))
    })?;
    let by_ports = usize::from(receivers[0].arrivals() == 0);
    let by_cpu = 1 - by_ports;
    if later && rig.mflow {
        mflow::wait_split_since(0, 1)?;
    }
    give(sockets, by_cpu)?;
    wait_until("the socket of the NIC's CPU gets the flow", || {
        Ok(receivers[by_cpu].arrivals() > 0)
    })?;
    thread::sleep(WAY);
    let before = receivers[by_ports].arrivals();
    if rig.mflow && !later {
        mflow::write("min_flow_pps", "100")?;
        wait_until("the module has found out, or splits the flow", || {
            let stats = Stats::read()?;
            Ok(stats.get("paths_ordered")? > 0 || stats.get("flows_split")? > 0)
        })?;
    }
    thread::sleep(TIME);
    let strayed = receivers[by_ports].arrivals() - before;
    ensure!(
        strayed == 0,
        "{strayed} datagrams went to the other socket of the group"
    );
    Ok(())
}

fn open(address: SocketAddr) -> Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    let socket = socket.into();
    receiver::make_room(&socket)?;
    Ok(socket)
}
