// SPDX-License-Identifier: GPL-2.0

//! The counts of what has arrived, for applications that do not count themselves.

use anyhow::Result;

use super::window::Counts;
use crate::machine::proc_net;
use crate::machine::softnet::Softnet;
use crate::network::topology::{self, CLIENT};

pub(super) fn nic_packets() -> Result<u64> {
    topology::received_pkts("eth0")
}

/// Returns the counts of TCP connections: lost is what the client has sent again.
pub(super) fn stream(delivered: impl Fn() -> Result<u64>) -> Result<Counts> {
    Ok(Counts {
        delivered: delivered()?,
        packets: nic_packets()?,
        lost: proc_net::counter(Some(CLIENT), "Tcp", "RetransSegs")?,
        ..Counts::default()
    })
}

/// Returns the counts of UDP sockets in a namespace: lost is what found a socket or a backlog full.
pub(super) fn datagrams(namespace: Option<&str>, packets_per_datagram: u64) -> Result<Counts> {
    let delivered = proc_net::counter(namespace, "Udp", "InDatagrams")?;
    Ok(Counts {
        delivered,
        packets: delivered * packets_per_datagram,
        lost: proc_net::counter(namespace, "Udp", "InErrors")? + Softnet::read()?.dropped,
        // Only the clients number their messages.
        ..Counts::default()
    })
}
