// SPDX-License-Identifier: GPL-2.0

//! A fast stream to the receiving container: an elephant of TCP.

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use super::swarm::OF_SERVER;
use crate::hosts::elephant::{wait_fate, Fate};
use crate::machine::{cpu, proc_net, threads};
use crate::mflow::{self, Stats};
use crate::network::netns;
use crate::traffic::streams::connection::{read_to_end, write_until_on, End};
use crate::traffic::streams::verifier::ReadProgress;

/// Bytes that are read once the flow is as it is to be.
const BYTES: u64 = 6 << 20;
const STUCK: Duration = Duration::from_secs(60);
/// The receiver's buffer: what is under way fits into each queue of the way.
pub(super) const BUFFER_BYTES: usize = 128 << 10;
/// The counters of the receiving stack that stay when segments come in order, once each and as they were sent.
const QUIET: [(&str, &str, &str); 4] = [
    ("netstat", "TcpExt", "TCPOFOQueue"),
    ("netstat", "TcpExt", "TCPBacklogDrop"),
    ("netstat", "TcpExt", "TCPRcvQDrop"),
    ("snmp", "Tcp", "InCsumErrors"),
];

/// A stream that was sent.
#[derive(Debug)]
pub(super) struct Stream {
    /// Its sender as the receiver sees it.
    pub(super) from: SocketAddr,
    /// The receiver's own address.
    to: SocketAddr,
    written: u64,
    read: u64,
    ends: [End; 2],
    /// The growth of the counters that are to stay.
    disorder: BTreeMap<&'static str, u64>,
    /// Segments that the sender's stack has sent again, for whatever connection.
    again: u64,
    /// The growth of the module's counters from when the flow was as it is to be.
    counters: BTreeMap<String, i64>,
}

impl Stream {
    /// Sends one from a namespace to an address that leads to the listener, and checks each byte.
    pub(super) fn send(
        namespace: &str,
        to: SocketAddr,
        listener: &TcpListener,
        fate: Option<Fate>,
    ) -> Result<Self> {
        let client = netns::within(namespace, || {
            TcpStream::connect_timeout(&to, STUCK)
                .with_context(|| format!("cannot connect to {to}"))
        })?;
        let (server, from) = listener.accept().context("cannot accept")?;
        client.set_write_timeout(Some(STUCK))?;
        server.set_read_timeout(Some(STUCK))?;
        let (before, again) = (disorder()?, sent_again(namespace)?);
        let split_before = mflow::flows_split()?;
        let (stop, progress) = (AtomicBool::new(false), ReadProgress::default());
        let (written, read, counters) = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                // This CPU sends what acknowledgements let go. The devices of containers have a queue for each CPU.
                let written = write_until_on(cpu::CLIENT_NIC, &client, &stop);
                client.shutdown(Shutdown::Write)?;
                written
            });
            let reader = scope.spawn(|| read_to_end(&server, &progress));
            let counters = counted(&progress, split_before, fate);
            // Also after a failure.
            stop.store(true, Ordering::Relaxed);
            (
                threads::result(writer.join()),
                threads::result(reader.join()),
                counters,
            )
        });
        let (counters, (written, sent_end), (read, read_end)) = (counters?, written?, read?);
        let after = disorder()?.into_iter();
        Ok(Self {
            from,
            to: server.local_addr()?,
            written,
            read,
            ends: [sent_end, read_end],
            disorder: after
                .map(|(name, count)| (name, count - before[name]))
                .collect(),
            again: sent_again(namespace)? - again,
            counters,
        })
    }

    /// Fails unless all bytes have come to this address, in segments that were in order.
    pub(super) fn require(&self, to: SocketAddr) -> Result<()> {
        ensure!(
            self.ends == [End::Orderly; 2]
                && self.written == self.read
                && self.to == to
                && self.disorder.values().all(|&count| count == 0),
            "a stream to {to} has not come as it was sent, and the sender's stack has sent {} segments again: {self:?}",
            self.again
        );
        Ok(())
    }

    /// Fails unless the flow was as it is to be until the end.
    pub(super) fn require_fate(&self, fate: Fate) -> Result<()> {
        let count = |name: &str| self.counters.get(name).copied().unwrap_or(0);
        let carried = count("lane_pkts");
        let is_right = match fate {
            Fate::Split => carried > 0 && count("flows_stopped") == 0,
            Fate::Kept(_) => carried == 0,
            Fate::Either => true,
        };
        ensure!(
            is_right,
            "lanes carried {carried} packets of a stream that is to be {fate:?}: {self:?}"
        );
        Ok(())
    }
}

/// Waits until the flow is as it is to be, and until more has been read; returns the growth of the module's counters meanwhile.
fn counted(
    progress: &ReadProgress,
    split_before: u64,
    fate: Option<Fate>,
) -> Result<BTreeMap<String, i64>> {
    wait_fate(split_before, fate)?;
    let (mark, begin) = (Stats::read_if_loaded()?, progress.bytes());
    threads::until_ok(STUCK, || {
        let read = progress.bytes() - begin;
        ensure!(read >= BYTES, "only {read} of {BYTES} bytes are read");
        Ok(())
    })?;
    mflow::added_since(mark.as_ref())
}

fn disorder() -> Result<BTreeMap<&'static str, u64>> {
    let counters = QUIET.iter();
    counters
        .map(|&(file, protocol, name)| Ok((name, count(OF_SERVER, file, protocol, name)?)))
        .collect()
}

fn sent_again(namespace: &str) -> Result<u64> {
    count(namespace, "snmp", "Tcp", "RetransSegs")
}

fn count(namespace: &str, file: &str, protocol: &str, name: &str) -> Result<u64> {
    let text = proc_net::read(Some(namespace), file)?;
    let mut all = proc_net::counters(&text, protocol)?;
    let found = all.find(|(counter, _)| *counter == name);
    Ok(found.with_context(|| format!("{name} is not counted"))?.1)
}
