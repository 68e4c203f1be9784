// SPDX-License-Identifier: GPL-2.0

//! tcpdump is started and stopped while traffic flows: its copies of packets must not disturb the originals.

use std::fs;
use std::process::Child;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use super::{Case, Run};
use crate::mflow::Knobs;
use crate::topology::CONTAINER;
use crate::{command, netns};

/// Every device a packet of the flow passes on the server, and the namespace it is in.
pub(super) const DEVICES: &[(Option<&str>, &str)] = &[
    (None, "eth0"),
    (None, "vxlan0"),
    (None, "br0"),
    (None, "veth0"),
    (Some(CONTAINER), "eth0"),
];

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    DEVICES
        .iter()
        .map(|&(namespace, device)| {
            let place = namespace.unwrap_or("host");
            let when = if device == "vxlan0" {
                Run::Always
            } else {
                Run::Plain
            };
            Case::of_traffic(
                format!("capture/{place}-{device}"),
                format!("tcpdump on {device} ({place}) comes and goes without loss or reordering"),
                when,
                move |rig| {
                    let _time_stamps = Background::start()?;
                    rig.strict(&rig.plan(), &Knobs::default(), |live| {
                        come_and_go(namespace, device, |time| live.flow_for(time))
                    })
                },
            )
        })
        .collect()
}

/// Starts and ends tcpdump while `flow_for` lets traffic flow.
pub(super) fn come_and_go(
    namespace: Option<&str>,
    device: &str,
    flow_for: impl Fn(Duration) -> Result<()>,
) -> Result<()> {
    let before = packet_sockets(namespace)?;
    for _ in 0..3 {
        let mut capture = start(namespace, device)?;
        let watched =
            command::wait_until(
                "tcpdump watches",
                || Ok(packet_sockets(namespace)? > before),
            );
        if watched.is_err() {
            capture.kill()?;
        }
        watched?;
        flow_for(Duration::from_millis(400))?;
        let ended = capture.try_wait()?;
        ensure!(ended.is_none(), "tcpdump has ended by itself: {ended:?}");
        capture.kill()?;
        capture.wait()?;
        flow_for(Duration::from_millis(100))?;
    }
    Ok(())
}

/// Returns how many sockets look at packets of a namespace.
fn packet_sockets(namespace: Option<&str>) -> Result<usize> {
    let count = || {
        let path = "/proc/thread-self/net/packet";
        let table = fs::read_to_string(path).context(path)?;
        Ok(table.lines().count())
    };
    match namespace {
        Some(name) => netns::within(name, count),
        None => count(),
    }
}

fn start(namespace: Option<&str>, device: &str) -> Result<Child> {
    let prefix = namespace.map_or(String::new(), |name| format!("ip netns exec {name} "));
    command::start(&format!(
        "{prefix}tcpdump -Z root -i {device} -s 64 -w /dev/null"
    ))
}

/// A capture of something else for as long as a case lasts.
///
/// The first one in the system switches time stamps on, which patches the kernel's code: that shall not happen under load.
pub(super) struct Background(Child);

impl Background {
    pub(super) fn start() -> Result<Self> {
        let before = packet_sockets(None)?;
        let capture = Self(start(None, "lo")?);
        command::wait_until("tcpdump watches", || Ok(packet_sockets(None)? > before))?;
        // The kernel switches in the background.
        thread::sleep(Duration::from_millis(500));
        Ok(capture)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _already_ended = self.0.kill();
        let _already_ended = self.0.wait();
    }
}
