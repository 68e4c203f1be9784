// SPDX-License-Identifier: GPL-2.0

//! Events of a ConnectX while flows are split: its queues are closed and opened again, and it misbehaves.
//!
//! The counters of the card close the gap between both ends: a datagram may only be lost where the card has received it and
//! the driver has never seen it, or where a counter says that there was no buffer.

use std::fs;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::guest::Message;

use crate::cases::operation::devices::MIXED_PKTS;
use crate::cases::{Case, Run};
use crate::driver::link;
use crate::machine::{command, interrupts, page_pool};
use crate::mflow::Knobs;
use crate::network::bpf::{Xdp, XdpMode};
use crate::network::topology::CLIENT;
use crate::network::{devlink, netns, topology};
use crate::traffic::datagrams::run::{Datagrams, LiveDatagrams};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Load as _};
use crate::verdict;

const ROUNDS: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);
/// Frames or events that a fault is about.
const SOME: u64 = 100;
/// One of these counts each packet.
const CHECKSUMS: [&str; 4] = [
    "rx_csum_complete",
    "rx_csum_none",
    "rx_csum_unnecessary",
    "rx_csum_unnecessary_inner",
];

/// Lanes build packets, and a card's end has to wait for them.
fn knobs() -> Knobs {
    Knobs {
        build: "lane",
        ..Knobs::default()
    }
}

/// Something that happens to the card; returns what it has to do with the flow's counters.
struct Event {
    name: &'static str,
    what: &'static str,
    happen: fn(&mut LiveDatagrams) -> Result<()>,
    judge: fn(&Outcome, &CardCounters) -> Result<()>,
}

const EVENTS: &[Event] = &[
    Event {
        name: "channels",
        what: "the number of channels changes",
        happen: channels,
        judge: only_a_move_reorders,
    },
    Event {
        name: "rings",
        what: "rings change their size",
        happen: |live| {
            repeat(
                live,
                &[
                    "ethtool -G eth0 rx 512 tx 512",
                    "ethtool -G eth0 rx 1024 tx 1024",
                ],
            )
        },
        judge: only_a_move_reorders,
    },
    Event {
        name: "xdp",
        what: "an XDP program comes and goes",
        happen: xdp,
        judge: only_the_card_loses,
    },
    Event {
        name: "compression",
        what: "completions come compressed, or not",
        happen: compression,
        judge: only_a_move_reorders,
    },
    Event {
        name: "counters",
        what: "lanes and the NIC's core count what they build",
        happen: |live| live.flow_for(PAUSE),
        judge: |outcome, counters| {
            ensure!(
                counters.handed == counters.checksums,
                "{} packets, and the checksums of {} of them",
                counters.handed,
                counters.checksums
            );
            outcome.require_whole()?;
            outcome.require_order()
        },
    },
    Event {
        name: "overtaken",
        what: "frames are overtaken before they reach the driver",
        happen: |live| misbehave(live, &format!("overtake {SOME}")),
        judge: |outcome, _| {
            outcome.require_whole()?;
            ensure!(
                (1..=SOME).contains(&outcome.reordered),
                "{SOME} frames were to be overtaken, and {} datagrams are out of order",
                outcome.reordered
            );
            Ok(())
        },
    },
    Event {
        name: "duplicated",
        what: "frames arrive twice",
        happen: |live| misbehave(live, &format!("duplicate {SOME}")),
        judge: |outcome, _| {
            ensure!(
                (1..=SOME).contains(&outcome.duplicate),
                "{SOME} frames were to arrive twice, and {} datagrams did",
                outcome.duplicate
            );
            ensure!(outcome.lost + outcome.corrupt == 0, "{outcome:?}");
            outcome.require_order()
        },
    },
    Event {
        name: "events-twice",
        what: "events and interrupts come twice",
        happen: |live| misbehave(live, &format!("duplicate-events {SOME}")),
        judge: |outcome, _| {
            outcome.require_whole()?;
            outcome.require_order()
        },
    },
    Event {
        name: "no-buffers",
        what: "frames find no buffer",
        happen: |live| misbehave(live, &format!("no-buffers {SOME}")),
        judge: |outcome, counters| {
            ensure!(
                counters.without_buffer == SOME && outcome.lost > 0,
                "{SOME} frames were to find no buffer, the card says {}, {} datagrams are lost",
                counters.without_buffer,
                outcome.lost
            );
            only_the_card_loses(outcome, counters)
        },
    },
    Event {
        name: "receive-error",
        what: "a receive queue fails and is repaired",
        happen: |live| {
            let recovered = || -> Result<u64> {
                let counters = link::counters("eth0")?;
                Ok(counters.get("rx_recover").copied().unwrap_or(0))
            };
            let before = recovered()?;
            misbehave(live, "receive-error")?;
            command::wait_until("the driver repairs its queue", || Ok(recovered()? > before))
        },
        judge: only_the_card_loses,
    },
    Event {
        name: "stall",
        what: "the card does nothing for a while",
        happen: |live| {
            let stalled = misbehave(live, "stall");
            misbehave(live, "go-on")?;
            stalled
        },
        judge: |outcome, counters| {
            let longest = Duration::from_micros(outcome.longest_stall_us);
            ensure!(
                longest >= PAUSE / 2,
                "the card was to stall for {} ms at least, and datagrams came all the time",
                PAUSE.as_millis()
            );
            only_the_card_loses(outcome, counters)
        },
    },
    Event {
        name: "link",
        what: "the link goes and comes back",
        happen: |live| {
            let gone = misbehave(live, "link down").and_then(|()| wait_carrier("0"));
            // Also after a failure: the next case needs it.
            misbehave(live, "link up")?;
            gone?;
            wait_carrier("1")
        },
        // What comes while the link is down is nowhere counted.
        judge: |outcome, _| {
            outcome.require_intact()?;
            outcome.require_order()
        },
    },
];

#[derive(Debug)]
struct CardCounters {
    /// Frames that the card has taken from the wire.
    received: u64,
    /// Frames that the driver has handed to the stack.
    handed: u64,
    /// Those of which the driver says how it knows their checksum, which the core that builds a packet counts.
    checksums: u64,
    /// Frames for which the card had no buffer, in any queue.
    without_buffer: u64,
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = EVENTS
        .iter()
        .map(|event| {
            let case = Case::of_module(
                format!("connectx/{}", event.name),
                format!(
                    "{} under load: nothing is lost behind the driver, order holds",
                    event.what
                ),
                Run::ConnectX,
                move |rig| happen(rig, event),
            );
            // The kernel writes a call of the program into its own code.
            if event.name == "xdp" {
                case.patching_code()
            } else {
                case
            }
        })
        .collect();
    cases.push(Case::of_module(
        "connectx/probe",
        "the card is taken from its driver under load and given back: the next flow is as good as new",
        Run::ConnectX,
        |rig| replace(rig, |live| topology::probe_again(|| live.flow_for(PAUSE))),
    ));
    cases.push(Case::of_module(
        "connectx/death",
        "the card dies under load, and its driver revives it: the next flow is as good as new",
        Run::ConnectX,
        |rig| replace(rig, die),
    ));
    cases.push(Case::of_module(
        "connectx/unload",
        "the driver is unloaded under load, with the module in place: the next flow is as good as new",
        Run::ConnectX,
        unload,
    ));
    cases
}

fn happen(rig: &Rig, event: &Event) -> Result<Outcome> {
    let plan = rig.datagrams();
    rig.prepare(&plan, &knobs())?;
    let before = CardCounters::read()?;
    let outcome = Datagrams::measure(&plan, |live| {
        live.flow_for(PAUSE)?;
        (event.happen)(live)?;
        let arrived = live.arrivals();
        live.flow_for(PAUSE)?;
        command::wait_until("the flow goes on", || Ok(live.arrivals() > arrived + 500))
    })?;
    let counters = CardCounters::read()?.since(&before);
    outcome
        .judge(|outcome| {
            (event.judge)(outcome, &counters)?;
            ensure!(
                outcome.counter("request_pkts")? > 0,
                "lanes were to build packets"
            );
            rig.settle()
        })
        .inspect_err(|_| say_how_it_stands())
        .with_context(|| format!("{counters:?}"))
        .and_then(|outcome| page_pool::wait_returned().map(|()| outcome))
}

/// Logs whether the card waits for its driver, the driver for the card, or the card's interrupt has not come.
fn say_how_it_stands() {
    for card in ["0 queues", "1 queues"] {
        verdict::say(&Message::Card(card.to_owned()));
    }
    // And what the sender's part of the stack has done with it: a datagram that a queue of the sender's has dropped counts as sent.
    let sender = netns::run(CLIENT, "ip -s -s link").and_then(|links| {
        let counters = netns::run(CLIENT, "ethtool -S eth1")?;
        let sending: Vec<_> = counters
            .lines()
            .filter(|line| line.contains("tx"))
            .collect();
        let queues = netns::run(CLIENT, "tc -s qdisc show dev eth1")?;
        let protocols = netns::within(CLIENT, || {
            Ok(fs::read_to_string("/proc/thread-self/net/snmp")?)
        })?;
        Ok([links, sending.join("\n"), queues, protocols].join("\n"))
    });
    for said in [interrupts::table_of("eth0"), sender] {
        match said {
            Ok(table) => eprintln!("{table}"),
            Err(error) => eprintln!("{error:#}"),
        }
    }
}

fn misbehave(live: &LiveDatagrams, how: &str) -> Result<()> {
    verdict::say(&Message::Card(format!("0 {how}")));
    live.flow_for(PAUSE)
}

fn wait_carrier(wanted: &str) -> Result<()> {
    command::wait_until("the driver has noticed the link", || {
        let carrier = fs::read_to_string("/sys/class/net/eth0/carrier")?;
        Ok(carrier.trim() == wanted)
    })
}

fn repeat(live: &LiveDatagrams, changes: &[&str]) -> Result<()> {
    for change in changes.iter().cycle().take(ROUNDS * changes.len()) {
        command::run(change)?;
        topology::pin_server_nic()?;
        live.flow_for(PAUSE)?;
    }
    Ok(())
}

fn channels(live: &mut LiveDatagrams) -> Result<()> {
    let count = link::channels()?;
    let back = format!("ethtool -L eth0 combined {count}");
    // As many as there are is no change.
    let other = if count == 2 { 3 } else { 2 };
    repeat(live, &[&format!("ethtool -L eth0 combined {other}"), &back])
}

fn xdp(live: &mut LiveDatagrams) -> Result<()> {
    for _ in 0..ROUNDS {
        let program = Xdp::attach("eth0", XdpMode::Any)?;
        live.flow_for(PAUSE)?;
        drop(program);
        live.flow_for(PAUSE)?;
    }
    Ok(())
}

fn compression(live: &mut LiveDatagrams) -> Result<()> {
    let packed = || -> Result<u64> {
        let counters = link::counters("eth0")?;
        Ok(counters.get("rx_cqe_compress_pkts").copied().unwrap_or(0))
    };
    for _ in 0..ROUNDS {
        let before = packed()?;
        command::run("ethtool --set-priv-flags eth0 rx_cqe_compress on")?;
        topology::pin_server_nic()?;
        command::wait_until("completions come compressed", || Ok(packed()? > before))?;
        live.flow_for(PAUSE)?;
        command::run("ethtool --set-priv-flags eth0 rx_cqe_compress off")?;
        topology::pin_server_nic()?;
        live.flow_for(PAUSE)?;
    }
    Ok(())
}

/// The card dies, and its driver makes another interface of it.
fn die(live: &LiveDatagrams) -> Result<()> {
    misbehave(live, "fatal")?;
    devlink::wait_revived()?;
    topology::server_nic_again()
}

/// The same where interrupts of new channels are sent to the NIC's CPU when the flow has come on another one for a moment: what that
/// one's queues still hold is passed then, split or not.
fn only_a_move_reorders(outcome: &Outcome, counters: &CardCounters) -> Result<()> {
    if outcome.reordered > MIXED_PKTS {
        outcome.require_order()?;
    }
    nothing_is_lost_behind_the_driver(outcome, counters)
}

fn only_the_card_loses(outcome: &Outcome, counters: &CardCounters) -> Result<()> {
    outcome.require_order()?;
    nothing_is_lost_behind_the_driver(outcome, counters)
}

fn nothing_is_lost_behind_the_driver(outcome: &Outcome, counters: &CardCounters) -> Result<()> {
    outcome.require_intact()?;
    let lost = counters.received.saturating_sub(counters.handed);
    ensure!(
        outcome.lost <= lost,
        "{} datagrams are lost, but the driver has not seen only {lost} frames of those that came",
        outcome.lost
    );
    Ok(())
}

/// Makes the server's NIC another interface under load.
fn replace(rig: &Rig, how: impl FnOnce(&LiveDatagrams) -> Result<()>) -> Result<Outcome> {
    let (plan, knobs) = (rig.datagrams(), knobs());
    rig.measure(&plan, &knobs, |live| {
        live.flow_for(PAUSE)?;
        how(live)
    })?
    .judge(|outcome| {
        outcome.require_intact()?;
        outcome.require_order()?;
        rig.settle()
    })?;
    page_pool::wait_returned()?;
    rig.strict(&plan, &knobs, |_| Ok(()))
}

fn unload(rig: &Rig) -> Result<Outcome> {
    let (plan, knobs) = (rig.datagrams(), knobs());
    rig.prepare(&plan, &knobs)?;
    ensure!(!page_pool::all()?.is_empty(), "the card uses no page pool");
    let mut unloaded = None;
    // The client's card goes with the same driver, so that its sender fails.
    let measured = Datagrams::measure(&plan, |live| {
        live.flow_for(PAUSE)?;
        unloaded = Some(command::run("rmmod mlx5_core"));
        Ok(())
    });
    let Some(unloaded) = unloaded else {
        return measured.context("before the driver was unloaded");
    };
    unloaded?;
    topology::nics_are_gone()?;
    rig.settle()?;
    page_pool::wait_returned()?;
    let left = page_pool::all()?;
    ensure!(
        left.is_empty(),
        "there are page pools without a card: {left:?}"
    );
    rig.strict(&plan, &knobs, |_| Ok(()))
}

impl CardCounters {
    fn read() -> Result<Self> {
        let counters = link::counters("eth0")?;
        let get = |name: &str| {
            let count = counters.get(name).copied();
            count.with_context(|| format!("eth0 has no counter {name}"))
        };
        Ok(Self {
            received: get("rx_packets_phy")?,
            handed: get("rx_packets")?,
            checksums: counters
                .iter()
                .filter(|(name, _)| CHECKSUMS.contains(&name.as_str()))
                .map(|(_, count)| count)
                .sum(),
            without_buffer: get("rx_out_of_buffer")? + get("rx_if_down_packets")?,
        })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            received: self.received - before.received,
            handed: self.handed - before.handed,
            checksums: self.checksums - before.checksums,
            without_buffer: self.without_buffer - before.without_buffer,
        }
    }
}
