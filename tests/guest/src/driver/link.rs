// SPDX-License-Identifier: GPL-2.0

//! Two cards with a wire between them: one here, the other in a namespace, so that traffic really crosses the wire.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use serde_json::Value;

use crate::command::{self, Program};
use crate::{netns, topology, verdict};

/// The namespace of the other card.
pub(super) const PEER: &str = "peer";
/// The address of the card here.
pub(super) const HERE: &str = "10.9.0.1";
/// The address of the other one.
const THERE: &str = "10.9.0.2";
/// Where the server of a load generator runs.
const SERVER_CPU: usize = 5;
const CLIENT_CPU: usize = 6;

/// What came out of a load generator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Bits that arrived.
    pub(super) bits_per_s: f64,
    /// UDP: datagrams sent and lost.
    pub(super) packets: u64,
    pub(super) lost: u64,
}

/// Loads the driver and brings both cards up.
pub(super) fn up() -> Result<()> {
    topology::load_driver()?;
    if !Path::new("/run/netns").join(PEER).exists() {
        topology::ip(None, &format!("netns add {PEER}"))?;
    }
    topology::ip(
        None,
        &format!(
            "link set eth1 netns {PEER}
             link set eth0 up
             addr add {HERE}/24 dev eth0"
        ),
    )?;
    topology::ip(
        Some(PEER),
        &format!("link set lo up\nlink set eth1 up\naddr add {THERE}/24 dev eth1"),
    )?;
    wait_carrier(true)
}

/// Unloads the driver, whatever state it is in.
pub(super) fn unload() -> Result<()> {
    if Path::new("/sys/module/mlx5_core").exists() {
        command::run("rmmod mlx5_core")?;
    }
    ensure!(
        !Path::new("/sys/class/net/eth0").exists(),
        "eth0 is still there without its driver"
    );
    Ok(())
}

/// Waits until both cards have a link, or the card here has none.
pub(super) fn wait_carrier(on: bool) -> Result<()> {
    let carrier = |path: &str| -> Result<bool> {
        // Of an interface that is down, it cannot be read.
        Ok(fs::read_to_string(path).is_ok_and(|text| text.trim() == "1"))
    };
    command::wait_until("the link changes", || {
        let here = carrier("/sys/class/net/eth0/carrier")?;
        // The sysfs of a namespace is that of who mounted it.
        let there = command::run(&format!("ip -n {PEER} link show eth1"))?.contains("LOWER_UP");
        Ok(if on { here && there } else { !here })
    })
}

/// Sends echo requests; all must come back.
pub(super) fn ping(count: usize, bytes: usize) -> Result<()> {
    let said = command::run(&format!(
        "ip netns exec {PEER} ping -n -q -i 0.02 -W 2 -c {count} -s {bytes} {HERE}"
    ))?;
    ensure!(
        said.contains(" 0% packet loss"),
        "echoes are missing: {said}"
    );
    Ok(())
}

/// Runs a load generator for a while: the other card sends to the one here.
pub(super) fn load(seconds: usize, options: &str) -> Result<Load> {
    load_to(HERE, seconds, options)
}

/// Runs a load generator that sends to one of our addresses.
pub(super) fn load_to(address: &str, seconds: usize, options: &str) -> Result<Load> {
    let _server = Program::start(None, SERVER_CPU, "iperf3 --server --one-off")?;
    command::wait_until("iperf3 listens", || {
        let table = fs::read_to_string("/proc/net/tcp6").unwrap_or_default()
            + &fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        // Port 5201, listening.
        Ok(table
            .lines()
            .any(|line| line.contains(":1451 ") && line.contains(" 0A ")))
    })?;
    let said = command::run(&format!(
        "ip netns exec {PEER} taskset -c {CLIENT_CPU} iperf3 --json --client {address} --time {seconds} {options}"
    ))?;
    let report: Value = serde_json::from_str(&said).context("iperf3's report")?;
    let end = &report["end"];
    let sum = if end["sum_received"].is_object() && !options.contains("--udp") {
        &end["sum_received"]
    } else {
        &end["sum"]
    };
    let bits_per_s = sum["bits_per_second"]
        .as_f64()
        .with_context(|| format!("iperf3 says no rate: {said}"))?;
    ensure!(bits_per_s > 0.0, "nothing arrived: {said}");
    Ok(Load {
        bits_per_s,
        packets: sum["packets"].as_u64().unwrap_or(0),
        lost: sum["lost_packets"].as_u64().unwrap_or(0),
    })
}

/// Starts a load that goes on until it is dropped.
pub(super) fn endless_load() -> Result<[Program; 2]> {
    let server = Program::start(None, SERVER_CPU, "iperf3 --server")?;
    thread::sleep(Duration::from_millis(500));
    let client = Program::start(
        Some(PEER),
        CLIENT_CPU,
        &format!("iperf3 --client {HERE} --time 600 --udp --bitrate 40M --length 200"),
    )?;
    let before = counters("eth0")?;
    command::wait_until("the load arrives", || {
        let now = counters("eth0")?;
        Ok(now["rx_packets"] > before["rx_packets"] + 1_000)
    })?;
    Ok([server, client])
}

/// Returns the counters of a card, as `ethtool` shows them; `eth1` is the other one.
pub(super) fn counters(device: &str) -> Result<BTreeMap<String, u64>> {
    let line = format!("ethtool -S {device}");
    let said = if device == "eth1" {
        netns::within(PEER, || command::run(&line))?
    } else {
        command::run(&line)?
    };
    Ok(said
        .lines()
        .filter_map(|line| {
            let (name, value) = line.trim().split_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect())
}

/// Tells the host to make a card misbehave: `0 link down`. What it does is to be waited for.
pub(super) fn order(order: &str) {
    verdict::say("card", &order);
}
