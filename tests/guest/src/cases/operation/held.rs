// SPDX-License-Identifier: GPL-2.0

//! Packets of a split flow that a queue holds while the module goes and comes back: their batches' numbers are of a module that
//! is not loaded any more.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};

use crate::cases::{Case, Run};
use crate::mflow::{self, Knobs, Stats, FASTER_THAN_ANY_PPS};
use crate::network::topology::{self, Queued};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live, Load as _, Plan};

/// So slow that one batch takes longer than all that is of one load of the module: in both loads the first batch is open.
const PKTS_PER_S: f64 = 1_500.0;
const BATCH_PKTS: u32 = 4096;
/// A batch whose packets are held is given up by then. A virtual CPU may be away for nearly as long.
const DEADLINE_US: u32 = 200_000;
/// Packets that are sent in the end.
const LAST_PKTS: u64 = 500;
/// One packet in this many is held, for this time.
const ONE_IN: u64 = 8;
const COLLECTED: Duration = Duration::from_millis(600);
/// The time for which a packet is held, in the first try. A busy host doubles it.
const DELAY: Duration = Duration::from_secs(4);
const TRIES: u32 = 3;
/// The time before the first packet comes back in which the flow begins to be split.
const LEAD: Duration = Duration::from_millis(1_200);
/// The module does not wait for what is held, and what comes back does.
const LONGEST_UNLOAD: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(300);

pub(crate) fn datagrams() -> Vec<Case> {
    vec![Case::of_module(
        "reload/held",
        "packets that a queue holds while the module goes and comes back are late: none is lost, none is taken for one of an open batch",
        Run::Always,
        held,
    )
    .patching_code()]
}

fn held(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load.frames_per_s = Some(PKTS_PER_S.min(rig.frames_per_s()));
    plan.load.count = LAST_PKTS;
    let mut delay = DELAY;
    for _ in 1..TRIES {
        if let Some(outcome) = held_for(rig, &plan, delay)? {
            return Ok(outcome);
        }
        delay *= 2;
    }
    held_for(rig, &plan, delay)?
        .with_context(|| format!("the flow is not split again within {} s", delay.as_secs()))
}

/// Holds some packets for this time, in which the module goes and comes back. Returns nothing if they came back too early.
fn held_for(rig: &Rig, plan: &Plan<Datagrams>, delay: Duration) -> Result<Option<Outcome>> {
    let knobs = Knobs {
        merge_timeout_us: DEADLINE_US,
        ..Knobs::of(2, BATCH_PKTS)
    };
    rig.prepare(plan, &knobs)?;
    // So that each packet is a datagram.
    mflow::write("join", "0")?;
    // Before there is traffic: the first one in the system patches the kernel's code.
    topology::ip("link add queue0 txqueuelen 10000 type ifb\nlink set queue0 up")?;
    topology::tc(&format!(
        "qdisc add dev queue0 root netem delay {}ms limit 100000
         qdisc add dev vxlan0 clsact",
        delay.as_millis()
    ))?;
    let mut returned = None;
    let outcome = Datagrams::measure(plan, |live| {
        let begun = Instant::now();
        let held = collect(live)?;
        let unloading = Instant::now();
        mflow::unload()?;
        let unload = unloading.elapsed();
        ensure!(
            unload < LONGEST_UNLOAD,
            "with {held} packets in a queue, rmmod took {} ms",
            unload.as_millis()
        );
        mflow::load(&Knobs {
            min_flow_pps: FASTER_THAN_ANY_PPS,
            ..knobs.clone()
        })?;
        thread::sleep((begun + delay).saturating_duration_since(Instant::now() + LEAD));
        mflow::write("min_flow_pps", &knobs.min_flow_pps.to_string())?;
        live.wait_split_since(0)?;
        if queued()?.pkts < held {
            return Ok(());
        }
        live.wait_for(
            "what was held comes back",
            LIMIT,
            || Ok(queued()?.pkts == 0),
        )?;
        returned = Some(held);
        live.flow_for(PAUSE)
    })?;
    let Some(held) = returned else {
        return Ok(None);
    };
    let judged = outcome.judge(|outcome| {
        rig.settle()?;
        outcome.require_whole()?;
        let stats = Stats::read()?;
        let late = stats.get("late_pkts")? + stats.get("unknown_tags")?;
        ensure!(
            late >= held && outcome.reordered <= late,
            "{held} packets of another load of the module came back: {late} were late, and {} out of order",
            outcome.reordered
        );
        Ok(())
    })?;
    Ok(Some(judged))
}

/// Sends some packets of the flow through a queue for a while; returns how many wait there.
fn collect(live: &impl Live) -> Result<u64> {
    topology::tc(&format!(
        "filter add dev vxlan0 ingress protocol ip matchall action gact pass random netrand pipe {ONE_IN} \
         action mirred egress redirect dev queue0"
    ))?;
    live.flow_for(COLLECTED)?;
    topology::tc("filter del dev vxlan0 ingress")?;
    let held = queued()?.pkts;
    ensure!(held > 0, "no packet waits in the queue");
    Ok(held)
}

pub(in crate::cases) fn queued() -> Result<Queued> {
    topology::queued("queue0", "netem")
}
