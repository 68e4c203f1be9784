// SPDX-License-Identifier: GPL-2.0

//! Two sockets of one multicast group: the bridge floods what the group gets, and the stack copies it for each socket. Two
//! containers: a program sends a copy of each packet to the second one. What the merger waits for when splitting starts comes
//! several times, too.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::network::CONTAINER_MAC;
use nix::net::if_::if_nametoindex;
use socket2::{Domain, InterfaceIndexOrAddress, Socket, Type};

use crate::cases::operation::reload::switch;
use crate::cases::{Case, Run};
use crate::mflow::Knobs;
use crate::network::bpf::Tcx;
use crate::network::netns;
use crate::network::topology::{self, Family, CLIENT, CONTAINER};
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::{wait_quiet, Datagrams};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Plan};

const PORT: u16 = 6_004;
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x1, 0x3);
/// The second container, and the host's end of its veth.
const CONTAINER2: &str = "container2";
const VETH2: &str = "veth1";
/// The number of times that splitting starts again.
const STARTS: u64 = 10;
/// The time for which traffic flows with splitting and without.
const PAUSE: Duration = Duration::from_millis(150);
/// The part of the usual rate that is sent: each frame becomes three.
const SHARE: f64 = 0.5;

pub(in crate::cases) fn cases() -> Vec<Case> {
    let case = |inner: Family, when| {
        Case::of_traffic(
            format!("multicast/v{}", inner.number()),
            "splitting starts again and again, and each of two sockets in a group gets all in order",
            when,
            move |rig| both_get_all(rig, inner),
        )
    };
    vec![
        case(Family::V4, Run::Always),
        case(Family::V6, Run::Plain),
        Case::of_traffic(
            "multicast/program",
            "splitting starts again and again, and each of two containers to which a program sends packets gets all in order",
            Run::Plain,
            copied_by_program,
        ),
    ]
}

fn both_get_all(rig: &Rig, inner: Family) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.inner = inner;
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * SHARE);
    rig.prepare(&plan, &Knobs::of(2, 16))?;
    let to = netns::within(CLIENT, || group(inner, "vxlan0"))?;
    let member = || -> Result<Receiver> {
        let socket = netns::within(CONTAINER, || join(inner))?;
        Ok(Receiver::of(vec![socket], plan.flows, plan.load.bytes))
    };
    both(rig, &plan, vec![to], member()?, member()?)
}

fn copied_by_program(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * SHARE);
    rig.prepare(&plan, &Knobs::of(2, 16))?;
    let outcome = second_container(plan.inner).and_then(|()| {
        let _program = Tcx::copying("vxlan0", VETH2)?;
        let to = plan.addresses();
        let second = netns::within(CONTAINER2, || {
            to.iter().map(receiver::bind).collect::<Result<_>>()
        })?;
        let second = Receiver::of(second, plan.flows, plan.load.bytes);
        both(rig, &plan, to, plan.receive()?, second)
    });
    // Also after a failure.
    topology::ip(&format!("link del {VETH2}"))?;
    netns::delete(CONTAINER2)?;
    outcome
}

/// Adds a container that takes the first one's packets for its own.
fn second_container(inner: Family) -> Result<()> {
    netns::add(CONTAINER2)?;
    topology::ip(&format!(
        "link add {VETH2} type veth peer name eth0 address {CONTAINER_MAC} netns {CONTAINER2}
         link set {VETH2} up"
    ))?;
    topology::ip_in(
        CONTAINER2,
        &format!(
            "link set eth0 up
             addr add {}/24 dev eth0",
            inner.container()
        ),
    )
}

/// Sends to `to` while splitting starts again and again. Fails unless both receivers get all in order.
fn both(
    rig: &Rig,
    plan: &Plan<Datagrams>,
    to: Vec<SocketAddr>,
    first: Receiver,
    second: Receiver,
) -> Result<Outcome> {
    let outcome = Datagrams::measure_at(plan, to, first, |live| {
        for _ in 0..STARTS {
            if rig.mflow {
                // No static key: that would be the kernel's code that changes under load.
                switch(live, "min_flow_pps", "100", "10000000", PAUSE)?;
            } else {
                live.flow_for(PAUSE * 2)?;
            }
        }
        Ok(())
    });
    if let Ok(outcome) = &outcome {
        wait_quiet(|| second.arrivals(), outcome.sent);
    }
    // Also after a failure.
    let second = second.stop()?;
    outcome?.judge(|outcome| {
        let second = second.outcome(outcome.sent);
        for (name, one) in [("first", outcome), ("second", &second)] {
            one.require_whole()
                .and_then(|()| one.require_order())
                .with_context(|| format!("at the {name} socket"))?;
        }
        if rig.splits() {
            outcome.require_no_deadline()?;
            let starts = outcome.counter("flows_split")?;
            ensure!(
                starts >= STARTS,
                "splitting started {starts} times instead of {STARTS}"
            );
        }
        rig.settle()
    })
}

/// Returns the group's address for a device of this thread's namespace.
fn group(inner: Family, device: &str) -> Result<SocketAddr> {
    Ok(match inner {
        Family::V4 => (GROUP_V4, PORT).into(),
        Family::V6 => SocketAddrV6::new(GROUP_V6, PORT, 0, if_nametoindex(device)?).into(),
    })
}

/// Returns a socket that is in the group, as others may be.
fn join(inner: Family) -> Result<UdpSocket> {
    let address = group(inner, "eth0")?;
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into()).context("cannot bind")?;
    let device = if_nametoindex("eth0")?;
    match inner {
        Family::V4 => {
            socket.join_multicast_v4_n(&GROUP_V4, &InterfaceIndexOrAddress::Index(device))
        }
        Family::V6 => socket.join_multicast_v6(&GROUP_V6, device),
    }
    .context("cannot join the group")?;
    let socket = socket.into();
    receiver::make_room(&socket)?;
    Ok(socket)
}
