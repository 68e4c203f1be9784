// SPDX-License-Identifier: GPL-2.0

//! The receiving application in the container: one thread that reads every socket and records what arrives.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags};
use nix::sys::socket::{recvmmsg, setsockopt, sockopt, MsgFlags, MultiHeaders};

use crate::datagrams::ledger::Ledger;
use crate::datagrams::sender::now_ns;
use crate::outcome::Outcome;
use crate::{cpu, netns, threads, topology};
use mflow_protocol::datagram::{self, Head};

const BATCH: usize = 64;
/// How often the reader looks whether it shall stop.
const POLL_MS: u16 = 20;
/// Memory for datagrams the reader has not taken yet: about a second's worth.
const SOCKET_BYTES: usize = 48 << 20;

#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    pub(crate) flows: Vec<Ledger>,
    pub(crate) corrupt: u64,
    /// The longest time between two arrivals, since the last [`Receiver::mark`].
    pub(crate) longest_stall_ns: u64,
    /// The longest way from sender to receiver, since the last [`Receiver::mark`]; 0 if the datagrams are too short.
    pub(crate) longest_wait_ns: u64,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    marked: AtomicBool,
    arrivals: AtomicU64,
    last_arrival_ns: AtomicU64,
}

pub(crate) struct Receiver {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Received>>,
}

impl Receiver {
    /// Starts to receive `flows` flows of datagrams of `bytes` at `addresses`; returns when the sockets are bound.
    pub(crate) fn start(addresses: Vec<SocketAddr>, flows: u16, bytes: usize) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (thread, ()) = threads::start({
            let shared = Arc::clone(&shared);
            move |ready| {
                let mut reader = Reader {
                    received: Received {
                        flows: vec![Ledger::default(); usize::from(flows)],
                        ..Received::default()
                    },
                    shared: &shared,
                    previous_ns: None,
                };
                reader.run(&addresses, bytes, &ready)?;
                Ok(reader.received)
            }
        })?;
        Ok(Self { shared, thread })
    }

    /// Begins a new measurement of the longest stall and wait.
    pub(crate) fn mark(&self) {
        self.shared.marked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn arrivals(&self) -> u64 {
        self.shared.arrivals.load(Ordering::Relaxed)
    }

    pub(crate) fn last_arrival_ns(&self) -> u64 {
        self.shared.last_arrival_ns.load(Ordering::Relaxed)
    }

    /// Closes the sockets and returns what has arrived.
    pub(crate) fn stop(self) -> Result<Received> {
        self.shared.stop.store(true, Ordering::Relaxed);
        threads::result(self.thread.join())
    }
}

struct Reader<'a> {
    received: Received,
    shared: &'a Shared,
    previous_ns: Option<u64>,
}

impl Reader<'_> {
    fn run(
        &mut self,
        addresses: &[SocketAddr],
        bytes: usize,
        ready: &SyncSender<()>,
    ) -> Result<()> {
        cpu::pin(cpu::READER)?;
        netns::enter(topology::CONTAINER)?;
        let sockets = addresses
            .iter()
            .map(bind)
            .collect::<Result<Vec<UdpSocket>>>()?;
        let _receiver_gone = ready.send(());

        // One byte more than expected: a datagram that has grown does not look good.
        let mut buffers = vec![vec![0; bytes + 1]; BATCH];
        let mut headers = MultiHeaders::<()>::preallocate(BATCH, None);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let mut ready: Vec<PollFd<'_>> = sockets
                .iter()
                .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
                .collect();
            if poll(&mut ready, POLL_MS)? == 0 {
                continue;
            }
            let readable: Vec<bool> = ready
                .iter()
                .map(|entry| entry.any().unwrap_or(false))
                .collect();
            for (socket, _) in sockets
                .iter()
                .zip(readable)
                .filter(|(_, readable)| *readable)
            {
                self.take(socket, &mut headers, &mut buffers)?;
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        socket: &UdpSocket,
        headers: &mut MultiHeaders<()>,
        buffers: &mut [Vec<u8>],
    ) -> Result<()> {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = buffers
            .iter_mut()
            .map(|buffer| [IoSliceMut::new(buffer)])
            .collect();
        let fd = socket.as_raw_fd();
        let messages = match recvmmsg(fd, headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)
        {
            Ok(messages) => messages,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(error) => return Err(error).context("cannot receive"),
        };
        let now = now_ns();
        if self.shared.marked.swap(false, Ordering::Relaxed) {
            (
                self.received.longest_stall_ns,
                self.received.longest_wait_ns,
            ) = (0, 0);
            self.previous_ns = None;
        }
        if let Some(previous) = self.previous_ns {
            let stall = now.saturating_sub(previous);
            self.received.longest_stall_ns = self.received.longest_stall_ns.max(stall);
        }
        self.previous_ns = Some(now);
        let mut taken = 0;
        for message in messages {
            taken += 1;
            match message.iovs().next().and_then(datagram::decode) {
                Some(head) => self.received.record(head, now),
                None => self.received.corrupt += 1,
            }
        }
        self.shared.last_arrival_ns.store(now, Ordering::Relaxed);
        self.shared.arrivals.fetch_add(taken, Ordering::Relaxed);
        Ok(())
    }
}

impl Received {
    pub(crate) fn outcome(&self, sent: u64) -> Outcome {
        let sum = |count: fn(&Ledger) -> u64| self.flows.iter().map(count).sum();
        let delivered = sum(Ledger::delivered);
        Outcome {
            sent,
            delivered,
            lost: sent.saturating_sub(delivered),
            reordered: sum(Ledger::reordered),
            duplicate: sum(Ledger::duplicate),
            corrupt: self.corrupt,
            longest_stall_us: self.longest_stall_ns / 1000,
            longest_wait_us: self.longest_wait_ns / 1000,
            ..Outcome::default()
        }
    }

    fn record(&mut self, head: Head, now_ns: u64) {
        // A flow that is not sent is corruption, even with a good checksum.
        let Some(ledger) = self.flows.get_mut(usize::from(head.flow)) else {
            self.corrupt += 1;
            return;
        };
        ledger.record(head.sequence);
        if let Some(sent_ns) = head.sent_ns {
            self.longest_wait_ns = self.longest_wait_ns.max(now_ns.saturating_sub(sent_ns));
        }
    }
}

fn bind(address: &SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind to {address}"))?;
    setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BYTES).context("SO_RCVBUFFORCE")?;
    Ok(socket)
}
