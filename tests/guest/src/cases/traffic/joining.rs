// SPDX-License-Identifier: GPL-2.0

//! Lanes join frames only where the kernel's GRO would: not while GRO of the NIC is off, not while a generic XDP program is there, and into
//! no packet that is longer than the NIC's GRO may make.

use std::time::Duration;

use anyhow::{ensure, Result};

use crate::cases::operation::reload::switch;
use crate::cases::{Case, Run};
use crate::machine::command;
use crate::mflow::{self, Knobs, Stats};
use crate::network::bpf::{Xdp, XdpMode};
use crate::network::nft;
use crate::network::topology::{self, CONTAINER};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::tcp_counters::{noise, QUIET};
use crate::traffic::{Live, Load, STUCK};

/// The time for which traffic flows with splitting on, and off.
const PAUSE: Duration = Duration::from_millis(150);
/// Frames that have to join before a change, and behind it.
const JOINED_FRAMES: u64 = 1_024;
/// The same where streams take turns: few of their segments come behind each other on a slow host.
const SOME_FRAMES: u64 = 64;
/// Frames that may join behind a change that ends that: those of polls that were under way.
const UNDER_WAY_FRAMES: u64 = 256;
/// The most frames in which enough have to join. A lane that has joined nothing gives GRO no packet for 8,192 packets.
const MOST_FRAMES: u64 = 1 << 16;
/// Longer packets that have to come where they may be longer.
const LONG_PKTS: u64 = 64;
/// Longer packets that may come behind the change: one of each core that was about to join one.
const UNDER_WAY_PKTS: u64 = 8;
/// The length of packets below which the NIC's GRO has to stay, and the kernel's default.
const SHORT_BYTES: u32 = 16_384;
const USUAL_BYTES: u32 = 65_536;
/// A counter of longer packets. Their lengths begin with the container's own header.
const LONG: &str = "
table inet mflow {
    counter long { }
    chain before {
        type filter hook prerouting priority raw;
        meta length > 16384 counter name long
    }
}
";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = come_and_go::<Datagrams>();
    cases.extend(come_and_go::<Streams>());
    cases.push(Case::of_module(
        "tcp/join/max-size",
        "while the NIC's gro_max_size is 16384, a stream's segments join into no longer packets: before and afterwards they do",
        Run::Plain,
        max_size,
    ));
    cases
}

/// Returns the cases of what keeps frames from joining.
fn come_and_go<L: Load>() -> Vec<Case> {
    let case = |name: &str, what: &str, run: fn(&Rig) -> Result<Outcome>| {
        Case::of_module(
            format!("{}join/{name}", L::GROUP),
            format!(
                "frames of a {} join, but for the time in which {what}, and all of it comes in order",
                L::FLOW
            ),
            Run::Plain,
            run,
        )
    };
    vec![
        case("gro-off", "GRO of the NIC is off", gro_off::<L>),
        case(
            "generic-xdp",
            "a generic XDP program is on the NIC",
            generic_xdp::<L>,
        )
        // The kernel writes a call of the program into its own code.
        .patching_code(),
    ]
}

/// Returns knobs with which as many frames join as can. Each lane finds out by itself that GRO joins packets again, so there is one.
fn knobs() -> Knobs {
    Knobs {
        build: "lane",
        ..Knobs::of(1, 64)
    }
}

fn gro_off<L: Load>(rig: &Rig) -> Result<Outcome> {
    let measured = rig.measure(&rig.plan::<L>(), &knobs(), |live| {
        let frames = until_joined(live)?;
        set_gro("off")?;
        none_joins(live, frames)?;
        set_gro("on")?;
        until_joined(live).map(drop)
    });
    // Also after a failure: the NIC stays for the cases that follow.
    set_gro("on")?;
    measured?.judge(|outcome| require_few_overtaken::<L>(rig, outcome))
}

fn set_gro(word: &str) -> Result<()> {
    let outcome = command::run(&format!("ethtool -K eth0 gro {word}"));
    // On an unpatched kernel it stays off at the NIC as long as splitting is on, which `ethtool` calls an error.
    if word == "on" && !mflow::is_patched()? {
        return Ok(());
    }
    outcome.map(drop)
}

fn generic_xdp<L: Load>(rig: &Rig) -> Result<Outcome> {
    rig.measure(&rig.plan::<L>(), &knobs(), |live| {
        let frames = until_joined(live)?;
        let program = Xdp::attach("eth0", XdpMode::Generic)?;
        none_joins(live, frames)?;
        drop(program);
        // A list that was put together for the program has told that its flow is to have none until its next probe.
        switch(live, "enabled", "1", "0", PAUSE)?;
        until_joined(live).map(drop)
    })?
    .judge(|outcome| require_few_overtaken::<L>(rig, outcome))
}

/// Fails if anything was lost, or out of order but for what the kernel's GRO itself lets pass.
///
/// Where GRO of a device ends in the middle of a poll, a segment that comes then passes those that GRO still holds, with the module or
/// without. The sender may take these for lost. A lane has datagrams wait for what GRO holds.
fn require_few_overtaken<L: Load>(rig: &Rig, outcome: &Outcome) -> Result<()> {
    L::require_whole(outcome)?;
    if L::GROUP.is_empty() {
        L::require_order(outcome)?;
    }
    for name in QUIET {
        let count = noise(&outcome.tcp, name);
        ensure!(
            count <= UNDER_WAY_FRAMES,
            "{name} grew by {count}: more than polls that were under way have"
        );
    }
    outcome.require_no_deadline()?;
    rig.settle()
}

/// Lets packets be long, then short, and then long again.
fn max_size(rig: &Rig) -> Result<Outcome> {
    let plan = rig.streams();
    rig.prepare(&plan, &knobs())?;
    nft::add(CONTAINER, LONG)?;
    let measured = Streams::measure(&plan, |live| {
        let frames = until_long(live)?;
        set_max_size(SHORT_BYTES)?;
        let before = (long_pkts()?, joined_frames()?);
        let_come(live, frames)?;
        let (long, joined) = (long_pkts()? - before.0, joined_frames()? - before.1);
        ensure!(
            long <= UNDER_WAY_PKTS,
            "among {frames} frames, {long} packets of more than {SHORT_BYTES} bytes came, which the NIC's GRO may not make"
        );
        ensure!(joined > 0, "none of {frames} frames has joined a packet");
        set_max_size(USUAL_BYTES)?;
        until_long(live).map(drop)
    });
    // Also after a failure: the NIC stays for the cases that follow.
    set_max_size(USUAL_BYTES)?;
    measured?.judge(|outcome| rig.require_unnoticed::<Streams>(outcome))
}

/// Sets the length below which GRO has to stay, of both families: on the NIC, and on the tunnel's end, whose own GRO has what no lane carries.
fn set_max_size(bytes: u32) -> Result<()> {
    topology::ip(&format!(
        "link set dev eth0 gro_max_size {bytes}\nlink set dev vxlan0 gro_max_size {bytes}"
    ))
}

fn joined_frames() -> Result<u64> {
    Stats::read()?.get("joined_pkts")
}

fn long_pkts() -> Result<u64> {
    Ok(nft::counted(CONTAINER, "long")?.pkts)
}

/// Waits until many frames have joined. Returns how many the NIC has received meanwhile.
fn until_joined(live: &impl Live) -> Result<u64> {
    until_grown(live, "frames join", JOINED_FRAMES, joined_frames)
}

/// Waits until some frames have joined.
pub(super) fn until_some_joined(live: &impl Live) -> Result<()> {
    until_grown(live, "frames join", SOME_FRAMES, joined_frames).map(drop)
}

/// Waits until long packets come. Returns how many frames the NIC has received meanwhile.
fn until_long(live: &impl Live) -> Result<u64> {
    until_grown(live, "long packets come", LONG_PKTS, long_pkts)
}

/// Waits until a count has grown by this much. Returns how many frames the NIC has received meanwhile.
fn until_grown(
    live: &impl Live,
    what: &str,
    enough: u64,
    count: impl Fn() -> Result<u64>,
) -> Result<u64> {
    let (received, before) = (topology::received_pkts("eth0")?, count()?);
    let mut frames = 0;
    live.wait_for(what, STUCK, || {
        let grown = count()? - before;
        frames = topology::received_pkts("eth0")? - received;
        ensure!(
            grown >= enough || frames < MOST_FRAMES,
            "until {what}: {grown} in {frames} frames, and {enough} are wanted"
        );
        Ok(grown >= enough)
    })?;
    Ok(frames)
}

/// Lets this many frames come, and fails if more of them join than were under way.
fn none_joins(live: &impl Live, frames: u64) -> Result<()> {
    let before = joined_frames()?;
    let_come(live, frames)?;
    let joined = joined_frames()? - before;
    ensure!(
        joined < UNDER_WAY_FRAMES,
        "{joined} frames have joined where {frames} came, and none may join; before, {JOINED_FRAMES} of as many have"
    );
    Ok(())
}

/// Waits until the NIC has received this many more frames.
fn let_come(live: &impl Live, frames: u64) -> Result<()> {
    let before = topology::received_pkts("eth0")?;
    live.wait_for("more frames have come", STUCK, || {
        Ok(topology::received_pkts("eth0")? >= before + frames)
    })
}
