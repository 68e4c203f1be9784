// SPDX-License-Identifier: GPL-2.0

//! The cost of lanes: each source has some, and there are no more sources than queues that receive. Only where a driver leaves
//! packets to lanes before they are built do lanes have places for them.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::machine::memory::Lanes;
use crate::machine::{command, threads};
use crate::mflow::{self, Knobs};
use crate::network::netns;
use crate::network::topology::{self, CLIENT};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Load as _};

/// A device whose driver builds all packets, its peer, and the number of its queues.
const VETH: &str = "built0";
const PEER: &str = "built1";
const QUEUES: usize = 8;
const PAUSE: Duration = Duration::from_millis(300);
/// A device with many queues, and their number.
const MANY: &str = "many0";
const MANY_QUEUES: usize = 64;
/// So many that some come through each queue.
const MANY_FLOWS: usize = 512;
/// A grace period for each of the queues would take longer.
const LONGEST_STOP: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(20);

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
        Case::of_module(
            "sources/many",
            "a device with many queues has lanes for each that receives, and all of them go at once",
            Run::Plain,
            many,
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
        let of_queue = lanes_of_queue(&knobs)?;
        let most = of_queue * topology::receive_queues(knobs.device)?;
        ensure!(
            (of_queue..=most).contains(&lanes),
            "there were {lanes} lanes; one source has {of_queue}, and all queues that receive have {most}"
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
                Ok(Lanes::count()?.with_places >= before + lanes_of_queue(&knobs)?)
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

/// Returns how many lanes a NIC queue has: with our patches, its own core has one, too.
fn lanes_of_queue(knobs: &Knobs) -> Result<usize> {
    Ok(knobs.lanes + usize::from(mflow::is_patched()?))
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
        QUEUES * lanes_of_queue(knobs)?
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

fn many(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::default();
    let plan = rig.datagrams();
    rig.prepare(&plan, &knobs)?;
    let outcome = many_queues_up().and_then(|()| {
        Datagrams::measure(&plan, |_| {
            let before = Lanes::count()?.all;
            mflow::write("devices", &format!("+{MANY}"))?;
            let of_queue = lanes_of_queue(&knobs)?;
            let wanted = of_queue * MANY_QUEUES;
            let lanes = receive_through_all(before, wanted)?;
            ensure!(
                lanes == wanted,
                "{MANY_QUEUES} queues have {lanes} lanes; each is to have {of_queue}"
            );
            let begun = Instant::now();
            mflow::write("enabled", "0")?;
            let took = begun.elapsed();
            ensure!(
                took < LONGEST_STOP,
                "the lanes of {MANY_QUEUES} queues took {} ms to go",
                took.as_millis()
            );
            let left = Lanes::count()?.all;
            ensure!(left <= before, "{left} lanes are left, there were {before}");
            mflow::write("enabled", "1")
        })
    });
    // Also after a failure.
    mflow::unload()?;
    topology::ip(&format!("link del {MANY}"))?;
    outcome?.judge(|outcome| {
        outcome.require_whole()?;
        outcome.require_order()
    })
}

/// Makes a pair of devices that are polled by queue, the other end in the client's namespace.
fn many_queues_up() -> Result<()> {
    topology::ip(&format!(
        "link add {MANY} numtxqueues {MANY_QUEUES} numrxqueues {MANY_QUEUES} type veth peer name many1 numtxqueues {MANY_QUEUES} numrxqueues {MANY_QUEUES}
         link set many1 netns {CLIENT}
         link set {MANY} up
         addr add 10.0.7.2/24 dev {MANY}"
    ))?;
    topology::client_ip("link set many1 up\naddr add 10.0.7.1/24 dev many1")?;
    // With GRO, each queue has a NAPI.
    command::run(&format!("ethtool -K {MANY} gro on")).map(drop)
}

/// Sends datagrams of many flows until all queues have lanes; returns how many lanes there are besides.
fn receive_through_all(before: usize, wanted: usize) -> Result<usize> {
    let sockets = netns::within(CLIENT, || {
        let bind = |_| Ok(UdpSocket::bind("10.0.7.1:0")?);
        (0..MANY_FLOWS).map(bind).collect::<Result<Vec<_>>>()
    })?;
    let mut lanes = 0;
    threads::until_ok(LIMIT, || {
        for socket in &sockets {
            // Nobody listens; the error which that causes comes with the next call.
            let _refused = socket.send_to(&[0; 16], "10.0.7.2:9");
        }
        lanes = Lanes::count()?.all.saturating_sub(before);
        ensure!(lanes >= wanted, "{lanes} lanes instead of {wanted}");
        Ok(())
    })?;
    Ok(lanes)
}
