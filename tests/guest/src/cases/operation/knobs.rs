// SPDX-License-Identifier: GPL-2.0

//! The knobs in debugfs: what they take, what they refuse and with which error, and that a refusal changes nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{bail, ensure, Context as _, Result};
use nix::errno::Errno;

use crate::cases::{Case, Run};
use crate::machine::{command, cpu};
use crate::mflow::{self, Knobs, Stats};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::rig::Rig;
use crate::traffic::Load as _;

/// Knobs with the text that is written, and the text that is read back.
const GOOD: &[(&str, &str, &str)] = &[
    ("enabled", "0", "0"),
    ("enabled", "1\n", "1"),
    ("cpus", "2-3", "2-3"),
    ("cpus", "5,3,2", "2-3,5"),
    ("cpus", " 4 \n", "4"),
    ("cpus", "2,3,4,5", "2-5"),
    ("cpus", "auto\n", "auto"),
    ("cpus", "3", "3"),
    ("cpus", "\n", ""),
    ("batch_pkts", "1", "1"),
    ("batch_pkts", "4096", "4096"),
    ("merge_timeout_us", "10", "10"),
    ("merge_timeout_us", "1000000", "1000000"),
    ("min_flow_pps", "1", "1"),
    ("min_flow_pps", "10000000", "10000000"),
    ("scaling", "device\n", "device"),
    ("scaling", "path", "path"),
    ("build", "lane\n", "lane"),
    ("build", "nic", "nic"),
    ("build", "auto", "auto"),
    ("join", "0\n", "0"),
    ("join", "1", "1"),
    ("layout", "lane+stage\n", "lane+stage"),
    ("layout", "lane", "lane"),
    ("mode", "mflow", "mflow"),
    ("stages", "nic+veth", "nic+veth"),
    ("stages", "nic+tunnel+veth", "nic+tunnel+veth"),
    ("load_threshold_pct", "100", "100"),
    ("load_threshold_pct", "0\n", "0"),
    ("devices", "-eth0", ""),
    ("devices", "+eth0", "eth0"),
];

/// The same of what takes our patches, without which it is refused; and what it is set back to.
const GOOD_IF_PATCHED: &[(&str, &str, &str, &str)] = &[
    ("mode", "falcon-dev\n", "falcon-dev", "mflow"),
    ("mode", "falcon-func", "falcon-func", "mflow"),
];

/// Knobs with the text that is written, and the error that it must cause.
const BAD: &[(&str, &str, Errno)] = &[
    ("enabled", "2", Errno::ERANGE),
    ("enabled", "yes", Errno::EINVAL),
    ("enabled", "\n", Errno::EINVAL),
    ("cpus", "2-", Errno::EINVAL),
    ("cpus", "3-2", Errno::EINVAL),
    ("cpus", "2,,3", Errno::EINVAL),
    ("cpus", "two", Errno::EINVAL),
    ("cpus", "auto,2", Errno::EINVAL),
    ("cpus", "automatic", Errno::EINVAL),
    ("cpus", "100000", Errno::ERANGE),
    ("batch_pkts", "0", Errno::ERANGE),
    ("batch_pkts", "4097", Errno::ERANGE),
    ("batch_pkts", "99999999999999999999", Errno::ERANGE),
    ("batch_pkts", "-1", Errno::EINVAL),
    ("batch_pkts", "16x", Errno::EINVAL),
    ("batch_pkts", "1 6", Errno::EINVAL),
    ("merge_timeout_us", "9", Errno::ERANGE),
    ("merge_timeout_us", "1000001", Errno::ERANGE),
    ("merge_timeout_us", "0x10", Errno::EINVAL),
    ("min_flow_pps", "0", Errno::ERANGE),
    ("min_flow_pps", "10000001", Errno::ERANGE),
    ("scaling", "host", Errno::EINVAL),
    ("scaling", "\n", Errno::EINVAL),
    ("build", "lanes", Errno::EINVAL),
    ("join", "2", Errno::ERANGE),
    ("layout", "stage", Errno::EINVAL),
    ("mode", "falcon", Errno::EINVAL),
    ("stages", "veth", Errno::EINVAL),
    ("load_threshold_pct", "101", Errno::ERANGE),
    ("load_threshold_pct", "85%", Errno::EINVAL),
    ("devices", "+nosuch0", Errno::ENODEV),
    ("devices", "eth0", Errno::EINVAL),
    ("devices", "+", Errno::EINVAL),
    ("devices", "+name-longer-than-15", Errno::EINVAL),
];

const MODES: &[(&str, u32)] = &[
    ("enabled", 0o600),
    ("cpus", 0o600),
    ("batch_pkts", 0o600),
    ("merge_timeout_us", 0o600),
    ("min_flow_pps", 0o600),
    ("scaling", 0o600),
    ("build", 0o600),
    ("join", 0o600),
    ("layout", 0o600),
    ("mode", 0o600),
    ("stages", 0o600),
    ("load_threshold_pct", 0o600),
    ("devices", 0o600),
    ("builders", 0o444),
    ("flows", 0o400),
    ("lanes", 0o444),
    ("stats", 0o444),
    ("version", 0o444),
];

/// Knobs with the text that is written, one after the other, and the reason why no flow is split then.
const WHY_NONE: [(&str, &str, &str); 5] = [
    ("devices", "-eth0", "no_devices"),
    ("cpus", "\n", "no_lanes"),
    ("build", "auto", "no_lanes"),
    ("mode", "falcon-dev", "other_mode"),
    ("enabled", "0", "not_enabled"),
];

/// Parameters the module must refuse to load with.
const BAD_PARAMETERS: &[&str] = &[
    "batch_pkts=0",
    "batch_pkts=many",
    "cpus=2-",
    "cpus=63",
    "cpus=auto,2",
    "merge_timeout_us=1000001",
    "scaling=none",
    "build=none",
    "layout=none",
    "layout=lane+stage mode=falcon-dev",
    "layout=lane+stage cpus=2-4",
    "layout=lane+stage build=nic",
    "mode=none",
    "stages=none",
    "load_threshold_pct=101",
];

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, proves: &str, run: fn(&Rig) -> Result<()>| {
        Case::of_module(name, proves, Run::Always, move |rig| {
            rig.prepare(&rig.datagrams(), &Knobs::default())?;
            run(rig).map(|()| None)
        })
    };
    vec![
        case(
            "knobs/good",
            "good values are taken and read back in one form",
            |_| good(),
        ),
        case(
            "knobs/bad",
            "bad values are refused with the right error and change nothing",
            |_| bad(),
        ),
        case(
            "knobs/cpus",
            "offline and impossible CPUs are refused",
            |_| offline_cpus(),
        ),
        case(
            "knobs/files",
            "the files are there, with the right modes",
            |_| files(),
        ),
        case(
            "knobs/parameters",
            "the module refuses to load with bad values",
            |_| parameters(),
        ),
        case("knobs/reset", "reset sets every counter to 0", reset),
    ]
}

fn good() -> Result<()> {
    for &(name, text, expected) in GOOD {
        takes(name, text, expected)?;
    }
    for &(name, text, expected, other) in GOOD_IF_PATCHED {
        if mflow::is_patched()? {
            takes(name, text, expected)?;
            takes(name, other, other)?;
        } else {
            refuses(name, text, &[Errno::EINVAL])?;
        }
    }
    Ok(())
}

/// Checks that what is written is taken, and reads as expected.
fn takes(name: &str, text: &str, expected: &str) -> Result<()> {
    mflow::write(name, text)?;
    let found = mflow::read(name)?;
    ensure!(
        found.trim_end() == expected,
        "after writing {text:?}, {name} reads {found:?} instead of {expected:?}"
    );
    Ok(())
}

fn bad() -> Result<()> {
    for &(name, text, expected) in BAD {
        refuses(name, text, &[expected])?;
    }
    Ok(())
}

/// Checks that a write fails with one of these errors and leaves the value alone.
pub(crate) fn refuses(name: &str, text: &str, expected: &[Errno]) -> Result<()> {
    let before = mflow::read(name)?;
    match mflow::try_write(name, text) {
        Ok(()) => bail!("{name} took {text:?}"),
        Err(error) => {
            let found = Errno::from_raw(error.raw_os_error().unwrap_or(0));
            ensure!(
                expected.contains(&found),
                "{name} refused {text:?} with {found}, expected was one of {expected:?}"
            );
        }
    }
    let after = mflow::read(name)?;
    ensure!(
        after == before,
        "{name} refused {text:?}, but went from {before:?} to {after:?}"
    );
    Ok(())
}

fn offline_cpus() -> Result<()> {
    let absent = cpu::online().to_string();
    refuses("cpus", &absent, &[Errno::ERANGE])?;
    refuses("cpus", &format!("2,{absent}"), &[Errno::ERANGE])?;
    let lane = cpu::LANES[3];
    cpu::set_online(lane, false)?;
    let refused = refuses("cpus", &lane.to_string(), &[Errno::ERANGE]);
    cpu::set_online(lane, true)?;
    refused?;
    mflow::write("cpus", &lane.to_string())
}

fn files() -> Result<()> {
    for &(name, expected) in MODES {
        let path = mflow::path(name);
        let data = fs::metadata(&path).with_context(|| path.display().to_string())?;
        let found = data.permissions().mode() & 0o7777;
        ensure!(
            found == expected,
            "{name} has mode {found:o}, not {expected:o}"
        );
    }
    let reset = fs::metadata(mflow::path("reset"))?.permissions().mode() & 0o777;
    ensure!(
        reset & 0o177 == 0,
        "reset has mode {reset:o}: others may use it"
    );
    ensure!(
        !mflow::read("version")?.trim().is_empty(),
        "version is empty"
    );
    ensure!(
        mflow::read("flows")?.is_empty(),
        "flows lists flows without any traffic"
    );
    let is_patched = mflow::is_patched()?;
    // Without our patches there is one mode.
    let whys = WHY_NONE
        .iter()
        .filter(|(name, _, _)| is_patched || *name != "mode");
    for (name, value, reason) in whys {
        mflow::write(name, value)?;
        let flows = mflow::read("flows")?;
        ensure!(
            flows.starts_with(&format!("none split reason {reason} # "))
                && flows.lines().count() == 1,
            "after writing {value:?} to {name}, flows reads {flows:?}"
        );
    }
    Ok(())
}

fn parameters() -> Result<()> {
    mflow::unload()?;
    for parameter in BAD_PARAMETERS {
        let result = command::run(&format!("modprobe mflow {parameter}"));
        let loaded = mflow::loaded();
        mflow::unload()?;
        ensure!(
            result.is_err() && !loaded,
            "the module loads with {parameter}"
        );
    }
    Ok(())
}

fn reset(rig: &Rig) -> Result<()> {
    Datagrams::measure(&rig.plan(), |_| Ok(()))?;
    rig.settle()?;
    ensure!(
        Stats::read()?.get("merged_pkts")? > 0,
        "nothing was counted in the first place"
    );
    mflow::write("reset", "1")?;
    let left = Stats::read()?.nonzero();
    // The flow that has just ended may be counted after the reset.
    let left: Vec<_> = left
        .iter()
        .filter(|name| *name != "flows_stopped")
        .collect();
    ensure!(left.is_empty(), "after reset these are not 0: {left:?}");
    Ok(())
}
