// SPDX-License-Identifier: GPL-2.0

//! Benchmarks: sets up what the host ordered, keeps it loaded, and marks windows in which the host's plug-in counts.

mod counters;
mod events;
mod frames;
mod hike_front;
mod iperf3;
mod latency;
mod requests;
mod router;
mod sink;
mod stack;
mod stream;
mod tuned;
mod window;

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::bench::{Case, End, Load, Stack};
use mflow_protocol::guest::Message;
use mflow_protocol::network;

use crate::machine::cpu;
use crate::network::topology::{self, Family, CONTAINER};
use crate::traffic::rig::Rig;
use crate::{mflow, verdict};

/// From the first packet until the first window: caches, the scheduler and the flow table have settled by then.
const SETTLE: Duration = Duration::from_millis(1500);
/// The time that a load generator and the flows that it makes may take to get going.
const START: Duration = Duration::from_secs(8);

/// Options of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The cases to measure, as a JSON list.
    cases: String,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let cases: Vec<Case> = serde_json::from_str(&options.cases).context("no list of cases")?;
    window::kernel_symbols()?;
    topology::up(Family::V4)?;
    Rig::wait_ready(Family::V4)?;
    cpu::pin(cpu::SENDER)?;
    for case in &cases {
        match measure(case) {
            Ok(end) => verdict::say(&Message::End(end)),
            Err(error) => {
                verdict::say(&Message::Error(format!("{error:#}")));
                // The other cases are measured in another guest.
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    mflow::unload()?;
    Ok(ExitCode::SUCCESS)
}

fn measure(case: &Case) -> Result<End> {
    ensure!(
        case.front.is_none() || matches!(case.load, Load::Stream { .. }),
        "only a stream comes to a NIC with HIKE in front of a stack, and no {:?}",
        case.load
    );
    mflow::unload()?;
    topology::up(Family::V4)?;
    let tasks = stack::Tasks::start(&case.stack);
    stack::attach(&case.stack, device(&case.load))?;
    let end = match case.load {
        Load::Frames {
            flows,
            bytes,
            reading,
        } => frames::measure(case, flows, bytes, reading),
        Load::Forwarded { packets, flows } => router::measure(case, packets, flows),
        Load::Stream { bytes } => stream::measure(case, bytes),
        Load::Iperf3 { flows, bytes } => iperf3::measure(case, flows, bytes),
        Load::Sockperf {
            transport,
            clients,
            bytes,
            pace,
        } => {
            let load = latency::Messages {
                transport,
                clients,
                bytes,
                pace,
            };
            latency::measure(case, load)
        }
        Load::Requests {
            server,
            clients,
            bytes,
        } => requests::measure(case, server, clients, bytes),
    }?;
    tasks.stop()?;
    stack::remove(&case.stack, device(&case.load))?;
    Ok(end)
}

/// Returns the device by which packets of a load come in.
fn device(load: &Load) -> &'static str {
    match load {
        Load::Frames { .. } | Load::Forwarded { .. } | Load::Stream { .. } => topology::FEED,
        Load::Iperf3 { .. } | Load::Sockperf { .. } | Load::Requests { .. } => "eth0",
    }
}

struct AppEndpoint {
    /// `None`: the first one.
    namespace: Option<&'static str>,
    address: Ipv4Addr,
    mtu: usize,
}

fn app_endpoint(stack: &Stack) -> AppEndpoint {
    if stack.has_overlay() {
        AppEndpoint {
            namespace: Some(CONTAINER),
            address: network::CONTAINER,
            mtu: network::OVERLAY_MTU,
        }
    } else {
        AppEndpoint {
            namespace: None,
            address: network::SERVER_HOST,
            mtu: network::WIRE_MTU,
        }
    }
}

/// Returns for how many seconds a load generator has to run that prints what it has measured when it ends by itself.
fn seconds(case: &Case) -> u64 {
    let windows = Duration::from_millis(case.window_ms) * case.windows;
    (START + SETTLE + windows).as_secs() + 1
}
