// SPDX-License-Identifier: GPL-2.0

//! tcpdump: another program that gets copies of all packets of a device.

use anyhow::Result;

use crate::machine::command::{self, Program};
use crate::machine::proc_net;

/// Starts to capture on a device of a namespace, or of the caller's; returns when packets are copied.
pub(crate) fn start(namespace: Option<&str>, device: &str, cpu: usize) -> Result<Program> {
    let before = proc_net::packet_sockets(namespace)?;
    let capture = Program::start(
        namespace,
        cpu,
        &format!("tcpdump -Z root -i {device} -s 64 -w /dev/null"),
    )?;
    command::wait_until("tcpdump watches", || {
        Ok(proc_net::packet_sockets(namespace)? > before)
    })?;
    Ok(capture)
}
