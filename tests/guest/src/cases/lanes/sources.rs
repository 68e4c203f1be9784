// SPDX-License-Identifier: GPL-2.0

//! The cost of lanes: each source has some, and there are no more sources than queues that receive. Only where a driver leaves
//! packets to lanes before they are built do lanes have places for them.

use std::time::Duration;

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::machine::command;
use crate::machine::memory::Lanes;
use crate::mflow::{self, Knobs};
use crate::network::topology;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Live as _;

/// A device whose driver builds all packets, its peer, and the number of its queues.
const VETH: &str = "built0";
const PEER: &str = "built1";
const QUEUES: usize = 8;
const PAUSE: Duration = Duration::from_millis(300);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "sources/receiving",
            "queues that only send have no lanes, and lanes go with splitting",
            Run::Plain,
            receiving,
        ),
        Case::of_module(
            "sources/places",
            "lanes have no places for packets that are not built where the driver builds all of them, or the knob says so; they get them \
             under load where the driver leaves packets to lanes, and nothing is lost or reordered",
            Run::Plain,
            places,
        ),
    ]
}

fn receiving(rig: &Rig) -> Result<Outcome> {
    // With programs that redirect, sources are of CPUs.
    let knobs = Knobs {
        build: "auto",
        ..Knobs::default()
    };
    let outcome = rig.unnoticed(&rig.datagrams(), &knobs, |_| Ok(()))?;
    outcome.judge(|_| {
        let split = Lanes::count()?;
        mflow::write("enabled", "0")?;
        let lanes = split.beside(&Lanes::count()?).all;
        let most = knobs.lanes * topology::receive_queues(knobs.device)?;
        ensure!(
            (knobs.lanes..=most).contains(&lanes),
            "there were {lanes} lanes; one source has {}, and all queues that receive have {most}",
            knobs.lanes
        );
        Ok(())
    })
}

fn places(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        build: "nic",
        ..Knobs::default()
    };
    let outcome = rig.unnoticed(&rig.datagrams(), &knobs, |live| {
        live.wait_split_since(0)?;
        let nic = Lanes::count()?;
        let queues = format!("numrxqueues {QUEUES} numtxqueues {QUEUES}");
        command::run(&format!(
            "ip link add {VETH} up {queues} type veth peer name {PEER} {queues}"
        ))?;
        let opted_in = opt_in(&nic, &knobs);
        // Also after a failure.
        command::run(&format!("ip link del {VETH}"))?;
        opted_in?;

        let before = Lanes::count()?.with_places;
        mflow::write("build", "auto")?;
        if mflow::is_patched()? {
            command::wait_until("lanes have places", || {
                Ok(Lanes::count()?.with_places >= before + knobs.lanes)
            })?;
        }
        live.flow_for(PAUSE)
    })?;
    outcome.judge(|outcome| {
        let requests = outcome.counter("request_pkts")?;
        ensure!(
            (requests > 0) == mflow::is_patched()?,
            "lanes built {requests} packets"
        );
        Ok(())
    })
}

/// Opts the veth in beside the NIC, whose lanes are these.
fn opt_in(nic: &Lanes, knobs: &Knobs) -> Result<()> {
    command::run(&format!("ip link set {PEER} up"))?;
    // Its driver has NAPIs with it.
    command::run(&format!("ethtool -K {VETH} gro on"))?;
    mflow::write("devices", &format!("+{VETH}"))?;
    let lanes = Lanes::count()?.beside(nic);
    // Without our patches, sources are found by packets.
    let wanted = if mflow::is_patched()? {
        QUEUES * knobs.lanes
    } else {
        0
    };
    ensure!(
        lanes.all == wanted && lanes.with_places == 0,
        "the veth has {lanes:?}, and is to have {wanted} without places"
    );
    println!("{VETH}: {lanes:?}");
    Ok(())
}
