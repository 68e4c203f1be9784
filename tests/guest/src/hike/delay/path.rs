// SPDX-License-Identifier: GPL-2.0

//! Test packets along a monitored path, and their answers along another one back.
//!
//! ```text
//!   src ──── ingress ════ way1 ════ way2 ════ egress
//!            enc                              end, reflect
//!            End.DX6 ◀═══ way1 ◀═══ way2 ◀═══ enc
//! ```

use std::net::Ipv6Addr;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_hike::stamp::{Format, PORT};
use mflow_hike::{
    Behaviour, Class, Direction, Engine, Flavours, Flow, Hike, Marking, Monitor, Path,
};
use nix::net::if_::if_nametoindex;

use super::answers_come;
use super::asker::Asker;
use crate::hike::network::{
    Network, EGRESS, INGRESS, LEFT, RIGHT, SRC, SRC_V6, TUNNEL_SOURCE, WAY1, WAY2,
};
use crate::hike::{instance, Case};
use crate::machine::command::wait_until;
use crate::network::{netns, topology};

const PACKETS: u64 = 20;
/// The reflector is an address of egress, and this SID leads to it.
const REFLECTOR: Ipv6Addr = Ipv6Addr::new(0xfd00, 4, 0, 0, 0, 0, 0, 1);
const REFLECTOR_SID: Ipv6Addr = Ipv6Addr::new(0xfc00, 3, 0, 0, 0, 0, 0, 0x862);
const WAY1_SID: Ipv6Addr = Ipv6Addr::new(0xfc00, 1, 0, 0, 0, 0, 0, 1);
const WAY2_SID: Ipv6Addr = Ipv6Addr::new(0xfc00, 2, 0, 0, 0, 0, 0, 2);
/// The kernel of ingress takes answers off their path.
const BACK_SID: Ipv6Addr = Ipv6Addr::new(0xfc00, 9, 0, 0, 0, 0, 0, 6);
const EGRESS_SOURCE: Ipv6Addr = Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 2);

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "stamp/path",
        proves: "test packets take a monitored path to a reflector behind End, and their answers the kernel's way, or another monitored path back: each is counted at both ends",
        run: |_| {
            along(Engine::Compiled, false)?;
            along(Engine::Compiled, true)?;
            along(Engine::TailCalls, true)
        },
    }]
}

/// Returns the two paths, which differ in their FlowMonID, too.
fn paths() -> [Path; 2] {
    [
        Path {
            flow_id: Some(5),
            ..Path::new(TUNNEL_SOURCE, [WAY1_SID, WAY2_SID, REFLECTOR_SID])
        },
        Path {
            flow_id: Some(6),
            ..Path::new(EGRESS_SOURCE, [WAY2_SID, WAY1_SID, BACK_SID])
        },
    ]
}

fn monitor() -> Monitor {
    Monitor {
        period: Duration::from_secs(3_600),
        marking: Marking::Option,
    }
}

fn along(engine: Engine, back: bool) -> Result<()> {
    let _network = Network::up()?;
    for (node, line) in [
        (
            EGRESS,
            format!("route add fc00:2::/32 via fd00:3::1 dev {LEFT}"),
        ),
        (
            WAY2,
            format!("route add fc00:1::/32 via fd00:2::1 dev {LEFT}"),
        ),
        (
            WAY1,
            format!("route add fc00:9::/32 via fd00:1::1 dev {LEFT}"),
        ),
        (
            INGRESS,
            format!("route add {BACK_SID} encap seg6local action End.DX6 nh6 {SRC_V6} dev {LEFT}"),
        ),
    ] {
        topology::ip_in(node, &line)?;
    }
    let _program = answers_come(WAY2)?;
    let [forth_flow, back_flow] = [Flow::of(&paths()[0])?, Flow::of(&paths()[1])?];
    let ingress = ingress(engine)?;
    let egress = egress(engine, back)?;
    let mut asker = Asker::open(SRC, REFLECTOR.into(), PORT)?;
    for _ in 0..PACKETS {
        // Ingress is a router for the packet inside; those on the path are not.
        asker.ask(Format::Ntp, 1)?;
    }
    let mut expected = vec![
        (&ingress, &forth_flow, Direction::In),
        (&egress, &forth_flow, Direction::Out),
    ];
    if back {
        expected.extend([
            (&egress, &back_flow, Direction::In),
            (&ingress, &back_flow, Direction::Out),
        ]);
    }
    for (hike, flow, direction) in expected {
        let mut counted = 0;
        wait_until("packets are counted", || {
            counted = hike.counts(flow, direction)?.total_pkts();
            Ok(counted >= PACKETS)
        })
        .with_context(|| format!("{flow:?}, {direction:?}: {counted}"))?;
        ensure!(
            counted == PACKETS,
            "{flow:?}, {direction:?}: {counted} packets are counted, and {PACKETS} were sent"
        );
    }
    let reasons = egress.reasons()?;
    let sent_back = reasons
        .iter()
        .find(|(reason, _)| reason.name == "sent-back");
    let expected = if back { 0 } else { PACKETS };
    ensure!(
        sent_back.map(|(_, packets)| *packets) == Some(expected),
        "sent back, with a path back ({back}): {sent_back:?}"
    );
    Ok(())
}

/// Puts packets to the reflector on their path, and counts answers that come by theirs.
fn ingress(engine: Engine) -> Result<Hike> {
    let [forth, back] = paths();
    let mut hike = instance(engine)?;
    let class = Class {
        path: Some(hike.add_path(&forth)?),
        ..Class::of(hike.add_chain(&"enc,mon-in,fw-fib".parse()?)?)
    };
    hike.set_class(REFLECTOR.to_string().parse()?, class)?;
    let counts = Class::of(hike.add_chain(&"mon-out,fw-kernel".parse()?)?);
    hike.set_class(BACK_SID.to_string().parse()?, counts)?;
    hike.add_monitor(&Flow::of(&forth)?, Direction::In, &monitor())?;
    hike.add_monitor(&Flow::of(&back)?, Direction::Out, &monitor())?;
    netns::within(INGRESS, || {
        hike.attach(LEFT)?;
        hike.attach(RIGHT)?;
        hike.add_port_with_entry(if_nametoindex(RIGHT)?)
    })?;
    Ok(hike)
}

/// Answers behind a local SID: on the link that the packet came by, or on a path.
fn egress(engine: Engine, by_path: bool) -> Result<Hike> {
    let [forth, back] = paths();
    let mut hike = instance(engine)?;
    let behaviour = hike.add_behaviour(&Behaviour::End {
        flavours: Flavours {
            usd: true,
            ..Flavours::default()
        },
    })?;
    let chain = match by_path {
        true => "mon-out,end,reflect,enc,mon-in,fw-fib",
        false => "mon-out,end,reflect,send-back",
    };
    let class = Class {
        path: by_path.then(|| hike.add_path(&back)).transpose()?,
        ..Class::of(hike.add_chain(&chain.parse()?)?)
    };
    hike.set_local_sid(REFLECTOR_SID.to_string().parse()?, class, behaviour)?;
    hike.add_monitor(&Flow::of(&forth)?, Direction::Out, &monitor())?;
    hike.add_monitor(&Flow::of(&back)?, Direction::In, &monitor())?;
    netns::within(EGRESS, || {
        hike.attach(LEFT)?;
        hike.add_port_with_entry(if_nametoindex(LEFT)?)
    })?;
    Ok(hike)
}
