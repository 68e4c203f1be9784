// SPDX-License-Identifier: GPL-2.0

//! Flows that stay whole and go from CPU to CPU, the modes of FALCON: order and integrity, which CPU does which stage, and
//! that stages begin and end under load without anyone noticing.

use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::errno::Errno;

use crate::cases::operation::devices::MIXED_PKTS;
use crate::cases::operation::knobs::refuses;
use crate::cases::{Case, Run, STAGES};
use crate::machine::{command, cpu};
use crate::mflow::{self, Knobs, Mode, Stats};
use crate::network::topology::{self, CONTAINER};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::hog::Hog;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Live, Load, Plan};

const DEV: &str = Mode::FalconDev.name();
const FUNC: &str = Mode::FalconFunc.name();
const PAUSE: Duration = Duration::from_millis(150);
const ROUNDS: usize = 4;
/// The time that stages may take to begin.
const START: Duration = Duration::from_secs(20);
/// The same for a while that a device takes to be closed.
const SHORT_HOLD: Duration = Duration::from_millis(400);
/// More than waits in rings of stages that run.
const WAITING_BYTES: u64 = 200_000;
/// This many packets show whether stages have begun.
const SAMPLE: u64 = 50;
/// This many packets may come that belong to no flow or after a flow's last byte, or be with the driver when its counter is read.
const STRAYS: u64 = 100;
/// The length of one hold of a CPU: more packets come than its rings have room for.
const HOLD: Duration = Duration::from_secs(2);

pub(crate) fn datagrams() -> Vec<Case> {
    let mut cases = whole::<Datagrams>();
    cases.extend([
        Case::of_module(
            "mode/cpus",
            "1, 2 and 4 CPUs take turns at three stages under load: no loss, no reordering",
            Run::Plain,
            |rig| changes::<Datagrams>(rig, "cpus", &["2", "2-3", "2-5", "2-4"]),
        ),
        Case::of_module(
            "mode/stages",
            "devices are stacked into fewer stages, and each has its own again, under load: no loss, no reordering",
            Run::Plain,
            |rig| changes::<Datagrams>(rig, "stages", &["nic", "nic+tunnel", "nic+veth", "nic+tunnel+veth"]),
        ),
        Case::of_module(
            "mode/enabled",
            "stages end and begin with the hooks under load: no loss, no reordering",
            Run::Plain,
            |rig| changes::<Datagrams>(rig, "enabled", &["0", "1"]),
        )
        .patching_code(),
        Case::of_module(
            "mode/offline",
            "a stage's CPU goes offline and comes back under load: no loss, no reordering",
            Run::Always,
            cpu_comes_and_goes,
        ),
        Case::of_module(
            "mode/full",
            "a stage that does not run drops what it has no room for, and counts it; the flow keeps its order",
            Run::Plain,
            full,
        ),
        Case::of_module(
            "mode/qdisc",
            "what a queueing discipline on the veth gives out is not handed on: in each mode hardly any reordering",
            Run::Plain,
            behind_discipline,
        ),
        Case::of_module(
            "mode/teardown/held",
            "the VXLAN device goes away while packets wait for a stage: what still comes does not overtake them",
            Run::Plain,
            take_away_held,
        ),
        Case::of_module(
            "mode/refusals",
            "what does not go with a mode is refused, and changes nothing",
            Run::Always,
            |rig| refusals(rig).map(|()| None),
        ),
    ]);
    cases.extend(LOSSES.iter().map(|loss| {
        Case::of_module(
            format!("mode/teardown/{}", loss.name),
            format!(
                "{} goes away under flows in stages: the next flow is as good as new",
                loss.what
            ),
            Run::always_if(loss.name == "container"),
            move |rig| take_away(rig, loss),
        )
    }));
    cases
}

pub(crate) fn streams() -> Vec<Case> {
    whole::<Streams>()
}

/// Returns the cases for flows of either kind that nothing happens to but changes of the mode.
fn whole<L: Load>() -> Vec<Case> {
    let mut cases: Vec<Case> = [DEV, FUNC]
        .map(|mode| {
            Case::of_module(
                format!("{}mode/{mode}", L::GROUP),
                format!(
                    "in mode {mode} a {} keeps its order, and each CPU does one of its stages",
                    L::FLOW
                ),
                Run::always_if(mode == DEV),
                move |rig| one_flow::<L>(rig, mode),
            )
        })
        .into();
    cases.push(Case::of_module(
        format!("{}mode/flows", L::GROUP),
        "several flows in stages each keep their order",
        Run::Plain,
        several_flows::<L>,
    ));
    cases.push(Case::of_module(
        format!("{}mode/switch", L::GROUP),
        format!("modes take turns under load{}", L::UNNOTICED),
        Run::Always,
        switch::<L>,
    ));
    cases
}

pub(crate) fn knobs(mode: &'static str, lanes: usize) -> Knobs {
    Knobs {
        mode,
        lanes,
        build: "auto",
        ..Knobs::default()
    }
}

/// Returns the plainest plan; a flow is never split.
pub(crate) fn plan<L: Load>(rig: &Rig) -> Plan<L> {
    Plan {
        split: false,
        ..rig.plan()
    }
}

fn one_flow<L: Load>(rig: &Rig, mode: &'static str) -> Result<Outcome> {
    let (outcome, stages) = in_stages::<L>(rig, &plan::<L>(rig), &knobs(mode, STAGES.len()))?;
    outcome.judge(|outcome| {
        rig.require_unnoticed::<L>(outcome)?;
        stages.require_all()?;
        // The flow's stages are not on the same CPU.
        cpu::LANES[..STAGES.len()]
            .iter()
            .try_for_each(|cpu| stages.require_once(&format!("lane_cpu{cpu}_pkts")))
    })
}

fn several_flows<L: Load>(rig: &Rig) -> Result<Outcome> {
    let plan = Plan {
        flows: 6,
        ..plan::<L>(rig)
    };
    let (outcome, stages) = in_stages::<L>(rig, &plan, &knobs(DEV, 4))?;
    outcome.judge(|outcome| {
        rig.require_unnoticed::<L>(outcome)?;
        stages.require_all()
    })
}

/// A run whose packets have gone from stage to stage.
struct Staged {
    /// The least number of packets that came after the moment from which all went from stage to stage.
    frames: u64,
    /// The number of these packets that went on at the NIC.
    from_nic: u64,
    /// The counts since the module was loaded. No packet is under way any more.
    stats: Stats,
}

fn in_stages<L: Load>(rig: &Rig, plan: &Plan<L>, knobs: &Knobs) -> Result<(Outcome, Staged)> {
    let received = || topology::received_pkts("eth0");
    let from_nic = || Stats::read()?.get(STAGES[0]);
    let mut begin = None;
    let outcome = rig.measure(plan, knobs, |live| {
        // What comes before the NIC's queues have sources goes the ordinary path. This thread may be away between two readings;
        // in this order, that can only delay the begin, and lower what is asked for at the end.
        let mut before = (received()?, from_nic()?);
        live.wait_for("all packets go through stages", START, || {
            let staged = from_nic()? - before.1;
            let frames = received()? - before.0;
            if frames < SAMPLE {
                return Ok(false);
            }
            before = (received()?, from_nic()?);
            Ok(staged * 10 >= frames * 9)
        })?;
        let staged = from_nic()?;
        begin = Some((received()?, staged));
        Ok(())
    })?;
    let (frames, staged) = begin.context("the run has not begun")?;
    let stats = Stats::read()?;
    let staged = Staged {
        frames: received()? - frames,
        from_nic: stats.get(STAGES[0])? - staged,
        stats,
    };
    Ok((outcome, staged))
}

impl Staged {
    /// Fails unless all packets have gone from stage to stage, and none was split or dropped.
    fn require_all(&self) -> Result<()> {
        let (frames, from_nic) = (self.frames, self.from_nic);
        ensure!(
            from_nic + STRAYS >= frames,
            "{from_nic} packets went on at the NIC, and {frames} came"
        );
        STAGES.iter().try_for_each(|name| self.require_once(name))?;
        for name in [
            "dropped_stage_full",
            "merged_pkts",
            "lane_pkts",
            "flows_split",
        ] {
            let count = self.stats.get(name)?;
            ensure!(count == 0, "{name} is {count} where no flow is split");
        }
        Ok(())
    }

    /// Fails unless a counter has counted each packet that went on at the NIC once.
    fn require_once(&self, name: &str) -> Result<()> {
        let (count, staged) = (self.stats.get(name)?, self.stats.get(STAGES[0])?);
        ensure!(
            count.abs_diff(staged) <= STRAYS,
            "{name} is {count}, and {staged} packets went on at the NIC"
        );
        Ok(())
    }
}

/// Each mode follows each other one.
fn switch<L: Load>(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        build: "auto",
        ..Knobs::default()
    };
    let order = [DEV, FUNC, DEV, "mflow", FUNC, "mflow"];
    rig.unnoticed(&rig.plan::<L>(), &knobs, |live| {
        for mode in order
            .into_iter()
            .cycle()
            .take(rig.scale.rounds(2) * order.len())
        {
            live.flow_for(PAUSE)?;
            let before = (mflow::flows_split()?, Stats::read()?.get(STAGES[0])?);
            mflow::write("mode", mode)?;
            if mode == "mflow" {
                live.wait_split_since(before.0)?;
            } else {
                wait_staged_since(live, before.1)?;
            }
        }
        Ok(())
    })
}

/// Waits until packets go through stages again; `before` of the first one.
fn wait_staged_since(live: &impl Live, before: u64) -> Result<()> {
    live.wait_for("packets go through stages", START, || {
        Ok(Stats::read()?.get(STAGES[0])? > before)
    })
}

/// A knob has several values under load, and ends with one that has stages.
fn changes<L: Load>(rig: &Rig, knob: &str, values: &[&str]) -> Result<Outcome> {
    rig.unnoticed(&plan::<L>(rig), &knobs(DEV, 3), |live| {
        for value in values.iter().cycle().take(ROUNDS * values.len()) {
            live.flow_for(PAUSE)?;
            let before = Stats::read()?.get(STAGES[0])?;
            mflow::write(knob, value)?;
            if (knob, *value) != ("enabled", "0") {
                wait_staged_since(live, before)?;
            }
        }
        Ok(())
    })
}

fn cpu_comes_and_goes(rig: &Rig) -> Result<Outcome> {
    let lane = cpu::LANES[1];
    let plan = plan::<Datagrams>(rig);
    rig.prepare_pinned(&plan, &knobs(DEV, 3))?;
    let result = Datagrams::measure(&plan, |live| {
        for _ in 0..rig.scale.rounds(ROUNDS) {
            live.flow_for(PAUSE)?;
            cpu::set_online(lane, false)?;
            live.flow_for(PAUSE)?;
            cpu::set_online(lane, true)?;
        }
        let carried = || Stats::read()?.get(&format!("lane_cpu{lane}_pkts"));
        let before = carried()?;
        command::wait_until("the CPU has a stage again", || Ok(carried()? > before))
    });
    // Also after a failure: the next case needs all CPUs.
    cpu::set_online(lane, true)?;
    result?.judge(|outcome| rig.require_unnoticed::<Datagrams>(outcome))
}

/// The client's Ethernet frames come to the container's bridge through GRE.
fn full(rig: &Rig) -> Result<Outcome> {
    let mut plan = plan::<Datagrams>(rig);
    // More than a ring holds, as fast as it can be sent: it has to come while the CPU is away.
    plan.load.send_at_least(20_000);
    plan.load.frames_per_s = None;
    // No queue of a NIC, nor what the client sends with, may be held with the stage.
    rig.prepare_pinned(&plan, &knobs(DEV, 3))?;
    let outcome = Datagrams::measure(&plan, |live| {
        let dropped = || Stats::read()?.get("dropped_stage_full");
        let is_full_within = |hold| {
            let hog = Hog::start(cpu::LANES[0], hold)?;
            let full = live.wait_for("a ring is full", Duration::from_secs(30), || {
                Ok(dropped()? > 0)
            });
            hog.stop()?;
            full
        };
        // On a busy host a client sends less in that time than a ring has room for.
        is_full_within(HOLD).or_else(|_| is_full_within(4 * HOLD))
    })?;
    outcome.judge(|outcome| {
        outcome.require_intact()?;
        outcome.require_order()?;
        rig.settle()
    })
}

fn behind_discipline(rig: &Rig) -> Result<Outcome> {
    let mut last = None;
    for mode in [DEV, FUNC] {
        let plan = plan::<Datagrams>(rig);
        let knobs = knobs(mode, STAGES.len());
        rig.prepare(&plan, &knobs)?;
        topology::tc("qdisc add dev veth0 root netem delay 1ms limit 100000")?;
        last = Some(Datagrams::measure(&plan, |_| Ok(()))?.judge(|outcome| {
            outcome.require_whole()?;
            // When stages begin, two CPUs empty the queue for a moment.
            let may_reorder_pkts = 2 * MIXED_PKTS;
            ensure!(
                outcome.reordered <= may_reorder_pkts,
                "{} packets out of order in mode {mode}, and {may_reorder_pkts} may be",
                outcome.reordered
            );
            let from_tunnel = outcome.counter("stage_tunnel_pkts")?;
            let from_veth = outcome.counter("stage_veth_pkts")?;
            ensure!(
                from_tunnel > outcome.delivered / 2 && from_veth <= STRAYS,
                "{from_tunnel} of {} packets went on at the tunnel, and {from_veth} at the veth in mode {mode}",
                outcome.delivered
            );
            rig.settle()
        })?);
    }
    last.context("no mode")
}

fn take_away_held(rig: &Rig) -> Result<Outcome> {
    let mut last = None;
    // One of them is that of the stage behind the tunnel.
    for &stage in &cpu::LANES[..STAGES.len()] {
        let outcome = rig.measure(&plan::<Datagrams>(rig), &knobs(DEV, STAGES.len()), |live| {
            let hog = Hog::start(stage, SHORT_HOLD)?;
            let waiting = || Stats::read()?.get("ring_bytes");
            let gone = live
                .wait_for("packets wait for a stage", START, || {
                    Ok(waiting()? > WAITING_BYTES)
                })
                .and_then(|()| topology::ip("link del vxlan0"));
            hog.stop()?;
            gone?;
            live.flow_for(PAUSE)
        })?;
        last = Some(outcome.judge(|outcome| {
            outcome.require_intact()?;
            outcome.require_order()?;
            rig.settle()
        })?);
    }
    last.context("no stage")
}

fn refusals(rig: &Rig) -> Result<()> {
    rig.prepare(&rig.datagrams(), &knobs(DEV, 3))?;
    refuses("scaling", "device", &[Errno::EINVAL])?;
    refuses("build", "lane", &[Errno::EINVAL])?;
    mflow::write("build", "nic")?;
    mflow::write("mode", FUNC)?;
    refuses("scaling", "device", &[Errno::EINVAL])?;
    mflow::write("mode", "mflow")?;
    mflow::write("scaling", "device")?;
    refuses("mode", DEV, &[Errno::EINVAL])?;
    mflow::write("scaling", "path")?;
    mflow::write("build", "lane")?;
    refuses("mode", FUNC, &[Errno::EINVAL])?;
    mflow::unload()?;
    let loaded = command::run("modprobe mflow mode=falcon-dev scaling=device");
    ensure!(
        loaded.is_err() && !mflow::loaded(),
        "the module loads with what does not go together"
    );
    Ok(())
}

struct Loss {
    name: &'static str,
    what: &'static str,
    take_away: fn() -> Result<()>,
}

const LOSSES: &[Loss] = &[
    Loss {
        name: "vxlan",
        what: "the VXLAN device",
        take_away: || topology::ip("link del vxlan0"),
    },
    Loss {
        name: "veth",
        what: "the veth pair",
        take_away: || topology::ip("link del veth0"),
    },
    Loss {
        name: "container",
        what: "the container's namespace",
        take_away: || {
            topology::ip(&format!(
                "link set dev veth0 nomaster\nnetns del {CONTAINER}"
            ))
        },
    },
    Loss {
        name: "opt-out",
        what: "the NIC, which is opted out,",
        take_away: || mflow::write("devices", "-eth0"),
    },
    Loss {
        name: "module",
        what: "the module",
        take_away: mflow::unload,
    },
];

fn take_away(rig: &Rig, loss: &Loss) -> Result<Outcome> {
    let plan = plan::<Datagrams>(rig);
    let outcome = rig.measure(&plan, &knobs(DEV, 3), |live| {
        live.flow_for(PAUSE)?;
        (loss.take_away)().with_context(|| format!("while {} goes", loss.what))?;
        live.flow_for(2 * PAUSE)
    })?;
    outcome.judge(|outcome| {
        outcome.require_intact()?;
        outcome.require_order()?;
        let loses = !["opt-out", "module"].contains(&loss.name);
        ensure!(
            loses || outcome.lost == 0,
            "{} datagrams lost",
            outcome.lost
        );
        Ok(())
    })?;
    one_flow::<Datagrams>(rig, DEV)
}
