// SPDX-License-Identifier: GPL-2.0

//! A fast flow of numbered datagrams, or several in one outer flow, and what their receiver sees of each: which socket got it, from
//! whom, to whom, and the marks in its header.
//!
//! Its sockets have default buffers. The rate leaves room for the times for which an emulated CPU is away.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::datagram::{self, MIN_BYTES};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc::{sockaddr_in, sockaddr_in6};
use nix::poll::{poll, PollFd, PollFlags};
use nix::sys::socket::{
    recvmmsg, setsockopt, sockopt, ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg,
    SockaddrStorage,
};

use super::host::Host;
use crate::datagrams::ledger::Ledger;
use crate::datagrams::run::wait_quiet;
use crate::datagrams::sender::{SendOrder, Sender};
use crate::mflow::Stats;
use crate::topology::Family;
use crate::{command, cpu, flows, mflow, sockopt as more_sockopt, threads};

/// The port at which the container reads an elephant.
pub(super) const PORT: u16 = 5_001;
const BATCH: usize = 64;
const POLL_MS: u16 = 20;
/// One in so many datagrams may find no room in its socket.
const MOST_REFUSED: u64 = 20;
/// How long a flow that is not split may take to send what is wanted.
const STUCK: Duration = Duration::from_secs(60);
/// Ports from here on are the kernel's choice, another one each time.
const FIRST_EPHEMERAL: u16 = 32_768;

/// What a receiver sees of a datagram beside its bytes. All datagrams of a flow that look alike are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Look {
    /// The place of the socket that got it.
    pub(super) socket: usize,
    pub(super) flow: u16,
    pub(super) from: IpAddr,
    /// 0: one that the kernel has chosen.
    pub(super) from_port: u16,
    pub(super) to: Option<SocketAddr>,
    /// DSCP and ECN.
    pub(super) tos: Option<u8>,
    /// TTL or hop limit.
    pub(super) hops: Option<u8>,
}

/// What has come of all flows.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrived {
    pub(super) looks: BTreeMap<Look, u64>,
    flows: Vec<Ledger>,
    corrupt: u64,
    /// Datagrams for which a socket had no room: an emulated CPU is away for longer than a default buffer lasts.
    pub(super) refused: u64,
    sent: u64,
    /// What was added to the module's counters since the flow was split, and how many datagrams were sent meanwhile.
    counters: BTreeMap<String, i64>,
    counted: u64,
}

impl Arrived {
    fn sum(&self, count: fn(&Ledger) -> u64) -> u64 {
        self.flows.iter().map(count).sum()
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns how many datagrams look like this.
    pub(super) fn count(&self, is_it: impl Fn(&Look) -> bool) -> u64 {
        let looks = self.looks.iter().filter(|(look, _)| is_it(look));
        looks.map(|(_, count)| count).sum()
    }

    /// Fails unless every datagram has come once, as it was sent and in order, but for some that found no room.
    pub(super) fn require_whole(&self) -> Result<()> {
        let (delivered, reordered) = (self.sum(Ledger::delivered), self.sum(Ledger::reordered));
        ensure!(
            delivered + self.refused == self.sent
                && self.refused <= self.sent / MOST_REFUSED
                && reordered == 0
                && self.sum(Ledger::duplicate) == 0
                && self.corrupt == 0,
            "of {} datagrams {delivered} arrived, {reordered} out of order, {} twice, {} not as sent; sockets had no room for {}; \
             they look like {:?}; counters: {}",
            self.sent,
            self.sum(Ledger::duplicate),
            self.corrupt,
            self.refused,
            self.looks,
            self.counters()
        );
        Ok(())
    }

    /// Fails unless lanes carried the flow from when it was split to its end: one that stays whole, or is given up, shows nothing.
    pub(super) fn require_split(&self) -> Result<()> {
        let lanes = self.counters.iter().filter(|(name, _)| is_of_lane(name));
        let carried: i64 = lanes.map(|(_, pkts)| pkts).sum();
        ensure!(
            // CAST: some thousand.
            carried as u64 >= self.counted / 2,
            "lanes carried {carried} of {} datagrams: {}",
            self.counted,
            self.counters()
        );
        Ok(())
    }

    /// Fails if the flow was split.
    pub(super) fn require_kept(&self) -> Result<()> {
        let split = self.counters.get("flows_split").copied();
        ensure!(split == Some(0), "the flow was split: {}", self.counters());
        Ok(())
    }

    /// Fails if the merger preferred delivery to order.
    pub(super) fn require_nothing_given_up(&self) -> Result<()> {
        let counts = ["deadline_batches", "overflow_batches", "late_pkts"]
            .map(|name| self.counters.get(name).copied().unwrap_or(0));
        ensure!(
            counts == [0; 3],
            "batches were given up: {}",
            self.counters()
        );
        Ok(())
    }

    pub(super) fn counters(&self) -> String {
        let changed = self.counters.iter().filter(|(_, &added)| added != 0);
        let changed: Vec<_> = changed
            .map(|(name, added)| format!("{name} {added:+}"))
            .collect();
        changed.join(", ")
    }

    /// Fails unless all datagrams look as those of the other run do, in whatever numbers.
    pub(super) fn require_looks_of(&self, other: &Self) -> Result<()> {
        let (own, others): (Vec<_>, Vec<_>) =
            (self.looks.keys().collect(), other.looks.keys().collect());
        ensure!(
            own == others,
            "the receiver sees {:?}, and with enabled 0 it is {others:?}",
            self.looks
        );
        Ok(())
    }
}

/// What is to become of an elephant's flow once `enabled` is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Split,
    /// It stays whole, for this reason of the file `flows`.
    Kept(&'static str),
    /// It may be split or not.
    Either,
}

/// What an elephant is.
pub(super) struct Elephant {
    pub(super) from: IpAddr,
    /// One flow for each.
    pub(super) to: Vec<SocketAddr>,
    pub(super) sockets: Vec<UdpSocket>,
    pub(super) pps: f64,
    pub(super) fate: Fate,
}

impl Elephant {
    /// Returns one that goes to the container's own address and port.
    pub(super) fn plain(host: &Host, inner: Family) -> Result<Self> {
        let to = SocketAddr::from((inner.container(), PORT));
        let socket = crate::netns::within(crate::topology::CONTAINER, || {
            let any = SocketAddr::from((unspecified(inner), PORT));
            seeing(UdpSocket::bind(any)?)
        })?;
        Ok(Self {
            from: inner.client(),
            to: vec![to],
            sockets: vec![socket],
            pps: host.elephant_pps,
            fate: Fate::Split,
        })
    }

    /// Sends until `count` datagrams have been sent since the outer flow was split, if flows are split at all, and `during` has
    /// returned.
    pub(super) fn run<T>(
        self,
        count: u64,
        during: impl FnOnce(&Live) -> Result<T>,
    ) -> Result<(Arrived, T)> {
        let split_before = mflow::flows_split()?;
        let fate = is_enabled()?.then_some(self.fate);
        let receiver = Receiver::start(self.sockets, self.to.len());
        let sender = Sender::start(SendOrder {
            from: self.from,
            to: self.to,
            bytes: MIN_BYTES,
            rate: Some(self.pps),
        });
        let live = Live { sender, receiver };
        let seen = live.sent_for(split_before, fate, count, during);
        // Also after a failure: no thread may outlive the run.
        live.sender.stop_at(0);
        let sent = live.sender.join().map(|sent| sent.iter().sum());
        let all = sent.as_ref().map_or(0, |sent| *sent);
        wait_quiet(|| live.receiver.arrivals(), all);
        let arrived = live.receiver.stop();
        let (mark, seen) = seen?;
        Ok((
            Arrived {
                sent: sent?,
                counters: mflow::added_since(mark.stats.as_ref())?,
                counted: all - mark.sent,
                ..arrived?
            },
            seen,
        ))
    }
}

pub(super) fn is_enabled() -> Result<bool> {
    Ok(mflow::loaded() && mflow::read("enabled")?.trim() == "1")
}

pub(super) fn unspecified(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([0; 4]),
        Family::V6 => IpAddr::from([0; 16]),
    }
}

/// Has a socket tell what [`Look`] has.
pub(super) fn seeing(socket: UdpSocket) -> Result<UdpSocket> {
    if socket.local_addr()?.is_ipv4() {
        setsockopt(&socket, sockopt::IpRecvTos, &true)?;
        setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
        setsockopt(&socket, sockopt::Ipv4OrigDstAddr, &true)?;
    } else {
        setsockopt(&socket, sockopt::Ipv6RecvTClass, &true)?;
        setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
        setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true)?;
    }
    Ok(socket)
}

fn is_of_lane(counter: &str) -> bool {
    counter.starts_with("lane_cpu") && counter.ends_with("_pkts")
}

/// What had been sent, and counted, when the flow was split.
struct Mark {
    sent: u64,
    stats: Option<Stats>,
}

/// One that runs.
pub(super) struct Live {
    sender: Sender,
    receiver: Receiver,
}

impl Live {
    fn sent_for<T>(
        &self,
        split_before: u64,
        fate: Option<Fate>,
        count: u64,
        during: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<(Mark, T)> {
        command::wait_until("datagrams are sent", || Ok(self.sender.sent() > 0))?;
        match fate {
            // A flow that stays whole would show nothing.
            Some(Fate::Split) => mflow::wait_split_since(split_before, 1)?,
            Some(Fate::Kept(reason)) => command::wait_until("the flow is said to be whole", || {
                flows::any(&[("state", "whole"), ("reason", reason)])
            })
            .with_context(|| mflow::read("flows").unwrap_or_default())?,
            Some(Fate::Either) | None => {}
        }
        let mark = Mark {
            sent: self.sender.sent(),
            stats: Stats::read_if_loaded()?,
        };
        let seen = during(self)?;
        self.until_sent(mark.sent + count)?;
        Ok((mark, seen))
    }

    /// Sends so many more.
    pub(super) fn send_more(&self, count: u64) -> Result<()> {
        self.until_sent(self.sender.sent() + count)
    }

    fn until_sent(&self, wanted: u64) -> Result<()> {
        threads::until_ok(STUCK, || {
            let sent = self.sender.sent();
            ensure!(!self.sender.ended(), "the sender ended");
            ensure!(sent >= wanted, "only {sent} of {wanted} datagrams are sent");
            Ok(())
        })
    }

    /// Returns how all datagrams look that have come so far.
    pub(super) fn looks(&self) -> BTreeMap<Look, u64> {
        self.receiver.shared.arrived().looks.clone()
    }
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    arrivals: AtomicU64,
    arrived: Mutex<Arrived>,
}

impl Shared {
    fn arrived(&self) -> std::sync::MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Receiver {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<()>>,
}

impl Receiver {
    fn start(sockets: Vec<UdpSocket>, flows: usize) -> Self {
        let shared = Arc::new(Shared::default());
        shared.arrived().flows = vec![Ledger::default(); flows];
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || read(&sockets, &shared)
        });
        Self { shared, thread }
    }

    fn arrivals(&self) -> u64 {
        self.shared.arrivals.load(Ordering::Relaxed)
    }

    fn stop(self) -> Result<Arrived> {
        self.shared.stop.store(true, Ordering::Relaxed);
        threads::result(self.thread.join())?;
        let arrived = self.shared.arrived().clone();
        Ok(arrived)
    }
}

fn read(sockets: &[UdpSocket], shared: &Shared) -> Result<()> {
    cpu::pin(cpu::READER)?;
    let mut buffers = vec![vec![0; MIN_BYTES]; BATCH];
    let space = cmsg_space!(u8, i32, i32, sockaddr_in, sockaddr_in6);
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, Some(space));
    while !shared.stop.load(Ordering::Relaxed) {
        let entries = sockets.iter();
        let mut ready: Vec<_> = entries
            .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
            .collect();
        if poll(&mut ready, POLL_MS)? == 0 {
            continue;
        }
        for (place, socket) in sockets.iter().enumerate() {
            take(place, socket, &mut headers, &mut buffers, shared)?;
        }
    }
    for socket in sockets {
        shared.arrived().refused += u64::from(more_sockopt::receive_memory(socket)?.drops);
    }
    Ok(())
}

fn take(
    place: usize,
    socket: &UdpSocket,
    headers: &mut MultiHeaders<SockaddrStorage>,
    buffers: &mut [Vec<u8>],
    shared: &Shared,
) -> Result<()> {
    let slices = buffers.iter_mut();
    let mut slices: Vec<_> = slices.map(|buffer| [IoSliceMut::new(buffer)]).collect();
    let dont_wait = MsgFlags::MSG_DONTWAIT;
    let messages = match recvmmsg(
        socket.as_raw_fd(),
        headers,
        slices.iter_mut(),
        dont_wait,
        None,
    ) {
        Ok(messages) => messages,
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
        Err(error) => return Err(error).context("cannot receive"),
    };
    let mut arrived = shared.arrived();
    for message in messages {
        let is_whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
        let bytes = message.iovs().next().filter(|_| is_whole);
        let head = bytes.and_then(datagram::decode);
        let head = head.filter(|head| usize::from(head.flow) < arrived.flows.len());
        match head {
            Some(head) => {
                arrived.flows[usize::from(head.flow)].record(head.sequence);
                let look = look(place, head.flow, &message)?;
                *arrived.looks.entry(look).or_default() += 1;
            }
            None => arrived.corrupt += 1,
        }
        shared.arrivals.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn look(socket: usize, flow: u16, message: &RecvMsg<'_, '_, SockaddrStorage>) -> Result<Look> {
    let from = message.address.as_ref().and_then(address);
    let from = from.context("a datagram has no sender")?;
    let mut look = Look {
        socket,
        flow,
        from: from.ip(),
        from_port: Some(from.port())
            .filter(|&port| port < FIRST_EPHEMERAL)
            .unwrap_or(0),
        to: None,
        tos: None,
        hops: None,
    };
    for control in message.cmsgs()? {
        // CAST: the kernel's numbers are bytes of the header.
        match control {
            ControlMessageOwned::Ipv4Tos(tos) => look.tos = Some(tos),
            ControlMessageOwned::Ipv6TClass(class) => look.tos = Some(class as u8),
            ControlMessageOwned::Ipv4Ttl(ttl) => look.hops = Some(ttl as u8),
            ControlMessageOwned::Ipv6HopLimit(limit) => look.hops = Some(limit as u8),
            ControlMessageOwned::Ipv4OrigDstAddr(to) => {
                look.to = Some(
                    std::net::SocketAddrV4::from(nix::sys::socket::SockaddrIn::from(to)).into(),
                );
            }
            ControlMessageOwned::Ipv6OrigDstAddr(to) => {
                look.to = Some(
                    std::net::SocketAddrV6::from(nix::sys::socket::SockaddrIn6::from(to)).into(),
                );
            }
            _ => {}
        }
    }
    Ok(look)
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage
        .as_sockaddr_in()
        .map(|v4| std::net::SocketAddrV4::from(*v4).into());
    v4.or_else(|| {
        storage
            .as_sockaddr_in6()
            .map(|v6| std::net::SocketAddrV6::from(*v6).into())
    })
}
