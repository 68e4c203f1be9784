// SPDX-License-Identifier: GPL-2.0

//! TCP streams of `iperf3`, as many as the case has flows.

use std::thread;

use anyhow::{ensure, Result};
use mflow_protocol::bench::{Case, End, PORT};

use super::{app_endpoint, counters, stack, window, AppEndpoint, SETTLE};
use crate::machine::command::{self, Program};
use crate::machine::{cpu, proc_net};
use crate::mflow;
use crate::network::topology::CLIENT;

/// Measures a case. Each client has a server, all on the application's CPU; the clients are behind the other NIC.
pub(super) fn measure(case: &Case, flows: u16, bytes: usize) -> Result<End> {
    stack::prepare(&case.stack, "eth0")?;
    let AppEndpoint {
        namespace, address, ..
    } = app_endpoint(&case.stack);
    let before = mflow::flows_split()?;
    let mut programs = Vec::new();
    for (port, sender) in (PORT..PORT + flows).zip(cpu::SENDERS.into_iter().cycle()) {
        let server = Program::start(namespace, cpu::READER, &format!("iperf3 -s -p {port}"))?;
        programs.push(proc_net::until_listens(server, namespace, port)?);
        programs.push(Program::start(
            Some(CLIENT),
            sender,
            &format!("iperf3 -c {address} -p {port} -l {bytes} -t 3600"),
        )?);
    }
    let start_packets = counters::nic_packets()?;
    command::wait_until("segments arrive", || {
        Ok(counters::nic_packets()? > start_packets + 1000)
    })?;
    stack::wait_split(&case.stack, u64::from(flows), before)?;
    thread::sleep(SETTLE);
    window::measure(case, || counters::stream(counters::nic_packets))?;
    for program in &mut programs {
        let ended = program.ended()?;
        ensure!(ended.is_none(), "an iperf3 program has ended: {ended:?}");
    }
    Ok(End::default())
}
