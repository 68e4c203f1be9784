// SPDX-License-Identifier: GPL-2.0

//! The core that builds packets: the NIC's, or the lane's. In all other cases the module chooses by itself (`auto`), unless
//! `mflow::choose_build` has chosen.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use mflow_protocol::network::VXLAN_PORT;

use crate::cases::operation::devices::MIXED_PKTS;
use crate::cases::{Case, Run};
use crate::machine::sockopt;
use crate::machine::{command, cpu};
use crate::mflow::{self, Knobs};
use crate::network::bpf::{Xdp, XdpMode};
use crate::network::topology::{Family, CLIENT};
use crate::network::{netns, nft, topology};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Live as _, Load};

/// Drivers that leave the building of packets to lanes.
const DRIVERS: [&str; 2] = ["virtio_net", "mlx5_core"];

/// The number of times that an XDP program comes and goes.
const ROUNDS: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// A port of both ends, datagrams that are read one after the other before the next are sent, and how many make a flow that is split.
const NAPI_PORT: u16 = 5_009;
const NAPI_BURST: usize = 16;
const NAPI_PKTS: usize = 1_024;
const NAPI_WAIT: Duration = Duration::from_secs(20);

/// A pair of devices whose driver takes programs, and where one of them is moved to.
const VETH: &str = "taken";
const PEER: &str = "peer";
const ELSEWHERE: &str = "elsewhere";

pub(crate) fn datagrams() -> Vec<Case> {
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
        "build/napi",
        "a reader learns from packets that lanes have built which NAPI of the NIC they have come by, as with enabled 0",
        Run::Plain,
        napi,
    ));
    cases.push(
        Case::of_module(
            "build/other-program",
            "where the module would need a program of its own on the NIC and finds another one, the NIC's core builds packets, and \
             `builders` says why; once that is gone lanes do, and nothing is lost or reordered",
            Run::Always,
            other_program,
        )
        .patching_code(),
    );
    cases.push(Case::of_module(
        "build/devices",
        "devices whose packets lanes build are opted out, go, and go to another namespace, and nothing of the module stays with them",
        Run::Always,
        |_| devices(),
    ));
    cases.push(Case::of_module(
        "build/classes",
        "lanes build packets of three flows whose class of traffic and hop limit change from packet to packet, and each keeps its order",
        Run::Plain,
        classes,
    ));
    cases
}

pub(crate) fn streams() -> Vec<Case> {
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
            outcome.judge(|outcome| require_lanes_build(outcome, build == "lane"))
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

fn classes(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.flows = 3;
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(4, 64)
    };
    rig.prepare(&plan, &knobs)?;
    nft::add(
        CLIENT,
        &format!(
            "table inet mflow {{
                chain out {{
                    type filter hook output priority 0;
                    udp dport {VXLAN_PORT} numgen inc mod 3 == 0 ip dscp set cs1
                    udp dport {VXLAN_PORT} numgen inc mod 5 == 0 ip ttl set 9
                }}
            }}"
        ),
    )?;
    let outcome = Datagrams::measure(&plan, |_| Ok(()));
    // Also after a failure.
    nft::flush(CLIENT)?;
    outcome?.judge(|outcome| {
        rig.require_strict(&plan, &knobs, outcome)?;
        require_lanes_build(outcome, knobs.build == "lane")
    })
}

/// Fails unless lanes have built packets just where they are to, and the driver leaves it to them.
fn require_lanes_build(outcome: &Outcome, are_to: bool) -> Result<()> {
    let requests = outcome.counter("request_pkts")?;
    ensure!(
        (requests > 0) == (are_to && leaves_building("eth0")?),
        "lanes built {requests} packets, and {}",
        if are_to { "were to" } else { "were not to" }
    );
    Ok(())
}

fn xdp(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        build: "lane",
        ..Knobs::default()
    };
    rig.unnoticed(&rig.datagrams(), &knobs, |live| {
        if !leaves_building("eth0")? || !mflow::is_patched()? {
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

/// Without our patches: for the program of the module there must be no other.
fn other_program(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs {
        build: "nic",
        ..Knobs::default()
    };
    let outcome = rig.measure(&rig.datagrams(), &knobs, |live| {
        if mflow::is_patched()? {
            return Ok(());
        }
        for _ in 0..ROUNDS {
            let program = Xdp::attach("eth0", XdpMode::Native)?;
            mflow::write("build", "lane")?;
            until_built_by("xdp")?;
            live.flow_for(PAUSE)?;
            drop(program);
            // What was refused is not asked for again by itself.
            mflow::write("build", "lane")?;
            until_built_by("lane")?;
            live.flow_for(PAUSE)?;
            ensure!(
                Xdp::attach("eth0", XdpMode::Native).is_err(),
                "the NIC takes another program beside the module's"
            );
            mflow::write("build", "nic")?;
            live.flow_for(PAUSE)?;
        }
        mflow::write("build", "lane")?;
        until_built_by("lane")?;
        live.flow_for(PAUSE)
    })?;
    outcome.judge(|outcome| {
        outcome.require_whole()?;
        // While a program comes or goes the driver polls on another CPU: what its queues hold is passed then, and a flow is split
        // there again before it has ended where it was.
        // CAST: a few.
        if outcome.reordered > ROUNDS as u64 * MIXED_PKTS {
            outcome.require_order()?;
        }
        ensure!(
            mflow::is_patched()? || outcome.counter("request_pkts")? > 0,
            "lanes have built no packet"
        );
        rig.settle()
    })
}

/// Opts veths in, whose driver takes programs, and takes them away in each way there is.
fn devices() -> Result<Option<Outcome>> {
    mflow::unload()?;
    mflow::load(&Knobs {
        build: "lane",
        ..Knobs::default()
    })?;
    if mflow::is_patched()? {
        return Ok(None);
    }
    netns::add(ELSEWHERE)?;
    let lost = [
        ("is opted out", Loss::OptedOut),
        ("is deleted", Loss::Deleted),
        ("goes to another namespace", Loss::Moved),
        ("is there when lanes build no more", Loss::Knob),
        ("is there when the module goes", Loss::Unloaded),
    ];
    for (what, loss) in lost {
        lose(loss).with_context(|| format!("a device {what}"))?;
    }
    netns::delete(ELSEWHERE)?;
    Ok(None)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    OptedOut,
    Deleted,
    Moved,
    Knob,
    Unloaded,
}

fn lose(loss: Loss) -> Result<()> {
    topology::ip(&format!(
        "link add {VETH} type veth peer name {PEER}\nlink set {VETH} up\nlink set {PEER} up"
    ))?;
    mflow::write("devices", &format!("+{VETH}"))?;
    until_builders(&format!("{VETH} lane "))?;
    let index = fs::read_to_string(format!("/sys/class/net/{VETH}/ifindex"))?;
    let ours = format!("mflow-{}", index.trim());
    let ours = Path::new("/sys/class/net").join(ours);
    ensure!(ours.exists(), "there is no {}", ours.display());
    ensure!(
        has_program(None)?,
        "the device has no program, which `builders` does not say"
    );
    match loss {
        Loss::OptedOut => mflow::write("devices", &format!("-{VETH}"))?,
        Loss::Deleted => topology::ip(&format!("link del {VETH}"))?,
        Loss::Moved => topology::ip(&format!("link set {VETH} netns {ELSEWHERE}"))?,
        Loss::Knob => mflow::write("build", "nic")?,
        Loss::Unloaded => mflow::unload()?,
    }
    ensure!(!ours.exists(), "{} stays", ours.display());
    if loss != Loss::Unloaded {
        let builders = mflow::read("builders")?;
        ensure!(!builders.contains(VETH), "`builders` says {builders}");
    }
    let namespace = (loss == Loss::Moved).then_some(ELSEWHERE);
    if loss != Loss::Deleted {
        command::wait_until("its program is taken off", || Ok(!has_program(namespace)?))?;
        topology::ip_in(namespace, &format!("link del {VETH}"))?;
    }
    if loss == Loss::Knob {
        mflow::write("build", "lane")?;
    }
    Ok(())
}

/// Tells whether the veth has an XDP program.
fn has_program(namespace: Option<&str>) -> Result<bool> {
    let link = netns::run(namespace, &format!("ip link show {VETH}"))?;
    Ok(link.contains("xdp"))
}

/// Waits until the driver says so of a queue of the NIC.
fn until_built_by(builder: &str) -> Result<()> {
    until_builders(&format!("eth0 {builder} "))
}

fn until_builders(expected: &str) -> Result<()> {
    command::wait_until(&format!("`builders` says {expected}"), || {
        Ok(mflow::read("builders")?.contains(expected))
    })
}

/// Returns whether a device's driver leaves the building of packets to lanes.
pub(super) fn leaves_building(device: &str) -> Result<bool> {
    let link = format!("/sys/class/net/{device}/device/driver");
    let driver = fs::read_link(&link).context(link)?;
    let name = driver.file_name().and_then(|name| name.to_str());
    Ok(name.is_some_and(|name| DRIVERS.contains(&name)))
}

fn napi(rig: &Rig) -> Result<Option<Outcome>> {
    let knobs = Knobs {
        build: "lane",
        ..Knobs::of(2, 16).eager()
    };
    rig.prepare(&rig.datagrams(), &knobs)?;
    let client = SocketAddr::from((Family::V4.client(), NAPI_PORT));
    // A bridge, and a veth, write something else to where packets have the number.
    let host = SocketAddr::from((topology::end_of_tunnel()?, NAPI_PORT));
    // Of a socket that is connected the last packet counts, else the first.
    let reader = connected(host, client)?;
    let sender = netns::within(CLIENT, || connected(client, host))?;
    reader.set_read_timeout(Some(NAPI_WAIT))?;
    mflow::write("enabled", "0")?;
    let whole = numbers(&sender, &reader)?;
    mflow::write("enabled", "1")?;
    let before = mflow::flows_split()?;
    command::wait_until("the flow is split", || {
        numbers(&sender, &reader)?;
        Ok(mflow::flows_split()? > before)
    })?;
    let carried = || -> Result<u64> { mflow::Stats::read()?.get("lane_pkts") };
    let carried_before = carried()?;
    let split = numbers(&sender, &reader)?;
    let carried = carried()? - carried_before;
    ensure!(
        carried >= NAPI_PKTS as u64 / 2,
        "lanes carried {carried} of {NAPI_PKTS} datagrams"
    );
    ensure!(
        whole == split && whole.len() == 1 && !whole.contains(&0),
        "a socket learns of the NAPIs {split:?}, and of {whole:?} with enabled 0"
    );
    rig.settle()?;
    Ok(None)
}

pub(super) fn connected(own: SocketAddr, peer: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(own)?;
    socket.connect(peer)?;
    Ok(socket)
}

/// Sends datagrams, and returns of which NAPIs their reader learns.
fn numbers(sender: &UdpSocket, reader: &UdpSocket) -> Result<BTreeSet<u32>> {
    let mut numbers = BTreeSet::new();
    let mut bytes = [0; 16];
    for _ in 0..NAPI_PKTS / NAPI_BURST {
        for _ in 0..NAPI_BURST {
            sender.send(&bytes)?;
        }
        for _ in 0..NAPI_BURST {
            reader.recv(&mut bytes).context("a datagram is missing")?;
            numbers.insert(sockopt::napi_number(reader)?);
        }
    }
    Ok(numbers)
}
