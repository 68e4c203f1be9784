// SPDX-License-Identifier: GPL-2.0

//! Broadcasts inside the tunnel, in the outer flow of a fast flow: the bridge makes a copy of each for every container. A lane has given
//! one packet, and what it waits for must not seem to have come before it has.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::datagram::{self, Head, Pattern, MIN_BYTES};

use crate::cases::{Case, Run};
use crate::machine::{cpu, threads};
use crate::mflow::Knobs;
use crate::network::netns;
use crate::network::topology::{self, Family, CLIENT, CONTAINER};
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::{wait_quiet, Datagrams};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Load as _;

/// Everybody in the container's network, and the port of those who listen.
const EVERYBODY: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 255);
const PORT: u16 = 6_005;
/// The containers beside the first one: their namespaces, the host's ends of their veths, and their addresses.
const OTHERS: [(&str, &str, &str); 2] = [
    ("container2", "veth1", "10.0.1.3"),
    ("container3", "veth2", "10.0.1.4"),
];
/// Between two broadcasts: several in a batch of the fast flow.
const EVERY: Duration = Duration::from_millis(5);
/// The part of the usual rate that the fast flow has: each broadcast becomes three packets.
const SHARE: f64 = 0.5;
/// Fewer prove nothing.
const LEAST_BROADCASTS: u64 = 20;

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "broadcast/three-containers",
        "three containers get broadcasts in the outer flow of a split flow: all is in order, none is late, and the flow stays split",
        Run::Always,
        three_containers,
    )]
}

fn three_containers(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.one_outer = true;
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * SHARE);
    let knobs = Knobs::default();
    rig.prepare(&plan, &knobs)?;
    let measured = OTHERS
        .iter()
        .try_for_each(|&(namespace, veth, address)| add(namespace, veth, address))
        .and_then(|()| {
            let namespaces = OTHERS.iter().map(|&(namespace, ..)| namespace);
            let listening: Vec<Receiver> = [CONTAINER]
                .into_iter()
                .chain(namespaces)
                .map(listen)
                .collect::<Result<_>>()?;
            let mut sent = 0;
            // Not before the flow is split: of a probe there is to be no copy.
            let outcome = Datagrams::measure(&plan, |live| {
                sent = threads::beside(broadcast, || live.send_more(plan.load.count))?.0;
                Ok(())
            })?;
            let mut outcomes = Vec::new();
            for one in listening {
                wait_quiet(|| one.arrivals(), sent);
                outcomes.push(one.stop()?.outcome(sent));
            }
            Ok((outcome, outcomes))
        });
    // Also after a failure.
    OTHERS
        .iter()
        .try_for_each(|&(namespace, veth, _)| remove(namespace, veth))?;
    let (outcome, listeners) = measured?;
    outcome.judge(|outcome| {
        for (container, broadcasts) in listeners.iter().enumerate() {
            broadcasts
                .require_whole()
                .and_then(|()| broadcasts.require_order())
                .with_context(|| format!("of broadcasts in container {container}"))?;
            ensure!(
                broadcasts.sent >= LEAST_BROADCASTS,
                "{} broadcasts were sent",
                broadcasts.sent
            );
        }
        let queued = outcome.counter("paths_async")?;
        ensure!(
            queued == 0,
            "a queue was seen {queued} time(s) on a path that has none"
        );
        rig.require_strict(&plan, &knobs, outcome)
    })
}

/// Adds a container to the bridge.
fn add(namespace: &str, veth: &str, address: &str) -> Result<()> {
    let mtu = Family::V4.overlay_mtu();
    netns::add(namespace)?;
    topology::ip(&format!(
        "link add {veth} mtu {mtu} type veth peer name eth0 netns {namespace}
         link set {veth} master br0
         link set {veth} up"
    ))?;
    topology::ip_in(
        namespace,
        &format!(
            "link set eth0 mtu {mtu} up
             addr add {address}/24 dev eth0"
        ),
    )
}

fn remove(namespace: &str, veth: &str) -> Result<()> {
    // It may not have been added.
    let _ = topology::ip(&format!("link del {veth}"));
    if netns::exists(namespace) {
        netns::delete(namespace)?;
    }
    Ok(())
}

fn listen(namespace: &str) -> Result<Receiver> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let socket = netns::within(namespace, || receiver::bind(&any))?;
    Ok(Receiver::of(vec![socket], 1, MIN_BYTES))
}

/// Sends numbered broadcasts from one port, and returns how many.
fn broadcast(stop: &AtomicBool) -> Result<u64> {
    netns::enter(CLIENT)?;
    cpu::pin(cpu::SENDER)?;
    let socket = UdpSocket::bind((Family::V4.client(), PORT))?;
    socket.set_broadcast(true)?;
    let (pattern, mut buffer) = (Pattern::default(), [0; MIN_BYTES]);
    let mut sequence = 0;
    while !stop.load(Ordering::Relaxed) {
        let head = Head {
            flow: 0,
            sequence,
            sent_ns: None,
        };
        datagram::encode(&pattern, head, &mut buffer);
        socket
            .send_to(&buffer, (EVERYBODY, PORT))
            .context("cannot send a broadcast")?;
        sequence += 1;
        thread::sleep(EVERY);
    }
    Ok(sequence)
}
