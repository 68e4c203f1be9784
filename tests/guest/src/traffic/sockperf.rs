// SPDX-License-Identifier: GPL-2.0

//! Traffic as operators make it: sockperf clients, flat out, into one sockperf server in the container.

use std::thread;
use std::time::Duration;

use anyhow::{ensure, Result};
use mflow_protocol::guest::Sockperf;

use crate::machine::command::{self, Program};
use crate::machine::{cpu, proc_net};
use crate::mflow;
use crate::network::topology::{Family, CLIENT, CONTAINER};
use crate::traffic::Mark;

pub(crate) const CLIENTS: usize = 3;
const BYTES: usize = 16;
/// The port sockperf takes by itself.
const PORT: u16 = 11_111;
/// From then until the measurement begins.
const SETTLE: Duration = Duration::from_millis(500);
/// Longer than any measurement: the clients are ended, they do not end.
const CLIENT_SECONDS: u64 = 3600;

/// Measures for `time`; with the module loaded, only once all flows are split.
pub(crate) fn measure(time: Duration) -> Result<Sockperf> {
    let before = mflow::flows_split()?;
    let container = Family::V4.container();
    let _server = Program::start(
        Some(CONTAINER),
        cpu::READER,
        &format!("sockperf server -i {container} --buffer-size 16777216"),
    )?;
    command::wait_until("the sockperf server listens", || {
        proc_net::is_bound(Some(CONTAINER), PORT)
    })?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Program::start(
            Some(CLIENT),
            cpu::SENDER,
            &format!(
                "sockperf throughput -i {container} -m {BYTES} -t {CLIENT_SECONDS} --mps max --no-rdtsc"
            ),
        )?);
    }
    command::wait_until("messages arrive", || Ok(udp("InDatagrams")? > 1_000))?;
    if mflow::loaded() {
        mflow::wait_split_since(before, CLIENTS as u64)?;
    }
    thread::sleep(SETTLE);

    let mark = Mark::set()?;
    let messages = udp("InDatagrams")?;
    thread::sleep(time);
    let seconds = mark.time.elapsed().as_secs_f64();
    let messages = udp("InDatagrams")? - messages;
    let counted = mark.outcome()?;
    for client in &mut clients {
        let ended = client.ended()?;
        ensure!(ended.is_none(), "a sockperf client has ended: {ended:?}");
    }
    Ok(Sockperf {
        // CAST: messages per second.
        messages_per_s: (messages as f64 / seconds) as u64,
        seconds,
        softnet_pkts: counted.softnet_pkts,
        mflow: counted.mflow,
    })
}

/// Returns one of the container's UDP counters.
fn udp(name: &str) -> Result<u64> {
    proc_net::counter(Some(CONTAINER), "Udp", name)
}
