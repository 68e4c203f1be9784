// SPDX-License-Identifier: GPL-2.0

//! What can be on a stream's way: a wire that misbehaves, jumbo frames, tcpdump, devices that move packets to other CPUs.

use std::time::Duration;

use anyhow::{ensure, Result};

use crate::cases::capture::{self, Background};
use crate::cases::{Case, Run};
use crate::command;
use crate::mflow::Knobs;
use crate::outcome::Outcome;
use crate::rig::{self, Rig};
use crate::streams::counters::Counters;
use crate::streams::run::{self, Plan};
use crate::topology::{self, CLIENT, CONTAINER};

/// How long the wire misbehaves at least; then it goes on to.
const AT_WORK: Duration = Duration::from_millis(300);

/// Something that a wire can do to a packet, and the counter of TCP that tells.
struct Misdeed {
    name: &'static str,
    netem: &'static str,
    counter: &'static str,
}

const MISDEEDS: &[Misdeed] = &[
    Misdeed {
        name: "loss",
        netem: "loss 1%",
        counter: "RetransSegs",
    },
    Misdeed {
        name: "reorder",
        netem: "delay 2ms reorder 90%",
        counter: "TCPOFOQueue",
    },
    Misdeed {
        name: "duplicate",
        netem: "duplicate 5%",
        counter: "TCPDSACKOldSent",
    },
];

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = MISDEEDS
        .iter()
        .map(|misdeed| {
            Case::of_traffic(
                format!("tcp/wire/{}", misdeed.name),
                format!(
                    "on a wire with netem {} TCP repairs the stream as ever",
                    misdeed.netem
                ),
                if misdeed.name == "loss" {
                    Run::Always
                } else {
                    Run::Plain
                },
                move |rig| misbehave(rig, misdeed),
            )
        })
        .collect();
    cases.extend(captures());
    cases.push(jumbo());
    cases.push(veth_gro());
    cases
}

fn misbehave(rig: &Rig, misdeed: &Misdeed) -> Result<Outcome> {
    let plan = Plan {
        // Enough for each lane to have its turn.
        bytes: (rig.scale.tcp_bytes / 4).max(2 << 20),
        ..rig.tcp_plan()
    };
    // The sender as it is: what is lost at the end of the stream is found missing by time only.
    rig.prepare_network(plan.outer, &Knobs::default())?;
    // Packets as on the wire, not what the device below makes many of.
    command::run(&format!(
        "ip netns exec {CLIENT} ethtool -K vxlan0 tso off gso off"
    ))?;
    let outcome = run::measure(&plan, |live| {
        let before = Counters::read()?;
        topology::client_tc(&format!(
            "qdisc add dev vxlan0 root netem limit 100000 {}",
            misdeed.netem
        ))?;
        live.flow_for(AT_WORK)?;
        // On a busy host so few packets may have passed that netem has not touched any.
        command::wait_until("TCP notices", || {
            Ok(Counters::read()?
                .since(&before)
                .contains_key(misdeed.counter))
        })
    })?;
    outcome.judge(|outcome| {
        let seen = outcome.tcp.get(misdeed.counter).copied().unwrap_or(0);
        ensure!(
            seen > 0,
            "netem {} was at work and {} did not grow",
            misdeed.netem,
            misdeed.counter
        );
        if rig.mflow {
            outcome.require_no_deadline()?;
            outcome.require_split(&Knobs::default(), 1)?;
            rig::settle()?;
        }
        Ok(())
    })
}

fn captures() -> impl Iterator<Item = Case> {
    capture::DEVICES.iter().map(|&(namespace, device)| {
        let place = namespace.unwrap_or("host");
        Case::of_traffic(
            format!("tcp/capture/{place}-{device}"),
            format!("tcpdump on {device} ({place}) comes and goes, and TCP does not notice"),
            // Clones are clones: here of inner packets, and in the cases with datagrams of outer ones.
            if device == "veth0" {
                Run::Always
            } else {
                Run::Plain
            },
            move |rig| {
                let _time_stamps = Background::start()?;
                rig.strict_tcp(&rig.tcp_plan(), &Knobs::default(), |live| {
                    capture::come_and_go(namespace, device, |time| live.flow_for(time))
                })
            },
        )
    })
}

fn jumbo() -> Case {
    Case::of_traffic(
        "tcp/mtu/9000",
        "order holds with jumbo frames",
        Run::Always,
        |rig| {
            let (plan, knobs) = (
                rig.tcp_plan(),
                Knobs {
                    // Fewer packets for the same bytes: all lanes shall have their turn.
                    batch_pkts: 32,
                    ..Knobs::default()
                },
            );
            rig.prepare_tcp(&plan, &knobs)?;
            let outcome = topology::jumbo(plan.outer)
                .and_then(|()| rig.strict_tcp_here(&plan, &knobs, |_| Ok(())));
            // Also after a failure.
            topology::no_jumbo()?;
            let outcome = outcome?;
            let most = plan.bytes / 4_000;
            ensure!(
                outcome.frames < most,
                "{} packets carried {} bytes: they were not jumbo frames",
                outcome.frames,
                plan.bytes
            );
            Ok(outcome)
        },
    )
}

/// Split packets, whose GRO ran on the lane, pass that of the device by.
fn veth_gro() -> Case {
    Case::of_traffic(
        "tcp/devices/veth-gro",
        "GRO on the container's veth: TCP does not notice",
        Run::Plain,
        |rig| {
            let mut plan = rig.tcp_plan();
            rig.prepare_tcp(&plan, &Knobs::default())?;
            command::run(&format!("ip netns exec {CONTAINER} ethtool -K eth0 gro on"))?;
            plan.split = 0;
            run::measure(&plan, |_| Ok(()))?.judge(|outcome| {
                outcome.require_quiet_tcp()?;
                if rig.mflow {
                    outcome.require_no_deadline()?;
                    rig::settle()?;
                }
                Ok(())
            })
        },
    )
}
