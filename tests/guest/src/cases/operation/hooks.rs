// SPDX-License-Identifier: GPL-2.0

//! The hooks that the module registers in the kernel's packet filter where the kernel lacks our hooks: they are there while
//! splitting is on, and only then. Packets come to them that the module's own devices never bring: those after a program's
//! verdict, and those that others have, too.

use std::time::Duration;

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::machine::{command, threads};
use crate::mflow::{self, Knobs, Stats};
use crate::network::nfqueue::Judge;
use crate::network::packet_socket::PacketSocket;
use crate::network::topology::{self, CONTAINER};
use crate::network::{netns, nft};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Live as _, Load as _};

/// The hook where packets are taken, that where they are merged, and those where such pass as are routed on, sent on by IPVS, or sent on
/// by a bridge.
const TAKES: &str = "mflow_ingress";
const MERGES: &str = "mflow_local_in";
const FORWARDS: &str = "mflow_forward";
const SENDS: &str = "mflow_local_out";
const BRIDGES: &str = "mflow_bridged";
/// One for IPv4, one for IPv6.
const FAMILIES: usize = 2;

/// Namespaces that begin while splitting is off, and while it is on.
const BEFORE: &str = "before";
const MEANWHILE: &str = "meanwhile";

/// The kernel has no more hooks in one place: `MAX_HOOK_COUNT` in net/netfilter/core.c.
const MOST_HOOKS: usize = 1024;
/// A namespace and a device that have this many, and a namespace that begins later, and so is given hooks first.
const FULL: &str = "full";
const FULL_DEVICE: &str = "full0";
const LATER: &str = "later";
/// A veth that is opted in, and its peer.
const VETH: &str = "opted0";
const PEER: &str = "opted1";

/// The container asks a program about every second packet when it comes to its end, so that some come from the program, and some from
/// lanes, to one socket at the same time.
const AT_END: &str = "
table ip mflow {
    chain end { type filter hook input priority 0; }
}
";
const ASKED: &str = "add rule ip mflow end udp dport 5001 numgen inc mod 2 == 0 queue num 0";
/// The share of the usual rate that is offered where each packet costs two system calls, and the time for which it is.
const ASKED_SHARE: f64 = 0.3;
const ASKED_FOR: Duration = Duration::from_millis(300);
const NOTICED_WITHIN: Duration = Duration::from_secs(20);

/// With frames of this size virtio has whole ones in memory that GRO can take over.
const TAKEN_MTU: usize = 1_100;
const TAP_BYTES: usize = 64 << 20;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "hooks/enabled",
            "hooks are there while splitting is on, in each namespace and at each device: no loss, no reordering",
            Run::Plain,
            enabled,
        )
        .patching_code(),
        Case::of_module(
            "hooks/full",
            "where the kernel takes no more hooks, splitting stays off, and there is none anywhere",
            Run::Plain,
            full,
        ),
        Case::of_module(
            "hooks/gro",
            "GRO of the NIC is off while splitting is on and there are lanes, and afterwards as the operator has wanted it last",
            Run::Plain,
            gro,
        )
        .patching_code(),
        Case::of_module(
            "hooks/veth-gro",
            "a veth with GRO, whose driver begins to poll with it, is opted in: the driver is told nothing twice, and GRO stays on",
            Run::Always,
            veth_gro,
        ),
        Case::of_module(
            "hooks/verdict",
            "packets of split flows come to the merge point from a program that was asked about them, while others of the same socket \
             come from lanes: none is lost, and the kernel finds no fault",
            Run::Always,
            verdict,
        ),
        Case::of_module(
            "tcp/hooks/clones",
            "a capture has packets of a split stream, and reads them when the stream has ended: it gets all, and the kernel finds no \
             memory that is used after it was freed",
            Run::Always,
            clones,
        ),
    ]
}

fn enabled(rig: &Rig) -> Result<Outcome> {
    let outcome = rig.unnoticed(&rig.datagrams(), &Knobs::default(), |live| {
        live.wait_split_since(0)?;
        require(&["eth0"], &[CONTAINER], true)?;
        mflow::write("devices", "+vxlan0")?;
        require(&["eth0", "vxlan0"], &[CONTAINER], true)?;

        mflow::write("enabled", "0")?;
        netns::add(BEFORE)?;
        require(&["eth0", "vxlan0"], &[CONTAINER, BEFORE], false)?;
        mflow::write("devices", "-vxlan0")?;

        let before = mflow::flows_split()?;
        mflow::write("enabled", "1")?;
        netns::add(MEANWHILE)?;
        require(&["eth0"], &[CONTAINER, BEFORE, MEANWHILE], true)?;
        require_hooks(Some("vxlan0"), None, TAKES, 0)?;
        live.wait_split_since(before)?;

        mflow::write("enabled", "0")?;
        require(&["eth0"], &[CONTAINER, BEFORE, MEANWHILE], false)
    });
    [BEFORE, MEANWHILE].into_iter().try_for_each(remove)?;
    outcome
}

/// Fails unless all of these have hooks of the module, or none of them has.
fn require(devices: &[&str], namespaces: &[&str], hooked: bool) -> Result<()> {
    for device in devices {
        require_hooks(Some(device), None, TAKES, usize::from(hooked))?;
    }
    let merging = if hooked { FAMILIES } else { 0 };
    let bridging = usize::from(hooked);
    for (function, wanted) in [
        (MERGES, merging),
        (FORWARDS, merging),
        (SENDS, merging),
        (BRIDGES, bridging),
    ] {
        require_hooks(None, None, function, wanted)?;
        for namespace in namespaces {
            require_hooks(None, Some(namespace), function, wanted)?;
        }
    }
    Ok(())
}

fn require_hooks(
    device: Option<&str>,
    namespace: Option<&str>,
    function: &str,
    wanted: usize,
) -> Result<()> {
    let hooks = nft::hooks(namespace, device)?;
    let found = hooks.matches(function).count();
    ensure!(
        found == wanted,
        "{function} is {found} hook(s) and not {wanted}, in the namespace {namespace:?} with the device {device:?}:\n{hooks}"
    );
    Ok(())
}

fn remove(namespace: &str) -> Result<()> {
    if netns::exists(namespace) {
        netns::delete(namespace)?;
    }
    Ok(())
}

fn full(rig: &Rig) -> Result<Outcome> {
    let (plan, knobs) = (rig.datagrams(), Knobs::default());
    rig.prepare(&plan, &knobs)?;
    let refused = refused();
    // Also after a failure.
    [FULL, LATER].into_iter().try_for_each(remove)?;
    command::run(&format!("ip link delete {FULL_DEVICE}"))?;
    refused?;

    mflow::write("enabled", "1")?;
    rig.settle()?;
    rig.strict(&plan, &knobs, |live| live.wait_split_since(0))
}

/// Opts a veth with GRO in, and has the kernel work out its features again at each step.
fn veth_gro(rig: &Rig) -> Result<Outcome> {
    let outcome = rig.unnoticed(&rig.datagrams(), &Knobs::default(), |live| {
        live.wait_split_since(0)?;
        command::run(&format!("ip link add {VETH} up type veth peer name {PEER}"))?;
        command::run(&format!("ip link set {PEER} up"))?;
        command::run(&format!("ethtool -K {VETH} gro on"))?;
        mflow::write("devices", &format!("+{VETH}"))?;
        for enabled in ["0", "1"] {
            for tso in ["off", "on"] {
                command::run(&format!("ethtool -K {VETH} tso {tso}"))?;
            }
            require_gro(VETH, "on")?;
            mflow::write("enabled", enabled)?;
        }
        mflow::write("devices", &format!("-{VETH}"))
    });
    let removed = command::run(&format!("ip link del {VETH}"));
    let outcome = outcome?;
    removed?;
    Ok(outcome)
}

/// Checks that splitting cannot be switched on where a hook has no place left.
fn refused() -> Result<()> {
    mflow::write("enabled", "0")?;
    command::run(&format!("ip link add {FULL_DEVICE} type dummy"))?;
    netns::add(FULL)?;
    netns::add(LATER)?;

    nft::add(FULL, &chains("ip", "input"))?;
    require_refusal()?;
    nft::flush(FULL)?;

    nft::add(
        None,
        &chains("netdev", &format!("ingress device {FULL_DEVICE}")),
    )?;
    mflow::write("devices", &format!("+{FULL_DEVICE}"))?;
    require_refusal()?;
    mflow::write("devices", &format!("-{FULL_DEVICE}"))?;
    nft::flush(None)
}

fn require_refusal() -> Result<()> {
    let error = mflow::try_write("enabled", "1").err();
    let code = error.as_ref().and_then(std::io::Error::raw_os_error);
    ensure!(
        code == Some(nix::libc::E2BIG),
        "enabled can be switched on where it cannot be, or fails otherwise: {error:?}"
    );
    let enabled = mflow::read("enabled")?;
    ensure!(enabled.trim() == "0", "enabled is {enabled:?} then");
    require_gro("eth0", "on")?;
    require(&["eth0"], &[CONTAINER, LATER], false)
}

/// Returns rules that take all of a hook's places.
fn chains(family: &str, hook: &str) -> String {
    let chain = |index| {
        format!("add chain {family} full c{index} {{ type filter hook {hook} priority 0; }}\n")
    };
    let chains: String = (0..MOST_HOOKS).map(chain).collect();
    format!("add table {family} full\n{chains}")
}

fn gro(rig: &Rig) -> Result<Outcome> {
    let measured = rig.measure(&rig.datagrams(), &Knobs::default(), |live| {
        live.wait_split_since(0)?;
        require_gro("eth0", "off [requested on]")?;
        want_gro("off")?;
        require_gro("eth0", "off")?;
        mflow::write("enabled", "0")?;
        require_gro("eth0", "off")?;

        let before = mflow::flows_split()?;
        mflow::write("enabled", "1")?;
        live.wait_split_since(before)?;
        want_gro("on")?;
        require_gro("eth0", "off [requested on]")?;

        let cpus = mflow::read("cpus")?;
        mflow::write("cpus", "\n")?;
        require_gro("eth0", "on")?;
        require(&["eth0"], &[CONTAINER], false)?;
        let before = mflow::flows_split()?;
        mflow::write("cpus", cpus.trim())?;
        live.wait_split_since(before)?;
        require_gro("eth0", "off [requested on]")?;
        mflow::write("enabled", "0")?;
        require_gro("eth0", "on")
    });
    // Also after a failure.
    want_gro("on")?;
    measured?.judge(|outcome| {
        outcome.require_whole()?;
        rig.settle()
    })
}

fn want_gro(state: &str) -> Result<()> {
    command::run(&format!("ethtool -K eth0 gro {state}")).map(drop)
}

fn require_gro(device: &str, state: &str) -> Result<()> {
    let features = command::run(&format!("ethtool --show-features {device}"))?;
    let line = format!("generic-receive-offload: {state}");
    ensure!(
        features.lines().any(|one| one == line),
        "{device} has no {line:?}:\n{features}"
    );
    Ok(())
}

fn verdict(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * ASKED_SHARE);
    plan.load.one_socket = true;
    plan.flows = 2;
    // The program runs on the CPU of one of the lanes.
    rig.prepare(&plan, &Knobs::of(4, 16).eager())?;
    nft::add(CONTAINER, AT_END)?;
    let judge = Judge::open()?;
    let (accepted, outcome) = threads::beside(
        |stop| judge.accept_all(stop),
        || {
            Datagrams::measure(&plan, |live| {
                let before = queueing_paths()?;
                nft::add(CONTAINER, ASKED)?;
                live.flow_for(ASKED_FOR)?;
                // On a slow host few packets come in that time, and few later than their lane expects them.
                live.wait_for("a path is seen to queue", NOTICED_WITHIN, || {
                    Ok(queueing_paths()? > before)
                })
            })
        },
    )?;
    outcome.judge(|outcome| {
        ensure!(accepted > 0, "the program was asked about no packet");
        outcome.require_whole()?;
        rig.settle()
    })
}

/// Returns how many paths of split flows were seen to queue packets, so far.
fn queueing_paths() -> Result<u64> {
    Stats::read()?.get("paths_async")
}

fn clones(rig: &Rig) -> Result<Outcome> {
    let (plan, knobs) = (rig.streams(), Knobs::default());
    rig.prepare(&plan, &knobs)?;
    topology::client_ip(&format!("link set vxlan0 mtu {TAKEN_MTU}"))?;
    let tap = PacketSocket::open_here("eth0")?;
    tap.make_room(TAP_BYTES)?;
    let outcome = Streams::measure(&plan, |_| Ok(()))?;
    let mut read = 0;
    while tap.next()?.is_some() {
        read += 1;
    }
    outcome.judge(|outcome| {
        ensure!(
            read >= outcome.frames,
            "the capture has {read} frames of {}",
            outcome.frames
        );
        rig.require_strict(&plan, &knobs, outcome)
    })
}
