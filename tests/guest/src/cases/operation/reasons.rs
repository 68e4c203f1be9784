// SPDX-License-Identifier: GPL-2.0

//! The text of `flows`: the gain of a flow that is split, and the reasons why others are not.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::network::VXLAN_PORT;

use crate::cases::{Case, Run};
use crate::flows::{self, Flow};
use crate::machine::{cpu, threads};
use crate::mflow::{self, Knobs, Stats};
use crate::network::netns;
use crate::network::topology::{self, Family, CLIENT};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live, Load as _};

/// A busy guest may take long for what a packet decides.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// Two lanes carry half of a flow each, unless one of an emulated machine is away for long.
const LEAST_GAIN: f64 = 1.5;
/// Between two packets to a port at which nobody listens: fast enough for the module.
const EVERY: Duration = Duration::from_millis(2);
/// The time for which a flow whose path queues packets is left alone the first time.
const MOST_HOLD_MS: u64 = 5_000;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "reasons/one-host",
        "flows tells the gain of a split flow, and why flows are not split: nobody listens, or a queue is on the path",
        Run::Plain,
        one_host,
    )]
}

fn one_host(rig: &Rig) -> Result<Outcome> {
    let plan = rig.datagrams();
    let knobs = Knobs::default().eager();
    rig.prepare(&plan, &knobs)?;
    let outcome = Datagrams::measure(&plan, |live| {
        threads::beside(send_to_nobody, || {
            let split = live.wait_for_flow("the gain of the flow is told", |flow| {
                flow.text("state") == "split"
                    && flow
                        .number("gain")
                        .is_some_and(|gain: f64| gain >= LEAST_GAIN)
            })?;
            check_split(&split, &knobs)?;
            let unheard = live.wait_for_flow("it is told that nobody listens", |flow| {
                flow.has(&[("state", "whole"), ("reason", "probe_unseen")])
            })?;
            ensure!(
                unheard.text("from") != split.text("from"),
                "the same flow is split and not: {split:?}, {unheard:?}"
            );
            topology::tc("qdisc add dev veth0 root pfifo limit 100000")?;
            let queued = live.wait_for_flow("it is told that the path queues", |flow| {
                flow.has(&[
                    ("state", "whole"),
                    ("reason", "path_queues"),
                    ("from", split.text("from")),
                ])
            })?;
            let held_ms: u64 = queued.number("again_in_ms").context("no time is told")?;
            let counted = Stats::read()?.get("paths_async")?;
            ensure!(
                held_ms <= MOST_HOLD_MS && counted > 0,
                "the queue was met {counted} time(s), and the flow is held for {held_ms} ms"
            );
            Ok(())
        })
        .map(drop)
    });
    // A device that gets a queue drops what comes meanwhile, and the stack lets any CPU that sends to it empty that queue: so
    // nothing is said about losses and the order.
    outcome?.judge(|outcome| {
        outcome.require_intact()?;
        rig.settle()
    })
}

fn send_to_nobody(stop: &AtomicBool) -> Result<()> {
    netns::enter(CLIENT)?;
    cpu::pin(cpu::SENDER)?;
    let socket = UdpSocket::bind((Family::V4.client(), 0))?;
    while !stop.load(Ordering::Relaxed) {
        socket
            .send_to(&[0; 16], (Family::V4.container(), 9))
            .context("cannot send")?;
        thread::sleep(EVERY);
    }
    Ok(())
}

fn check_split(flow: &Flow, knobs: &Knobs) -> Result<()> {
    let lanes = cpu::lane_list(knobs.lanes);
    let batch_pkts = knobs.batch_pkts.to_string();
    let gain: f64 = flow.number("gain").context("no gain")?;
    let pps: u64 = flow.number("pps").context("no rate")?;
    let destination = format!("192.168.50.2:{VXLAN_PORT}");
    ensure!(
        flow.has(&[
            ("device", knobs.device),
            ("proto", "udp"),
            ("to", &destination),
            ("lanes", &lanes),
            ("batch_pkts", &batch_pkts),
        ]) && flow.text("from").starts_with("192.168.50.1:")
            && flow.number::<u16>("queue").is_some()
            // The core that dispatches carries what finds no room.
            && gain <= knobs.lanes as f64 + 1.0
            && pps > u64::from(knobs.min_flow_pps),
        "of the split flow is told: {flow:?}"
    );
    Ok(())
}

pub(crate) trait FlowLive: Live {
    /// Waits until a flow is listed of which this is true, and returns it.
    fn wait_for_flow(&self, what: &str, is_it: impl Fn(&Flow) -> bool) -> Result<Flow> {
        let mut found = None;
        self.wait_for(what, LIMIT, || {
            found = flows::read()?.into_iter().find(&is_it);
            Ok(found.is_some())
        })
        .with_context(|| mflow::read("flows").unwrap_or_default())?;
        found.context("a flow was found")
    }
}

impl<L: Live> FlowLive for L {}
