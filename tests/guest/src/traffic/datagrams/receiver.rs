// SPDX-License-Identifier: GPL-2.0

//! The receiving application in the container: one thread that reads every socket and records what arrives.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{ensure, Context as _, Result};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags};
use nix::sys::socket::{
    getsockopt, recvmmsg, setsockopt, sockopt, ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg,
};
use nix::sys::time::TimeSpec;
use nix::time::{clock_gettime, ClockId};
use nix::unistd::{gettid, Pid};

use crate::machine::clock::now_ns;
use crate::machine::{cpu, threads};
use crate::network::{netns, topology};
use crate::traffic::datagrams::ledger::Ledger;
use crate::traffic::datagrams::{aggregate, disguise};
use crate::traffic::outcome::Outcome;
use crate::traffic::scale::MOST_JOINED_PKTS;
use mflow_protocol::datagram::{self, Head};

const BATCH: usize = 64;
/// Gaps that a message names.
const GAPS: usize = 8;
/// The interval at which the reader looks whether it shall stop.
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
    stamps: Stamps,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    marked: AtomicBool,
    arrivals: AtomicU64,
    /// Arrivals that were not corrupt.
    good: AtomicU64,
    last_arrival_ns: AtomicU64,
    /// The thread that reads, once it runs; 0 before.
    thread: AtomicI32,
}

pub(crate) struct Receiver {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Received>>,
}

impl Receiver {
    /// Starts to receive `flows` flows of datagrams of `bytes` at `addresses` of the container; returns when the sockets are
    /// bound.
    pub(crate) fn start(addresses: &[SocketAddr], flows: u16, bytes: usize) -> Result<Self> {
        let sockets = netns::within(topology::CONTAINER, || {
            addresses.iter().map(bind).collect::<Result<_>>()
        })?;
        Ok(Self::of(sockets, flows, bytes))
    }

    /// Does the same with sockets of the caller's. Where one of them asks for time stamps of arrival, what they are like is counted. One of
    /// them may take many datagrams as one (`UDP_GRO`).
    pub(crate) fn of(sockets: Vec<UdpSocket>, flows: u16, bytes: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let mut reader = Reader {
                    received: Received {
                        flows: vec![Ledger::default(); usize::from(flows)],
                        ..Received::default()
                    },
                    shared: &shared,
                    previous_ns: None,
                };
                reader.run(&sockets, bytes)?;
                Ok(reader.received)
            }
        });
        Self { shared, thread }
    }

    /// Moves the reader to another CPU; it must have received something before.
    pub(crate) fn move_to(&self, cpu: usize) -> Result<()> {
        let thread = self.shared.thread.load(Ordering::Relaxed);
        ensure!(thread != 0, "the reader does not run yet");
        cpu::pin_thread(Pid::from_raw(thread), cpu)
    }

    /// Begins a new measurement of the longest stall and wait.
    pub(crate) fn mark(&self) {
        self.shared.marked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn arrivals(&self) -> u64 {
        self.shared.arrivals.load(Ordering::Relaxed)
    }

    /// Returns how many of the arrivals were not corrupt.
    pub(crate) fn good(&self) -> u64 {
        self.shared.good.load(Ordering::Relaxed)
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
    fn run(&mut self, sockets: &[UdpSocket], bytes: usize) -> Result<()> {
        cpu::pin(cpu::READER)?;
        self.shared
            .thread
            .store(gettid().as_raw(), Ordering::Relaxed);
        let mut takes_aggregates = false;
        for socket in sockets {
            takes_aggregates |= getsockopt(socket, sockopt::UdpGroSegment)?;
        }
        let room = if takes_aggregates {
            aggregate::MOST_BYTES
        } else {
            bytes
        };
        let mut buffers = vec![vec![0; room]; BATCH];
        let headers = || MultiHeaders::preallocate(BATCH, Some(cmsg_space!(TimeSpec, i32)));
        let mut kept = headers();
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
                // Headers have room for no more control data than the last messages had, and not each message has some then.
                if takes_aggregates {
                    kept = headers();
                }
                self.take(socket, &mut kept, &mut buffers)?;
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
        let stamped = getsockopt(socket, sockopt::ReceiveTimestampns)?;
        let fd = socket.as_raw_fd();
        let messages = match recvmmsg(fd, headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)
        {
            Ok(messages) => messages,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(error) => return Err(error).context("cannot receive"),
        };
        let (now, clock) = (now_ns(), clock_gettime(ClockId::CLOCK_REALTIME)?);
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
        let (mut taken, corrupt) = (0_u64, self.received.corrupt);
        for message in messages {
            if stamped {
                self.received.stamps.take(&message, clock)?;
            }
            // A datagram that has grown does not look good.
            let is_whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
            let bytes = message.iovs().next().filter(|_| is_whole);
            let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
                taken += 1;
                self.received.corrupt += 1;
                continue;
            };
            let datagram_bytes = aggregate::datagram_bytes(&message)?;
            for (place, bytes) in aggregate::datagrams(bytes, datagram_bytes).enumerate() {
                taken += 1;
                self.received.corrupt += u64::from(place as u64 >= MOST_JOINED_PKTS);
                match datagram::decode(bytes).or_else(|| disguise::decode(bytes)) {
                    Some(head) => self.received.record(head, now),
                    None => self.received.corrupt += 1,
                }
            }
        }
        self.shared.last_arrival_ns.store(now, Ordering::Relaxed);
        let good = taken.saturating_sub(self.received.corrupt - corrupt);
        self.shared.good.fetch_add(good, Ordering::Relaxed);
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
            gaps: self.gaps(),
            reordered: sum(Ledger::reordered),
            duplicate: sum(Ledger::duplicate),
            corrupt: self.corrupt,
            longest_stall_us: self.longest_stall_ns / 1000,
            longest_wait_us: self.longest_wait_ns / 1000,
            stamps_back: self.stamps.back,
            stamps_ahead: self.stamps.ahead,
            ..Outcome::default()
        }
    }

    fn gaps(&self) -> Vec<(usize, Range<u64>)> {
        let flows = self.flows.iter().enumerate();
        let gaps = flows.flat_map(|(flow, ledger)| {
            let gaps = ledger.gaps(GAPS).into_iter();
            gaps.map(move |gap| (flow, gap))
        });
        gaps.take(GAPS).collect()
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

/// The time stamps of what one socket has received.
#[derive(Clone, Debug, Default)]
struct Stamps {
    latest: Option<TimeSpec>,
    back: u64,
    ahead: u64,
}

impl Stamps {
    fn take(&mut self, message: &RecvMsg<'_, '_, ()>, clock: TimeSpec) -> Result<()> {
        let stamp = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
            _ => None,
        });
        self.note(stamp.context("a datagram has no time stamp")?, clock);
        Ok(())
    }

    fn note(&mut self, stamp: TimeSpec, clock: TimeSpec) {
        self.ahead += u64::from(stamp > clock);
        match self.latest {
            Some(latest) if stamp < latest => self.back += 1,
            _ => self.latest = Some(stamp),
        }
    }
}

/// Returns a socket bound in this thread's namespace, with room for what the reader has not taken yet.
pub(crate) fn bind(address: &SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind to {address}"))?;
    make_room(&socket)?;
    Ok(socket)
}

pub(crate) fn make_room(socket: &UdpSocket) -> Result<()> {
    setsockopt(socket, sockopt::RcvBufForce, &SOCKET_BYTES).context("SO_RCVBUFFORCE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamps_that_go_backwards_or_are_still_to_come_are_found() {
        let mut stamps = Stamps::default();
        let clock = TimeSpec::new(2, 0);
        for (seconds, ns) in [(1, 5), (1, 5), (1, 9), (2, 0)] {
            stamps.note(TimeSpec::new(seconds, ns), clock);
        }
        assert_eq!((stamps.back, stamps.ahead), (0, 0));
        stamps.note(TimeSpec::new(1, 999_999_999), clock);
        assert_eq!((stamps.back, stamps.ahead), (1, 0));
        stamps.note(TimeSpec::new(2, 1), clock);
        assert_eq!((stamps.back, stamps.ahead), (1, 1));
    }
}
