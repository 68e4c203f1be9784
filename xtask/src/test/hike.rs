// SPDX-License-Identifier: GPL-2.0

//! The tests of HIKE. In a guest, its programs are held against a model of each, and the kernel's segment routing is the peer. A
//! second guest has the distribution's kernel. On this machine's own kernel, the programs are held against the model again, with many
//! more frames. That needs no network, and takes seconds.

use std::fs;
use std::process::Command;

use anyhow::{ensure, Result};
use mflow_protocol::guest::SEED;

use super::guests::draw;
use super::stock::NO_DEBIAN;
use super::vm::{run_each, GuestCases};
use super::{Ctx, Outcome};
use crate::kernel::{distribution, Flavor};
use crate::module;
use crate::step::Step;
use crate::tools;
use crate::vm::{guest_program, Nic};

/// The part of the guest program that has the cases.
const HIKE: &str = "hike";
/// The cases that need a kernel which describes its own structures (BTF), by the beginning of their names. Ours do not, as the
/// description does not know Rust, so these cases run on the distribution's kernel.
const TRACED: &str = "traced/";
/// Those about the cache, which learns of changes otherwise there: they run on both kernels.
const OF_CACHE: &str = "cache/";
/// The case that runs on this machine.
const HERE: &str = "hike: the model on this machine's kernel";
/// The numbers of random frames in a full run, and in any other run on this machine. In the guest, any other run has the default
/// of the guest program.
const FRAMES_FULL: &str = "1000000";
const FRAMES_HERE: &str = "100000";
/// The first version of Linux that has tcx. Half of the cases hold frames at tcx against the model.
const TCX_SINCE: (u32, u32) = (6, 6);
/// The number of changes under packets in a full run.
const CHANGES_FULL: &str = "10000";

pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    let mut options = Vec::new();
    if ctx.full {
        options.extend(["--frames", FRAMES_FULL, "--changes", CHANGES_FULL]);
    }
    if !ctx.is_default() {
        options.push("--whole");
    }
    let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
    let mut outcome = Outcome::default();
    let of = |name, options: &[String], is_shown: &dyn Fn(&str) -> bool| -> Result<_> {
        let takes = draw::names(ctx, HIKE, options, is_shown)?;
        let guest = draw::guest(name, Flavor::Vm, Nic::Virtio, None);
        Ok(GuestCases {
            build: None,
            ..GuestCases::new(ctx, guest, HIKE, options.to_vec(), takes)
        })
    };
    let mut guests = vec![of(HIKE, &options, &|case| !case.starts_with(TRACED))?];
    let is_traced = |case: &str| case.starts_with(TRACED) || case.starts_with(OF_CACHE);
    let traced = of("hike-traced", &options, &is_traced)?;
    // Another boot for a case or two: it is drawn itself.
    let is_drawn = match &ctx.case {
        Some(text) => traced.takes.iter().any(|case| case.contains(text)),
        None => ctx.full || draw::is_odd(&ctx.seed, TRACED),
    };
    match tools::find("apt-cache") {
        _ if !is_drawn => {}
        Some(_) => guests.push(GuestCases {
            kernel: Some(module::beside(distribution::ensure()?)?),
            ..traced
        }),
        None => outcome.skip(TRACED, NO_DEBIAN),
    }
    outcome.add(run_each(ctx, &guests)?);
    if ctx.case.is_none() {
        match refusal()? {
            Some(reason) => outcome.skip(HERE, reason),
            None => outcome.record(HERE, run_here(ctx)),
        }
    }
    Ok(outcome)
}

/// Returns the reason if this machine cannot run the model's cases.
fn refusal() -> Result<Option<String>> {
    if !tools::is_root() {
        return Ok(Some("it takes root".to_owned()));
    }
    let release = tools::output(tools::command("uname").arg("-r"))?;
    if version_of(&release).is_none_or(|version| version < TCX_SINCE) {
        let (major, minor) = TCX_SINCE;
        return Ok(Some(format!(
            "this machine's kernel is older than Linux {major}.{minor}"
        )));
    }
    let trial = tools::output(&mut in_namespaces("true"));
    Ok(trial
        .is_err()
        .then(|| "this machine allows no namespaces of network and mounts, or no BPF".to_owned()))
}

/// Returns the first two numbers of a kernel's release.
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|end: char| !end.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

/// Returns a command that runs `command` in namespaces of its own. Everything that `command` makes ends with these namespaces.
fn in_namespaces(command: &str) -> Command {
    let mut unshare = tools::command("unshare");
    let script = format!("{SCRIPT}\n{command}");
    unshare.args(["--mount", "--net", "sh", "-euc", &script, "sh"]);
    unshare
}

/// The commands that set up what the guest program finds in a guest.
const SCRIPT: &str = "\
mount --make-rprivate /
mount -t tmpfs mflow /run
mkdir /run/netns
mount -t bpf mflow /sys/fs/bpf
ip link set lo up";

fn run_here(ctx: &Ctx) -> Result<()> {
    let frames = if ctx.full { FRAMES_FULL } else { FRAMES_HERE };
    let mut command = in_namespaces("exec \"$@\"");
    command.env(SEED, &ctx.seed).arg(guest_program()?);
    command.args([HIKE, "--filter", "model", "--frames", frames]);
    let title = format!(
        "hold {frames} frames against HIKE's model, at each hook, on this machine's kernel"
    );
    let log = Step::new(title, "hike-model")
        .hint("the log has the frame that came out wrong, and what `mflow-guest` has to be told to come to it again")
        .run(&mut command)?;
    let held = fs::read_to_string(&log)?.matches("\"error\":null").count();
    ensure!(
        held == 2,
        "{held} cases were held against the model instead of one for each hook; see {}",
        log.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_s_version_is_read() {
        assert_eq!(version_of("6.18.5-cloud-amd64\n"), Some((6, 18)));
        assert_eq!(version_of("7.0"), Some((7, 0)));
        assert_eq!(version_of("unknown"), None);
    }
}
