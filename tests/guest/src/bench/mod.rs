// SPDX-License-Identifier: GPL-2.0

//! Benchmarks: sets up what the host ordered, keeps it loaded, and marks windows in which the host's plug-in counts.

mod sink;
mod stack;
mod window;

use std::fs;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::bench::{Case, Frames, Load, Stack, PORT};
use mflow_protocol::network;

use self::sink::Sink;
use crate::command::{self, Program};
use crate::mflow;
use crate::rig::Rig;
use crate::topology::{self, Family, CLIENT, CONTAINER};
use crate::{cpu, netns, verdict};

/// From the first packet until the first window: caches, the scheduler and the flow table have settled by then.
const SETTLE: Duration = Duration::from_millis(1500);
/// Packets that may be on their way for each lane: more than the NIC's ring and less than a lane's, so that a lane that is
/// kept from running by a busy host does not make the NIC core do its work.
const CREDIT_PKTS: u64 = 6_144;

/// Options of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What to measure: a JSON list of cases.
    cases: String,
}

/// Runs `bench`: exits 0 if every case could be measured.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let cases: Vec<Case> = serde_json::from_str(&options.cases).context("no list of cases")?;
    topology::up(Family::V4)?;
    Rig::wait_ready(Family::V4)?;
    cpu::pin(cpu::SENDER)?;
    let mut all_good = true;
    for case in &cases {
        // The other cases can be measured all the same.
        if let Err(error) = measure(case) {
            verdict::say("error", &format!("{error:#}"));
            all_good = false;
        }
    }
    mflow::unload()?;
    Ok(if all_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn measure(case: &Case) -> Result<()> {
    mflow::unload()?;
    topology::up(Family::V4)?;
    let measured = match case.load {
        Load::Frames { flows, bytes } => frames(case, flows, bytes),
        Load::Iperf3 { flows, bytes } => iperf3(case, flows, bytes),
    };
    // Also after a failure.
    let removed = stack::remove(&case.stack);
    measured.and(removed)
}

/// The load is ready-made frames; the application is [`Sink`].
fn frames(case: &Case, flows: u16, bytes: usize) -> Result<()> {
    let nic_mac = topology::feed_up()?;
    stack::prepare(&case.stack, topology::FEED)?;
    let overlay = case.stack != Stack::Native;
    let (namespace, address, mtu) = if overlay {
        (Some(CONTAINER), network::CONTAINER, network::OVERLAY_MTU)
    } else {
        (None, network::SERVER_HOST, network::WIRE_MTU)
    };
    let before = mflow::flows_split()?;
    let sink = Sink::start(namespace, SocketAddr::from((address, PORT)), flows, bytes)?;
    let per_datagram = Family::V4.frames(bytes, mtu) as u64;
    let load = Load::Frames { flows, bytes };
    verdict::say(
        "load",
        &Some(Frames {
            nic_mac,
            overlay,
            flows,
            bytes,
            credit: (credit_pkts(&case.stack) / per_datagram).max(u64::from(flows)),
        }),
    );
    let measured = (|| {
        command::wait_until("frames arrive", || Ok(sink.counts().delivered > 100))?;
        stack::wait_split(&case.stack, u64::from(flows), before)?;
        thread::sleep(SETTLE);
        window::measure(case, || {
            let counts = sink.counts();
            Ok(window::Counts {
                packets: counts.delivered * per_datagram,
                ..counts
            })
        })
        .with_context(|| format!("{:?} {load:?}", case.stack))
    })();
    verdict::say("load", &None::<Frames>);
    sink.stop()?;
    measured
}

fn credit_pkts(stack: &Stack) -> u64 {
    match stack {
        // Twice as much keeps any number of lanes busy.
        Stack::Mflow { lanes, .. } => CREDIT_PKTS * (*lanes).clamp(1, 2) as u64,
        _ => CREDIT_PKTS,
    }
}

/// The load is `iperf3` clients behind the other NIC; each has a server, all on the application's CPU.
fn iperf3(case: &Case, flows: u16, bytes: usize) -> Result<()> {
    stack::prepare(&case.stack, "eth0")?;
    let overlay = case.stack != Stack::Native;
    let (namespace, address) = if overlay {
        (Some(CONTAINER), network::CONTAINER)
    } else {
        (None, network::SERVER_HOST)
    };
    let before = mflow::flows_split()?;
    let mut programs = Vec::new();
    for flow in 0..flows {
        let port = PORT + flow;
        programs.push(Program::start(
            namespace,
            cpu::READER,
            &format!("iperf3 -s -p {port}"),
        )?);
        command::wait_until("the iperf3 server listens", || listens(namespace, port))?;
        programs.push(Program::start(
            Some(CLIENT),
            cpu::SENDER,
            &format!("iperf3 -c {address} -p {port} -l {bytes} -t 3600"),
        )?);
    }
    let start_packets = nic_packets()?;
    command::wait_until("segments arrive", || {
        Ok(nic_packets()? > start_packets + 1000)
    })?;
    stack::wait_split(&case.stack, u64::from(flows), before)?;
    thread::sleep(SETTLE);
    window::measure(case, || {
        let packets = nic_packets()?;
        Ok(window::Counts {
            delivered: packets,
            packets,
            lost: retransmitted()?,
            reordered: 0,
        })
    })?;
    for program in &mut programs {
        let ended = program.ended()?;
        ensure!(ended.is_none(), "an iperf3 program has ended: {ended:?}");
    }
    Ok(())
}

fn listens(namespace: Option<&str>, port: u16) -> Result<bool> {
    // `0A`: a socket that listens.
    let wanted = format!(":{port:04X} ");
    let read = || {
        let mut found = false;
        for file in ["tcp", "tcp6"] {
            let text = fs::read_to_string(format!("/proc/thread-self/net/{file}"))?;
            found |= text
                .lines()
                .any(|line| line.contains(&wanted) && line.contains(" 0A "));
        }
        Ok(found)
    };
    match namespace {
        Some(name) => netns::within(name, read),
        None => read(),
    }
}

/// Packets that the server's NIC has received.
fn nic_packets() -> Result<u64> {
    let path = "/sys/class/net/eth0/statistics/rx_packets";
    let text = fs::read_to_string(path).context(path)?;
    text.trim().parse().context(path)
}

/// Segments that the client has sent again.
fn retransmitted() -> Result<u64> {
    let text = netns::within(CLIENT, || {
        fs::read_to_string("/proc/thread-self/net/snmp").context("/proc/net/snmp")
    })?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = lines
        .next()
        .zip(lines.next())
        .context("/proc/net/snmp has no line Tcp")?;
    names
        .split(' ')
        .zip(values.split(' '))
        .find(|(name, _)| *name == "RetransSegs")
        .and_then(|(_, value)| value.parse().ok())
        .context("/proc/net/snmp has no RetransSegs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_is_the_one_frames_are_made_for() {
        assert_eq!(Family::V4.container(), network::CONTAINER);
        assert_eq!(Family::V4.client(), network::CLIENT);
        assert_eq!(Family::V4.overlay_mtu(), network::OVERLAY_MTU);
    }
}
