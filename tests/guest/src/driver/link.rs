// SPDX-License-Identifier: GPL-2.0

//! Two cards with a wire between them: one here, the other in a namespace, so that traffic really crosses the wire.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::guest::Message;
use serde_json::Value;

use crate::machine::command::{self, Program};
use crate::machine::{page_pool, proc_net, threads};
use crate::network::{netns, topology};
use crate::verdict;

pub(super) const PEER: &str = "peer";
pub(super) const HERE: &str = "10.9.0.1";
const THERE: &str = "10.9.0.2";
const SERVER_CPU: usize = 5;
const CLIENT_CPU: usize = 6;

const LATE: Duration = Duration::from_secs(3);
const ECHOES_BACK: &str = "echoes back";
const IPERF3_PORT: u16 = 5201;

#[derive(Clone, Copy, Debug)]
pub(super) struct LoadReport {
    pub(super) bits_per_s: f64,
    /// UDP: datagrams sent and lost.
    pub(super) packets: u64,
    pub(super) lost: u64,
}

pub(super) fn up() -> Result<()> {
    // The cases are about packets that the cards lose. A receiver whose CPU was away would lose others: with this buffer it does
    // not.
    topology::sysctl("net/core/rmem_default", "16777216")?;
    topology::load_driver()?;
    netns::add(PEER)?;
    netns::within(PEER, forget_orphans)?;
    forget_orphans()?;
    topology::ip(&format!("link set eth1 netns {PEER}"))?;
    topology::ip_in(
        PEER,
        &format!("link set lo up\nlink set eth1 up\naddr add {THERE}/24 dev eth1"),
    )?;
    up_here()
}

/// Makes the calling thread's namespace give up a closed connection soon.
///
/// If both ends close at the same time and the link goes, each end keeps the other's last segment, and with it memory of the card,
/// for as long as it sends its own segment again: more than a minute.
fn forget_orphans() -> Result<()> {
    topology::sysctl("net/ipv4/tcp_orphan_retries", "1")
}

/// Brings up the card here, whose interface is a new one.
pub(super) fn up_here() -> Result<()> {
    topology::ip(&format!("link set eth0 up\naddr add {HERE}/24 dev eth0"))?;
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
    page_pool::wait_returned()
}

/// Waits until both cards have a link and use it, or the card here has none.
pub(super) fn wait_carrier(on: bool) -> Result<()> {
    let carrier = |path: &str| -> Result<bool> {
        // It cannot be read while the interface is down.
        Ok(fs::read_to_string(path).is_ok_and(|text| text.trim() == "1"))
    };
    command::wait_until("the link changes", || {
        let here = carrier("/sys/class/net/eth0/carrier")?;
        // A mounted sysfs shows the namespace it was mounted in.
        let there = command::run(&format!("ip -n {PEER} link show eth1"))?.contains("LOWER_UP");
        Ok(if on { here && there } else { !here })
    })?;
    if on {
        // The kernel drops what is to be sent until it has noticed the link, which may take a second.
        command::wait_until(
            "the link carries something",
            || Ok(ping_once(1, 56).is_ok()),
        )?;
    }
    Ok(())
}

/// Sends echo requests; all must come back.
///
/// After its first answer, ping waits for the last ones only as long as an answer takes, and an emulated CPU can be away for
/// longer. So the kernel's counts within a few seconds decide.
pub(super) fn ping(count: usize, bytes: usize) -> Result<()> {
    let both = || Ok::<_, anyhow::Error>([passed()?, netns::within(PEER, passed)?]);
    let before = both()?;
    let Err(said) = ping_once(count, bytes) else {
        return Ok(());
    };
    threads::until_ok(LATE, || {
        let mut added = both()?;
        for (now, before) in added.iter_mut().zip(&before) {
            for (name, count) in now {
                *count -= before[name];
            }
        }
        ensure!(
            added[1][ECHOES_BACK] == count as u64,
            "echoes are missing: {said:#}; here and there {added:?}; frames without buffer so far: {:?}",
            ["eth0", "eth1"].map(|device| without_buffer(device).ok())
        );
        Ok(())
    })
}

pub(super) fn ping_once(count: usize, bytes: usize) -> Result<()> {
    let said = netns::run(
        PEER,
        &format!("ping -n -q -i 0.02 -W 2 -c {count} -s {bytes} {HERE}"),
    )?;
    ensure!(said.contains(" 0% packet loss"), "{said}");
    Ok(())
}

/// Returns how many frames a card had no buffer for, with its queues open and closed.
fn without_buffer(device: &str) -> Result<[u64; 2]> {
    let counters = counters(device)?;
    Ok(["rx_out_of_buffer", "rx_if_down_packets"]
        .map(|name| counters.get(name).copied().unwrap_or(0)))
}

/// Returns the kernel's counts of one end, in the calling thread's namespace. They show how far a missing echo came.
fn passed() -> Result<BTreeMap<&'static str, u64>> {
    let devices = fs::read_to_string("/proc/thread-self/net/dev")?;
    let card = devices
        .lines()
        .find_map(|line| line.trim().strip_prefix("eth"))
        .context("no card in this namespace")?;
    let counts: Vec<u64> = card
        .split_whitespace()
        .skip(1)
        .map_while(|count| count.parse().ok())
        .collect();
    let count = |at: usize| counts.get(at).copied().unwrap_or(0);
    let kernel = |protocol, name| proc_net::counter(None, protocol, name);
    Ok(BTreeMap::from([
        ("received", count(1)),
        ("sent", count(9)),
        ("dropped", count(3) + count(11)),
        ("echoes asked", kernel("Icmp", "InEchos")?),
        ("echoes answered", kernel("Icmp", "OutEchoReps")?),
        (ECHOES_BACK, kernel("Icmp", "InEchoReps")?),
        ("bad ICMP", kernel("Icmp", "InErrors")?),
        ("bad headers", kernel("Ip", "InHdrErrors")?),
        ("discarded", kernel("Ip", "InDiscards")?),
    ]))
}

pub(super) fn load(seconds: usize, options: &str) -> Result<LoadReport> {
    load_to(HERE, seconds, options)
}

pub(super) fn load_to(address: &str, seconds: usize, options: &str) -> Result<LoadReport> {
    run_load(address, &format!("--time {seconds} {options}"))
}

pub(super) fn load_bytes(bytes: &str, options: &str) -> Result<LoadReport> {
    run_load(HERE, &format!("--bytes {bytes} {options}"))
}

fn run_load(address: &str, options: &str) -> Result<LoadReport> {
    let _server = serve("iperf3 --server --one-off")?;
    let said = netns::run(
        PEER,
        &format!("taskset -c {CLIENT_CPU} iperf3 --json --client {address} {options}"),
    )?;
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
    Ok(LoadReport {
        bits_per_s,
        packets: sum["packets"].as_u64().unwrap_or(0),
        lost: sum["lost_packets"].as_u64().unwrap_or(0),
    })
}

fn serve(line: &str) -> Result<Program> {
    let server = Program::start(None, SERVER_CPU, line)?;
    proc_net::until_listens(server, None, IPERF3_PORT)
}

/// Brings both cards up under a load that goes on until it is dropped: the other card sends to the one here.
pub(super) fn up_with_load() -> Result<[Program; 2]> {
    up()?;
    endless_load()
}

pub(super) fn endless_load() -> Result<[Program; 2]> {
    start_load("--bitrate 40M --length 200", "rx_packets")
}

/// Starts a load that goes on until it is dropped: the card here sends, more than fits into its queue.
pub(super) fn endless_sending() -> Result<[Program; 2]> {
    start_load(
        "--reverse --parallel 8 --bitrate 10M --length 1000",
        "tx_packets",
    )
}

fn start_load(options: &str, counter: &str) -> Result<[Program; 2]> {
    let server = serve("iperf3 --server")?;
    let client = Program::start(
        Some(PEER),
        CLIENT_CPU,
        &format!("iperf3 --client {HERE} --time 600 --udp {options}"),
    )?;
    let before = counters("eth0")?;
    command::wait_until("the load arrives", || {
        let now = counters("eth0")?;
        Ok(now[counter] > before[counter] + 1_000)
    })?;
    Ok([server, client])
}

pub(crate) fn channels() -> Result<u32> {
    let said = command::run("ethtool -l eth0")?;
    let mut lines = said.lines().rev();
    lines
        .find_map(|line| line.strip_prefix("Combined:")?.trim().parse().ok())
        .with_context(|| format!("no number of channels: {said}"))
}

/// Returns the counters of a card, as `ethtool` shows them; `eth1` is the other one.
pub(crate) fn counters(device: &str) -> Result<BTreeMap<String, u64>> {
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

/// Tells the host to make a card misbehave: `0 link down`. The caller has to wait for the effect.
pub(super) fn order(order: &str) {
    verdict::say(&Message::Card(order.to_owned()));
}
