// SPDX-License-Identifier: GPL-2.0

//! The module's netlink family: it has what debugfs has, says in its answers what is allowed, is for root in the first network namespace
//! alone, and tells of flows that begin to be split, or stop.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{bail, ensure, Context as _, Result};
use mflow_protocol::network::VXLAN_PORT;
use nix::errno::Errno;

use crate::cases::operation::reasons::{FlowLive as _, LIMIT};
use crate::cases::{Case, Run};
use crate::flows::Flow;
use crate::machine::{command, cpu};
use crate::mflow::{self, Knobs, Stats};
use crate::mflow_family::{Change, Family, Refusal};
use crate::network::netns;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;

/// Knobs with the text that is written, and the text that is read back.
const GOOD: &[(&str, &str, &str)] = &[
    ("enabled", "0", "0"),
    ("enabled", "1\n", "1"),
    ("cpus", "2,3,4,5", "2-5"),
    ("cpus", "", ""),
    ("cpus", "auto", "auto"),
    ("cpus", "2-3", "2-3"),
    ("batch_pkts", "4096", "4096"),
    ("layout", "lane", "lane"),
    ("devices", "-eth0", ""),
    ("devices", "+eth0", "eth0"),
];

/// Names with the text that is written, the error, and the sentence.
const BAD: &[(&str, &str, Errno, &str)] = &[
    (
        "batch_pkts",
        "0",
        Errno::ERANGE,
        "batch_pkts: allowed 1 to 4096 packets",
    ),
    (
        "enabled",
        "yes",
        Errno::EINVAL,
        "enabled: allowed 0 (off) or 1 (on)",
    ),
    (
        "layout",
        "lane+stage",
        Errno::EINVAL,
        "layout lane+stage goes with load_threshold_pct 0 only",
    ),
    (
        "devices",
        "+nosuch0",
        Errno::ENODEV,
        "devices: there is no nosuch0 here to add or remove",
    ),
    ("stats", "0", Errno::EPERM, "stats: can only be read"),
    ("reset", "2", Errno::EINVAL, "reset: allowed 1"),
];

const NO_SUCH_FILE: &str = "name: allowed enabled, cpus, batch_pkts, merge_timeout_us, min_flow_pps, scaling, build, join, layout, mode, \
                            stages, load_threshold_pct, devices, builders, flows, lanes, stats, reset or version";

/// The user who has no rights, and a network namespace that is not the first one.
const NOBODY: u32 = 65_534;
const ELSEWHERE: &str = "elsewhere";
/// UDP's number.
const UDP: u32 = 17;

pub(crate) fn cases() -> Vec<Case> {
    let without_traffic = |name: &str, proves: &str, run: fn() -> Result<()>| {
        Case::of_module(name, proves, Run::Always, move |rig| {
            rig.prepare(&rig.datagrams(), &Knobs::default())?;
            run().map(|()| None)
        })
    };
    vec![
        without_traffic(
            "netlink/files",
            "over netlink, each file reads as in debugfs, and what is written to one way is read by the other; the module stays while an answer is not read, and who has joined its group before it was there hears nothing",
            files,
        ),
        without_traffic(
            "netlink/refused",
            "what is refused over netlink changes nothing, and the answer has the sentence that says what is allowed; other users and other network namespaces are refused",
            refused,
        ),
        Case::of_module(
            "netlink/changes",
            "those who listen are told when a flow begins to be split and when it stops, with the reason",
            Run::Always,
            changes,
        ),
    ]
}

/// Finds the family, which has to be there.
pub(super) fn open() -> Result<Family> {
    match Family::open()? {
        Ok(family) => Ok(family),
        Err(refusal) => bail!("there is no family: {refusal:?}"),
    }
}

/// Returns the text of a file, which has to be given.
pub(super) fn read(family: &Family, name: &str) -> Result<String> {
    match family.get(name)? {
        Ok(text) => Ok(text),
        Err(refusal) => bail!("{name} is not given: {refusal:?}"),
    }
}

fn files() -> Result<()> {
    let family = open()?;
    let names = NO_SUCH_FILE.trim_start_matches("name: allowed ");
    let names = names.split(", ").flat_map(|part| part.split(" or "));
    for name in names.filter(|name| *name != "reset") {
        let (here, there) = (read(&family, name)?, mflow::read(name)?);
        // Counters go on.
        let comparable = |text: &str| match name {
            "stats" => names_of(text),
            _ => text.to_owned(),
        };
        ensure!(
            comparable(&here) == comparable(&there) && !(name == "stats" && here.is_empty()),
            "{name} reads {here:?} over netlink, and {there:?} in debugfs"
        );
    }
    for &(name, text, expected) in GOOD {
        if let Err(refusal) = family.set(name, text)? {
            bail!("{name} does not take {text:?}: {refusal:?}");
        }
        let found = mflow::read(name)?;
        ensure!(
            found.trim_end() == expected,
            "after {text:?} over netlink, {name} reads {found:?} in debugfs"
        );
    }
    mflow::write("batch_pkts", "77")?;
    let found = read(&family, "batch_pkts")?;
    ensure!(
        found == "77\n",
        "after 77 in debugfs, netlink reads {found:?}"
    );
    let asked = open()?;
    asked.begin_get("stats")?;
    ensure!(
        command::run("rmmod mflow").is_err(),
        "the module has gone while its answer is given"
    );
    drop(asked);
    // A socket that listens is no reason to stay.
    family.listen()?;
    mflow::unload()?;
    let refusal = family.get("stats")?.err();
    ensure!(
        refusal
            .as_ref()
            .is_some_and(|one| one.errno == Errno::ENOENT),
        "without the module the family says {refusal:?}"
    );
    // Nobody is asked for rights who joins a group that no family has, and the family gets the same one again.
    family.listen()?;
    ensure!(
        family.is_listening()?,
        "the group of a family that is gone can't be joined"
    );
    mflow::load(&Knobs::default())?;
    ensure!(
        !family.is_listening()?,
        "a socket that has joined before listens to flows"
    );
    Ok(())
}

/// Returns the names of counters.
fn names_of(stats: &str) -> String {
    let names = stats.lines().filter_map(|line| line.split(' ').next());
    names.collect::<Vec<_>>().join("\n")
}

fn refused() -> Result<()> {
    mflow::write("load_threshold_pct", "85")?;
    let family = open()?;
    let absent = cpu::online().to_string();
    let offline = format!("cpus: CPU {absent} is not online; allowed are online CPUs");
    let more = ("cpus", absent.as_str(), Errno::ERANGE, offline.as_str());
    for (name, value, errno, sentence) in BAD.iter().copied().chain([more]) {
        let before = mflow::read(name)?;
        let expected = Refusal {
            errno,
            said: Some(sentence.to_owned()),
        };
        let found = family.set(name, value)?.err();
        ensure!(
            found.as_ref() == Some(&expected),
            "{name} {value} has the answer {found:?}, and not {expected:?}"
        );
        let after = mflow::read(name)?;
        ensure!(
            name == "stats" || after == before,
            "{name} is refused, but went from {before:?} to {after:?}"
        );
    }
    let expected = Some(Refusal {
        errno: Errno::ENOENT,
        said: Some(NO_SUCH_FILE.to_owned()),
    });
    let found = [family.get("speed")?.err(), family.set("speed", "1")?.err()];
    ensure!(
        found.iter().all(|one| *one == expected),
        "a name that is none has the answers {found:?}"
    );
    let before = mflow::read("batch_pkts")?;
    refused_elsewhere(&family)?;
    refused_to_others()?;
    let after = mflow::read("batch_pkts")?;
    ensure!(
        after == before,
        "refused users have changed {before:?} to {after:?}"
    );
    // The one who may is not refused.
    read(&family, "batch_pkts").map(drop)
}

/// Checks that there is nothing to be asked in another network namespace, not even with the number of the family.
fn refused_elsewhere(family: &Family) -> Result<()> {
    netns::add(ELSEWHERE)?;
    let found = || -> Result<[Option<Errno>; 3]> {
        let beside = family.in_namespace(ELSEWHERE)?;
        let errno = |refusal: Refusal| refusal.errno;
        Ok([
            netns::within(ELSEWHERE, Family::open)?.err().map(errno),
            beside.get("batch_pkts")?.err().map(errno),
            beside.set("batch_pkts", "64")?.err().map(errno),
        ])
    };
    let found = found();
    netns::delete(ELSEWHERE)?;
    let found = found?;
    ensure!(
        found == [Some(Errno::ENOENT); 3],
        "in another network namespace there is {found:?}"
    );
    Ok(())
}

/// Checks that a user without rights can neither read nor write, nor listen.
fn refused_to_others() -> Result<()> {
    let ask = |user: u32| -> Result<String> {
        let mut own = Command::new("/proc/self/exe");
        own.args(["family", "batch_pkts"]).uid(user).gid(user);
        let output = own.output().context("cannot run this program")?;
        ensure!(
            output.status.success(),
            "this program says {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    };
    let found = ask(NOBODY)?;
    let expected = format!("{}\n", Errno::EPERM).repeat(3);
    ensure!(
        found == expected,
        "a user without rights reads, writes and listens with: {found}"
    );
    // Root is refused the empty number alone, by which nothing changes.
    let found = ask(0)?;
    let expected = format!("taken\n{}\ntaken\n", Errno::EINVAL);
    ensure!(
        found == expected,
        "root reads, writes and listens with: {found}"
    );
    Ok(())
}

fn changes(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::default();
    let mut heard = None;
    rig.unnoticed(&rig.datagrams(), &knobs, |live| {
        let is_split = |flow: &Flow| flow.text("state") == "split";
        let flow = live.wait_for_flow("the flow is split", is_split)?;
        let family = open()?;
        family.listen()?;
        mflow::write("enabled", "0")?;
        let change = change_of(&family, &flow, false)?;
        ensure!(
            change.text("reason")? == "switched_off" && !change.text("words")?.is_empty(),
            "after enabled 0: {change:?}"
        );
        mflow::write("enabled", "1")?;
        let change = change_of(&family, &flow, true)?;
        ensure!(!change.has("reason"), "after enabled 1: {change:?}");
        ensure!(
            change.end("to")?.ends_with(&format!(":{VXLAN_PORT}"))
                && change.number("protocol")? == UDP
                && change.text("device")? == knobs.device
                && !change.has("lost"),
            "the change is of another flow: {change:?}"
        );
        heard = Some((family, flow));
        Ok(())
    })?
    .judge(|_| {
        let (family, flow) = heard.context("nobody has listened")?;
        // It has no packets any more: its source tells of it at its end.
        mflow::write("enabled", "0")?;
        let change = change_of(&family, &flow, false)?;
        let reason = change.text("reason")?;
        ensure!(
            ["silent", "slow", "switched_off"].contains(&reason.as_str()),
            "after the last packet: {change:?}"
        );
        let lost = Stats::read()?.get("lost_notifications")?;
        ensure!(lost == 0, "{lost} changes were not told");
        Ok(())
    })
}

/// Waits until it is told that a flow begins to be split, or stops. Others may do so beside it.
fn change_of(family: &Family, flow: &Flow, begins: bool) -> Result<Change> {
    loop {
        let change = family.next_change(LIMIT)?;
        if change.end("from")? == flow.text("from") && change.is_begin()? == begins {
            return Ok(change);
        }
    }
}
