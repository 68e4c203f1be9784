// SPDX-License-Identifier: GPL-2.0

//! `cpus` `auto`: lanes are on neither the NIC's nor the reader's CPU, follow both, and leave alone what is isolated.
//!
//! An emulated CPU may be away for long, and a reader that waits for packets is not seen. So cases wait until the set is right, and
//! do not ask how soon.

use std::fs;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::errno::Errno;
use nix::sys::socket::{recv, MsgFlags};

use crate::cases::{Case, Run};
use crate::flows;
use crate::machine::{command, cpu, threads};
use crate::mflow::{self, Knobs};
use crate::network::{netns, topology};
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Live, Load, Plan};

const LIMIT: Duration = Duration::from_secs(30);
/// The part of the usual rate that is sent: what is asked takes longer than other cases do.
const SHARE: f64 = 0.25;
/// But no less: a reader is to be seen in most ticks.
const LEAST_FRAMES_PER_S: f64 = 1_000.0;
/// All CPUs but those of the NIC and the reader.
const OTHERS: std::ops::Range<usize> = 2..cpu::NEEDED;
/// This many CPUs are lanes where readers have all.
const LEFT_TO_LANES: usize = 2;
/// Half of a tick. A reader is looked for once in each.
const BETWEEN_PEEKS: Duration = Duration::from_millis(2);
/// The time of a few looks at where readers are.
const LOOKS: Duration = Duration::from_secs(3);

pub(crate) fn datagrams() -> Vec<Case> {
    vec![
        Case::of_module(
            "auto/follows",
            "lanes leave the CPU to which the reader moves, and that to which the interrupt moves: no loss, no reordering",
            Run::Always,
            follows,
        ),
        Case::of_module(
            "auto/readers-everywhere",
            "a program reads on every CPU, as any container may: flows stay split, on two of these CPUs, without loss or reordering",
            Run::Plain,
            readers_everywhere,
        ),
        Case::of_module(
            "auto/offline",
            "CPUs go offline until only the NIC's and the reader's are left: then flows tells that there are no lanes; they come back",
            Run::Plain,
            offline,
        ),
        Case::of_module(
            "auto/stages",
            "stages leave the CPU of the NIC: no loss, no reordering",
            Run::Plain,
            // A socket that is not connected does not know where its packets come.
            |rig| stages(rig, &slow(rig), &[cpu::NIC]),
        ),
        Case::of_module(
            "auto/isolated",
            "no lane is on a CPU of isolcpus or nohz_full unless it is named",
            Run::Plain,
            |rig| isolated(rig).map(|()| None),
        ),
    ]
}

pub(crate) fn streams() -> Vec<Case> {
    vec![
        Case::of_module(
            "tcp/auto/found",
            "lanes leave the CPUs of a stream's reader and of the NIC, and a list is taken instead, and TCP does not notice",
            Run::Plain,
            found,
        ),
        Case::of_module(
            "tcp/auto/stages",
            "stages leave the CPUs of a stream's reader and of the NIC, and TCP does not notice",
            Run::Plain,
            |rig| stages(rig, &whole(rig), &[cpu::READER, cpu::NIC]),
        ),
    ]
}

fn slow(rig: &Rig) -> Plan<Datagrams> {
    let mut plan = rig.datagrams();
    let share = |rate: f64| rate.min(LEAST_FRAMES_PER_S).max(rate * SHARE);
    plan.load.frames_per_s = plan.load.frames_per_s.map(share);
    // One lane need not be there before the mark: which there are changes.
    Plan {
        split: false,
        ..plan
    }
}

/// Returns the CPUs that are lanes.
fn lanes() -> Result<Vec<usize>> {
    cpu::of_list(mflow::read("lanes")?.trim())
}

/// Waits until these CPUs, and these alone, are lanes and carry a flow.
fn wait_for_lanes(live: &impl Live, wanted: &[usize]) -> Result<()> {
    live.wait_for(&format!("lanes are on CPUs {wanted:?}"), LIMIT, || {
        Ok(lanes()? == wanted)
    })
    .with_context(|| format!("they are on {:?}", lanes().ok()))?;
    let list = mflow::read("lanes")?;
    live.wait_for("all lanes carry the flow", LIMIT, || {
        flows::any(&[("state", "split"), ("lanes", list.trim())])
    })
}

/// Returns all CPUs but these.
fn all_but(cpus: &[usize]) -> Vec<usize> {
    (0..cpu::NEEDED).filter(|cpu| !cpus.contains(cpu)).collect()
}

fn follows(rig: &Rig) -> Result<Outcome> {
    let (reader, nic) = (cpu::LANES[1], cpu::LANES[2]);
    let plan = slow(rig);
    // Where a program redirects packets to lanes, nothing says which queue they have come through.
    let knobs = Knobs {
        build: "auto",
        ..Knobs::default()
    };
    rig.prepare_pinned(&plan, &knobs)?;
    let moved = Datagrams::measure(&plan, |live| {
        mflow::write("cpus", "auto")?;
        wait_for_lanes(live, &all_but(&[cpu::READER, cpu::NIC]))?;
        live.move_reader(reader)?;
        wait_for_lanes(live, &all_but(&[cpu::READER, cpu::NIC, reader]))?;
        topology::move_server_nic(nic)?;
        wait_for_lanes(live, &all_but(&[cpu::READER, cpu::NIC, reader, nic]))
    });
    // Also after a failure.
    topology::move_server_nic(cpu::NIC)?;
    moved?.judge(|outcome| rig.require_unnoticed::<Datagrams>(outcome))
}

fn readers_everywhere(rig: &Rig) -> Result<Outcome> {
    let plan = slow(rig);
    rig.prepare_pinned(&plan, &Knobs::default())?;
    let to = plan.addresses();
    let socket = netns::within(topology::CONTAINER, || receiver::bind(&to[0]))?;
    let also_read = socket.try_clone().context("cannot share a socket")?;
    let receiver = Receiver::of(vec![socket], plan.flows, plan.load.bytes);
    let outcome = Datagrams::measure_at(&plan, to, receiver, |live| {
        mflow::write("cpus", "auto")?;
        let usual = all_but(&[cpu::READER, cpu::NIC]);
        wait_for_lanes(live, &usual)?;
        let peek = |stop: &AtomicBool| peek_everywhere(&also_read, stop);
        threads::beside(peek, || {
            live.wait_for("lanes leave the readers' CPUs", LIMIT, || {
                let lanes = lanes()?;
                ensure!(!lanes.is_empty(), "a reader on each CPU has left no lane");
                Ok(lanes.len() == LEFT_TO_LANES)
            })?;
            let left = lanes()?;
            wait_for_lanes(live, &left)?;
            live.flow_for(LOOKS)?;
            ensure!(
                lanes()? == left,
                "lanes on {left:?} have gone to {:?}",
                lanes()
            );
            Ok(())
        })?;
        wait_for_lanes(live, &usual)
    });
    outcome?.judge(|outcome| rig.require_unnoticed::<Datagrams>(outcome))
}

/// Looks on each CPU, in each tick or nearly, whether the socket has a datagram, and takes none.
fn peek_everywhere(socket: &UdpSocket, stop: &AtomicBool) -> Result<()> {
    thread::scope(|scope| {
        let peek = |cpu: usize| {
            cpu::pin(cpu)?;
            while !stop.load(Ordering::Relaxed) {
                match recv(
                    socket.as_raw_fd(),
                    &mut [0; 1],
                    MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK,
                ) {
                    Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => thread::sleep(BETWEEN_PEEKS),
                    Err(error) => return Err(error).context("cannot peek"),
                }
            }
            Ok(())
        };
        let peeking: Vec<_> = (0..cpu::NEEDED)
            .map(|cpu| scope.spawn(move || peek(cpu)))
            .collect();
        threads::results(peeking.into_iter().map(|thread| thread.join())).map(drop)
    })
}

fn offline(rig: &Rig) -> Result<Outcome> {
    let mut plan = slow(rig);
    // At last two CPUs do all the work, the senders' included.
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * SHARE);
    rig.prepare_pinned(&plan, &Knobs::default().eager())?;
    let outcome = Datagrams::measure(&plan, |live| {
        mflow::write("cpus", "auto")?;
        let others: Vec<usize> = OTHERS.collect();
        wait_for_lanes(live, &others)?;
        let (first, rest) = others.split_at(1);
        cpu::set_online(first[0], false)?;
        wait_for_lanes(live, rest)?;
        for &cpu in rest {
            cpu::set_online(cpu, false)?;
        }
        live.wait_for("it is told that there are no lanes", LIMIT, || {
            let told = mflow::read("flows")?;
            Ok(lanes()?.is_empty() && told.starts_with("none split reason no_lanes # "))
        })?;
        for cpu in others.clone() {
            cpu::set_online(cpu, true)?;
        }
        wait_for_lanes(live, &others)
    });
    for cpu in OTHERS {
        cpu::set_online(cpu, true)?;
    }
    // The sender moves from CPU to CPU, and the client's NIC with it: its packets may change places before they are sent.
    outcome?.judge(|outcome| {
        outcome.require_whole()?;
        rig.settle()
    })
}

fn stages<L: Load>(rig: &Rig, plan: &Plan<L>, left: &[usize]) -> Result<Outcome> {
    let knobs = Knobs {
        mode: "falcon-dev",
        build: "auto",
        ..Knobs::default()
    };
    rig.prepare_pinned(plan, &knobs)?;
    let outcome = L::measure(plan, |live| {
        mflow::write("cpus", "auto")?;
        live.wait_for("stages have left", LIMIT, || Ok(lanes()? == all_but(left)))
            .with_context(|| format!("CPUs {left:?}: they are on {:?}", lanes().ok()))
    });
    outcome?.judge(|outcome| rig.require_unnoticed::<L>(outcome))
}

fn isolated(rig: &Rig) -> Result<()> {
    for (file, cpu) in [("isolated", cpu::ISOLATED), ("nohz_full", cpu::UNDISTURBED)] {
        let path = format!("/sys/devices/system/cpu/{file}");
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        ensure!(
            cpu::of_list(text.trim())? == [cpu] && cpu::is_online(cpu),
            "{path} is {text:?}, and CPU {cpu} is to be that, and online"
        );
    }
    rig.prepare(&rig.datagrams(), &Knobs::default())?;
    mflow::unload()?;
    command::run("modprobe mflow cpus=auto devices=eth0 enabled=1")?;
    ensure!(
        mflow::read("cpus")?.trim() == "auto" && lanes()? == all_but(&[]),
        "loaded with cpus=auto, lanes are on {:?}",
        lanes()
    );
    // Who names them means them.
    let named = format!("{},{}", cpu::ISOLATED, cpu::UNDISTURBED);
    mflow::write("cpus", &named)?;
    ensure!(
        lanes()? == [cpu::ISOLATED, cpu::UNDISTURBED],
        "named, they are not taken"
    );
    Ok(())
}

/// Returns a plan of a stream that need not be split before the mark.
fn whole(rig: &Rig) -> Plan<Streams> {
    Plan {
        split: false,
        ..rig.streams()
    }
}

fn found(rig: &Rig) -> Result<Outcome> {
    let plan = whole(rig);
    rig.prepare_pinned(&plan, &Knobs::default())?;
    let outcome = Streams::measure(&plan, |live| {
        mflow::write("cpus", "auto")?;
        wait_for_lanes(live, &all_but(&[cpu::READER, cpu::NIC]))?;
        mflow::write("cpus", "2-3")?;
        wait_for_lanes(live, &[2, 3])
    });
    outcome?.judge(|outcome| rig.require_unnoticed::<Streams>(outcome))
}
