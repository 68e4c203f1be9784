// SPDX-License-Identifier: GPL-2.0

//! Which core builds packets: the NIC's, or the lane's. By itself (`auto`) the module chooses, in all other cases.

use std::fs;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use super::{Case, Run};
use crate::bpf::{Xdp, XdpMode};
use crate::datagrams::run::Datagrams;
use crate::mflow::{self, Knobs};
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::streams::run::Streams;
use crate::traffic::{Live as _, Load};
use crate::{command, cpu};

/// Drivers that leave the building of packets to lanes.
const DRIVERS: [&str; 2] = ["virtio_net", "mlx5_core"];

/// How often an XDP program comes and goes.
const ROUNDS: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);

pub(super) fn datagrams() -> Vec<Case> {
    let mut cases = builders::<Datagrams>();
    cases.push(Case::of_module(
        "build/xdp",
        "where an XDP program comes and goes on the NIC, lanes build packets only while there is none, and nothing is lost or reordered",
        Run::Always,
        xdp,
    )
    // The kernel writes a call of the program into its own code.
    .patching_code());
    cases.push(Case::of_module(
        "build/freed",
        "what lanes have built they free when it has been read, the last of it too, and nothing is lost or reordered",
        Run::Always,
        freed,
    ));
    cases
}

pub(super) fn streams() -> Vec<Case> {
    builders::<Streams>()
}

fn builders<L: Load>() -> Vec<Case> {
    let case = |(build, core): (&'static str, &str)| {
        let name = format!("{}build/{build}", L::GROUP);
        let proves = format!(
            "{core} builds packets, and a flow keeps its order{}",
            L::UNNOTICED
        );
        Case::of_module(name, proves, Run::always_if(build == "lane"), move |rig| {
            let knobs = Knobs {
                build,
                ..Knobs::of(4, 64)
            };
            let outcome = rig.strict(&rig.plan::<L>(), &knobs, |_| Ok(()))?;
            outcome.judge(|outcome| {
                let requests = outcome.counter("request_pkts")?;
                let lane_builds = build == "lane" && leaves_building("eth0")?;
                ensure!(
                    (requests > 0) == lane_builds,
                    "lanes were to build {requests} packets"
                );
                Ok(())
            })
        })
    };
    let mut cases: Vec<Case> = [("nic", "the NIC's core"), ("lane", "the lane's core")]
        .map(case)
        .into();
    cases.push(Case::of_module(
        format!("{}build/stage", L::GROUP),
        format!(
            "one CPU of each lane builds packets and another carries them, also when that begins and ends under load, and a flow \
             keeps its order{}",
            L::UNNOTICED
        ),
        Run::Always,
        stage::<L>,
    ));
    cases
}

/// Two lanes with two CPUs each, then as before, then again.
fn stage<L: Load>(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        build: "lane",
        layout: "lane+stage",
        ..Knobs::of(4, 64)
    };
    let outcome = rig.unnoticed(&rig.plan::<L>(), &knobs, |live| {
        for layout in ["lane", "lane+stage"] {
            live.flow_for(PAUSE)?;
            mflow::write("layout", layout)?;
        }
        live.flow_for(PAUSE)
    })?;
    outcome.judge(|outcome| {
        let lanes_build = leaves_building("eth0")?;
        for &cpu in &cpu::LANES[..knobs.lanes] {
            let pkts = outcome.lane_pkts(cpu)?;
            ensure!(
                pkts > 0 || !lanes_build,
                "CPU {cpu} neither built a packet nor carried one"
            );
        }
        Ok(())
    })
}

fn freed(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(2, 64)
    };
    // It waits until nothing is left to be freed.
    let outcome = rig.unnoticed(&rig.datagrams(), &knobs, |_| Ok(()))?;
    outcome.judge(|outcome| {
        let (freed, built) = (
            outcome.counter("freed_pkts")?,
            outcome.counter("request_pkts")?,
        );
        ensure!(
            freed >= built / 2,
            "of {built} packets that lanes built they freed {freed}"
        );
        Ok(())
    })
}

fn xdp(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        build: "lane",
        ..Knobs::default()
    };
    rig.unnoticed(&rig.datagrams(), &knobs, |live| {
        if !leaves_building("eth0")? {
            return Ok(());
        }
        for _ in 0..ROUNDS {
            until_built_by("lane")?;
            live.flow_for(PAUSE)?;
            let program = Xdp::attach("eth0", XdpMode::Any)?;
            until_built_by("xdp")?;
            live.flow_for(PAUSE)?;
            drop(program);
        }
        until_built_by("lane")
    })
}

/// Waits until the driver says so of a queue of the NIC.
fn until_built_by(builder: &str) -> Result<()> {
    let expected = format!("eth0 {builder} ");
    command::wait_until(&format!("`builders` says {expected}"), || {
        Ok(mflow::read("builders")?.contains(&expected))
    })
}

/// Returns whether a device's driver leaves the building of packets to lanes.
fn leaves_building(device: &str) -> Result<bool> {
    let link = format!("/sys/class/net/{device}/device/driver");
    let driver = fs::read_link(&link).context(link)?;
    let name = driver.file_name().and_then(|name| name.to_str());
    Ok(name.is_some_and(|name| DRIVERS.contains(&name)))
}
