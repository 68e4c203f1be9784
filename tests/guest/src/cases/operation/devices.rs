// SPDX-License-Identifier: GPL-2.0

//! Other features of the stack that move packets between CPUs on the way from split to merge.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::network::VXLAN_PORT;

use crate::cases::{Case, Run};
use crate::machine::command;
use crate::machine::cpu::{LANES, LANE_MASK, NIC, READER};
use crate::mflow::{self, Knobs, Stats};
use crate::network::bpf::{Xdp, XdpMode};
use crate::network::netns;
use crate::network::topology::{self, CONTAINER};
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::{self, Datagrams};
use crate::traffic::datagrams::sender::{SendOrder, Sender};
use crate::traffic::hog::Hog;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Live, Load, Plan};

/// The time for which a CPU of RPS is held at once, and the number of times that the flow begins to be split meanwhile.
const HOLD: Duration = Duration::from_millis(10);
const STARTS: usize = 10;
const LIMIT: Duration = Duration::from_secs(30);
/// So many that some are on either CPU.
const SPREAD_FLOWS: u16 = 8;

/// The flows of the first of two networks in one outer flow, and the part of the usual rate that each network has.
const OVERLAY_FLOWS: u16 = 4;
const OVERLAY_SHARE: f64 = 0.4;
/// The second network: its container, the client's end, and their addresses.
const SECOND: &str = "second";
const SECOND_CONTAINER: Ipv4Addr = Ipv4Addr::new(10, 0, 8, 2);
const SECOND_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 8, 1);
const SECOND_MAC: &str = "02:00:00:00:08:02";
const SECOND_CLIENT_MAC: &str = "02:00:00:00:08:01";
const SECOND_PORT: u16 = 5_001;

/// A feature, and how it is switched on.
struct Feature {
    name: &'static str,
    what: &'static str,
    /// Switching it on drops packets, split or not.
    switch_drops: bool,
    /// Packets that lanes carry while the flow stops being split may change places.
    stop_reorders: bool,
    /// Packets are queued on the way with it, so that flows cannot be split any more.
    queues: bool,
    /// True if switching the feature on attaches an XDP program: the kernel writes a call of it into its own code.
    attaches_program: bool,
    switch_on: fn() -> Result<Option<Xdp>>,
}

impl Feature {
    const fn discipline(
        name: &'static str,
        what: &'static str,
        switch_on: fn() -> Result<Option<Xdp>>,
    ) -> Self {
        Self {
            name,
            what,
            // For a grace period the device has the no-op discipline, which drops.
            switch_drops: true,
            // Lanes that finish their batches empty the queue for the NIC core, too, each into its own backlog.
            stop_reorders: true,
            queues: true,
            attaches_program: false,
            switch_on,
        }
    }
}

/// The number of packets that may change places in a queue that several CPUs empty.
pub(in crate::cases) const MIXED_PKTS: u64 = 64;

const VETH_GRO: Feature = Feature {
    name: "veth-gro",
    what: "GRO on the container's veth (split packets, whose GRO ran on the lane, pass it by)",
    switch_drops: false,
    stop_reorders: false,
    queues: false,
    attaches_program: false,
    switch_on: veth_gro,
};

const FEATURES: &[Feature] = &[
    VETH_GRO,
    Feature {
        name: "veth-xdp",
        what: "an XDP program on the container's veth (packets go through its own NAPI)",
        switch_drops: false,
        // The packets that lanes carry at that moment meet in the device's queue.
        stop_reorders: true,
        queues: true,
        attaches_program: true,
        switch_on: veth_xdp,
    },
    Feature {
        name: "rps-vxlan",
        what: "RPS on the VXLAN device",
        switch_drops: false,
        stop_reorders: false,
        queues: false,
        attaches_program: false,
        switch_on: || rps("vxlan0"),
    },
    Feature {
        name: "rps-veth",
        what: "RPS on the host's end of the veth pair, and on the NIC",
        switch_drops: false,
        stop_reorders: false,
        queues: false,
        attaches_program: false,
        switch_on: || {
            rps("veth0")?;
            rps("eth0")
        },
    },
    Feature {
        name: "cpumap-vxlan",
        what: "an XDP program that sends what the VXLAN device receives to another CPU",
        switch_drops: false,
        stop_reorders: true,
        queues: true,
        attaches_program: true,
        switch_on: cpumap,
    },
    Feature {
        name: "ifb-vxlan",
        what: "an intermediate device that queues what the VXLAN device receives",
        switch_drops: false,
        stop_reorders: true,
        queues: true,
        attaches_program: false,
        switch_on: ifb,
    },
    Feature::discipline(
        "tbf-veth",
        "a queueing discipline on the veth device",
        || tc("qdisc add dev veth0 root tbf rate 10gbit burst 10mb limit 100mb"),
    ),
];

const FQ: Feature = Feature::discipline("fq-veth", "fair queueing on the veth device", || {
    tc("qdisc add dev veth0 root fq")
});

/// More of what queues, only from the start.
const DISCIPLINES: &[Feature] = &[
    FQ,
    Feature::discipline(
        "netem-veth",
        "a delay of a millisecond on the veth device",
        || tc("qdisc add dev veth0 root netem delay 1ms limit 100000"),
    ),
    Feature::discipline("htb-veth", "classes of a rate on the veth device", || {
        tc("qdisc add dev veth0 root handle 1: htb default 1
            class add dev veth0 parent 1: classid 1:1 htb rate 10gbit quantum 60000")
    }),
    Feature::discipline(
        "mq-veth",
        "several queues on the veth device, one for each lane",
        mq,
    ),
];

pub(crate) fn datagrams() -> Vec<Case> {
    let both = FEATURES.iter().flat_map(|one| [(one, true), (one, false)]);
    let early = DISCIPLINES.iter().map(|one| (one, true));
    let case = |(feature, early): (&'static Feature, bool)| {
        let order = if early { "before" } else { "during" };
        let holds = if early && feature.queues {
            "nothing is split"
        } else {
            "no reordering"
        };
        let case = Case::of_traffic(
            format!("devices/{}/{order}", feature.name),
            format!(
                "{}, switched on {order} the traffic: no loss, {holds}",
                feature.what
            ),
            Run::Plain,
            move |rig| with_feature::<Datagrams>(rig, feature, early),
        );
        if feature.attaches_program && !early {
            case.patching_code()
        } else {
            case
        }
    };
    let mut cases: Vec<_> = both.chain(early).map(case).collect();
    cases.push(Case::of_module(
        "devices/rps-vxlan/one-outer",
        "flows in one outer flow, which RPS on the VXLAN device spreads, begin to be split while one of its CPUs is held: no loss, no reordering",
        Run::Plain,
        spread_one_outer,
    ));
    cases.push(Case::of_module(
        "devices/two-overlays/one-outer",
        "flows of two networks in one outer flow, one of which ends at a veth with GRO, begin to be split while the NIC's CPU is held: \
         no loss, no reordering",
        Run::Plain,
        two_overlays_one_outer,
    ));
    cases
}

pub(crate) fn streams() -> Vec<Case> {
    let case = |feature: &'static Feature| {
        Case::of_traffic(
            format!("tcp/devices/{}", feature.name),
            format!("{}: TCP does not notice", feature.what),
            Run::Plain,
            move |rig| with_feature::<Streams>(rig, feature, true),
        )
    };
    [&VETH_GRO, &FQ].map(case).into()
}

/// A flow is split from the start unless the path queues. Whether it stays split once it does is the module's choice; what
/// arrives must be right in any case.
fn with_feature<L: Load>(rig: &Rig, feature: &Feature, early: bool) -> Result<Outcome> {
    let mut plan = rig.plan::<L>();
    let mut knobs = Knobs::default();
    if early && feature.queues {
        knobs = knobs.eager();
    }
    rig.prepare(&plan, &knobs)?;
    // Before there is traffic: the first use in the system patches the kernel's code.
    rps("lo")?;
    topology::tc("qdisc replace dev lo clsact")?;
    let _generic_xdp = Xdp::attach("lo", XdpMode::Generic)?;
    let mut program = None;
    if early {
        program = (feature.switch_on)()?;
        plan.split &= !feature.queues;
    }
    let outcome = L::measure(&plan, |_| {
        if !early {
            program = (feature.switch_on)()?;
        }
        Ok(())
    })?;
    drop(program);
    // The NIC stays for the cases that follow.
    topology::rps("eth0", "0")?;
    outcome.judge(|outcome| {
        let drops = feature.switch_drops && !early;
        if !drops {
            L::require_whole(outcome)?;
        }
        // The stack itself lets any CPU that sends to a device empty its queue, into a backlog of its own: a neighbour's
        // solicitation is enough, and what waits in the backlog of a CPU that is away is passed. That has no bound, and is not
        // the module's doing as long as it splits nothing, which is demanded below.
        let may_reorder_pkts = match (early, rig.splits()) {
            (true, true) if feature.queues => u64::MAX,
            (true, false) if feature.queues => MIXED_PKTS,
            // A batch of each lane. CAST: a few.
            (false, true) if feature.stop_reorders => {
                knobs.lanes as u64 * u64::from(knobs.batch_pkts)
            }
            // In the modes of FALCON, what it gives out passes what waits for the last stage.
            (false, false) if feature.stop_reorders && rig.mflow => MIXED_PKTS,
            _ => 0,
        };
        // Of TCP the stack's own counters decide, unless it is the stack that reorders.
        let has_allowance = L::GROUP.is_empty() || early && feature.queues;
        if outcome.reordered > may_reorder_pkts || !has_allowance {
            L::require_order(outcome)?;
        }
        if rig.splits() {
            // A packet that was to be queued, and was dropped instead, is waited for until the deadline.
            if !drops {
                outcome.require_no_deadline()?;
            }
            if early && feature.queues {
                return rig.require_held("paths_async");
            }
            let queued = outcome.counter("paths_async")?;
            ensure!(
                (queued > 0) == feature.queues,
                "splitting was stopped {queued} time(s) for what the path queues"
            );
        }
        rig.settle()
    })
}

/// Splits an outer flow again and again while packets of some of its flows wait on a CPU that is held.
fn spread_one_outer(rig: &Rig) -> Result<Outcome> {
    let plan = Plan {
        flows: SPREAD_FLOWS,
        one_outer: true,
        // What has made the network ready may have begun it.
        split: false,
        ..rig.datagrams()
    };
    let knobs = Knobs::default();
    rig.prepare_pinned(&plan, &knobs)?;
    let [_, _, free, held] = LANES;
    topology::rps("vxlan0", &format!("{:x}", 1 << free | 1 << held))?;
    Datagrams::measure(&plan, |live| split_while_held(live, &knobs, held))?
        .judge(|outcome| rig.require_unnoticed::<Datagrams>(outcome))
}

/// Splits a flow again and again while a CPU is held now and again.
fn split_while_held(live: &impl Live, knobs: &Knobs, held: usize) -> Result<()> {
    let hog = Hog::start(held, HOLD)?;
    let split = (0..STARTS).try_for_each(|_| {
        let stops = || Stats::read()?.get("flows_stopped");
        let stopped_before = stops()?;
        mflow::write("min_flow_pps", "10000000")?;
        live.wait_for("the flow stops being split", LIMIT, || {
            Ok(stops()? > stopped_before)
        })?;
        let before = mflow::flows_split()?;
        mflow::write("min_flow_pps", &knobs.min_flow_pps.to_string())?;
        live.wait_split_since(before)
    });
    hog.stop()?;
    split
}

/// Splits an outer flow again and again in which there are flows of two networks: packets of one wait in another queue than those
/// of the other, at the tunnel and at the veth.
fn two_overlays_one_outer(rig: &Rig) -> Result<Outcome> {
    let mut plan = Plan {
        flows: OVERLAY_FLOWS,
        one_outer: true,
        split: false,
        ..rig.datagrams()
    };
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * OVERLAY_SHARE);
    let knobs = Knobs::default();
    rig.prepare_pinned(&plan, &knobs)?;
    let second = second_overlay_up().and_then(|()| {
        let to = vec![SocketAddr::from((SECOND_CONTAINER, SECOND_PORT))];
        let sockets = netns::within(SECOND, || {
            to.iter().map(receiver::bind).collect::<Result<Vec<_>>>()
        })?;
        let received = Receiver::of(sockets, 1, plan.load.bytes);
        let sender = Sender::start(SendOrder {
            from: SECOND_CLIENT.into(),
            to,
            bytes: plan.load.bytes,
            rate: plan.load.frames_per_s,
        });
        let outcome = Datagrams::measure(&plan, |live| split_while_held(live, &knobs, NIC));
        // Also after a failure.
        sender.stop_at(0);
        let sent = sender.join()?.iter().sum();
        run::wait_quiet(|| received.arrivals(), sent);
        Ok((outcome?, received.stop()?.outcome(sent)))
    });
    // Also after a failure.
    second_overlay_down()?;
    let (first, second) = second?;
    second.judge(|outcome| {
        outcome.require_whole()?;
        outcome.require_order()
    })?;
    first.judge(|outcome| rig.require_unnoticed::<Datagrams>(outcome))
}

/// Builds a second network in the overlay, with a container of its own whose veth has GRO. The client's outer ports are those of
/// the first.
fn second_overlay_up() -> Result<()> {
    netns::add(SECOND)?;
    topology::ip(&format!(
        "link add vxlan1 mtu 1450 type vxlan id 43 dev eth0 local 192.168.50.2 remote 192.168.50.1 dstport {VXLAN_PORT} nolearning
         link add br1 mtu 1450 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
         link add veth1 mtu 1450 type veth peer name eth0 netns {SECOND} address {SECOND_MAC}
         link set vxlan1 master br1
         link set veth1 master br1
         link set vxlan1 up
         link set veth1 up
         link set br1 up"
    ))?;
    topology::ip_in(
        SECOND,
        &format!(
            "link set eth0 mtu 1450 up
             addr add {SECOND_CONTAINER}/24 dev eth0
             neigh replace {SECOND_CLIENT} lladdr {SECOND_CLIENT_MAC} dev eth0"
        ),
    )?;
    netns::run(SECOND, "ethtool -K eth0 gro on")?;
    topology::client_ip(&format!(
        "link add vxlan1 mtu 1450 address {SECOND_CLIENT_MAC} type vxlan id 43 dev eth1 local 192.168.50.1 remote 192.168.50.2 \
         dstport {VXLAN_PORT} srcport 50000 50001 nolearning
         link set vxlan1 up
         addr add {SECOND_CLIENT}/24 dev vxlan1
         neigh replace {SECOND_CONTAINER} lladdr {SECOND_MAC} dev vxlan1"
    ))
}

fn second_overlay_down() -> Result<()> {
    netns::delete(SECOND)?;
    topology::ip("link del vxlan1\nlink del br1")?;
    topology::client_ip("link del vxlan1")
}

fn tc(lines: &str) -> Result<Option<Xdp>> {
    topology::tc(lines)?;
    Ok(None)
}

/// Gives each lane a queue of its own, so that what is split would be in several.
fn mq() -> Result<Option<Xdp>> {
    command::run(&format!("ethtool -L veth0 tx {}", LANES.len()))?;
    for (queue, cpu) in LANES.iter().enumerate() {
        let path = format!("/sys/class/net/veth0/queues/tx-{queue}/xps_cpus");
        fs::write(&path, format!("{:x}", 1 << cpu))
            .with_context(|| format!("cannot write {path}"))?;
    }
    tc("qdisc add dev veth0 root mq")
}

fn veth_gro() -> Result<Option<Xdp>> {
    netns::run(CONTAINER, "ethtool -K eth0 gro on")?;
    Ok(None)
}

fn veth_xdp() -> Result<Option<Xdp>> {
    netns::within(CONTAINER, || Xdp::attach("eth0", XdpMode::Any)).map(Some)
}

fn cpumap() -> Result<Option<Xdp>> {
    Xdp::send_to_cpu("vxlan0", READER).map(Some)
}

fn ifb() -> Result<Option<Xdp>> {
    topology::ip("link add queue0 txqueuelen 10000 type ifb\nlink set queue0 up")?;
    tc("qdisc add dev vxlan0 clsact
        filter add dev vxlan0 ingress matchall action mirred egress redirect dev queue0")
}

/// Lets RPS choose among the lanes' CPUs.
fn rps(device: &str) -> Result<Option<Xdp>> {
    topology::rps(device, LANE_MASK)?;
    Ok(None)
}
