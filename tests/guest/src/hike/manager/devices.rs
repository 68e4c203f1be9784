// SPDX-License-Identifier: GPL-2.0

//! Devices that come and go beside a daemon.

use anyhow::{ensure, Result};
use mflow_hike::Hook;

use super::daemon::{Daemon, Place};
use crate::hike::network::{Network, INGRESS};
use crate::hike::Case;
use crate::machine::command::wait_until;
use crate::network::topology;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "manager/devices",
        proves: "a device that goes and comes again does what is configured for it, at both hooks; the file of a host's start waits for its devices",
        run: |_| {
            come_and_go(Hook::Xdp)?;
            come_and_go(Hook::Tcx)
        },
    }]
}

fn configuration(hook: Hook) -> String {
    let hook = match hook {
        Hook::Xdp => "xdp",
        Hook::Tcx => "tcx",
    };
    format!(
        r#"
hook = "{hook}"
devices = ["one"]
ports = ["two"]

[chains]
out = "fw-table"

[classes]
"2001:db8::/32" = {{ chain = "out" }}

[routes]
"2001:db8::/32" = {{ port = "two", next-hop = "02:00:00:00:00:02" }}

[kernel-routes]
way = {{ destination = "2001:db8:1::/48", device = "two", sids = ["fc00::1"] }}
"#
    )
}

fn ip(lines: &str) -> Result<()> {
    topology::ip_in(INGRESS, lines)
}

fn come_and_go(hook: Hook) -> Result<()> {
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let wanted = configuration(hook);
    place.write_file(&wanted)?;
    let daemon = place.start()?;
    let said = daemon.apply_refused(&wanted)?;
    let expected = "hike: there is no device one; there are ";
    ensure!(said.starts_with(expected), "it says `{said}`");
    ip("link add one type veth peer name one-peer\nlink set one up")?;
    ensure!(
        daemon.ask("show devices")? == serde_json::json!([]),
        "half a file was applied"
    );
    ip("link add two type veth peer name two-peer\nlink set two up")?;
    whole(&daemon, &wanted, "the devices of the file are there")?;
    // Tables have two's number, which is another one then.
    ip("link del two")?;
    let gone = daemon.diff(&wanted)?;
    let gone: Vec<[&str; 2]> = gone
        .iter()
        .map(|one| [one[0].as_str(), one[1].as_str()])
        .collect();
    ensure!(
        gone.contains(&["port", "two"]) && gone.contains(&["kernel-route", "way"]),
        "without two, {gone:?} differs"
    );
    ip("link del one\nlink add two type veth peer name two-peer\nlink set two up")?;
    ip("link add one type veth peer name one-peer")?;
    whole(&daemon, &wanted, "both devices are there again")?;
    // The kernel forgets routes of a device that is down.
    ip("link set two down")?;
    wait_until("the kernel's route is gone", || {
        Ok(!daemon.diff(&wanted)?.is_empty())
    })?;
    ip("link set two up")?;
    whole(&daemon, &wanted, "two is up again")?;
    // It need not have been there meanwhile.
    daemon.stop()?;
    ip("link del one\nlink add one type veth peer name one-peer")?;
    let daemon = place.start()?;
    whole(&daemon, &wanted, "hiked is there again")?;
    daemon.stop()
}

fn whole(daemon: &Daemon<'_>, wanted: &str, when: &str) -> Result<()> {
    wait_until(when, || Ok(daemon.diff(wanted)?.is_empty()))
}
