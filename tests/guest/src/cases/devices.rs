// SPDX-License-Identifier: GPL-2.0

//! Other features of the stack that move packets between CPUs on the way from split to merge.

use std::fs;

use anyhow::{ensure, Context as _, Result};

use super::{Case, Run};
use crate::bpf::Xdp;
use crate::datagrams::run::Datagrams;
use crate::mflow::Knobs;
use crate::netns;
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::streams::run::Streams;
use crate::topology::{self, CONTAINER};
use crate::traffic::Load;

/// A feature, and how it is switched on.
struct Feature {
    name: &'static str,
    what: &'static str,
    /// Switching it on drops packets, split or not.
    switch_drops: bool,
    /// How many packets may change places while the flow stops being split.
    stop_reorders_pkts: u64,
    /// Packets are queued on the way with it, so that flows cannot be split any more.
    queues: bool,
    switch_on: fn() -> Result<Option<Xdp>>,
}

/// How many packets may change places in a queue that several lanes fill while a flow stops being split.
const MIXED_PKTS: u64 = 64;

const VETH_GRO: Feature = Feature {
    name: "veth-gro",
    what: "GRO on the container's veth (split packets, whose GRO ran on the lane, pass it by)",
    switch_drops: false,
    stop_reorders_pkts: 0,
    queues: false,
    switch_on: veth_gro,
};

const FEATURES: &[Feature] = &[
    VETH_GRO,
    Feature {
        name: "veth-xdp",
        what: "an XDP program on the container's veth (packets go through its own NAPI)",
        switch_drops: false,
        // The packets that lanes carry at that moment meet in the device's queue.
        stop_reorders_pkts: MIXED_PKTS,
        queues: true,
        switch_on: veth_xdp,
    },
    Feature {
        name: "rps-vxlan",
        what: "RPS on the VXLAN device",
        switch_drops: false,
        stop_reorders_pkts: 0,
        queues: false,
        switch_on: || rps("vxlan0"),
    },
    Feature {
        name: "rps-veth",
        what: "RPS on the host's end of the veth pair, and on the NIC",
        switch_drops: false,
        stop_reorders_pkts: 0,
        queues: false,
        switch_on: || {
            rps("veth0")?;
            rps("eth0")
        },
    },
    Feature {
        name: "tbf-veth",
        what: "a queueing discipline on the veth device",
        // For a grace period the device has the no-op discipline, which drops.
        switch_drops: true,
        // Lanes that finish their batches empty the queue for the NIC core, too, each into its own backlog.
        stop_reorders_pkts: MIXED_PKTS,
        queues: true,
        switch_on: || {
            topology::tc("qdisc add dev veth0 root tbf rate 10gbit burst 10mb limit 100mb")?;
            Ok(None)
        },
    },
];

pub(super) fn datagrams() -> Vec<Case> {
    let mut cases = Vec::new();
    for feature in FEATURES {
        for early in [true, false] {
            let order = if early { "before" } else { "during" };
            cases.push(Case::of_traffic(
                format!("devices/{}/{order}", feature.name),
                format!(
                    "{}, switched on {order} the traffic: no loss, no reordering",
                    feature.what
                ),
                Run::Plain,
                move |rig| with_feature::<Datagrams>(rig, feature, early),
            ));
        }
    }
    cases
}

pub(super) fn streams() -> Vec<Case> {
    vec![Case::of_traffic(
        "tcp/devices/veth-gro",
        "GRO on the container's veth: TCP does not notice",
        Run::Plain,
        |rig| with_feature::<Streams>(rig, &VETH_GRO, true),
    )]
}

/// Whether flows stay split with the feature is the module's choice; what arrives must be right in any case.
fn with_feature<L: Load>(rig: &Rig, feature: &Feature, early: bool) -> Result<Outcome> {
    let mut plan = rig.plan::<L>();
    rig.prepare(&plan, &Knobs::default())?;
    // Before there is traffic: the first use in the system patches the kernel's code.
    rps("lo")?;
    let mut program = None;
    if early {
        program = (feature.switch_on)()?;
        plan.split = false;
    }
    let outcome = L::measure(&plan, |_| {
        if !early {
            program = (feature.switch_on)()?;
        }
        Ok(())
    })?;
    drop(program);
    outcome.judge(|outcome| {
        let drops = feature.switch_drops && !early;
        if !drops {
            L::require_whole(outcome)?;
        }
        let may_reorder = feature.stop_reorders_pkts > 0 && rig.mflow;
        if !may_reorder || outcome.reordered > feature.stop_reorders_pkts {
            L::require_order(outcome)?;
        }
        if rig.mflow {
            // A packet that was to be queued, and was dropped instead, is waited for until the deadline.
            if !drops {
                outcome.require_no_deadline()?;
            }
            let queued = outcome.counter("paths_async")?;
            ensure!(
                (queued > 0) == (feature.queues && !early) || early,
                "splitting was stopped {queued} time(s) for what the path queues"
            );
        }
        rig.settle()
    })
}

fn veth_gro() -> Result<Option<Xdp>> {
    netns::run(CONTAINER, "ethtool -K eth0 gro on")?;
    Ok(None)
}

fn veth_xdp() -> Result<Option<Xdp>> {
    netns::within(CONTAINER, || Xdp::attach("eth0")).map(Some)
}

/// Lets RPS choose among CPUs 2 to 5.
fn rps(device: &str) -> Result<Option<Xdp>> {
    let path = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
    fs::write(&path, "3c").with_context(|| format!("cannot write {path}"))?;
    Ok(None)
}
